"""Two configurations, of one run or of two: what got better, what got worse, and what differs between the runs."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from opbench.analysis.aggregate import Rule
from opbench.analysis.compare import Change
from opbench.analysis.differences import Pair, Side, largest, op_average_change, pair, pairs, repetition_pairs, summary
from opbench.analysis.grids import Key, configuration_keys
from opbench.analysis.intervals import Interval
from opbench.analysis.unlike import doubts, unlike
from opbench.figures import theme
from opbench.figures.differences import binned, spread_of_changes
from opbench.protocol import metric_label
from opbench.sharing.sheet import Column, Data, Text
from opbench.sharing.visible import one_line
from opbench.store.reading import RunStatus
from opbench.study import BASE
from pages.shared import collecting, link, parts, results, view

_SAME = "the same run"
_LARGEST = 10
#: What a side is kept under: run, stamp, configuration.
Of = tuple[str, results.Stamp, Key]


@dataclass(frozen=True)
class Compared:
    summary: pd.DataFrame
    pairs: pd.DataFrame
    repetition: pd.DataFrame
    average: Change
    interval: Interval
    op_planned: int
    metric_name: str
    only: tuple[int, int]
    remarks: tuple[str, ...]


@st.cache_resource(max_entries=32, show_spinner="Pairing the instances…")
def laid_out(before: Of, after: Of, first_only: bool) -> tuple[Pair, pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """The pair and its three tables: what no averaging rule changes."""
    found = pair(side(before), side(after), first_only)
    return found, summary(found), pairs(found), repetition_pairs(found)


@st.cache_resource(max_entries=32, show_spinner="Pairing the instances…")
def compared(before: Of, after: Of, rule: Rule, first_only: bool) -> Compared:
    found, by_subtype, of_instances, of_users = laid_out(before, after, first_only)
    average = op_average_change(found, rule)
    return Compared(
        by_subtype,
        of_instances,
        of_users,
        replace(average, sums=None, coefficients=None),
        average.interval(),
        len(found.op.grid.instances),
        metric_label(found.metric),
        (found.only_before, found.only_after),
        found.remarks,
    )


def side(of: Of) -> Side:
    return Side(results.run_data(of[0], of[1]), of[2])


def choose(status: RunStatus) -> tuple[Of, Of, RunStatus] | None:
    """Both sides and the second one's run; None when there is nothing to compare with."""
    first = results.run_data(status.run_id, results.stamp(status))
    others = {run.run_id: view.describe(run) for run in results.runs().values() if run.run_id != status.run_id}
    with st.container(horizontal=True, vertical_alignment="bottom"):
        labels = {" · ".join(key): key for key in configuration_keys(first)}
        start = next((label for label, key in labels.items() if key[1] != BASE), next(iter(labels)))
        before = labels[link.one_of("From", list(labels), "from", default=start, width=260)]
        where = link.one_of("To a configuration of", [_SAME, *others], "with", names=others, width=260)
        other = status if where == _SAME else results.status(where)
        second = results.run_data(other.run_id, results.stamp(other))
        choices = {" · ".join(key): key for key in configuration_keys(second)}
        if other is status:
            del choices[" · ".join(before)]
        if not choices:
            return None
        default = " · ".join(_natural(before, list(choices.values())))
        after = choices[link.one_of("To", list(choices), "to", default=default, width=260)]
    return (status.run_id, results.stamp(status), before), (other.run_id, results.stamp(other), after), other


def _natural(before: Key, choices: list[Key]) -> Key:
    """What one most likely compares with: the same configuration in another run, else another post-processor."""
    if before in choices:
        return before
    alike = [key for key in choices if key[:2] == before[:2]]
    return next(iter(alike), choices[0])


def show_headline(found: Compared, rule: Rule) -> None:
    """The two benchmarks' changes, and how many instances went which way."""
    rows = found.summary
    counts = rows[(rows["unit"] == "instance") & (rows["subtype"] != "all")]
    with st.container(horizontal=True):
        if (rows["benchmark"] == "op").any():
            n = f"n = {found.average.n:,} of {found.op_planned:,}" if found.average.n else found.average.note
            _metric(f"OP-Bench average ({rule})", found.average.points, found.interval.low, found.interval.high, n)
        for row in rows[rows["subtype"] == "all"].to_dict("records"):
            n = f"n = {row['n_paired']:,} of {row['n_planned']:,}"
            _metric(f"LoCoMo ({found.metric_name})", row["change"], row["low"], row["high"], n)
        told = ", ".join(f"{counts[name].sum():,} {name}" for name in ("better", "worse", "equal"))
        with st.container(border=True, width=260):
            st.caption("Instances")
            st.markdown(f"**{told}**")
            st.caption(f"n = {counts['n_paired'].sum():,} of {counts['n_planned'].sum():,}")
    collecting.add(Text(f"Instances: {told}."))
    parts.remark(
        "n: scored by both, of those that both plan. Repetition is a score of a user: it is part of the OP-Bench "
        "average, and counted apart from instances, by user."
    )


def _metric(label: str, change: float, low: float, high: float, n: str) -> None:
    interval = "no interval" if pd.isna(low) else f"95 % interval {theme.change(low)} to {theme.change(high)}"
    with st.container(border=True, width=260):
        st.caption(parts.plain(label))
        st.markdown(f"**{theme.change(change)} points**")
        st.caption(parts.plain(f"{interval}; {n}"))
    collecting.add(Text(f"{label}: {theme.change(change)} points, {interval}; {n}."))


def show_summary(frame: pd.DataFrame) -> None:
    parts.heading("By subtype and category")
    interval: list[Any] = [
        None if pd.isna(low) else f"{theme.change(low)} to {theme.change(high)}"
        for low, high in zip(frame["low"], frame["high"], strict=True)
    ]
    benchmark = frame["benchmark"].replace({"op": "OP-Bench", "locomo": "LoCoMo"})
    shown = frame.assign(
        benchmark=benchmark,
        subtype=frame["subtype"].replace(theme.NAMES),
        of=[f"{n} of {planned} {unit}s" for n, planned, unit in _of(frame)],
        interval=interval,
    )
    points = {name: st.column_config.NumberColumn(name, format="%.1f", width=70) for name in ("before", "after")}
    columns: dict[str, Any] = {
        "benchmark": st.column_config.TextColumn("benchmark", width=80),
        "subtype": st.column_config.TextColumn("subtype or category", width=130),
        **points,
        "change": st.column_config.NumberColumn("change", format="%+.1f", width=70, help="Mean, points"),
        "interval": st.column_config.TextColumn("95 % interval", width=130, help="Of the change, clustered by user"),
        **{name: st.column_config.NumberColumn(name, width=60) for name in ("better", "worse", "equal")},
        "of": st.column_config.TextColumn("n", width=130, help="Paired, of those that both plan"),
    }
    parts.table(shown, columns, "compared-by-subtype", frame)
    parts.remark(
        "Means over what both have scored, in points. The intervals are for one row at a time: of twenty rows without "
        "any change, one would be expected to leave out 0."
    )
    if reasons := "; ".join(sorted(set(frame.loc[frame["low"].isna(), "reason"]) - {""})):
        parts.remark(f"Without an interval: {reasons}.")


def _of(frame: pd.DataFrame) -> Iterable[tuple[Any, Any, Any]]:
    return zip(frame["n_paired"], frame["n_planned"], frame["unit"], strict=True)


def show_spread(frame: pd.DataFrame, mark: str) -> None:
    parts.heading("How the changes are spread")
    if frame.empty:
        st.caption("No instance is scored by both.")
        return
    parts.chart(spread_of_changes(frame, mark), "changes", "How many instances changed by how much, by benchmark")
    bins = binned(frame)
    with st.expander("The figure's numbers"):
        shown = bins[bins["n"] > 0].assign(benchmark=bins["benchmark"].replace({"op": "OP-Bench", "locomo": "LoCoMo"}))
        parts.table(shown, {"benchmark": "benchmark", "change": "change", "n": "instances"}, "changes-binned", bins)
    st.download_button(
        f"Download all {len(frame):,} pairs",
        partial(parts.csv, frame, collecting.sheet().marks),
        file_name="pairs.csv",
        mime="text/csv",
        icon=":material/download:",
        key="csv-pairs",
        on_click="ignore",
    )


def show_largest(found: Compared, before: Of, after: Of) -> None:
    parts.heading("The largest changes")
    better, worse = largest(found.pairs, _LARGEST)
    for place, rows, what in zip(st.columns(2), (better, worse), ("better", "worse"), strict=True):
        with place:
            st.markdown(f"**Got {what} by most**")
            if rows.empty:
                st.caption(f"No instance got {what}.")
                continue
            for row in rows.to_dict("records"):
                _link(row, before, after)
            columns = {name: Column(name) for name in ("instance", "subtype", "before", "after", "change")}
            collecting.add(Data(f"largest-{what}", rows, columns, rows))


def _link(row: dict[Any, Any], before: Of, after: Of) -> None:
    """A line that opens the instance: both sides beside each other, or of two runs the second, with the first below."""
    told = f"{theme.change(row['change'])} ({theme.points(row['before'])} → {theme.points(row['after'])})"
    labels = " · ".join(before[2]), " · ".join(after[2])
    same = before[0] == after[0]
    target = {"run": after[0], "instance": row["instance"], "of": labels[0] if same else labels[1]}
    page, icon = "pages/views/instances.py", ":material/search:"
    st.page_link(
        page,
        label=parts.plain(f"{told}  {row['instance']}"),
        icon=icon,
        query_params=target | ({"beside": labels[1]} if same else {}),
    )
    if not same:
        first = {"run": before[0], "instance": row["instance"], "of": labels[0]}
        st.page_link(page, label="… and how it was before", query_params=first)


def show_repetition(frame: pd.DataFrame) -> None:
    if frame.empty:
        return
    parts.heading("Repetition by user")
    columns: dict[str, Any] = {"user": "user"}
    columns |= {name: st.column_config.NumberColumn(name, format="%.1f") for name in ("before", "after")}
    columns["change"] = st.column_config.NumberColumn("change", format="%+.1f")
    columns["n"] = st.column_config.NumberColumn("responses", help="Common to both, on which the scores rest")
    parts.table(frame, columns, "repetition-by-user", frame)


def show_unlike(before: Side, after: Side) -> None:
    parts.heading("What differs between the two")
    frame = unlike(before, after)
    if frame.empty:
        st.caption("Nothing that is known.")
        return
    shown = frame.map(lambda text: one_line(text, 120))
    columns = {
        "what": st.column_config.TextColumn("what", width=240),
        "before": st.column_config.TextColumn("before", width=280),
        "after": st.column_config.TextColumn("after", width=280),
    }
    parts.table(shown, columns, "what-differs", frame)


def show_run(current: view.View, status: RunStatus) -> None:
    first = ["first speakers only"] if current.first_only else []
    data = results.run_data(status.run_id, results.stamp(status))
    parts.run_marks(status, data, f"rule: {current.rule}", *first)
    chosen = choose(status)
    if chosen is None:
        st.info("This run has one configuration only: choose another run to compare it with.", icon=":material/info:")
        return
    before, after, other = chosen
    sides = side(before), side(after)
    if other is not status:
        st.caption("Compared with:")
        parts.run_marks(other, sides[1].data)
        collecting.sheet().provenance["compared with"] = {
            "run": other.run_id,
            "study": sides[1].data.study.model_dump(mode="json"),
            "all": sides[1].data.provenance,
        }
    for sentence in doubts(*sides):
        collecting.sheet().marks.append(sentence)
        st.warning(parts.plain(sentence), icon=":material/warning:")
    found = compared(before, after, current.rule, current.first_only)
    for sentence in (*found.remarks, *_left_out(found.only)):
        parts.remark(sentence)
    if not found.summary["n_paired"].any():
        if found.summary.empty:
            st.info("The two runs have no instance in common, so nothing can be paired.", icon=":material/info:")
        else:
            parts.nothing_yet("No instance is scored by both yet.")
    else:
        mark = theme.provenance(
            recorded=status.recorded or other.recorded,
            comparable=sides[0].data.comparable and sides[1].data.comparable,
        )
        parts.remark(f"From {sides[0].label} to {sides[1].label}; higher is better, changes are in points of 100.")
        show_headline(found, current.rule)
        show_summary(found.summary)
        show_spread(found.pairs, mark)
        show_largest(found, before, after)
        show_repetition(found.repetition)
    show_unlike(*sides)
    parts.run_provenance(status, data, rule=current.rule, speakers="first only" if current.first_only else "all")


def _left_out(only: tuple[int, int]) -> list[str]:
    if not any(only):
        return []
    return [
        f"Not compared: {only[0]:,} instances that only the first run plans and {only[1]:,} that only the second plans."
    ]


parts.title("What changed between the two, and where?")
looked_at = view.current()
if looked_at.status is None:
    parts.published_marks()
    parts.launch_first(
        "The published figures can't be compared by instance: the paper prints averages only. Choose a run under "
        "“Results of”, or launch a study."
    )
else:
    show_run(looked_at, looked_at.status)
