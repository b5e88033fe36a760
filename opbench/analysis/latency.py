"""Latency by stage (the paper's table 11), tokens and cost of a run.

Only records that are done count, and of these only the stages that happened: BASE retrieves nothing, `none`
post-processes nothing, and a filter that had no memories asked nobody. Self-Critic's draft is the response stage and
its second call the post-processing stage, as recorded, so that the sum counts nothing twice (design, rule 5).
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from opbench.analysis.grids import KEY
from opbench.store.rundata import RunData
from opbench.types import Benchmark

STAGES = ("retrieval", "post", "response")
#: What the stages are called in the paper's table 11.
STAGE_LABELS = {
    "retrieval": "memory retrieval",
    "post": "post-processing",
    "response": "model response",
    "total": "total",
}

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
SPENDING_COLUMNS = [
    *KEY,
    "n_done",
    "post_prompt_tokens",
    "post_completion_tokens",
    "response_prompt_tokens",
    "response_completion_tokens",
    "cost_usd",
    "cost_usd_per_record",
    "n_priced",
]


def latency(data: RunData, fresh_only: bool = False, benchmark: Benchmark | None = None) -> pd.DataFrame:
    """One row a configuration and stage (retrieval, post, response, total); columns as in `LATENCY_COLUMNS`.

    `n` records had the stage, `n_reused` of them with a call that was made for another record and that keeps the
    time it took then; `fresh_only` leaves these out. `mean_ms`, `std_ms` (sample, n − 1; NaN for one record; the paper
    doesn't say which it prints), `median_ms` and `p95_ms` (linear interpolation) are NaN where n is 0. `total` is the
    sum within each record, fresh when all its stages are. `concurrency` is the runs' requests at a time, all values
    that occur. `prompt_tokens` and `completion_tokens` are means over the records of the stage that tell them.
    """
    done = _done(data, benchmark)
    times = done[[f"{stage}_ms" for stage in STAGES]].apply(pd.to_numeric)
    times.columns = pd.Index(STAGES)
    reused = pd.DataFrame({stage: done[f"{stage}_reused"].eq(True).fillna(False) for stage in STAGES}).astype(bool)
    happened = times.notna()
    times["total"] = times[list(STAGES)].sum(axis=1, min_count=1)
    happened["total"] = times["total"].notna()
    reused["total"] = (reused & happened[list(STAGES)]).any(axis=1)
    parts = []
    for stage in (*STAGES, "total"):
        keep = happened[stage] & ~reused[stage] if fresh_only else happened[stage]
        part = done.loc[keep, [*KEY, "concurrency"]].copy()
        part["ms"] = times.loc[keep, stage]
        part["reused"] = reused.loc[keep, stage]
        for kind in ("prompt_tokens", "completion_tokens"):
            part[kind] = _tokens(done, stage, kind).loc[keep]
        parts.append(_statistics(part).assign(stage=stage))
    found = pd.concat(parts, ignore_index=True)
    skeleton = data.configurations[KEY].merge(pd.DataFrame({"stage": [*STAGES, "total"]}), how="cross")
    frame = skeleton.merge(found, on=[*KEY, "stage"], how="left")
    frame[["n", "n_reused"]] = frame[["n", "n_reused"]].fillna(0).astype(int)
    frame["concurrency"] = frame["concurrency"].astype(object).fillna("")
    return frame[LATENCY_COLUMNS]


def spending(data: RunData, benchmark: Benchmark | None = None) -> pd.DataFrame:
    """One row a configuration: sums of tokens by stage and of cost over its done records; columns `SPENDING_COLUMNS`.

    A record counts what its calls cost when they were made, also when they were made for another record, so sums over
    configurations exceed what was paid. `cost_usd` is over the `n_priced` records whose cost is known, NaN for none.
    """
    done = _done(data, benchmark)
    sums = [column for column in SPENDING_COLUMNS if column.endswith("_tokens")] + ["cost_usd"]
    numbers = done[KEY].join(done[sums].apply(pd.to_numeric))
    grouped = numbers.groupby(KEY, sort=False)
    frame = grouped[sums].sum(min_count=1)
    frame["n_done"] = grouped.size()
    frame["n_priced"] = grouped["cost_usd"].count()
    frame["cost_usd_per_record"] = frame["cost_usd"] / frame["n_priced"].where(frame["n_priced"] > 0)
    table = data.configurations[KEY].merge(frame.reset_index(), on=KEY, how="left")
    table[["n_done", "n_priced"]] = table[["n_done", "n_priced"]].fillna(0).astype(int)
    return table[SPENDING_COLUMNS]


def _done(data: RunData, benchmark: Benchmark | None) -> pd.DataFrame:
    done = data.records[data.records["status"] == "done"]
    if benchmark is not None:
        chosen = data.instances.loc[data.instances["benchmark"] == benchmark, "instance"]
        done = done[done["instance"].isin(chosen)]
    return done


def _tokens(done: pd.DataFrame, stage: str, kind: str) -> pd.Series:
    """Tokens of a stage by record; retrieval has none, and the total is the sum of what is known."""
    stages = {"retrieval": [], "total": ["post", "response"]}.get(stage, [stage])
    numbers = done[[f"{each}_{kind}" for each in stages]].apply(pd.to_numeric)
    return pd.Series(numbers.sum(axis=1, min_count=1), index=done.index, dtype=float)


def _statistics(part: pd.DataFrame) -> pd.DataFrame:
    grouped = part.groupby(KEY, sort=False)
    times = grouped["ms"]
    columns: dict[str, Any] = {
        "n": times.size(),
        "n_reused": grouped["reused"].sum(),
        "mean_ms": times.mean(),
        "std_ms": times.std(ddof=1),
        "median_ms": times.median(),
        "p95_ms": times.quantile(0.95),
        "concurrency": grouped["concurrency"].agg(_values),
        "prompt_tokens": grouped["prompt_tokens"].mean(),
        "completion_tokens": grouped["completion_tokens"].mean(),
    }
    return pd.DataFrame(columns).reset_index()


def _values(column: pd.Series) -> str:
    return ", ".join(str(int(value)) for value in sorted(column.dropna().unique()))
