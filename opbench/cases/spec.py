"""What a live case asks: a question, a user, and the columns that answer it. The JSON form of a saved case."""

from __future__ import annotations

import hashlib
import json
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from opbench.study import BASE, NO_MITIGATION

MOST_COLUMNS = 12
MOST_MEMORIES = 100
LONGEST_TEXT = 20_000


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Given(_Frozen):
    """A memory as somebody wrote it, in the place of a retrieved one."""

    text: str = Field(min_length=1, max_length=LONGEST_TEXT)
    date: str | None = Field(None, max_length=100)
    """As prose, e.g. `9 May 2024`."""
    score: float | None = None
    """The similarity that a memory had when it was retrieved; None for one that was written."""


class Draft(_Frozen):
    """A post-processor that is a prompt: instructions for one call that filters memories (`mitigations.PromptOnly`).

    `name` as in a registry: small letters, digits, hyphens.
    """

    name: str = Field(pattern=r"^[a-z][a-z0-9-]{1,39}$")
    label: str = Field(min_length=1, max_length=60)
    instructions: str = Field(min_length=1, max_length=LONGEST_TEXT)
    family: Literal["filter", "compression"] = "filter"
    max_tokens: int = Field(512, ge=1, le=8_192)


class Column(_Frozen):
    """One way to answer. What is None is as the case says."""

    model: str
    memory: str = BASE
    mitigation: str = NO_MITIGATION
    draft: Draft | None = None
    """In the place of `mitigation`, which is then the draft's name."""
    prompts: dict[str, str] = Field(default_factory=dict)
    """Sections of the post-processor's prompt that are worded otherwise here, by name (`system`, `closing`, …)."""
    k: int | None = Field(None, ge=1, le=100)
    temperature: float | None = Field(None, ge=0.0, le=2.0)
    given: tuple[Given, ...] | None = Field(None, max_length=MOST_MEMORIES)
    """These memories in the place of a retrieval; empty is an empty retrieval."""
    without: tuple[int, ...] = ()
    """1-based numbers of memories that are left out, in rank order of what was retrieved or given."""
    repeat: int = Field(0, ge=0)
    """Number of the repetition: another draw of the response where the temperature isn't 0."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.memory == BASE and (
            self.mitigation != NO_MITIGATION or self.draft or self.prompts or self.given is not None or self.without
        ):
            raise ValueError("BASE answers without memories: it takes no post-processor and no memories")
        if self.draft is not None and self.mitigation != self.draft.name:
            raise ValueError("a column with a draft has the draft's name as its mitigation")
        return self

    @property
    def edited(self) -> bool:
        """Whether it differs from the configuration of that name as a study would run it."""
        own = {"draft", "prompts", "k", "temperature", "given", "without", "repeat"}
        return bool(own & self.model_dump(exclude_defaults=True).keys())


class CaseSpec(_Frozen):
    """A case: all that must be known to ask it again."""

    question: str = Field(min_length=1, max_length=LONGEST_TEXT)
    user: str
    """User id, e.g. `conv-26/Caroline`."""
    instance: str | None = None
    """Id of the benchmark instance that is asked; None for a free question."""
    published: str | None = None
    """Id of the published case that it began as (`opbench.benchmarks.cases`)."""
    data: Literal["auto", "sample"] = "auto"
    columns: tuple[Column, ...] = Field(min_length=1, max_length=MOST_COLUMNS)
    k: int = Field(5, ge=1, le=100)
    temperature: float = Field(0.0, ge=0.0, le=2.0)
    max_tokens: int = Field(512, ge=1, le=32_768)
    judge: str = "offline"
    judge_pack: Literal["auto", "own", "official"] = "auto"
    embedder: str = "minilm"
    extractor: str | None = None
    """Registry name of the model that memory systems extract with; None: each column's own model, as in a study of that
    model alone."""
    subtype: str = "fully-irrelevant"
    """What the answer is judged as: one of OP_SUBTYPES, or for a LoCoMo instance its category. For a free question
    somebody chooses it."""

    @model_validator(mode="after")
    def _has_base(self) -> Self:
        for model in {column.model for column in self.columns}:
            if not any(column.model == model and column.memory == BASE for column in self.columns):
                raise ValueError(f"BASE of {model} is missing: it is always one of the columns")
        return self

    @property
    def digest(self) -> str:
        """First 12 hex digits of the SHA-256 of its canonical JSON."""
        canonical = json.dumps(self.model_dump(mode="json"), sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()[:12]
