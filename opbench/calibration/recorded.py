"""A run's judgings as a file: written where the run was judged, read beside its bundle.

JSON Lines: a head that names the run, then each judging followed by its judgements. No texts: neither responses nor
what judges replied; each judgement names the SHA-256 of its response, so it counts for that response only. Like a
bundle, the file holds no calls.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import pandas as pd
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from sqlalchemy import select

from opbench.errors import DataError, UsageError
from opbench.store import schema as s
from opbench.store.bundle_import import RECORDED
from opbench.store.database import Store
from opbench.store.frames import CONFIGURATION
from opbench.store.judgings import (
    JudgementRow,
    item_of,
    judging_list,
    read_judgements,
    save_judgements,
    settled,
    start_judging,
)
from opbench.store.rundata import Key

SUFFIX = ".judgings.jsonl"
FORMAT = 1
_NUMBERS = ("value", "prompt_tokens", "completion_tokens", "cost_usd", "duration_ms")


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Head(_Line):
    kind: Literal["judgings"]
    format: int
    run: str = Field(min_length=1, max_length=64)


class _Judging(_Line):
    kind: Literal["judging"]
    judge: str
    label: str
    provenance: dict[str, Any]
    repeats: int = Field(ge=1, le=20)


class _Judgement(_Line):
    kind: Literal["judgement"]
    model: str
    memory: str
    mitigation: str
    instance: str
    repeat: int = Field(ge=0, lt=20)
    response_sha256: str = Field(pattern="^[0-9a-f]{64}$")
    metric: str = Field(max_length=40)
    value: float | None = Field(ge=0.0, le=1.0)
    reason: str | None
    prompt_tokens: int | None = Field(ge=0)
    completion_tokens: int | None = Field(ge=0)
    cost_usd: float | None = Field(ge=0)
    duration_ms: float | None = Field(ge=0)
    reused: bool | None
    made_at: float


_LINE: TypeAdapter[_Head | _Judging | _Judgement] = TypeAdapter(
    Annotated[_Head | _Judging | _Judgement, Field(discriminator="kind")]
)


def export_judgings(store: Store, run_id: str, file: Path) -> int:
    """Write all judgings of a run and return how many judgements they hold. Those that failed in transport, which would
    be asked again, are left out.

    Raises:
        UsageError: nobody has judged the run otherwise than it was, or the file can't be written.
    """
    judgings = judging_list(store, run_id=run_id)
    if not judgings:
        raise UsageError(f"run {run_id} has no judgings: make some with 'opbench judges rescore {run_id}'.")
    names = {number: key for key, number in _configurations(store, run_id).items()}
    lines: list[_Line] = [_Head(kind="judgings", format=FORMAT, run=run_id.removeprefix(RECORDED))]
    for each in judgings:
        lines.append(
            _Judging(
                kind="judging",
                judge=each.judge,
                label=each.label,
                provenance=each.provenance,
                repeats=each.repeats,
            )
        )
        for row in read_judgements(store, [each.id]).to_dict("records"):
            number, _, instance = row["item"].partition("|")
            if row["retriable"] or int(number) not in names:
                continue
            model, memory, mitigation = names[int(number)]
            numbers = {name: None if math.isnan(row[name]) else row[name] for name in _NUMBERS}
            counts = {name: None if math.isnan(row[name]) else int(row[name]) for name in _NUMBERS[1:3]}
            lines.append(
                _Judgement(
                    kind="judgement",
                    model=model,
                    memory=memory,
                    mitigation=mitigation,
                    instance=instance,
                    repeat=row["repeat"],
                    response_sha256=row["response_sha256"],
                    metric=row["metric"],
                    reason=row["reason"] if isinstance(row["reason"], str) else None,
                    reused=None if pd.isna(row["reused"]) else bool(row["reused"]),
                    made_at=row["made_at"],
                    **(numbers | counts),
                )
            )
    try:
        file.write_text("".join(line.model_dump_json() + "\n" for line in lines), "utf-8")
    except OSError as error:
        raise UsageError(f"{file}: can't be written ({error.strerror}).") from error
    return sum(isinstance(line, _Judgement) for line in lines)


def import_judgings(store: Store, file: Path) -> int:
    """Read judgings of a run that is here, imported or made here, and return how many judgements were new. What the
    store has of a judge already stays; judgements of records that aren't in the run are left out.

    Raises:
        DataError: no such file of ours, a damaged line, or the run isn't here; one line that says which.
    """
    lines = _lines(file)
    head = next(lines, None)
    if not isinstance(head, _Head) or head.format != FORMAT:
        raise DataError(f"{file}: line 1 isn't the head of judgings of format {FORMAT}. Export them again.")
    given: list[tuple[_Judging, list[_Judgement]]] = []
    for line in lines:
        if isinstance(line, _Judging):
            given.append((line, []))
        elif isinstance(line, _Judgement) and given:
            given[-1][1].append(line)
        else:
            raise DataError(f"{file}: a judgement before its judging. Export them again.")
    run_id, numbers = _run_here(store, head.run, file)
    new = 0
    for judging, judgements in given:
        identity = start_judging(
            store,
            run_id=run_id,
            judge=judging.judge,
            label=judging.label,
            provenance=judging.provenance,
            repeats=judging.repeats,
        )
        known = settled(store, identity)
        rows = [
            JudgementRow(
                item=item_of(numbers[each.model, each.memory, each.mitigation], each.instance),
                raw=None,
                retriable=False,
                **each.model_dump(exclude={"kind", "model", "memory", "mitigation", "instance"}),
            )
            for each in judgements
            if (each.model, each.memory, each.mitigation) in numbers
        ]
        rows = [row for row in rows if (row.item, row.repeat) not in known]
        save_judgements(store, identity, rows)
        new += len(rows)
    return new


def _lines(file: Path) -> Iterator[_Head | _Judging | _Judgement]:
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file}: can't be read ({getattr(error, 'strerror', None) or 'no UTF-8'}).") from error
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            yield _LINE.validate_json(line)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))[:80] or "the line"
            raise DataError(f"{file}: line {number}: {place}: {first['msg']}. Export the judgings again.") from None


def _run_here(store: Store, run: str, file: Path) -> tuple[str, dict[Key, int]]:
    """The run that the file is of, with the ids of its configurations: imported, else made here."""
    for run_id in (f"{RECORDED}{run}", run):
        if numbers := _configurations(store, run_id):
            return run_id, numbers
    raise DataError(f"{file}: run {run} isn't in this store. Import its bundle first.")


def _configurations(store: Store, run_id: str) -> dict[Key, int]:
    c = s.configurations.c
    with store.begin() as connection:
        rows = connection.execute(select(c.id, *CONFIGURATION).where(c.run_id == run_id)).all()
    return {(row.model, row.memory, row.mitigation): row.id for row in rows}
