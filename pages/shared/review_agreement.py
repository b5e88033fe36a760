"""How far reviewers agree, as it grows: by subtype, by reviewer, by pair; spot checks, and the time they take."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from opbench.analysis import reviewing
from opbench.figures import agreement as figures
from opbench.figures import theme
from opbench.store.review_answers import answers_frame, answers_version
from opbench.store.reviews import ReviewRow
from pages.shared import parts, results, review_people


@st.cache_data(max_entries=16, show_spinner="Working out the agreement…")
def _tables(review_id: str, version: int) -> dict[str, pd.DataFrame]:
    """All tables of the review as of its newest answer, which `version` names."""
    answers = answers_frame(results.opened().store, review_id)
    return {
        "agreement": reviewing.agreement(answers),
        "subtypes": reviewing.agreement(answers, "subtype"),
        "growth": reviewing.growth(answers),
        "reviewers": reviewing.reviewer_table(answers),
        "pairs": reviewing.pair_table(answers),
        "times": reviewing.times(answers),
    }


def draw(review: ReviewRow) -> None:
    """The tables, each with what its numbers are of."""
    version = answers_version(results.opened().store, review.id)
    if not version:
        st.info("Nobody has answered yet: agreement shows once items have two answers.", icon=":material/info:")
        return
    tables = _tables(review.id, version)
    parts.heading("Agreement")
    if len(tables["growth"]):
        figure = figures.agreement_growth(tables["growth"])
        parts.chart(figure, "review-growth", "Krippendorff's alpha and percent alike over the answers there were")
    if (tables["subtypes"]["doubly"] > 0).any():
        figure = figures.agreement_by(tables["subtypes"])
        parts.chart(figure, "review-agreement-by-subtype", "kappa and alpha of each subtype with 95 % intervals")
    _agreement(pd.concat([tables["agreement"], tables["subtypes"]]))
    parts.heading("Reviewers")
    _reviewers(tables["reviewers"])
    parts.heading("Pairs of reviewers")
    if len(tables["pairs"]):
        parts.chart(figures.pair_matrix(tables["pairs"]), "review-pair-matrix", "Cohen's kappa of each two reviewers")
    _pairs(tables["pairs"])
    parts.heading("Time an answer")
    _times(tables["times"])


def _agreement(frame: pd.DataFrame) -> None:
    shown = frame.assign(
        group=[theme.name(each) for each in frame["group"]],
        percent_ci=_intervals(frame, "percent", 1),
        kappa_ci=_intervals(frame, "kappa", 2),
        alpha_ci=_intervals(frame, "alpha", 2),
        score_alpha_ci=_intervals(frame, "score_alpha", 2),
    )
    columns: dict[str, Any] = {
        "group": "subtype",
        "doubly": st.column_config.NumberColumn("items", help="With two answers or more; spot checks left out"),
        "percent_ci": st.column_config.TextColumn("same verdict, %", help="Pairs of answers that are the same; 95 %"),
        "kappa_ci": st.column_config.TextColumn("Cohen's κ", help="Mean over pairs of reviewers; 95 % by item"),
        "alpha_ci": st.column_config.TextColumn("Krippendorff's α", help="Of verdicts, nominal; 95 % by item"),
        "score_alpha_ci": st.column_config.TextColumn("α of scores", help="Of the 0 to 1 scores, interval; 95 %"),
        "note": "note",
    }
    parts.table(shown, columns, "review-agreement", frame)
    parts.remark(
        "1 is perfect, 0 is what chance alone gives. Intervals are bootstrapped by item; where there are too few, "
        "there is none, and the note says so. The adjudicator's verdicts aren't among them."
    )


def _reviewers(frame: pd.DataFrame) -> None:
    shown = frame.assign(
        reviewer=[parts.as_label(each) for each in frame["reviewer"]],
        role=[review_people.ROLES[each] for each in frame["role"]],
        agree_ci=_intervals(frame, "agree", 1),
        spots=[
            theme.MISSING if not n else f"{right:.0f} % of {n} [{low:.0f}, {high:.0f}]"
            for n, right, low, high in zip(
                frame["spot_n"], frame["spot_right"], frame["spot_low"], frame["spot_high"], strict=True
            )
        ],
    )
    columns: dict[str, Any] = {
        "reviewer": "name",
        "role": "role",
        "answers": "answers",
        "shared": st.column_config.NumberColumn("shared", help="Items that somebody else has answered too"),
        "agree_ci": st.column_config.TextColumn("agrees, %", help="With others on the shared items; 95 %"),
        "kappa": st.column_config.NumberColumn("Cohen's κ", format="%.2f"),
        "spots": st.column_config.TextColumn("spot checks right", help="95 % (Wilson)"),
        "flagged": "flagged",
        "seconds_median": st.column_config.NumberColumn("median, s", format="%.0f", help="Time an answer"),
        "note": "note",
    }
    parts.table(shown, columns, "review-reviewers", frame)


def _pairs(frame: pd.DataFrame) -> None:
    if frame.empty:
        st.caption("No two reviewers have answered the same item yet.")
        return
    shown = frame.assign(
        first=[parts.as_label(each) for each in frame["first"]],
        second=[parts.as_label(each) for each in frame["second"]],
        kappa_ci=_intervals(frame, "kappa", 2),
    )
    columns: dict[str, Any] = {
        "first": "first",
        "second": "second",
        "n": st.column_config.NumberColumn("items", help="That both have answered"),
        "percent": st.column_config.NumberColumn("same verdict, %", format="%.1f"),
        "kappa_ci": st.column_config.TextColumn("Cohen's κ", help="95 % by item"),
        "note": "note",
    }
    parts.table(shown, columns, "review-pairs", frame)


def _times(frame: pd.DataFrame) -> None:
    shown = frame.assign(subtype=[theme.name(each) for each in frame["subtype"]])
    seconds = {
        name: st.column_config.NumberColumn(label, format="%.0f")
        for name, label in (("median", "median, s"), ("mean", "mean, s"), ("p95", "95th percentile, s"))
    }
    columns: dict[str, Any] = {"subtype": "subtype", "answers": "answers", "timed": "timed", **seconds}
    parts.table(shown, columns, "review-times", frame)
    parts.remark(
        "From showing an item to its answer, without the time that the page was hidden. Paper: about a minute."
    )


def _intervals(frame: pd.DataFrame, name: str, digits: int) -> list[str]:
    """Values with their intervals as a cell has them."""
    told = []
    for value, low, high in zip(frame[name], frame[f"{name}_low"], frame[f"{name}_high"], strict=True):
        if pd.isna(value):
            told.append(theme.MISSING)
        elif pd.isna(low):
            told.append(f"{value:.{digits}f}")
        else:
            told.append(f"{value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]")
    return told
