"""What a run's provenance tells of the ingestions that it rests on, and what must be said of them beside its results.

A bundle from elsewhere may hold anything in its provenance: what isn't of the shape that a run writes is passed over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from opbench.sharing.visible import one_line

#: Users that a sentence names.
_NAMED = 3
_LONGEST = 1000


class _Row(BaseModel):
    """A memory system and user, as `opbench.running.ingestion.summary` writes it."""

    model_config = ConfigDict(extra="ignore", strict=True)

    system: str
    label: str
    user: str
    note: str = ""
    state: str = ""
    error: str | None = None
    sessions: int = Field(0, ge=0)
    planned: int = Field(0, ge=0)
    memories: int = Field(0, ge=0)
    extractions: int = Field(0, ge=0)
    empty: int = Field(0, ge=0)
    calls: int | None = None
    reused: int | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cost_usd: float | None = None
    seconds: float | None = None
    store_bytes: int | None = None
    digest: str = ""
    identity: dict[str, str] = Field(default_factory=dict)


#: Columns of `ingested`, in their order.
COLUMNS = tuple(name for name in _Row.model_fields if name != "identity")


def ingested(provenance: Mapping[str, Any]) -> pd.DataFrame:
    """One row a memory system and user of the run, with COLUMNS; empty for a run without ingestions."""
    rows = [row.model_dump(exclude={"identity"}) for row in _rows(provenance)]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def settings(provenance: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """The versions and settings of each memory system of the run, by its label."""
    return {row.label: row.identity for row in _rows(provenance)}


def memory_notes(provenance: Mapping[str, Any]) -> list[str]:
    """What must be said of the run's memory systems beside its results, a sentence each."""
    notes = {row.label: row.note for row in _rows(provenance) if row.note}
    return [one_line(f"{label}: {note}", _LONGEST).rstrip(".") + "." for label, note in notes.items()]


def thin_memories(provenance: Mapping[str, Any], k: int) -> list[str]:
    """Memory systems that hold nothing of some users, or less than the k memories that a query retrieves: a sentence a
    system. What such a column shows is no finding about the memory system."""
    said = []
    by_system: dict[str, list[_Row]] = {}
    for row in _rows(provenance):
        if row.state == "complete" and row.planned:
            by_system.setdefault(row.label, []).append(row)
    for label, rows in by_system.items():
        none = [row for row in rows if not row.memories]
        few = [row for row in rows if 0 < row.memories < k]
        if none:
            said.append(
                f"{label} holds no memory of {_users(none, rows)}: {_why(none)} A record for which nothing is "
                "retrieved is that of BASE, and no finding about the memory system."
            )
        if few:
            most = max(row.memories for row in few)
            said.append(
                f"{label} holds {'1 memory' if most == 1 else f'{most} memories or fewer'} of {_users(few, rows)}, "
                f"less than the {k} that a query retrieves: {_why(few)} Its results there tell little about it."
            )
    return [one_line(sentence, _LONGEST) for sentence in said]


def _users(some: list[_Row], all_of_them: list[_Row]) -> str:
    names = ", ".join(row.user for row in some[:_NAMED]) + (", …" if len(some) > _NAMED else "")
    return f"{len(some)} of {len(all_of_them)} users ({names})" if len(all_of_them) > 1 else names


def _why(rows: list[_Row]) -> str:
    extractions, empty = sum(row.extractions for row in rows), sum(row.empty for row in rows)
    if not extractions:
        return "its sessions gave nothing to extract."
    return f"{empty} of {extractions} extractions gave nothing."


def _rows(provenance: Mapping[str, Any]) -> list[_Row]:
    told = provenance.get("ingestion")
    rows = []
    for each in told if isinstance(told, list) else []:
        try:
            rows.append(_Row.model_validate(each))
        except ValidationError:
            continue
    return rows
