"""The Judges page's section on what needs no people: the same score when asked again, wrong answers made on purpose,
and answers of several shapes."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from opbench.calibration import position, selfconsistency, traps
from opbench.figures import calibration as figures
from pages.shared import judged, judges_sets, parts
from pages.shared.judged import Looked


def show() -> None:
    """All of the section."""
    _repeats()
    _of_set(
        "traps",
        "Wrong answers on purpose",
        "Answers to LoCoMo questions that are wrong by construction, of several kinds, and a right one to each "
        "question. A judge that accepts the wrong ones makes every system look better than it is.",
        _traps,
    )
    _of_set(
        "bias",
        "Place and length",
        "The same right and wrong facts at the beginning, in the middle or at the end of an answer, and among more or "
        "fewer sentences that say nothing: a judge that minds neither gives all of them one verdict.",
        _bias,
    )


def _repeats() -> None:
    parts.heading("Asked again")
    rows = judged.sets(*judged.KINDS)
    if not rows:
        st.info(
            "There is no set of responses yet: make one below, or under “Against people”.", icon=":material/repeat:"
        )
        return
    repeated = judged.repeated()
    rows.sort(key=lambda row: row.id not in repeated)
    looked = judged.pick(rows, "Responses that were judged more than once", "repeated")
    several = [row for row in looked.judgings if row.repeats > 1]
    if not several:
        st.info(
            "No judge has scored these responses more than once: start one with several repeats under “Judging”. At "
            "temperature 0 differences come from the endpoint alone.",
            icon=":material/repeat:",
        )
        return
    ids = tuple(row.id for row in several)
    frame = selfconsistency.self_consistency(
        judged.judgements(ids, judged.seen(several)), {row.id: row.label for row in several}
    )
    parts.chart(
        figures.consistency(frame), "consistency", "Share of responses with the same score each time; the table has it"
    )
    number = st.column_config.NumberColumn
    shown = frame.assign(
        same_within=judged.intervals(frame, "same", 1), spread_within=judged.intervals(frame, "spread")
    )
    columns: dict[str, Any] = {
        "label": "judge · prompts",
        "same": number("the same each time, %", format="%.1f"),
        "same_within": "95 % of it",
        "spread": number("spread", format="%.3f", help="Mean standard deviation of a response's scores"),
        "spread_within": "95 % of the spread",
        "largest": number("largest difference", format="%.2f"),
        "reliability": number("ICC(1)", format="%.2f", help="Share of the scores' variance between responses"),
        "n": number("responses"),
        "repeats": number("repeats"),
        "missing": number("without a score"),
        "note": "remark",
    }
    parts.table(shown, columns, "consistency", frame)


def _of_set(kind: str, head: str, what: str, draw: Any) -> None:
    parts.heading(head)
    parts.remark(what)
    rows = judged.sets(kind)
    if not rows:
        judges_sets.offer_made(kind)
        return
    looked = judged.pick(rows, "Answers", f"{kind}-set")
    if not looked.judgings:
        st.info("No judge has scored these answers yet: start some under “Judging”.", icon=":material/gavel:")
        return
    draw(looked)


def _traps(looked: Looked) -> None:
    frame = traps.acceptance(looked.pairs)
    if _verdicts(frame, "rate"):
        parts.chart(
            figures.acceptance(frame[frame["rate"].notna()]),
            "acceptance",
            "Percent of answers that each judge accepts, by how they are wrong, with intervals; the table has them",
        )
    number = st.column_config.NumberColumn
    shown = frame.assign(
        meaning=[traps.KINDS.get(kind, "") for kind in frame["kind"]],
        should=["accept" if not wrong else "refuse" for wrong in frame["wrong"]],
        within=_within(frame),
    )
    columns: dict[str, Any] = {
        "label": "judge · prompts",
        "kind": "kind",
        "meaning": "what it is",
        "should": "should",
        "rate": number("accepted, %", format="%.1f"),
        "within": "95 %",
        "accepted": number("accepted"),
        "n": number("of"),
        "missing": number("without a verdict"),
        "note": "remark",
    }
    parts.table(shown, columns, "acceptance", frame)


def _bias(looked: Looked) -> None:
    frame = position.bias(looked.pairs)
    if _verdicts(frame, "difference"):
        parts.chart(
            figures.bias(frame[frame["difference"].notna()]),
            "bias",
            "Points of acceptance that place and length add, by judge, with intervals; the table has them",
        )
    number = st.column_config.NumberColumn
    shown = frame.assign(within=_within(frame))
    columns: dict[str, Any] = {
        "label": "judge · prompts",
        "effect": "effect",
        "answers": "answers",
        "difference": number("points", format="%+.1f", help="Share accepted with it less the share without"),
        "within": "95 %",
        "without": number("accepted without, %", format="%.1f"),
        "with_it": number("with it, %", format="%.1f"),
        "n": number("questions"),
        "missing": number("without a verdict"),
        "p": number("p", format="%.3f"),
        "note": "remark",
    }
    parts.table(shown, columns, "bias", frame)


def _verdicts(frame: pd.DataFrame, column: str) -> bool:
    """Whether there is anything to draw; else it is said why."""
    if frame[column].notna().any():
        return True
    why = frame["note"].iloc[0] if len(frame) else "nothing was judged"
    st.info(parts.plain(f"No judge has given a verdict on these answers: {why}."), icon=":material/gavel:")
    return False


def _within(frame: pd.DataFrame) -> list[str]:
    return [
        "no interval" if pd.isna(low) else f"{low:.1f} to {high:.1f}".replace("-", "−")
        for low, high in zip(frame["low"], frame["high"], strict=True)
    ]
