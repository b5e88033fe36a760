"""A study: configurations × benchmarks × slice, with judge, embedder, decoding and prompt versions."""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from opbench.errors import UsageError
from opbench.types import LOCOMO_CATEGORIES, OP_SUBTYPES, Benchmark

BASE = "base"
NO_MITIGATION = "none"
_LATER_FIELDS = ("exclude", "protocol")
_DATA = re.compile(r"auto|sample|build:[0-9a-z]{1,32}:[0-9a-f]{12}")


@dataclass(frozen=True, slots=True, order=True)
class Configuration:
    """model × memory system × post-processor. BASE is the oracle and takes no post-processor."""

    model: str
    memory: str
    mitigation: str

    @property
    def label(self) -> str:
        return f"{self.model} · {self.memory} · {self.mitigation}"


class Study(BaseModel):
    """What to run. All fields but `name` determine the results and so belong to the study's hash, unless they concern
    nothing of it (`identity`)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = ""
    """For people only; not part of the hash."""
    models: tuple[str, ...] = Field(min_length=1)
    memories: tuple[str, ...] = (BASE, "rag")
    mitigations: tuple[str, ...] = (NO_MITIGATION,)
    benchmarks: tuple[Benchmark, ...] = ("op", "locomo")
    users: tuple[str, ...] = ()
    """User ids such as `conv-26/Caroline`; empty means all."""
    subtypes: tuple[str, ...] = ()
    """OP-Bench subtypes and LoCoMo categories; empty means all."""
    limit: int | None = Field(None, ge=1)
    """Instances per benchmark, spread evenly over users and subtypes by `seed`; None means all."""
    seed: int = 0
    adversarial: bool = False
    """Whether LoCoMo's category 5 is asked; the usual protocol leaves it out."""
    exclude: tuple[str, ...] = ()
    """Exclusion lists by name (`opbench data exclusions`); what is on them is out before a limit takes its part."""
    k: int = Field(5, ge=1, le=100)
    """Memories retrieved per query (paper, B.4: 5)."""
    temperature: float = Field(0.0, ge=0.0, le=2.0)
    max_tokens: int = Field(512, ge=1)
    """Longest response (paper, B.4: 512)."""
    judge: str = "offline"
    """`offline`, or the registry name of the LLM judge."""
    judge_pack: Literal["auto", "own", "official"] = "auto"
    embedder: str = "minilm"
    """Embedder of RAG and of the repetition score."""
    extractor: str | None = None
    """Registry name of the model that memory systems extract memories with; None: the study's only model. It belongs to
    the hash as part of these systems' identities."""
    protocol: Literal["uniform", "memos"] = "uniform"
    """How LoCoMo is asked and scored. `uniform`: one answer prompt and k memories in all, whatever the memory system.
    `memos`: as MemOS's evaluation does (docs/memory-systems.md), k memories of each speaker. OP-Bench knows one way."""
    data: str = "auto"
    """`sample` takes the bundled sample whatever data there is; `build:<id>:<digest>` the questions of a build
    (`opbench build respond`)."""
    latency_probe: bool = False
    """Concurrency 1 and no reuse, so that latencies are those of an unloaded system (design rule 5)."""

    @field_validator("models", "memories", "mitigations", "benchmarks", "users", "subtypes", "exclude")
    @classmethod
    def _no_repeats(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(value))

    @field_validator("data")
    @classmethod
    def _known_data(cls, value: str) -> str:
        if not _DATA.fullmatch(value):
            raise ValueError(f"'{value}' is none of auto, sample and build:<id>:<digest>")
        return value

    @field_validator("subtypes")
    @classmethod
    def _known_subtypes(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        known = (*OP_SUBTYPES, *LOCOMO_CATEGORIES.values())
        for name in value:
            if name not in known:
                raise ValueError(f"no subtype '{name}'; there are {', '.join(known)}")
        return value

    @model_validator(mode="after")
    def _protocol_asks_four_categories(self) -> Study:
        if self.protocol == "memos" and (self.adversarial or LOCOMO_CATEGORIES[5] in self.subtypes):
            raise ValueError("protocol memos asks LoCoMo's categories 1 to 4 only: leave adversarial out")
        return self

    @model_validator(mode="after")
    def _some_configuration(self) -> Study:
        if not self.benchmarks:
            raise ValueError("name at least one benchmark: op, locomo")
        if not self.configurations():
            raise ValueError(
                "no configuration: BASE takes no post-processor; add the mitigation 'none' or a memory system"
            )
        return self

    def configurations(self) -> list[Configuration]:
        """All configurations in a fixed order: by model, then memory system, then post-processor."""
        return [
            Configuration(model, memory, mitigation)
            for model in self.models
            for memory in self.memories
            for mitigation in self.mitigations
            if memory != BASE or mitigation == NO_MITIGATION
        ]

    def identity(self) -> dict[str, Any]:
        """The fields that belong to the hash, as JSON values; the order in which things were named doesn't count."""
        # A later field at its default isn't part of it: studies from before it came keep their ids.
        out = {name for name in _LATER_FIELDS if getattr(self, name) == Study.model_fields[name].default}
        # The extractor is in the identity of each memory system that has one: to the others it makes no difference.
        out |= {"name", "extractor"}
        if "locomo" not in self.benchmarks:
            out.add("protocol")
        fields = self.model_dump(mode="json", exclude=out)
        return {k: sorted(v) if isinstance(v, list) else v for k, v in fields.items()}


def study_hash(study: Study, provenance: dict[str, Any]) -> str:
    """SHA-256 (hex) over the study and all that determines its results: data, prompts, model and judge identities."""
    canonical = json.dumps({"study": study.identity(), "provenance": provenance}, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def read_study(file: Path) -> Study:
    """A study from a TOML file.

    Raises:
        UsageError: one line with the file, the key and what is wrong with it.
    """
    try:
        raw = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{file}: can't be read ({error.strerror}). Name a study file in TOML.") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{file}: isn't UTF-8 text. Save it as UTF-8.") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{file}: isn't TOML: {error}.") from error
    return make_study(raw, where=str(file))


def make_study(fields: dict[str, Any], where: str = "study") -> Study:
    """A checked study from plain values.

    Raises:
        UsageError: naming `where`, the key and the mend.
    """
    try:
        return Study.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"]) or "study"
        if first["type"] == "extra_forbidden":
            raise UsageError(f"{where}: no key '{key}'. Known keys: {', '.join(Study.model_fields)}.") from None
        raise UsageError(f"{where}: {key}: {first['msg'].removeprefix('Value error, ')}.") from None
