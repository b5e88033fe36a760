"""Attention of a reading model, by record: written by `opbench.mechanism.measuring`, read by analysis and pages."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sqlalchemy import and_, delete, func, null, select

from opbench.errors import StoreError, UsageError
from opbench.store import schema as s
from opbench.store.database import Store
from opbench.store.frames import CONFIGURATION
from opbench.store.rundata import KEY

Floats = npt.NDArray[np.float64]
Narrow = npt.NDArray[np.float32]

#: Segments of what is read, in the order of all arrays (`opbench.mechanism.attention.DEFINITION` says what they are).
SEGMENTS = ("first", "template", "instructions", "memory", "query", "response")
#: Where attention is taken from: averaged over the response's tokens, and from the prompt's last token alone.
POSITIONS = ("response", "onset")
_RECORD = ("record", *KEY, "instance", "benchmark", "user", "subtype", "state")


@dataclass(frozen=True, slots=True)
class Measured:
    """What is kept of one record that was read."""

    text_sha256: str
    """SHA-256 (hex) of all that was read."""
    tokens: tuple[int, ...]
    """By segment, in the order of `SEGMENTS`."""
    masses: Narrow
    """positions (`POSITIONS`) × layers × heads × segments: shares of attention, each layer's and head's sum is 1."""
    words: tuple[tuple[str, str], ...] | None
    """(segment, text) of each token of the prompt; the texts together are the prompt. None where texts aren't kept."""
    weights: Narrow
    """Share of attention of each token of the prompt, averaged over layers, heads and the response's tokens."""


@dataclass(frozen=True, slots=True)
class Reader:
    """A reading model that has read records of a run."""

    name: str
    """The model, the head of its digest and the version of the definition: `smollm2-135m@0123456789abcdef/v1`."""
    records: int
    last_at: float
    """When the last record was measured (Unix seconds)."""


@dataclass(frozen=True, eq=False)
class AttentionData:
    """What one reading model's attention did over N records of a run, by configuration and then in the run's order."""

    run_id: str
    reader: str
    """As `Reader.name`; empty when nothing is measured."""
    records: pd.DataFrame
    """N rows: record (its id, for `words`), model, memory, mitigation, instance, benchmark, user, subtype, state (the
    post-processor's, missing without one), own (bool: the reading model is the one that answered, by the digest of its
    weights), prompt_tokens (as read), told_tokens (as the endpoint counted them; NaN when it didn't), texts (bool:
    `words` has the prompt)."""
    tokens: Floats
    """N × segments (`SEGMENTS`): tokens of each, 0 where there are none."""
    masses: Floats
    """N × layers × heads × segments: share of attention, 0 to 1, averaged over the response's tokens."""
    onset: Floats
    """The same from the prompt's last token alone, which chooses the response's first one."""

    segments: tuple[str, ...] = SEGMENTS

    def __len__(self) -> int:
        return len(self.records)


@dataclass(frozen=True, eq=False)
class Words:
    """A prompt token by token."""

    segments: tuple[str, ...]
    texts: tuple[str, ...] | None
    """None where they weren't kept. A sign of several tokens stands in the first of these, the others are empty."""
    weights: Floats
    """Share of attention of each, averaged over layers, heads and the response's tokens."""


def readers(store: Store, run_id: str) -> list[Reader]:
    """Who has read records of the run, the latest first."""
    a, r = s.attention.c, s.records.c
    query = (
        select(a.reader, func.count(), func.max(a.made_at))
        .join(s.records, r.id == a.record_id)
        .where(r.run_id == run_id)
        .group_by(a.reader)
        .order_by(func.max(a.made_at).desc(), a.reader)
    )
    with store.begin() as connection:
        return [Reader(*row) for row in connection.execute(query)]


def read_attention(store: Store, run_id: str, reader: str | None = None) -> AttentionData:
    """All that a reading model measured of a run; without `reader` the one that measured last. None measured: N is 0.

    Raises:
        UsageError: `reader` has read nothing of the run.
        StoreError: what is kept can't be read.
    """
    known = [each.name for each in readers(store, run_id)]
    if reader is not None and reader not in known:
        raise UsageError(f"run {run_id}: '{reader[:120]}' has read none of its records. Readers: {', '.join(known)}.")
    if not known:
        empty = pd.DataFrame(columns=[*_RECORD, "own", "prompt_tokens", "told_tokens", "texts"])
        none = np.zeros((0, 0, 0, len(SEGMENTS)))
        return AttentionData(run_id, "", empty, np.zeros((0, len(SEGMENTS))), none, none)
    chosen = reader or known[0]
    a, r, i, u = s.attention.c, s.records.c, s.instances.c, s.record_calls
    # The endpoint's identity stands in the call that made the response.
    answered = (
        select(s.calls.c.request["endpoint", "sha256"].as_string())
        .join(u, u.c.call_key == s.calls.c.key)
        .where(u.c.record_id == r.id, u.c.stage == "response")
        .order_by(u.c.ordinal.desc())
        .limit(1)
        .scalar_subquery()
    )
    query = (
        select(
            r.id.label("record"),
            *CONFIGURATION,
            r.instance_id.label("instance"),
            i.benchmark,
            i.user_id.label("user"),
            i.subtype,
            r.state,
            answered.label("answered_by"),
            r.response_prompt_tokens.label("told_tokens"),
            a.words.is_not(null()).label("texts"),
            a.layers,
            a.heads,
            a.segments,
            a.tokens,
            a.masses,
        )
        .select_from(s.attention)
        .join(s.records, r.id == a.record_id)
        .join(s.instances, and_(i.run_id == r.run_id, i.instance_id == r.instance_id))
        .join(s.configurations, s.configurations.c.id == r.configuration_id)
        .where(r.run_id == run_id, a.reader == chosen)
        .order_by(r.configuration_id, i.ordinal)
    )
    with store.begin() as connection:
        rows = connection.execute(query).mappings().all()
        provenance = connection.scalar(select(s.runs.c.provenance).where(s.runs.c.id == run_id)) or {}
    # A run that came from a file has no calls; it names its models all the same.
    by_run = {name: identity.get("sha256") for name, identity in dict(provenance.get("models") or {}).items()}
    tokens = np.array([_in_order(row["segments"], row["tokens"]) for row in rows], dtype=np.float64)
    masses = np.stack([_masses(row, run_id) for row in rows]).astype(np.float64)
    frame = pd.DataFrame([{name: row[name] for name in _RECORD} for row in rows])
    digest = chosen.rpartition("@")[2].partition("/")[0]
    frame["own"] = [(row["answered_by"] or by_run.get(row["model"])) == digest for row in rows]
    frame["prompt_tokens"] = tokens[:, :-1].sum(axis=1).astype(np.int64)
    frame["told_tokens"] = pd.Series([row["told_tokens"] for row in rows], dtype="float64")
    frame["texts"] = [bool(row["texts"]) for row in rows]
    return AttentionData(run_id, chosen, frame, tokens, masses[:, 0], masses[:, 1])


def _in_order(names: list[str], values: list[int]) -> list[int]:
    by_name = dict(zip(names, values, strict=True))
    return [by_name[name] for name in SEGMENTS]


def _masses(row: Mapping[Any, Any], run_id: str) -> Narrow:
    """positions × layers × heads × segments, the segments in the order of `SEGMENTS`."""
    shape = (len(POSITIONS), row["layers"], row["heads"], len(row["segments"]))
    flat = np.frombuffer(row["masses"], dtype="<f4")
    if flat.size != np.prod(shape) or set(row["segments"]) != set(SEGMENTS):
        raise StoreError(
            f"run {run_id}: the attention of {row['instance']} can't be read. Measure it again with --again."
        )
    order = [row["segments"].index(name) for name in SEGMENTS]
    found: Narrow = flat.reshape(shape)[..., order]
    return found


def unlike_itself(row: Mapping[str, Any]) -> str | None:
    """What of a row of the table doesn't fit its other columns, as the end of "…: "; None when all does."""
    shares = np.frombuffer(row["masses"], dtype="<f4")
    if set(row["segments"]) != set(SEGMENTS) or not len(row["segments"]) == len(row["tokens"]) == len(SEGMENTS):
        return f"its segments aren't {', '.join(SEGMENTS)}"
    shape = (len(POSITIONS), row["layers"], row["heads"], len(SEGMENTS))
    if shares.size != math.prod(shape) or not np.allclose(shares.reshape(shape).sum(axis=-1), 1.0, atol=1e-2):
        return "masses isn't the attention of its layers and heads"
    if row["words"] is not None and len(row["words"]) * 4 != len(row["weights"]):
        return "words and weights aren't of the same prompt"
    return None


def words(store: Store, record: int, reader: str) -> Words | None:
    """A record's prompt token by token, with weights; None when that reader hasn't read it."""
    a = s.attention.c
    query = select(a.words, a.weights, a.segments, a.tokens).where(a.record_id == record, a.reader == reader)
    with store.begin() as connection:
        row = connection.execute(query).first()
    if row is None:
        return None
    weights = np.frombuffer(row.weights, dtype="<f4").astype(np.float64)
    if row.words is None:
        return Words((), None, weights)
    return Words(tuple(segment for segment, _ in row.words), tuple(text for _, text in row.words), weights)


def stored_texts(store: Store, run_id: str, reader: str) -> dict[int, tuple[str, bool]]:
    """What that reader has read of the run: by record id the text's SHA-256 and whether the prompt's words are kept."""
    a, r = s.attention.c, s.records.c
    query = (
        select(a.record_id, a.text_sha256, a.words.is_not(null()))
        .join(s.records, r.id == a.record_id)
        .where(r.run_id == run_id, a.reader == reader)
    )
    with store.begin() as connection:
        return {record: (digest, bool(kept)) for record, digest, kept in connection.execute(query)}


def same_text(store: Store, reader: str, text_sha256: str) -> Measured | None:
    """What that reader measured of the same text for another record, of any run; one with words before one without."""
    a = s.attention.c
    query = select(s.attention).where(a.reader == reader, a.text_sha256 == text_sha256)
    with store.begin() as connection:
        row = connection.execute(query.order_by(a.words.is_(null())).limit(1)).mappings().first()
    if row is None or tuple(row["segments"]) != SEGMENTS:
        return None
    shape = (len(POSITIONS), row["layers"], row["heads"], len(SEGMENTS))
    kept = None if row["words"] is None else tuple((segment, text) for segment, text in row["words"])
    masses = np.frombuffer(row["masses"], dtype="<f4").reshape(shape)
    return Measured(text_sha256, tuple(row["tokens"]), masses, kept, np.frombuffer(row["weights"], dtype="<f4"))


def save_attention(
    store: Store, record: int, reader: str, measured: Measured, finished_at: float | None = None
) -> bool:
    """Keep what was measured of a record in the place of what was there; False when the record is there no more, since
    it was made again meanwhile. `finished_at` (Unix seconds) is that of the record that was read: SQLite may give its
    id to the one that takes its place."""
    a = s.attention.c
    _, layers, heads, _ = measured.masses.shape
    with store.begin() as connection:
        found = connection.scalar(select(s.records.c.finished_at).where(s.records.c.id == record))
        if found is None or finished_at not in (None, found):
            return False
        connection.execute(delete(s.attention).where(a.record_id == record, a.reader == reader))
        connection.execute(
            s.attention.insert().values(
                record_id=record,
                reader=reader,
                text_sha256=measured.text_sha256,
                layers=layers,
                heads=heads,
                segments=list(SEGMENTS),
                tokens=list(measured.tokens),
                masses=measured.masses.astype("<f4").tobytes(),
                words=null() if measured.words is None else [list(pair) for pair in measured.words],
                weights=measured.weights.astype("<f4").tobytes(),
                made_at=time.time(),
            )
        )
    return True
