"""The Judges page's section on rankings: does the order of a run's configurations survive another judge, other prompts,
another averaging rule?"""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from opbench.analysis import flips, stability
from opbench.analysis.aggregate import Rule
from opbench.analysis.grids import Key, configuration_keys
from opbench.figures import stability as figures
from opbench.figures import theme
from opbench.store.judgings import JudgingRow
from opbench.store.rundata import RunData
from pages.shared import collecting, judged, link, parts, results, view

WHAT_IT_IS = (
    "All views rest on the same records: those that every judge has scored, over the instances that all configurations "
    "have. Repetition is measured by embeddings and not judged, so it is the same under every judge, the control "
    "included. The control scores at random: what it keeps of the order is what repetition and chance give."
)


@st.cache_data(max_entries=16, show_spinner="Working out the rankings…")
def _tables(
    run_id: str,
    stamp: results.Stamp,
    chosen: judged.Seen,
    labels: tuple[tuple[str, bool], ...],
    rule: Rule,
    first_only: bool,
    only: tuple[Key, ...],
) -> tuple[stability.Views, pd.DataFrame, pd.DataFrame, pd.DataFrame, str]:
    scores = {label: judged.scores_of_run(each[0], chosen) for (label, _), each in zip(labels, chosen, strict=True)}
    controls = {label for label, control in labels if control}
    found = stability.views(
        results.run_data(run_id, stamp), scores, controls=controls, rule=rule, first_only=first_only, only=only
    )
    correlations, turned = stability.correlation_table(found), flips.flip_table(found)
    return found, stability.order_table(found), correlations, turned, flips.meaning(found, turned, correlations)


def show(current: view.View) -> None:
    """All of the section."""
    status = current.status
    if status is None:
        there = judged.runs()
        if not there:
            parts.launch_first(
                "No run was judged a second time yet. Choose a run under “Results of” and have other judges score its "
                "responses under “Judging”, or launch a study."
            )
            return
        runs = results.runs()
        described = {run_id: view.describe(runs[run_id]) for run_id in there if run_id in runs}
        parts.remark(
            "The paper doesn't say how its rankings change with the judge. Here is a run that was judged again:"
        )
        status = results.status(link.one_of("Run", list(described), "ranked", names=described, width=420))
    data = results.run_data(status.run_id, results.stamp(status))
    parts.run_marks(status, data, *(["first speakers only"] if current.first_only else []))
    judgings = [row for row in judged.of_run(status.run_id) if row.label != data.study.judge]
    if not judgings:
        st.info(
            "Only the study's own judge has scored this run, so only the averaging rule can change its ranking. Have "
            "other judges or prompts score the same responses under “Judging”: nothing is generated again.",
            icon=":material/gavel:",
        )
    chosen = _choose(judgings)
    only = _configurations(data)
    found, order, correlations, turned, sentence = _tables(
        status.run_id,
        results.stamp(status),
        judged.seen(chosen),
        tuple((row.label, row.judge == judged.CONTROL) for row in chosen),
        current.rule,
        current.first_only,
        only,
    )
    collecting.sheet().marks += [f"rule of the reference: {current.rule}", f"{len(found.views)} views"]
    mark = theme.provenance(recorded=status.recorded, comparable=data.comparable)
    names = flips.names_of(found.keys)
    parts.heading("Places under each judge and rule")
    parts.chart(
        figures.places(order, names, mark),
        "places",
        "Places of the configurations, a row a judge and averaging rule, a line a configuration; the table has them",
    )
    parts.remark(sentence)
    _order_table(order)
    parts.heading("How alike the orders are")
    reference = found.views[found.reference]
    parts.chart(
        figures.correlations(correlations, reference.label, reference.rule, mark),
        "correlations",
        "Kendall's tau of each two judges by one rule, and of each two rules under one judge; the table has all pairs",
    )
    parts.remark(
        "Kendall's tau-b: 1 is the same order, 0 none, −1 the reverse. "
        + (f"There are no intervals: {found.no_interval}." if found.no_interval else _intervals_are())
    )
    _correlation_table(flips.against(correlations, reference.label, reference.rule), correlations)
    parts.heading("Pairs that change their order")
    _flip_table(turned)
    parts.remark(WHAT_IT_IS)
    if chosen:
        parts.heading("The judgings")
        frame = judged.taken(chosen)
        parts.table(frame, judged.taken_columns(), "judgings-of-the-run", frame)
    parts.run_provenance(status, data, speakers="first only" if current.first_only else "all", rule=current.rule)


def _intervals_are() -> str:
    return "Intervals (95 %) draw users anew, the same for both orders."


def _choose(judgings: list[JudgingRow]) -> list[JudgingRow]:
    if not judgings:
        return []
    names = {row.id: f"{row.label} · {row.id[:6]}" for row in judgings}
    wanted = link.some_of("Judges beside the study's own", list(names), "judges", names=names, placeholder="all")
    by_label = {row.label: row for row in judgings if not wanted or row.id in wanted}
    # Of two judgings with one label (a prompt that was changed since) the newer one counts, unless it is left out.
    return list(by_label.values())


def _configurations(data: RunData) -> tuple[Key, ...]:
    keys = configuration_keys(data)
    names = dict(zip(("/".join(key) for key in keys), flips.names_of(keys), strict=True))
    wanted = link.some_of("Configurations", list(names), "ranked-of", names=names, placeholder="all")
    return tuple(key for key in keys if "/".join(key) in wanted)


def _order_table(order: pd.DataFrame) -> None:
    number = st.column_config.NumberColumn
    columns: dict[str, Any] = {
        "label": "judge · prompts",
        "rule": "rule",
        "place": number("place"),
        "memory": "memory system",
        "mitigation": "post-processor",
        "op": number("OP-Bench", format="%.1f"),
        "n": number("instances"),
        "users": number("users"),
    }
    if order["model"].nunique() > 1:
        columns = {"label": columns.pop("label"), "rule": columns.pop("rule"), "model": "model", **columns}
    shown = parts.named(order).sort_values(["label", "rule", "place"], kind="stable")
    parts.table(shown, columns, "places", order)


def _correlation_table(shown: pd.DataFrame, whole: pd.DataFrame) -> None:
    number = st.column_config.NumberColumn
    shown = shown.assign(
        tau_within=judged.intervals(shown, "tau"),
        rho_within=judged.intervals(shown, "spearman"),
        role=["control" if control else "" for control in shown["control"]],
    )
    columns: dict[str, Any] = {
        "label": "judge · prompts",
        "rule": "rule",
        "role": "",
        "tau": number("Kendall's tau", format="%.2f", help="Against the study's own judge and the sidebar's rule"),
        "tau_within": "95 % of tau",
        "spearman": number("Spearman's rho", format="%.2f"),
        "rho_within": "95 % of rho",
        "kept": number("pairs in the same order"),
        "pairs": number("of"),
        "note": "remark",
    }
    parts.table(shown, columns, "rank-correlations", whole)


def _flip_table(turned: pd.DataFrame) -> None:
    if turned.empty:
        parts.remark("No pair changes its order under any judge, prompt or rule.")
        return
    number = st.column_config.NumberColumn
    words = {1.0: "yes", 0.0: "no"}
    shown = turned.assign(
        before_within=judged.intervals(turned, "before", 1),
        after_within=judged.intervals(turned, "after", 1),
        told=[words.get(value, "can't be said") for value in turned["told_apart"]],
        turned=[words.get(value, "can't be said") for value in turned["reversed"]],
        role=["control" if control else "" for control in turned["control"]],
    )
    columns: dict[str, Any] = {
        "better": "better by the reference",
        "worse": "worse by the reference",
        "before": number("ahead by", format="%.1f", help="Points, by the study's own judge and the sidebar's rule"),
        "before_within": "95 %",
        "told": st.column_config.TextColumn("told apart before", help="p ≤ 0.05 with Holm's correction over all pairs"),
        "label": "turned by judge · prompts",
        "rule": "rule",
        "role": "",
        "after": number("then", format="%.1f", help="Points; below 0: the other one is ahead"),
        "after_within": "95 % then",
        "turned": st.column_config.TextColumn("a finding reversed", help="Told apart both times, in opposite orders"),
        "before_note": "remark",
    }
    parts.table(shown, columns, "flips", turned)
