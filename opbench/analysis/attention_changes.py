"""Paired changes of attention: with memory against without, with a post-processor against none, found against drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from opbench.analysis.attention import MEMORY, QUERY, Readings, Sample, estimates
from opbench.analysis.grids import KEY, Key
from opbench.analysis.intervals import holm
from opbench.analysis.tradeoff import RANDOM
from opbench.study import BASE, NO_MITIGATION

Measure = Literal["ratio", "query per token", "query share", "memory share"]
#: What is compared, and whether as a factor (of logarithms) or as a difference of shares.
FACTORS: dict[Measure, bool] = {"ratio": True, "query per token": True, "query share": False, "memory share": False}
#: Against what: BASE, the same memory system without a post-processor, memories drawn at random.
Kind = Literal["memory", "mitigation", "random"]
MEASURES: dict[Kind, tuple[Measure, ...]] = {
    "memory": ("query per token", "query share"),
    "mitigation": ("ratio", "memory share", "query share"),
    "random": ("ratio", "query per token", "query share"),
}
NOT_PAIRED = "no instance has a number on both sides"


def changes(readings: Readings) -> pd.DataFrame:
    """Each configuration against its counterpart, over the instances that were read of both.

    A memory system without post-processor stands against BASE (`memory`) and against random memories (`random`), a
    post-processor against none on the same memory system (`mitigation`). Columns: kind, model, memory, mitigation,
    before_memory, before_mitigation, measure, factor (bool), and `estimates`: of a factor 1 is no change, of a
    difference of shares 0; p_holm: Holm's over the changes of one kind and measure, those of random memories apart, and
    tests: how many these are. Counterparts that aren't there have no rows.
    """
    values = {measure: _values(readings, measure) for measure in FACTORS}
    places = dict(_by_key(readings))
    rows, samples = [], []
    for kind, key, before in _pairs(list(places)):
        ours, theirs = places[key], places[before]
        both = [name for name in ours if name in theirs]
        mine, its = ([found[name] for name in both] for found in (ours, theirs))
        users = readings.records["user"].to_numpy(dtype=object)[mine]
        for measure in MEASURES[kind]:
            rows.append((kind, *key, before[1], before[2], measure, FACTORS[measure]))
            samples.append(Sample(values[measure][mine] - values[measure][its], users, log=FACTORS[measure]))
    heads = ["kind", *KEY, "before_memory", "before_mitigation", "measure", "factor"]
    table = pd.concat([pd.DataFrame(rows, columns=heads), estimates(samples, NOT_PAIRED)], axis=1)
    families = table.groupby([table["kind"], table["measure"], table["memory"] == RANDOM])["p"]
    return table.assign(p_holm=families.transform(lambda p: holm(p.to_numpy())), tests=families.transform("count"))


def _values(readings: Readings, measure: Measure) -> npt.NDArray[np.float64]:
    """N: logarithms of what is compared as a factor, shares as they are."""
    found: Callable[[], npt.NDArray[np.float64]] = {
        "ratio": lambda: np.log(readings.ratio()),
        "query per token": lambda: np.log(readings.per_token(QUERY)),
        "query share": lambda: readings.share(QUERY),
        "memory share": lambda: readings.share(MEMORY),
    }[measure]
    return found()


def _by_key(readings: Readings) -> Iterator[tuple[Key, dict[str, int]]]:
    """Each configuration with its instances' places."""
    found: dict[Key, dict[str, int]] = {}
    rows = readings.records[[*KEY, "instance"]].itertuples(index=False, name=None)
    for place, (model, memory, mitigation, instance) in enumerate(rows):
        found.setdefault((model, memory, mitigation), {})[instance] = place
    yield from found.items()


def _pairs(keys: list[Key]) -> Iterator[tuple[Kind, Key, Key]]:
    for key in keys:
        model, memory, mitigation = key
        if memory == BASE:
            continue
        counterparts: dict[Kind, Key] = (
            {"memory": (model, BASE, NO_MITIGATION), "random": (model, RANDOM, NO_MITIGATION)}
            if mitigation == NO_MITIGATION
            else {"mitigation": (model, memory, NO_MITIGATION)}
        )
        for kind, before in counterparts.items():
            if before in keys and before != key:
                yield kind, key, before
