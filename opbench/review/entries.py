"""Answers as they come and go in files: one entry each, in the order in which they were given."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from opbench.errors import UsageError
from opbench.review.spec import ReviewerRole, Said, Side
from opbench.store.reviews import storable


class Entry(BaseModel):
    """One answer, or (without verdict) that it was taken back."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    item: str
    reviewer: str = Field(min_length=1, max_length=200)
    role: ReviewerRole = "reviewer"
    said: Said
    first: Side | None = None
    """Which response stood as A; None: not told, and as the workbench would have shown it."""
    made_at: float | None = Field(None, ge=0.0, le=253_402_300_799.0, allow_inf_nan=False)
    """Unix seconds."""
    entry: str = Field("", max_length=64)
    """What makes the same entry known when it comes again; empty: its contents do."""
    line: int = 0
    """Where in the file it stands."""

    @field_validator("reviewer")
    @classmethod
    def _one_line(cls, value: str) -> str:
        return " ".join(value.split())

    @property
    def mark(self) -> str:
        """`entry`, or a digest of the contents."""
        if self.entry:
            return self.entry
        return digest(self.item, self.reviewer, self.role, self.said.model_dump_json(), repr(self.made_at))


def digest(*parts: str) -> str:
    """64 hex digits of texts in order."""
    return hashlib.sha256("\x1f".join(parts).encode("utf-8", "replace")).hexdigest()


def entry_of(told: Mapping[str, Any], place: str, line: int) -> Entry:
    """An entry from flat values: item, reviewer, role, verdict, base_score, memory_score, comment, flagged, seconds,
    first, made_at, entry.

    Raises:
        UsageError: a value is wrong; begins with `place`.
    """
    said = {name: told[name] for name in Said.model_fields if told.get(name) is not None}
    rest = {name: told[name] for name in ("item", "reviewer", "role", "first", "made_at", "entry") if told.get(name)}
    if isinstance(said.get("comment"), str):
        said["comment"] = storable(said["comment"])
    if isinstance(rest.get("made_at"), str):
        rest["made_at"] = seconds_of(rest["made_at"], place)
    try:
        return Entry(said=Said.model_validate({"verdict": None, **said}), line=line, **rest)
    except ValidationError as error:
        fault = error.errors()[0]
        where = ".".join(str(part) for part in fault["loc"]) or "the entry"
        raise UsageError(f"{place}: {where}: {fault['msg'].removeprefix('Value error, ')}.") from None


def flat(row: Mapping[str, Any], senior: bool) -> dict[str, Any]:
    """The columns of files from a row of `opbench.store.review_answers.entries`."""
    return {
        "item": row["item"],
        "reviewer": row["reviewer"],
        "role": "senior" if senior else "reviewer",
        "verdict": row["verdict"],
        "base_score": row["base_score"],
        "memory_score": row["memory_score"],
        "comment": row["comment"],
        "flagged": row["flagged"],
        "seconds": row["seconds"],
        "first": row["first"],
        "made_at": moment(row["made_at"]),
        "entry": row["press"],
    }


def moment(made_at: float) -> str:
    """Unix seconds in ISO 8601, UTC, to the microsecond."""
    return datetime.fromtimestamp(made_at, UTC).isoformat(timespec="microseconds")


def seconds_of(told: str, place: str) -> float:
    """Unix seconds of a time in ISO 8601 or in Unix seconds; one without zone is UTC.

    Raises:
        UsageError: it is neither.
    """
    try:
        return float(told)
    except ValueError:
        pass
    try:
        found = datetime.fromisoformat(told)
    except ValueError:
        raise UsageError(f"{place}: made_at: '{told[:40]}' is no time: write 2026-05-01T12:00:00+00:00.") from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
