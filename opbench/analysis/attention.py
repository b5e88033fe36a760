"""Attention on memory against attention on the query: ratios, shares, by task, layer and head, and paired changes.

What is measured, `opbench.mechanism.attention.DEFINITION` says: shares of attention by segment. Divided by the
segment's tokens that is its attention per token. The ratio of memory to query per token is 1 where a memory token gets
as much as a query token (paper, section 4.3 and figure 4; the paper doesn't print how it averages over layers, heads
and instances, so the rule here is the project's).

Over layers and heads shares are averaged before the ratio is taken. Over instances ratios are averaged as logarithms:
the geometric mean, for which twice and half as much come to 1. Intervals are over users drawn anew, on the same scale.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import pandas as pd

from opbench.analysis.grids import KEY
from opbench.analysis.intervals import Averages, Interval, Question, intervals, single_part
from opbench.analysis.postprocessing import FAILED
from opbench.store.attention import AttentionData, Words

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

Position = Literal["response", "onset"]
MEMORY, QUERY = "memory", "query"
NO_MEMORY = "no memory in the prompt"


@dataclass(frozen=True, eq=False)
class Readings:
    """What one reading model's attention did over N records."""

    records: pd.DataFrame
    """N rows: model, memory, mitigation, instance, user, subtype, state (the post-processor's, None without one), and
    what else `AttentionData.records` has."""
    segments: tuple[str, ...]
    """Names of the S segments; `memory` and `query` are among them."""
    tokens: Floats
    """N × S: tokens of each segment, 0 where there are none."""
    masses: Floats
    """N × layers × heads × S: share of attention, 0 to 1."""

    @classmethod
    def of(cls, data: AttentionData, position: Position = "response") -> Self:
        """What is in the store: averaged over the response's tokens, or at its `onset`."""
        return cls(data.records, data.segments, data.tokens, data.onset if position == "onset" else data.masses)

    def __post_init__(self) -> None:
        n, segments = len(self.records), len(self.segments)
        if self.tokens.shape != (n, segments) or self.masses.ndim != 4:
            raise ValueError(f"tokens must be {n} × {segments} and masses have four axes")
        if (self.masses.shape[0], self.masses.shape[3]) != (n, segments):
            raise ValueError(f"masses are of {self.masses.shape[0]} records and {self.masses.shape[3]} segments")
        for name in (MEMORY, QUERY):
            if name not in self.segments:
                raise ValueError(f"there is no segment '{name}'")

    def __len__(self) -> int:
        return len(self.records)

    def where(self, chosen: Bools | pd.Series) -> Readings:
        """Those for which `chosen` (N) is true."""
        mask = np.asarray(chosen, dtype=bool)
        return Readings(self.records[mask].reset_index(drop=True), self.segments, self.tokens[mask], self.masses[mask])

    def unfailed(self) -> Readings:
        """Those whose post-processing didn't fail: where it did, the prompt is that of no post-processor."""
        return self.where(self.records["state"] != FAILED)

    def share(self, segment: str) -> Floats:
        """N: share of attention of a segment, averaged over layers and heads; 0 where the prompt has none of it."""
        averaged: Floats = self.masses[..., self.segments.index(segment)].mean(axis=(1, 2))
        return averaged

    def per_token(self, segment: str) -> Floats:
        """N: share of attention of one token of a segment; NaN where the prompt has none."""
        return _divided(self.share(segment), self._count(segment))

    def ratio(self) -> Floats:
        """N: attention per token on memory against the query's; NaN where one of them isn't in the prompt."""
        return self._ratio(self.masses.mean(axis=(1, 2)))

    def ratio_by_layer(self) -> Floats:
        """N × layers, averaged over heads."""
        return self._ratio(self.masses.mean(axis=2))

    def ratio_by_head(self) -> Floats:
        """N × layers × heads."""
        return self._ratio(self.masses)

    def _count(self, segment: str) -> Floats:
        counted: Floats = self.tokens[:, self.segments.index(segment)]
        return counted

    def _ratio(self, masses: Floats) -> Floats:
        """Over the last axis of `masses`, which is of segments; NaN also where a share is no more than 0, since a
        ratio of nothing has no logarithm."""
        shape = (-1,) + (1,) * (masses.ndim - 2)
        memory, query = (
            _divided(masses[..., self.segments.index(name)], self._count(name).reshape(shape))
            for name in (MEMORY, QUERY)
        )
        found = _divided(memory, query)
        return np.where(found > 0, found, np.nan)


def _divided(above: Floats, below: Floats) -> Floats:
    """NaN where `below` isn't positive."""
    return np.divide(above, np.where(below > 0, below, np.nan))


def alone(averages: Averages) -> tuple[Floats, Averages]:
    """The one average, for `opbench.analysis.intervals`."""
    (only,) = averages
    return only, [np.ones_like(only)]


@dataclass(frozen=True)
class Sample:
    """Numbers of some instances, NaN where one has none; `users` are whose they are. `log`: they are logarithms."""

    values: Floats
    users: npt.NDArray[np.object_]
    log: bool = True

    def question(self) -> Question | None:
        known = ~np.isnan(self.values)
        if not known.any():
            return None
        owner, _ = pd.factorize(self.users[known])
        return Question(single_part(self.values[None, known], owner), np.ones(1), alone)


def estimates(samples: Sequence[Sample], nothing: str = NO_MEMORY) -> pd.DataFrame:
    """A row for each sample: value, low, high (logarithms taken back), p of no difference from 1 (or 0), n (instances
    that have a number), n_users, and as `reason` why there is no interval. Without a number all are NaN and `reason`
    is `nothing`."""
    questions = [sample.question() for sample in samples]
    found = iter(intervals([question for question in questions if question is not None]))
    rows = []
    for sample, question in zip(samples, questions, strict=True):
        known = sample.values[~np.isnan(sample.values)]
        within = Interval.missing(nothing) if question is None else next(found)
        middle = float(known.mean()) if len(known) else float("nan")
        value, low, high = (float(np.exp(each)) if sample.log else each for each in (middle, within.low, within.high))
        n_users = len(set(sample.users[~np.isnan(sample.values)]))
        rows.append((value, low, high, within.p, len(known), n_users, within.reason))
    return pd.DataFrame(rows, columns=["value", "low", "high", "p", "n", "n_users", "reason"])


def ratios(readings: Readings, by: Sequence[str] = ()) -> pd.DataFrame:
    """model, memory, mitigation and the columns of `by` (`subtype`, `user`), then `estimates` of the ratio, `read`:
    records that were read, of which those without memory in the prompt have no ratio; and `failed`: those whose
    post-processing failed, so that the prompt is that of none (NaN without a post-processor)."""
    groups = _groups(readings, by)
    logs, users = np.log(readings.ratio()), _users(readings)
    table = estimates([Sample(logs[places], users[places]) for _, places in groups])
    found = _labelled([key for key, _ in groups], [*KEY, *by], table)
    states = readings.records["state"]
    failed = [
        float((states.iloc[places] == FAILED).sum()) if states.iloc[places].notna().any() else float("nan")
        for _, places in groups
    ]
    return found.assign(read=[len(places) for _, places in groups], failed=failed)


def ratios_by_layer(readings: Readings) -> pd.DataFrame:
    """model, memory, mitigation, layer (from 1, the first after the embeddings) and `estimates` of the layer's ratio.
    Configurations without memory have no row."""
    logs, users = np.log(readings.ratio_by_layer()), _users(readings)
    keys, samples = [], []
    for key, places in _groups(readings):
        if np.isnan(logs[places]).all():
            continue
        for layer in range(logs.shape[1]):
            keys.append((*key, layer + 1))
            samples.append(Sample(logs[places, layer], users[places]))
    return _labelled(keys, [*KEY, "layer"], estimates(samples))


def ratios_by_head(readings: Readings) -> pd.DataFrame:
    """layer and head (from 1), ratio (geometric mean over all records) and n: those whose ratio is known there."""
    logs = np.log(readings.ratio_by_head())
    n = (~np.isnan(logs)).sum(axis=0)
    means = np.divide(np.nansum(logs, axis=0), np.where(n > 0, n, np.nan))
    layer, head = np.indices(n.shape)
    return pd.DataFrame(
        {"layer": layer.ravel() + 1, "head": head.ravel() + 1, "ratio": np.exp(means).ravel(), "n": n.ravel()}
    )


def ratios_by_head_of_each(readings: Readings) -> pd.DataFrame:
    """`ratios_by_head` of each configuration with memory, under its model, memory and mitigation."""
    tables = []
    for key, places in _groups(readings):
        chosen = np.zeros(len(readings), dtype=np.bool_)
        chosen[places] = True
        table = ratios_by_head(readings.where(chosen))
        if table["n"].any():
            tables.append(table.assign(**dict(zip(KEY, key, strict=True))))
    columns = [*KEY, "layer", "head", "ratio", "n"]
    return pd.concat(tables, ignore_index=True)[columns] if tables else pd.DataFrame(columns=columns)


def shares(readings: Readings) -> pd.DataFrame:
    """model, memory, mitigation, segment, tokens (mean) and `estimates` of its share of attention, as a share.

    A segment that no prompt of a configuration has gets no row; where some have it, the others count as 0, which they
    are.
    """
    keys, samples, tokens = [], [], []
    users = _users(readings)
    for key, places in _groups(readings):
        for place, segment in enumerate(readings.segments):
            if readings.tokens[places, place].any():
                keys.append((*key, segment))
                samples.append(Sample(readings.share(segment)[places], users[places], log=False))
                tokens.append(float(readings.tokens[places, place].mean()))
    table = _labelled(keys, [*KEY, "segment"], estimates(samples))
    table.insert(len(KEY) + 1, "tokens", tokens)
    return table.drop(columns="p")  # of being 0, which no share is


def token_weights(words: Words) -> pd.DataFrame:
    """A prompt sign by sign: token (number of its first, from 1), tokens (most have one), segment, text, weight (its
    share of attention) and `times`: how many times the share that each token would get if all were alike.

    Raises:
        ValueError: the prompt's texts weren't kept.
    """
    if words.texts is None:
        raise ValueError("the prompt's texts weren't kept")
    share = words.weights / words.weights.sum() if words.weights.sum() > 0 else np.full(len(words.weights), np.nan)
    frame = pd.DataFrame({"segment": words.segments, "text": words.texts, "weight": words.weights, "share": share})
    # A sign of several tokens stands in the first of these.
    frame["sign"] = ((frame["text"] != "") | (frame.index == 0)).cumsum()
    found = frame.groupby("sign", sort=False).agg(
        tokens=("text", "size"),
        segment=("segment", "first"),
        text=("text", "first"),
        weight=("weight", "sum"),
        share=("share", "mean"),
    )
    found.insert(0, "token", found["tokens"].cumsum() - found["tokens"] + 1)
    found["times"] = found.pop("share") * len(share)
    return found.reset_index(drop=True)


def _groups(readings: Readings, by: Sequence[str] = ()) -> list[tuple[tuple[Any, ...], npt.NDArray[np.intp]]]:
    """Places of the records of each configuration (and value of `by`), in the order in which they come."""
    found: dict[tuple[Hashable, ...], list[int]] = {}
    for place, key in enumerate(readings.records[[*KEY, *by]].itertuples(index=False, name=None)):
        found.setdefault(key, []).append(place)
    return [(key, np.array(places, dtype=np.intp)) for key, places in found.items()]


def _users(readings: Readings) -> npt.NDArray[np.object_]:
    return readings.records["user"].to_numpy(dtype=object)


def _labelled(keys: Sequence[tuple[Any, ...]], columns: Sequence[str], table: pd.DataFrame) -> pd.DataFrame:
    return pd.concat([pd.DataFrame(list(keys), columns=list(columns)), table], axis=1)
