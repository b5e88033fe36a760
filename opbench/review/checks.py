"""Spot checks: items whose verdict is known, mixed in without being told, by which a reviewer's care can be measured.

A few come with the workbench (invented people, evident verdicts); one's own come from JSON Lines with `item` (an id
that looks like the others), `known` (memory, neither, base or both), `subtype`, `user`, `question`, `base`, `memory`,
and where one likes `profile`, `topics` and `memories` (texts).
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from opbench.errors import UsageError
from opbench.review.spec import Content, ShownMemory, Verdict
from opbench.types import OP_SUBTYPES

_BUNDLED = Path(__file__).parent / "spot_checks.jsonl"


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid")

    item: str = Field(min_length=1, max_length=180)
    known: Verdict
    subtype: str
    user: str = Field(min_length=1, max_length=200)
    question: str = Field(min_length=1)
    base: str = Field(min_length=1)
    memory: str = Field(min_length=1)
    profile: str = ""
    topics: tuple[str, ...] = ()
    memories: tuple[str, ...] = ()

    @field_validator("subtype")
    @classmethod
    def _known_subtype(cls, value: str) -> str:
        if value not in OP_SUBTYPES:
            raise ValueError(f"no subtype '{value[:40]}'; there are {', '.join(OP_SUBTYPES)}")
        return value


class Check(BaseModel):
    """A spot check."""

    model_config = ConfigDict(frozen=True)

    item: str
    user: str
    subtype: str
    known: Verdict
    content: Content


@cache
def default_checks() -> tuple[Check, ...]:
    """Those that come with the workbench."""
    return read_checks(_BUNDLED.read_text(encoding="utf-8"), _BUNDLED.name)


def read_checks(text: str, name: str) -> tuple[Check, ...]:
    """Spot checks from JSON Lines; `name` is the file's.

    Raises:
        UsageError: a line that is none; one line with file, line and mend.
    """
    checks: list[Check] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            told = _Line.model_validate(json.loads(line))
        except json.JSONDecodeError as error:
            raise UsageError(f"{name}, line {number}: no JSON ({error.msg}, column {error.colno}).") from None
        except ValidationError as error:
            fault = error.errors()[0]
            where = ".".join(str(part) for part in fault["loc"]) or "the line"
            raise UsageError(f"{name}, line {number}: {where}: {fault['msg']}.") from None
        checks.append(_check(told))
    names = [check.item for check in checks]
    if doubled := next((each for each in names if names.count(each) > 1), None):
        raise UsageError(f"{name}: two spot checks are called '{doubled[:80]}'.")
    if not checks:
        raise UsageError(f"{name}: no spot check in it.")
    return tuple(checks)


def _check(told: _Line) -> Check:
    content = Content(
        question=told.question,
        base=told.base,
        memory=told.memory,
        profile=told.profile,
        topics=told.topics,
        memories=tuple(ShownMemory(text=text, relevant=True) for text in told.memories),
    )
    return Check(item=told.item, user=told.user, subtype=told.subtype, known=told.known, content=content)
