"""The paper's published figures (`results/published/`), under the registry's names and in the shape of measured tables.

Every frame says `published` in its `source`; figures that the paper doesn't give (n, medians, units) are NaN or named
as not told, so that nothing published is mistaken for something measured.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from opbench.analysis.aggregate import Rule, aggregate
from opbench.analysis.compare import Kind, gap_of
from opbench.analysis.latency import LATENCY_COLUMNS
from opbench.analysis.op import SUBSCORE_COLUMNS
from opbench.analysis.tradeoff import TRADEOFF_COLUMNS, with_front
from opbench.errors import DataError
from opbench.settings import ROOT
from opbench.study import BASE, NO_MITIGATION

FOLDER = ROOT / "results" / "published"
UNIT_NOT_TOLD = "points or % isn't told"
#: Table 9 has several metrics, and figure 6 names none; all of them are by MemOS's evaluation (paper, B.4), and so to
#: be compared with LoCoMo by protocol memos only.
LOCOMO_METRIC = "not told, by MemOS's evaluation"
#: Figures 6 and 7 show this model (paper, section 4.4).
MITIGATION_MODEL = "gpt-4o-mini"

MODELS = {
    "GPT-4o-mini": "gpt-4o-mini",
    "Gemini-2.5-flash": "gemini-2.5-flash",
    "Qwen3-32B": "qwen3-32b",
    "Qwen3-8B": "qwen3-8b",
}
MEMORIES = {"BASE": BASE, "RAG": "rag", "Mem0": "mem0", "MemU": "memu", "MEMOS": "memos"}
MITIGATIONS = {
    "Reminder": "reminder",
    "Self-Critic": "self-critic",
    "Few-Shot-CoT": "few-shot-cot",
    "ComoRAG": "comorag",
    "MARAG": "marag",
}
BENCHMARKS = {"OP-Bench": "op", "LoCoMo": "locomo"}
STAGES = {"Memory retrieval": "retrieval", "Post-processing": "post", "Model response": "response"}
SUBTYPES = {
    "Fully irrelevant": "fully-irrelevant",
    "Baiting": "baiting",
    "Response diversity": "repetition",
    "Fact-level": "fact",
    "Value-level": "value",
    "Memory-level": "memory",
}


def op_scores(rule: Rule | None = None, weights: dict[str, int] | None = None) -> pd.DataFrame:
    """Table 2, 20 rows: model, memory, mitigation, the six sub-scores, avg_op (points), drop (% below BASE), op, rule.

    `op` is the published average, made by different rules (`rule` column `published`), or, when `rule` is given, the
    average recomputed by that one rule with `weights` (default: all 1,700 instances).
    """
    frame = _read("op_scores.csv", {"model": MODELS, "memory": MEMORIES})
    frame.insert(2, "mitigation", NO_MITIGATION)
    if rule is None:
        return frame.assign(op=frame["avg_op"], rule="published", source="published")
    chosen = weights or {str(row["subtype"]): int(row["count"]) for row in counts().to_dict("records")}
    frame["op"] = [
        aggregate({subtype: float(row[column]) for subtype, column in SUBSCORE_COLUMNS.items()}, chosen, rule)
        for row in frame.to_dict("records")
    ]
    return frame.assign(rule=rule, source="published")


def mitigation_changes() -> pd.DataFrame:
    """Figure 6: benchmark (op or locomo), memory, mitigation, change. Whether points or percent isn't told."""
    names = {"benchmark": BENCHMARKS, "memory": MEMORIES, "mitigation": MITIGATIONS}
    return _read("mitigation_changes.csv", names)


def counts() -> pd.DataFrame:
    """Table 1: category, subtype, count; 1,700 instances."""
    frame = _read("counts.csv", {"subtype": SUBTYPES})
    return frame.assign(category=frame["category"].str.lower())


def tradeoff() -> pd.DataFrame:
    """Figure 6 in the shape of `opbench.analysis.tradeoff.tradeoff`.

    `unit` says that it isn't told, and `op_points` and `locomo_points` are the changes as printed, in that unit; n,
    intervals and p are NaN, there are no verdicts and no controls.
    """
    wide = mitigation_changes().pivot(index=["memory", "mitigation"], columns="benchmark", values="change")
    order = pd.MultiIndex.from_product(
        [[name for name in MEMORIES.values() if name != BASE], MITIGATIONS.values()], names=["memory", "mitigation"]
    )
    frame = wide.reindex(order).reset_index()
    for benchmark in ("op", "locomo"):
        frame = frame.rename(columns={benchmark: f"{benchmark}_change"})
        frame[f"{benchmark}_points"] = frame[f"{benchmark}_change"]
        frame[[f"{benchmark}_{name}" for name in ("low", "high", "p", "p_holm", "users", "n", "n_planned")]] = np.nan
        frame[[f"{benchmark}_{name}" for name in ("verdict", "note")]] = ""
        frame[f"{benchmark}_interval_note"] = "no intervals are published"
    frame = frame.assign(
        model=MITIGATION_MODEL,
        control=False,
        left_out="",
        locomo_metric=LOCOMO_METRIC,
        unit=UNIT_NOT_TOLD,
        source="published",
        comparable=True,
    )
    return with_front(frame)[TRADEOFF_COLUMNS]


def oracle_gap(kind: Kind) -> pd.DataFrame:
    """Figure 7 (GPT-4o-mini), worked out: the published averages plus figure 6's changes, read as `kind`.

    Columns: model, memory, mitigation, op, gap_closed, gap_n, gap_reason, n_scored, n_planned (all n are NaN), source.
    The paper prints no numbers for this figure, and BASE and RAG are averaged by another rule than the other rows.
    """
    table = op_scores()
    averages = table[table["model"] == MITIGATION_MODEL].set_index("memory")["avg_op"].to_dict()
    rows: list[dict[str, Any]] = [
        {"memory": memory, "mitigation": NO_MITIGATION, "op": average, "gap_closed": np.nan, "gap_reason": "reference"}
        for memory, average in averages.items()
    ]
    changes = mitigation_changes()
    for row in changes[changes["benchmark"] == "op"].to_dict("records"):
        system = averages[row["memory"]]
        method = system + (row["change"] if kind == "points" else system * row["change"] / 100.0)
        gap = gap_of(method, system, averages[BASE])
        rows.append(
            {
                "memory": row["memory"],
                "mitigation": row["mitigation"],
                "op": method,
                "gap_closed": gap.closed,
                "gap_reason": gap.reason,
            }
        )
    frame = pd.DataFrame(rows).assign(
        model=MITIGATION_MODEL, gap_n=np.nan, n_scored=np.nan, n_planned=np.nan, source="published"
    )
    lead = ["model", "memory", "mitigation", "op", "gap_closed", "gap_n", "gap_reason"]
    return frame[[*lead, "n_scored", "n_planned", "source"]]


def latency() -> pd.DataFrame:
    """Table 11 in the shape of `opbench.analysis.latency.latency`, milliseconds; n, median, p95 and load aren't told.

    The `total` rows are the sums of the stages' means; their std is NaN, since it can't be known from the stages'.
    """
    stages = _read("latency.csv", {"mitigation": MITIGATIONS, "stage": STAGES})
    totals = stages.groupby("mitigation", sort=False)["mean_ms"].sum().reset_index()
    frame = pd.concat([stages, totals.assign(stage="total", std_ms=np.nan)], ignore_index=True)
    frame["mitigation"] = pd.Categorical(frame["mitigation"], list(MITIGATIONS.values()))
    frame = frame.sort_values("mitigation", kind="stable").astype({"mitigation": object})
    untold = dict.fromkeys(["n", "n_reused", "median_ms", "p95_ms", "prompt_tokens", "completion_tokens"], np.nan)
    return frame.assign(model="", memory="", concurrency="", **untold)[LATENCY_COLUMNS].reset_index(drop=True)


def differences(results_json: Path) -> list[str]:
    """What differs between `results/published/` and the published `op_bench_results.json`; empty when all is equal.

    Raises:
        DataError: the file can't be read or hasn't the published shape.
    """
    try:
        published = json.loads(results_json.read_text(encoding="utf-8"))
        theirs = _from_json(published)
    except OSError as error:
        raise DataError(f"{results_json}: can't be read ({error.strerror}). Set OPBENCH_DATA to the data.") from error
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise DataError(f"{results_json}: isn't JSON ({error}). Fetch it again.") from error
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{results_json}: hasn't the published shape (at {error}). Fetch it again.") from error
    found: list[str] = []
    for name, rows in theirs.items():
        width = len(_KEYS[name])
        ours = {tuple(row[:width]): row[width:] for row in _raw(name).itertuples(index=False, name=None)}
        for where in sorted(set(ours) | set(rows), key=str):
            here, there = ours.get(where), rows.get(where)
            if here is None or there is None or [float(value) for value in here] != [float(value) for value in there]:
                found.append(f"{name}: {' '.join(where)}: {here} here, {there} there")
    return found


_KEYS = {
    "op_scores.csv": ("model", "memory"),
    "mitigation_changes.csv": ("benchmark", "memory", "mitigation"),
    "latency.csv": ("mitigation", "stage"),
    "counts.csv": ("category", "subtype"),
}


_Rows = dict[tuple[str, ...], tuple[float, ...]]


def _from_json(published: dict[str, Any]) -> dict[str, _Rows]:
    """The published JSON as rows of the four files: key to numbers."""
    scores: _Rows = {
        (model, row["method"]): (*row["values"], row["drop"])
        for model, rows in published["rq1"]["models"].items()
        for row in rows
    }
    changes: _Rows = {
        (benchmark, memory, method): (value,)
        for benchmark, memories in published["rq3"]["deltas"].items()
        for memory, values in memories.items()
        for method, value in zip(published["rq3"]["methods"], values, strict=True)
    }
    stages = published["rq4"]["columns"][:3]
    times: _Rows = {
        (row["method"], stage): (mean, std)
        for row in published["rq4"]["latency"]
        for stage, mean, std in zip(stages, row["values"], row["std"], strict=True)
    }
    numbers: _Rows = {
        (category["label"], subtype["label"]): (subtype["count"],)
        for category in published["overview"]["categories"]
        for subtype in category["subcategories"]
    }
    return {"op_scores.csv": scores, "mitigation_changes.csv": changes, "latency.csv": times, "counts.csv": numbers}


@lru_cache(maxsize=8)
def _raw(name: str) -> pd.DataFrame:
    file = FOLDER / name
    try:
        return pd.read_csv(file)
    except (OSError, ValueError) as error:
        raise DataError(f"{file}: can't be read ({error}). Restore it from the repository.") from error


def _read(name: str, names: dict[str, dict[str, str]]) -> pd.DataFrame:
    """A published file with the paper's names replaced by ours.

    Raises:
        DataError: the file can't be read, or holds a name that has none of ours.
    """
    frame = _raw(name).copy()
    for column, mapping in names.items():
        unknown = sorted(set(frame[column]) - set(mapping))
        if unknown:
            raise DataError(f"{FOLDER / name}: column '{column}': no name for {', '.join(map(str, unknown))}.")
        frame[column] = frame[column].map(mapping)
    return frame
