"""Latency by stage (the paper's table 11), how it is spread, tokens and cost of a run.

Only records that are done count, and of these only the stages that happened: BASE retrieves nothing, `none`
post-processes nothing, a filter that had no memories asked nobody, and a control that answers itself has no response
stage. Self-Critic's draft is the response stage and its second call the post-processing stage, as recorded, so that
the sum counts nothing twice (design, rule 5).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from opbench.analysis.grids import KEY
from opbench.store.rundata import RunData
from opbench.study import BASE, Configuration, Study
from opbench.types import Benchmark

STAGES = ("retrieval", "post", "response")
#: What the stages are called in the paper's table 11.
STAGE_LABELS = {
    "retrieval": "memory retrieval",
    "post": "post-processing",
    "response": "model response",
    "total": "total",
}
#: What `spread` tells of each distribution: enough for boxes and for curves, however many records there are.
PERCENTILES = (0, 1, *range(5, 100, 5), 99, 100)

LATENCY_COLUMNS = [
    *KEY,
    "stage",
    "n",
    "n_reused",
    "mean_ms",
    "std_ms",
    "median_ms",
    "p95_ms",
    "concurrency",
    "prompt_tokens",
    "completion_tokens",
]
SPREAD_COLUMNS = [*KEY, "stage", "n", "n_reused", "mean_ms", *(f"p{each}_ms" for each in PERCENTILES), "concurrency"]
SPENDING_COLUMNS = [
    *KEY,
    "n_done",
    "post_prompt_tokens",
    "post_completion_tokens",
    "response_prompt_tokens",
    "response_completion_tokens",
    "post_prompt_per_query",
    "post_completion_per_query",
    "response_prompt_per_query",
    "response_completion_per_query",
    "n_counted",
    "cost_usd",
    "cost_usd_per_record",
    "cost_usd_per_1000",
    "n_priced",
]
#: Fields of a study on which the time of an answer hangs, beside its configurations.
_PACE = ("k", "temperature", "max_tokens", "embedder", "protocol")
_SUMS = [f"{stage}_{kind}_tokens" for stage in ("post", "response") for kind in ("prompt", "completion")]

_READ = (
    "status",
    *(f"{stage}_{what}" for stage in STAGES for what in ("ms", "reused")),
    "concurrency",
    *_SUMS,
    "cost_usd",
)


def latency(data: RunData, fresh_only: bool = False, benchmark: Benchmark | None = None) -> pd.DataFrame:
    """One row a configuration and stage (retrieval, post, response, total); columns as in `LATENCY_COLUMNS`.

    `n` records had the stage, `n_reused` of them with a call that was made for another record and that keeps the
    time it took then; `fresh_only` leaves these out. `mean_ms`, `std_ms` (sample, n − 1; NaN for one record; the paper
    doesn't say which it prints), `median_ms` and `p95_ms` (linear interpolation) are NaN where n is 0. `total` is the
    sum within each record, fresh when all its stages are. `concurrency` is the runs' requests at a time, all values
    that occur. `prompt_tokens` and `completion_tokens` are means over the records of the stage that tell them.
    """
    done = _done(data, benchmark)
    parts = []
    for stage, part in _stages(done, fresh_only):
        for kind in ("prompt_tokens", "completion_tokens"):
            part[kind] = _tokens(done, stage, kind)
        grouped = part.groupby("group")
        quantiles = grouped["ms"].quantile(np.array([0.5, 0.95])).unstack().reindex(columns=[0.5, 0.95])
        columns: dict[str, Any] = {
            "stage": stage,
            "std_ms": grouped["ms"].std(ddof=1),
            "median_ms": quantiles[0.5],
            "p95_ms": quantiles[0.95],
            "prompt_tokens": grouped["prompt_tokens"].mean(),
            "completion_tokens": grouped["completion_tokens"].mean(),
        }
        parts.append(_counted(grouped).assign(**columns))
    return _complete(data, done, parts)[LATENCY_COLUMNS]


def spread(data: RunData, fresh_only: bool = False, benchmark: Benchmark | None = None) -> pd.DataFrame:
    """How the times of each configuration and stage are distributed; columns as in `SPREAD_COLUMNS`.

    `p<q>_ms` is the q-th percentile (linear interpolation; 0 and 100 are the shortest and the longest), NaN where n
    is 0. Rows, `n`, `n_reused`, `mean_ms`, `concurrency` and `fresh_only` are those of `latency`.
    """
    done = _done(data, benchmark)
    shares = np.array(PERCENTILES) / 100.0
    parts = []
    for stage, part in _stages(done, fresh_only):
        grouped = part.groupby("group")
        quantiles = grouped["ms"].quantile(shares).unstack().reindex(columns=shares)
        quantiles.columns = pd.Index([f"p{each}_ms" for each in PERCENTILES])
        parts.append(_counted(grouped).join(quantiles).assign(stage=stage))
    return _complete(data, done, parts)[SPREAD_COLUMNS]


def spending(data: RunData, benchmark: Benchmark | None = None) -> pd.DataFrame:
    """One row a configuration: tokens by stage and cost of its done records; columns `SPENDING_COLUMNS`.

    `*_tokens` are sums, `post_*_per_query` these over all `n_done` records (one that needed no call spent none) and
    `response_*_per_query` over the `n_counted` records whose response tells its tokens. A record counts what its
    calls cost when they were made, also when they were made for another record, so sums over configurations exceed
    what was paid. `cost_usd` and what is made of it are over the `n_priced` records whose cost is known, NaN for none.
    """
    done = _done(data, benchmark)
    numbers = done[[*_SUMS, "cost_usd"]].apply(pd.to_numeric)
    grouped = numbers.groupby(done["group"])
    frame = grouped.sum(min_count=1)
    counts = grouped.count()
    frame["n_done"] = grouped.size()
    frame["n_counted"] = counts["response_prompt_tokens"]
    frame["n_priced"] = counts["cost_usd"]
    for column in _SUMS:
        over = frame["n_done"] if column.startswith("post") else counts[column].where(counts[column] > 0)
        frame[column.replace("_tokens", "_per_query")] = frame[column] / over
    frame["cost_usd_per_record"] = frame["cost_usd"] / frame["n_priced"].where(frame["n_priced"] > 0)
    frame["cost_usd_per_1000"] = 1000.0 * frame["cost_usd_per_record"]
    table = data.configurations[KEY].merge(_named(frame, done), on=KEY, how="left")
    whole = ["n_done", "n_counted", "n_priced"]
    table[whole] = table[whole].fillna(0).astype(int)
    return table[SPENDING_COLUMNS]


def retrieval_note(data: RunData) -> str | None:
    """What a retrieval's time holds, and under which load it was taken, as a sentence or two; None for a run that
    retrieves nothing."""
    if set(data.configurations["memory"]) <= {BASE}:
        return None
    told = [each.get("concurrency") for each in data.provenance.get("executions") or []]
    known = [each for each in told if each]
    load = f" It was taken with up to {max(known)} records at work at a time." if known else ""
    return (
        "Memory retrieval is the search alone, of both speakers' memories where LoCoMo needs both; taking histories in "
        f"and opening a store aren't in it.{load}"
    )


def alike(one: Study, other: Study) -> list[Configuration]:
    """Configurations that both studies have, in `one`'s order; none if they ask in ways that take other times."""
    if any(getattr(one, field) != getattr(other, field) for field in _PACE):
        return []
    theirs = set(other.configurations())
    return [each for each in one.configurations() if each in theirs]


def beside(run: pd.DataFrame, probe: pd.DataFrame, shared: Sequence[Configuration]) -> pd.DataFrame:
    """Rows of `latency` of a run and of a probe, for those of the `shared` configurations that `run` has rows of, one
    configuration after the other.

    The column `source` tells them apart: `this run` or `probe`.
    """
    order = pd.DataFrame([(each.model, each.memory, each.mitigation) for each in shared], columns=KEY)
    order = order.merge(run[KEY].drop_duplicates(), on=KEY)
    order["place"] = range(len(order))
    both = [frame.assign(source=source) for frame, source in ((run, "this run"), (probe, "probe"))]
    joined = pd.concat(both, ignore_index=True).merge(order, on=KEY)
    return joined.sort_values("place", kind="stable").drop(columns="place").reset_index(drop=True)


def _done(data: RunData, benchmark: Benchmark | None) -> pd.DataFrame:
    """The done records, with the number of each one's configuration as `group`."""

    def make() -> pd.DataFrame:
        records = data.records_with(*_READ)
        keep = records["status"] == "done"
        if benchmark is not None:
            chosen = data.instances.loc[data.instances["benchmark"] == benchmark, "instance"]
            keep &= records["instance"].isin(chosen)
        done = records[keep]
        return done.assign(group=done.groupby(KEY, sort=False, observed=True).ngroup())

    return data.keep(("latency", benchmark), make)


def _stages(done: pd.DataFrame, fresh_only: bool) -> Iterator[tuple[str, pd.DataFrame]]:
    """Each stage and the total with the records that had it: group, ms, reused, concurrency."""
    times = done[[f"{stage}_ms" for stage in STAGES]].apply(pd.to_numeric)
    times.columns = pd.Index(STAGES)
    reused = pd.DataFrame({stage: done[f"{stage}_reused"].eq(True).fillna(False) for stage in STAGES}).astype(bool)
    happened = times.notna()
    times["total"] = times[list(STAGES)].sum(axis=1, min_count=1)
    happened["total"] = happened.any(axis=1)
    reused["total"] = (reused & happened[list(STAGES)]).any(axis=1)
    for stage in (*STAGES, "total"):
        keep = happened[stage] & ~reused[stage] if fresh_only else happened[stage]
        part = done.loc[keep, ["group", "concurrency"]]
        yield stage, part.assign(ms=times.loc[keep, stage], reused=reused.loc[keep, stage])


def _counted(grouped: Any) -> pd.DataFrame:
    """By group what both tables tell of a stage."""
    return pd.DataFrame(
        {
            "n": grouped.size(),
            "n_reused": grouped["reused"].sum(),
            "mean_ms": grouped["ms"].mean(),
            "concurrency": grouped["concurrency"].agg(_values),
        }
    )


def _complete(data: RunData, done: pd.DataFrame, parts: list[pd.DataFrame]) -> pd.DataFrame:
    """All configurations and stages in the run's order, with n = 0 where nothing is known."""
    found = pd.concat([_named(part, done) for part in parts], ignore_index=True)
    skeleton = data.configurations[KEY].merge(pd.DataFrame({"stage": [*STAGES, "total"]}), how="cross")
    frame = skeleton.merge(found, on=[*KEY, "stage"], how="left")
    frame[["n", "n_reused"]] = frame[["n", "n_reused"]].fillna(0).astype(int)
    frame["concurrency"] = frame["concurrency"].astype(object).fillna("")
    return frame


def _named(by_group: pd.DataFrame, done: pd.DataFrame) -> pd.DataFrame:
    """With the configurations' names in place of their numbers."""
    names = done.drop_duplicates("group").set_index("group")[KEY].astype(object)
    return by_group.join(names).reset_index(drop=True)


def _tokens(done: pd.DataFrame, stage: str, kind: str) -> pd.Series:
    """Tokens of a stage by record; retrieval has none, and the total is the sum of what is known."""
    stages = {"retrieval": [], "total": ["post", "response"]}.get(stage, [stage])
    numbers = done[[f"{each}_{kind}" for each in stages]].apply(pd.to_numeric)
    return pd.Series(numbers.sum(axis=1, min_count=1), index=done.index, dtype=float)


def _values(column: pd.Series) -> str:
    return ", ".join(str(int(value)) for value in sorted(column.dropna().unique()))
