"""Saved cases and case books as they are read back, and as they are put into the store: without keys, as plain JSON."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, JsonValue, SecretStr, ValidationError, model_validator

from opbench.cases.outcome import Ablation, Outcome
from opbench.cases.spec import CaseSpec
from opbench.errors import UsageError
from opbench.models.failures import storable
from opbench.models.registry import load_registry
from opbench.study import BASE, NO_MITIGATION

NOT_COMPARABLE = "not comparable with the paper"
#: Names of environment variables that hold what nobody else may see.
_SECRET_NAME = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD)S?$", re.IGNORECASE)
#: A shorter value isn't a key that anybody could lose, and would be found in ordinary words.
_SHORTEST_SECRET = 8


class SavedCase(BaseModel):
    """A case as it was when somebody saved it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    """Random hexadecimal digits."""
    name: str
    note: str
    spec: CaseSpec
    outcomes: tuple[Outcome, ...]
    """One for each of `spec.columns`, in their order."""
    ablations: tuple[Ablation, ...]
    provenance: dict[str, JsonValue]
    """Data, prompts, models and versions that made it (`Session.provenance`)."""
    maker: str
    """Who saved it, as a name."""
    made_at: float
    """When it was saved, Unix seconds."""

    @model_validator(mode="after")
    def _belongs_together(self) -> SavedCase:
        if len(self.outcomes) != len(self.spec.columns):
            raise ValueError(f"{len(self.outcomes)} outcomes for {len(self.spec.columns)} columns")
        for ablation in self.ablations:
            if not 0 <= ablation.column < len(self.spec.columns):
                raise ValueError(f"a leave-one-out of column {ablation.column}, and there is no such column")
        return self

    @property
    def comparable(self) -> bool:
        """Whether its judge's scores may stand beside the paper's."""
        return bool(self.provenance.get("comparable", False))

    @property
    def marks(self) -> tuple[str, ...]:
        """What must be said of the case wherever it is shown."""
        marks = [] if self.comparable else [NOT_COMPARABLE]
        if self.spec.published is not None:
            marks.append("invented case" if self.spec.data == "sample" else "published case")
        if any(column.edited for column in self.spec.columns):
            marks.append("edited")
        if self.spec.data == "sample" or self.provenance.get("data_source") == "sample":
            marks.append("bundled sample")
        return tuple(marks)


@dataclass(frozen=True, slots=True)
class CaseRow:
    """A saved case in a list. With `damage`, a sentence, it can't be read, and the other facts of it are empty."""

    id: str
    name: str
    note: str
    maker: str
    made_at: float
    """Unix seconds."""
    question: str = ""
    user: str = ""
    instance: str | None = None
    published: str | None = None
    columns: tuple[str, ...] = ()
    """Labels, e.g. `smollm2-135m · rag · reminder`, in the case's order."""
    scores: tuple[float | None, ...] = ()
    """0 to 1, one a column; None where it is missing."""
    left_one_out: int = 0
    """Leave-one-outs that came with it."""
    marks: tuple[str, ...] = ()
    damage: str | None = None


@dataclass(frozen=True, slots=True)
class BookRow:
    """A case book in a list. `cases` are ids in order; `gone` counts those that were deleted since."""

    id: str
    name: str
    note: str
    maker: str
    made_at: float
    """Unix seconds."""
    cases: tuple[str, ...] = ()
    gone: int = 0
    damage: str | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """A case's place in a book. Without a case, `problem` says in a sentence why: deleted since, or damaged."""

    id: str
    case: SavedCase | None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Book:
    """A case book with its cases, in order."""

    id: str
    name: str
    note: str
    maker: str
    made_at: float
    """Unix seconds."""
    entries: tuple[Entry, ...]

    @property
    def cases(self) -> tuple[SavedCase, ...]:
        """Those that are there and can be read."""
        return tuple(entry.case for entry in self.entries if entry.case is not None)


def column_label(spec: CaseSpec, number: int) -> str:
    """`smollm2-135m · rag · reminder` for column `number` (from 0), and what is edited in it, as words."""
    column = spec.columns[number]
    parts = [column.model, column.memory]
    if column.memory != BASE and column.mitigation != NO_MITIGATION:
        parts.append(column.mitigation)
    return " · ".join(parts) + "".join(f", {edit}" for edit in edits(spec, number))


def edits(spec: CaseSpec, number: int) -> tuple[str, ...]:
    """What differs in column `number` (from 0) from its configuration in a study, each in a few words."""
    column = spec.columns[number]
    said = []
    if column.draft is not None:
        said.append("a draft")
    said += [f"own wording of {section}" for section in column.prompts]
    if column.k is not None:
        said.append(f"k {column.k}")
    if column.temperature is not None:
        said.append(f"temperature {column.temperature:g}")
    if column.given is not None:
        said.append(f"{len(column.given)} given memories" if len(column.given) != 1 else "1 given memory")
    if column.without:
        said.append(f"without {', '.join(map(str, column.without))}")
    if column.repeat:
        said.append(f"draw {column.repeat + 1}")
    return tuple(said)


def to_keep(
    spec: CaseSpec,
    outcomes: Sequence[Outcome],
    ablations: Sequence[Ablation],
    provenance: Mapping[str, Any],
    keys: Mapping[str, SecretStr],
) -> dict[str, Any]:
    """The four as JSON values that any database keeps: no NUL, no half of a pair, no NaN, and no key.

    `keys` are the session's, by environment variable; those of the environment are known. Of a leave-one-out that is
    still at work, the parts that are over are kept.
    """
    finished = [
        ablation.model_copy(update={"items": tuple(item for item in ablation.items if item.outcome.over)})
        for ablation in ablations
    ]
    values = {
        "spec": spec.model_dump(mode="json"),
        "outcomes": [outcome.model_dump(mode="json") for outcome in outcomes],
        "ablations": [ablation.model_dump(mode="json") for ablation in finished],
        "provenance": dict(provenance),
    }
    kept: dict[str, Any] = _clean(values, key_free(keys))
    return kept


def key_free(keys: Mapping[str, SecretStr]) -> Callable[[str], str]:
    """What takes every key out of a text: those in this process's environment, and `keys`."""
    try:
        registry = load_registry()
        named = {spec.key_env for spec in (*registry.models.values(), *registry.embedders.values())}
    except UsageError:
        named = set()
    found = {value for name, value in os.environ.items() if name in named or _SECRET_NAME.search(name)}
    found |= {key.get_secret_value() for key in keys.values()}
    # A key that holds another one goes first.
    secrets = sorted((each for each in found if len(each) >= _SHORTEST_SECRET), key=len, reverse=True)

    def clear(text: str) -> str:
        for secret in secrets:
            text = text.replace(secret, "[key]")
        return storable(text)

    return clear


def _clean(value: Any, clear: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return clear(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {clear(str(key)): _clean(each, clear) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(each, clear) for each in value]
    return value


def wrong_place(error: ValidationError) -> str:
    """The first fault of a case's JSON in a few words: where, and what."""
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"]) or "its JSON"
    return f"{place}: {first['msg'].removeprefix('Value error, ')}"
