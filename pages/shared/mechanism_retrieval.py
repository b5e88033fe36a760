"""The Mechanism page's section on retrieval: how alike questions and retrieved memories are, and when to abstain."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from opbench.analysis import retrieval_similarity as analysis
from opbench.analysis.retrieval_similarity import Which
from opbench.figures import retrieval_similarity as figures
from opbench.figures import theme
from opbench.figures.answers import Answer
from opbench.figures.dots import cosine
from opbench.figures.mechanism_answers import retrieval_answers
from opbench.store import similarities as kept
from opbench.store.reading import RunStatus
from opbench.store.rundata import RunData
from pages.shared import answering, collecting, link, parts, results
from pages.shared.mechanism_filters import Looked

WHICH: dict[str, str] = {"top1": "the most similar memory", "all": "all memories"}
_WHICH: tuple[Which, ...] = ("top1", "all")
_COMPARED = ("fully-irrelevant", "baiting", "locomo")
DEFINITION = (
    "Cosine of the question's and a memory's embedding, −1 to 1, by one embedder for all memory systems. What is "
    "retrieved is the same whatever the post-processor. The control, random memories of the same user, is what any "
    "memory comes to. The paper's figure 5 uses text-embedding-3-small and prints no numbers; cosines of different "
    "embedders can't be compared."
)


@st.cache_data(max_entries=16, show_spinner="Working out the similarities…")
def _tables(
    run_id: str, stamp: results.Stamp, embedder: str, seen: tuple[int, float], looked: Looked, which: Which
) -> dict[str, pd.DataFrame]:
    data = results.run_data(run_id, stamp)
    found = analysis.retrievals(data, kept.read_similarities(results.opened().store, run_id, embedder))
    # A filter on memory systems leaves the control where it is.
    mask = Looked(looked.users, looked.subtypes, (), (), looked.first_only).mask(found, data)
    if looked.memories:
        mask &= found["memory"].isin(looked.memories) | found["control"]
    found = found[mask].reset_index(drop=True)
    return {
        "found": found,
        "cosines": analysis.cosines(found, which),
        "means": analysis.similarity_table(found, which),
        "differences": analysis.similarity_differences(found, which),
        "abstain": analysis.should_abstain(found),
        "curves": analysis.abstention_curves(found),
        "separations": analysis.separations(found),
    }


def show(status: RunStatus, data: RunData, looked: Looked) -> None:
    """All of the section."""
    store = results.opened().store
    embedders = kept.measured_embedders(store, status.run_id)
    if not embedders:
        st.info(
            "How alike questions and memories are isn't measured for this run yet. It takes a minute, under "
            "“Measuring”.",
            icon=":material/hourglass_empty:",
        )
        return
    with st.container(horizontal=True, vertical_alignment="bottom"):
        default = data.study.embedder if data.study.embedder in embedders else None
        embedder = link.one_of("Measured by", embedders, "similarity-by", default=default, width=220)
        which = link.one_of("Of each question", _WHICH, "which", kind="segmented", names=WHICH)
    measured = kept.last_measured(store, status.run_id, embedder)
    tables = _tables(status.run_id, results.stamp(status), embedder, measured, looked, which)
    found = tables["found"]
    if not data.text_left_out and (left := kept.waiting_similarities(store, status.run_id, embedder)):
        parts.remark(
            f"{left:,} retrievals aren't measured by this embedder yet, or were made again since, and aren't in these "
            "numbers: see “Measuring”."
        )
    collecting.sheet().marks += [f"embedder: {embedder}", f"{len(found):,} retrievals", WHICH[which]]
    if found.empty:
        st.info(
            "None of the retrievals that were measured is among what is looked at.", icon=":material/filter_alt_off:"
        )
        return
    first = (
        tables if which == "top1" else _tables(status.run_id, results.stamp(status), embedder, measured, looked, "top1")
    )
    sentences = retrieval_answers(*(first[each] for each in ("means", "differences", "abstain", "separations")))
    answering.say([Answer("By the most similar memory of each question", tuple(sentences))])
    mark = theme.provenance(recorded=status.recorded, comparable=False)
    _spread(tables | {"cosines": _compared(tables["cosines"], looked)}, which, mark)
    _abstaining(tables, mark)
    parts.remark(DEFINITION)
    if not found["control"].any():
        parts.remark("There is no control: neither has the run random memories, nor could they be drawn.")
    elif (found["control"] & ~found["memory"].isin(data.configurations["memory"])).any():
        parts.remark("The control was drawn for this measurement: the run itself has no random memories.")


def _compared(cosines: pd.DataFrame, looked: Looked) -> pd.DataFrame:
    """What is drawn over one another: the paper's two groups and LoCoMo, unless subtypes are chosen; six groups in one
    panel are nothing to read."""
    few = cosines[cosines["group"].isin(_COMPARED)]
    if looked.subtypes or few["group"].nunique() < 2 or len(few) == len(cosines):
        return cosines
    parts.remark(
        "The distributions are of fully irrelevant and baiting questions, as in the paper's figure 5, and of LoCoMo's "
        "where there are any. Choose subtypes above for others; means and tables have all."
    )
    return few


def _spread(tables: dict[str, pd.DataFrame], which: Which, mark: str) -> None:
    parts.heading("Similarity of question and memory")
    parts.chart(
        figures.similarity_figure(tables["cosines"], mark),
        "similarity",
        "How cosines of questions and memories are spread, a panel a memory system, a line a group of questions",
    )
    parts.remark("Dotted uprights are the means. Shares are of each group's own cosines.")
    parts.chart(
        figures.mean_figure(tables["means"], mark),
        "similarity-means",
        "Mean cosine by memory system and group of questions, with intervals; the table has the numbers",
    )
    means = tables["means"]
    number = st.column_config.NumberColumn
    shown = _named(means).assign(within=_within(means))
    columns: dict[str, Any] = {
        "memory": "memory",
        "group": "questions",
        "mean": number("mean", format="%.3f"),
        "within": "95 %",
        "median": number("median", format="%.3f"),
        "sd": number("sd", format="%.3f", help="Standard deviation"),
        "n": number("questions"),
        "n_empty": number("without memory", help="Questions for which nothing was retrieved"),
        "n_cosines": number("cosines"),
        "users": number("users"),
        "reason": "no interval because",
    }
    parts.table(shown, _told(columns, means), "similarity-means", means)
    differences = tables["differences"]
    if len(differences):
        shown = _named(differences).assign(
            against=[figures.group_label(each) for each in differences["against"]], within=_within(differences)
        )
        columns = {
            "memory": "memory",
            "group": "questions",
            "against": "against",
            "difference": number("difference of means", format="%+.3f", help="Below 0: less alike"),
            "within": "95 %",
            "n": number("n"),
            "n_against": number("n against"),
            "users": number("users"),
            "reason": "no interval because",
        }
        parts.table(shown, _told(columns, differences), "similarity-differences", differences)


def _abstaining(tables: dict[str, pd.DataFrame], mark: str) -> None:
    parts.heading("Retrievals that should have abstained")
    abstain = tables["abstain"]
    number = st.column_config.NumberColumn
    if abstain.empty:
        parts.remark("No fully irrelevant question is among what is looked at: for none of the others is it known.")
    else:
        shown = _named(abstain).assign(share=100 * abstain["share"], within=_shares(abstain))
        columns: dict[str, Any] = {
            "memory": "memory",
            "share": number("retrieved all the same", format="%.0f %%", help="Of fully irrelevant questions"),
            "within": "95 %",
            "n_retrieved": number("retrieved"),
            "n": number("of"),
            "users": number("users"),
            "reason": "no interval because",
        }
        parts.table(shown, _told(columns, abstain), "should-abstain", abstain)
        parts.remark(
            "To a fully irrelevant question no memory is of use (paper, section 3.2.1): whatever was retrieved for one "
            "should have been left."
        )
    if tables["separations"].empty:
        return
    parts.chart(
        figures.abstention_figure(tables["curves"], mark),
        "abstention",
        "For which share of questions a retriever would abstain below a threshold, by group of questions",
    )
    parts.chart(
        figures.separation_figure(tables["separations"], mark),
        "separation",
        "Whether similarity tells groups of questions apart: areas under the curve with intervals",
    )
    frame = tables["separations"]
    shown = _named(frame).assign(
        against=[figures.group_label(each) for each in frame["against"]],
        within=_within(frame),
        abstains=100 * frame["abstains"],
        loses=100 * frame["loses"],
    )
    columns = {
        "memory": "memory",
        "group": "abstain from",
        "against": "keep",
        "auc": number("area", format="%.2f", help="0.5: not told apart, 1: entirely"),
        "within": "95 %",
        "threshold": number("best threshold", format="%.2f", help="On these very questions"),
        "abstains": number("abstains", format="%.0f %%", help="Of the first group; threshold of the other users"),
        "loses": number("loses", format="%.0f %%", help="Of the second group; threshold of the other users"),
        "n": number("n"),
        "n_against": number("n against"),
        "users": number("users"),
        "reason": "no interval because",
    }
    parts.table(shown, _told(columns, frame), "separation", frame)
    parts.remark(
        "The best threshold is of these very questions. What it abstains from and loses is counted for each user by "
        "the threshold that is best for all others, so that no question has a say in its own."
    )


def _named(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(
        memory=[theme.name(each) for each in frame["memory"]],
        **({"group": [figures.group_label(each) for each in frame["group"]]} if "group" in frame else {}),
    )


def _within(frame: pd.DataFrame) -> list[str]:
    return [
        theme.MISSING if pd.isna(low) else f"{cosine(low)} to {cosine(high)}"
        for low, high in zip(frame["low"], frame["high"], strict=True)
    ]


def _shares(frame: pd.DataFrame) -> list[str]:
    return [
        theme.MISSING if pd.isna(low) else f"{theme.share(low)} to {theme.share(high)}"
        for low, high in zip(frame["low"], frame["high"], strict=True)
    ]


def _told(columns: dict[str, Any], frame: pd.DataFrame) -> dict[str, Any]:
    """The columns, without the reasons where every interval is there."""
    return columns if frame["reason"].any() else {name: look for name, look in columns.items() if name != "reason"}
