"""The Judges page's section on people: how far each judge's scores agree with theirs (paper, table 5), where they
differ, and the cases on which they differ most."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
import streamlit as st

from opbench.calibration import sets, statistics
from opbench.calibration.statistics import Cluster
from opbench.figures import calibration as figures
from opbench.figures import theme
from pages.shared import collecting, judged, judges_sets, link, parts, texts
from pages.shared.judged import Looked

CLUSTERS: dict[str, str] = {"pair": "question", "user": "user"}
_CLUSTERS: tuple[Cluster, ...] = ("pair", "user")
_WORST = 10
WHAT_IT_IS = (
    "Correlations say whether a judge puts responses in people's order, errors whether its numbers are people's. "
    "Responses to one question are no independent evidence, so intervals (95 %) draw questions anew, or users. "
    "Repetition is measured, not judged, and no part of this. The control scores at random: a judge that isn't told "
    "apart from it shows no agreement."
)
INVENTED = (
    "These cases and their scores are invented, since the data folder has no appendix: they show how this page works, "
    "and say nothing of a judge. With the real data (Data page) the published ones stand here."
)
NOT_PEOPLE = (
    "The published cases' scores are no people's: the paper's judge gave them to its examples, and its authors to the "
    "good answers beside these. Where it says “people” above, read “the paper”. All are over-personalised answers with "
    "their good counterparts, so a judge that tells these two apart agrees well already."
)
PUBLISHED = (
    "The paper's table 5 compares judges on 200 responses to 100 queries. Its responses and people's scores aren't "
    "public, so nothing here can be set beside its numbers."
)


def show() -> None:
    """All of the section."""
    rows = judged.sets("run", "review", "csv", "published")
    if not rows:
        st.info(
            "There is no set of responses with people's scores yet. Make one here, then have judges score it.",
            icon=":material/groups:",
        )
        judges_sets.offer()
        return
    with st.container(horizontal=True, vertical_alignment="bottom"):
        looked = judged.pick(rows, "Responses with people's scores", "set")
        cluster = link.one_of("Intervals by", _CLUSTERS, "cluster", kind="segmented", names=CLUSTERS)
    _marks(looked)
    with st.expander("Other sets: make, read in, rename, delete", icon=":material/library_add:"):
        judges_sets.offer()
        judges_sets.steer(looked.row)
    if not looked.judgings:
        st.info("No judge has scored these responses yet: start some under “Judging”.", icon=":material/gavel:")
        return
    frame = statistics.agreement_with_people(looked.pairs, cluster=cluster)
    _agreement(looked, frame)
    _one_judge(looked, cluster)
    parts.remark(WHAT_IT_IS)
    if _invented(looked):
        parts.remark(INVENTED)
    else:
        parts.remark(NOT_PEOPLE if looked.row.kind == "published" else PUBLISHED)


def _invented(looked: Looked) -> bool:
    return bool(looked.row.source.get("origin") == sets.INVENTED)


def _marks(looked: Looked) -> None:
    scored = "with the paper's scores" if looked.row.kind == "published" else "scored by people"
    if _invented(looked):
        scored = "with invented scores"
    rated = f"{looked.row.rated:,} of {looked.row.items:,} responses {scored}"
    kind = judged.KINDS.get(looked.row.kind, looked.row.kind)
    facts = [kind, rated]
    if origin := looked.row.source.get("origin"):
        facts.append(f"origin: {origin}")
    collecting.sheet().marks += [f"set {looked.row.id}: {looked.row.name}", *facts]
    collecting.sheet().provenance |= {"set": looked.row.id, "source": looked.row.source}
    with st.container(horizontal=True, gap="small"):
        for fact in facts:
            st.badge(parts.plain(fact), color="gray")


def _agreement(looked: Looked, frame: pd.DataFrame) -> None:
    parts.heading("Agreement with people, and what it took")
    parts.chart(
        figures.correlations(frame),
        "agreement",
        "Spearman's and Pearson's correlation of each judge with people, with intervals; the table has the numbers",
    )
    for row in frame.to_dict("records"):
        parts.remark(statistics.verdict(pd.Series(row)))
    parts.chart(
        figures.errors(frame),
        "errors",
        "Mean error and mean absolute error of each judge against people, with intervals; the table has the numbers",
    )
    taken = judged.taken(looked.judgings)
    whole = frame.merge(taken.drop(columns=["label", "missing"]), on="judging", how="left")
    shown = whole.assign(**{f"{name}_within": judged.intervals(whole, name) for name in _NUMBERS})
    number = st.column_config.NumberColumn
    columns: dict[str, Any] = {"label": "judge · prompts", "control": ""}
    for name, words in _NUMBERS.items():
        columns |= {name: number(words, format="%.2f"), f"{name}_within": f"95 % of {words}"}
    columns |= {
        "n": number("responses"),
        "clusters": number("questions or users"),
        "missing": number("without a score", help="Scored by people and not by the judge"),
        "cost_usd": number("cost", format="$%.4f", help="By list price, for all of the set"),
        "time": st.column_config.TextColumn("time", help="Of all calls one after the other"),
        "note": "remark",
    }
    parts.table(shown, columns, "judge-agreement", whole)


_NUMBERS = {
    "spearman": "Spearman's rho",
    "pearson": "Pearson's r",
    "error": "mean error",
    "absolute_error": "mean absolute error",
}


def _one_judge(looked: Looked, cluster: Cluster) -> None:
    parts.heading("One judge, response by response")
    names = {row.id: row.label for row in looked.judgings}
    chosen = link.one_of("Judge", list(names), "judging", names=_told_apart(names), width=320)
    mine = looked.pairs[looked.pairs["judging"] == chosen]
    if mine[["people", "value"]].dropna().empty:
        why = mine["reason"].dropna()
        reason = f" The first one because: {why.iloc[0]}." if len(why) else ""
        st.info(parts.plain(f"No response has a score of both.{reason}"), icon=":material/hourglass_empty:")
        return
    by_subtype = statistics.agreement_with_people(mine, "subtype", cluster)
    left, right = st.columns(2, gap="medium")
    with left:
        parts.chart(
            figures.people_and_judge(mine, names[chosen]),
            "people-and-judge",
            "People's scores against the judge's, a dot a response",
        )
    with right:
        parts.chart(
            figures.residuals(mine, by_subtype, names[chosen]),
            "residuals",
            "Judge minus people, a dot a response, by subtype, with means and intervals; the table has the means",
        )
    shown = by_subtype.assign(
        group=[theme.name(each) for each in by_subtype["group"]],
        **{f"{name}_within": judged.intervals(by_subtype, name) for name in ("spearman", "error")},
    )
    number = st.column_config.NumberColumn
    columns: dict[str, Any] = {
        "group": "subtype",
        "error": number("mean error", format="%+.2f", help="Above 0: the judge is kinder than people"),
        "error_within": "95 % of it",
        "absolute_error": number("mean absolute error", format="%.2f"),
        "spearman": number("Spearman's rho", format="%.2f"),
        "spearman_within": "95 % of rho",
        "n": number("responses"),
        "missing": number("without a score"),
        "note": "remark",
    }
    parts.table(shown, columns, "residuals", by_subtype)
    _pairs_table(mine)
    _worst(looked, chosen)


def _told_apart(names: dict[str, str]) -> dict[str, str]:
    labels = list(names.values())
    return {key: f"{label} · {key[:6]}" if labels.count(label) > 1 else label for key, label in names.items()}


def _pairs_table(mine: pd.DataFrame) -> None:
    number = st.column_config.NumberColumn
    columns: dict[str, Any] = {
        "item": "response",
        "subtype": "subtype",
        "people": number("people", format="%.2f"),
        "raters": number("people who scored"),
        "value": number("judge", format="%.2f"),
        "residual": number("judge − people", format="%+.2f"),
        "reason": "no score because",
    }
    with st.expander("All responses as a table", icon=":material/table_rows:"):
        parts.table(mine, columns, "responses", mine, texts=("question", "response", "raw"))


def _worst(looked: Looked, judging: str) -> None:
    parts.heading("Where they differ most")
    rows: list[dict[Any, Any]] = statistics.worst(looked.pairs, judging, _WORST).to_dict("records")
    for place, row in enumerate(rows, start=1):
        said = f"{place}. {row['subtype']}: people {row['people']:.2f}, judge {row['value']:.2f}"
        with st.expander(parts.plain(said), expanded=place == 1):
            st.caption(parts.plain(f"{row['item']} · {row['user']}"))
            texts.show("Question", row["question"], f"worst-question-{place}")
            texts.show("Response", row["response"], f"worst-response-{place}")
            raw = row["raw"] if isinstance(row["raw"], str) else None
            texts.show("What the judge replied", raw, f"worst-raw-{place}", absent="it judges by rule")
    if not rows or math.isclose(abs(rows[0]["residual"]), 0.0):
        parts.remark("They differ on none of these responses.")
