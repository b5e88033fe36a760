"""What pages read of sets and judgings: kept until somebody judged further."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd
import streamlit as st

from opbench.calibration import pairs, random_judge
from opbench.store import judgings as kept
from opbench.store.judgings import JudgingRow, SetRow
from pages.shared import link, results, wording

Seen = tuple[tuple[str, int, int, int], ...]
"""Changes when one of the judgings went on."""
CONTROL = random_judge.NAME
#: What kinds of sets are called.
KINDS = {
    "run": "scores of a run",
    "review": "a review",
    "csv": "a CSV file",
    "published": "published cases",
    "traps": "traps",
    "bias": "place and length",
}


@dataclass(frozen=True, slots=True)
class Looked:
    """A set with its judgings and their scores beside people's (`pairs.paired`)."""

    row: SetRow
    judgings: list[JudgingRow]
    pairs: pd.DataFrame

    @property
    def seen(self) -> Seen:
        return seen(self.judgings)


def sets(*kinds: str) -> list[SetRow]:
    """The sets of these kinds, newest first."""
    return [row for row in kept.set_list(results.opened().store) if row.kind in kinds]


def of_run(run_id: str) -> list[JudgingRow]:
    return kept.judging_list(results.opened().store, run_id=run_id)


def of_set(set_id: str) -> list[JudgingRow]:
    return kept.judging_list(results.opened().store, set_id=set_id)


def runs() -> list[str]:
    """Runs that were judged again, those with the most judgements first."""
    counts: dict[str, int] = {}
    for row in kept.judging_list(results.opened().store):
        if row.run_id is not None:
            counts[row.run_id] = counts.get(row.run_id, 0) + row.judgements
    return sorted(counts, key=lambda run_id: (-counts[run_id], run_id))


def repeated() -> set[str]:
    """The sets that a judge has scored more than once."""
    rows = kept.judging_list(results.opened().store)
    return {row.set_id for row in rows if row.set_id is not None and row.repeats > 1 and row.judgements}


def seen(judgings: list[JudgingRow]) -> Seen:
    return tuple((row.id, row.judgements, row.missing, row.repeats) for row in judgings)


def pick(rows: list[SetRow], label: str, key: str) -> Looked:
    """One of the sets (some), chosen in the link, with its judgings."""
    names = {row.id: describe(row) for row in rows}
    chosen = link.one_of(label, list(names), key, names=names)
    row = next(row for row in rows if row.id == chosen)
    judgings = of_set(row.id)
    return Looked(row, judgings, _paired(row.id, seen(judgings)))


def describe(row: SetRow) -> str:
    """A set in a line. Nothing that changes belongs here."""
    return f"{row.name} · {row.items:,} responses · {row.id[:6]}"


@st.cache_data(max_entries=16, show_spinner="Reading the judgements…")
def _paired(set_id: str, as_of: Seen) -> pd.DataFrame:
    return pairs.paired(results.opened().store, set_id)


@st.cache_data(max_entries=16, show_spinner="Reading the judgements…")
def scores_of_run(judging_id: str, as_of: Seen) -> pd.DataFrame:
    """What a judge said of a run, in the shape of `RunData.scores`."""
    return kept.run_scores(results.opened().store, judging_id)


@st.cache_data(max_entries=16, show_spinner="Reading the judgements…")
def judgements(judging_ids: tuple[str, ...], as_of: Seen) -> pd.DataFrame:
    return kept.read_judgements(results.opened().store, judging_ids)


def taken(rows: list[JudgingRow]) -> pd.DataFrame:
    """What judgings took, a row each, for `parts.table` with `TAKEN_COLUMNS`."""
    return pd.DataFrame(
        [
            {
                "judging": row.id,
                "label": row.label,
                "control": "control" if row.judge == CONTROL else "",
                "repeats": row.repeats,
                "judgements": row.judgements,
                "missing": row.missing,
                "cost_usd": row.cost_usd,
                "prompt_tokens": row.prompt_tokens,
                "completion_tokens": row.completion_tokens,
                "seconds": row.seconds,
                "time": "not told" if row.seconds is None else wording.duration(row.seconds),
                "pack": str(row.provenance.get("pack", "")),
                "prompts_sha256": str(row.provenance.get("prompts_sha256", row.provenance.get("pack_sha256", ""))),
                "digest": row.digest,
            }
            for row in rows
        ]
    )


def taken_columns() -> dict[str, Any]:
    number = st.column_config.NumberColumn
    return {
        "label": "judge · prompts",
        "control": "",
        "repeats": number("repeats"),
        "judgements": number("judgements", format="localized"),
        "missing": number("without a score", format="localized"),
        "cost_usd": number("cost", format="$%.4f", help="By list price; calls that were there before count too"),
        "prompt_tokens": number("tokens in", format="localized"),
        "completion_tokens": number("tokens out", format="localized"),
        "time": st.column_config.TextColumn("time", help="Of all calls one after the other"),
    }


def intervals(frame: pd.DataFrame, name: str, digits: int = 2) -> list[str]:
    """`0.12 to 0.54` of a column's `_low` and `_high`; `no interval` where there is none."""
    return [
        "no interval" if pd.isna(low) else f"{_number(low, digits)} to {_number(high, digits)}"
        for low, high in zip(frame[f"{name}_low"], frame[f"{name}_high"], strict=True)
    ]


def _number(value: float, digits: int) -> str:
    # Adding 0 makes a negative nothing one without a sign.
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")
