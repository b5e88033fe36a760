"""The trade-off of the paper's figure 6: what a post-processor does to OP-Bench and, at the same time, to LoCoMo."""

from typing import Any

import pandas as pd
import streamlit as st

from opbench.analysis import published
from opbench.analysis.aggregate import Rule
from opbench.analysis.compare import Kind
from opbench.analysis.intervals import FEWEST_USERS
from opbench.analysis.judge_runs import ALL, RUNS, has_judge_runs, judge_runs
from opbench.analysis.latency import spending
from opbench.analysis.locomo import locomo_notes
from opbench.analysis.postprocessing import failures
from opbench.analysis.prices import with_prices
from opbench.analysis.tradeoff import CONTROL_SYSTEMS, UNITS
from opbench.figures import theme
from opbench.figures.answers import answers, failed_sentence, without_random
from opbench.figures.scatter import tradeoff_scatter
from opbench.figures.tradeoff import LIKE_NONE, tradeoff_heatmap
from opbench.sharing.sheet import Text
from opbench.store.reading import RunStatus
from opbench.store.rundata import RunData
from opbench.types import Benchmark
from pages.shared import answering, collecting, link, parts, results, view

BENCHMARKS: dict[str, tuple[Benchmark, ...]] = {"both": ("op", "locomo"), "OP-Bench": ("op",), "LoCoMo": ("locomo",)}
NAMES: dict[Benchmark, str] = {"op": "OP-Bench", "locomo": "LoCoMo"}
#: How published changes are labelled: their unit isn't told.
AS_PRINTED = "as printed"


@st.cache_data(max_entries=32, show_spinner="Working out what a point costs…")
def priced(run_id: str, seen: results.Stamp, rule: Rule, kind: Kind, first_only: bool) -> pd.DataFrame:
    return with_prices(results.tradeoff(run_id, seen, rule, kind, first_only), *_times(run_id, seen))


@st.cache_data(max_entries=8, show_spinner=False)
def _times(run_id: str, seen: results.Stamp) -> tuple[pd.DataFrame, pd.DataFrame]:
    return results.latency(run_id, seen, False, None), spending(results.run_data(run_id, seen))


@st.cache_data(max_entries=8, show_spinner=False)
def failed(run_id: str, seen: results.Stamp) -> pd.DataFrame:
    return failures(results.run_data(run_id, seen).records_with("state"))


def say_failed(frame: pd.DataFrame, found: pd.DataFrame) -> None:
    """Where post-processing failed, of the configurations shown: a change of 0 may be no more than that."""
    said = failed_sentence(frame, found)
    if not said:
        return
    said += " Instances shows why, one by one."
    collecting.add(Text(said))
    st.warning(parts.plain(said), icon=":material/warning:")


def show(frame: pd.DataFrame, benchmarks: tuple[Benchmark, ...], unit: str, mark: str, name: str) -> None:
    """Heatmap, scatters and controls, each with its table; the answer in words is first where there is one alone, and
    after the heatmap, which is quicker to read, where there are several."""
    methods = frame[~frame["control"].astype(bool)]
    groups = list(dict.fromkeys(without_random(methods)[["model", "memory"]].itertuples(index=False, name=None)))
    if len(groups) == 1:
        answering.say(answers(frame))
    show_changes(methods, benchmarks, unit, mark, name)
    if len(groups) > 1:
        parts.heading("In words, by memory system")
        answering.say(answers(frame))
    parts.heading("Gain against cost")
    if len(groups) <= answering.MOST:
        show_scatters(frame, groups, unit, mark, name)
    else:
        st.caption("Choose a memory system or a model to see gain against cost as a picture.")
    show_prices(methods, unit, f"{name}-prices")
    show_controls(frame[frame["control"].astype(bool)], unit, f"{name}-controls")


def change_columns(benchmarks: tuple[Benchmark, ...], unit: str) -> dict[str, Any]:
    """The benchmarks' changes, and then each one's interval, verdict and n, for a table made by `written`."""
    number, text = st.column_config.NumberColumn, st.column_config.TextColumn
    columns: dict[str, Any] = {
        f"{each}_change": number(NAMES[each], format="%+.1f", help=f"Change, {unit}", width=75) for each in benchmarks
    }
    for each in benchmarks:
        of = f"{'OP' if each == 'op' else 'LoCoMo'} " if len(benchmarks) > 1 else ""
        what = "instances" if each == "op" else "questions"
        columns |= {
            f"{each}_span": text(f"{of}95 %", help="Interval over users drawn anew", width=115),
            f"{each}_verdict": text(
                f"{of}verdict", help="After Holm's correction over all rows of the run, at 5 %", width=140
            ),
            f"{each}_of": text(f"{of}n", help=f"Paired {what} of those planned; users", width=130),
        }
    return columns


def written(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame as a table shows it."""
    shown = parts.named(frame)
    for benchmark in ("op", "locomo"):
        n, planned, users, low, high = (
            frame[f"{benchmark}_{each}"] for each in ("n", "n_planned", "users", "low", "high")
        )
        of = [theme.scored(*each) for each in zip(n, planned, strict=True)]
        shown[f"{benchmark}_of"] = [
            text if pd.isna(count) or not count else f"{text}, {theme.users(count)}"
            for text, count in zip(of, users, strict=True)
        ]
        shown[f"{benchmark}_span"] = [theme.span(*each) for each in zip(low, high, strict=True)]
    return shown


def show_changes(frame: pd.DataFrame, benchmarks: tuple[Benchmark, ...], unit: str, mark: str, name: str) -> None:
    """Heatmap and table side by side, with the same numbers."""
    picture, numbers = st.columns([10, 11], gap="small")
    with picture:
        figure = tradeoff_heatmap(frame, unit, mark, "Change by post-processor", benchmarks)
        parts.chart(figure, name, "Change by post-processor and benchmark; the table holds the same numbers")
    columns: dict[str, Any] = {
        "memory": st.column_config.TextColumn("memory", width=60),
        "mitigation": st.column_config.TextColumn("post-processor", width=100),
    }
    columns |= change_columns(benchmarks, unit)
    if frame["model"].nunique() > 1:
        columns = {"model": "model"} | columns
    told = frame["source"].iloc[0] != "published"
    for benchmark in benchmarks:
        if not told:
            for untold in ("span", "verdict", "of"):
                del columns[f"{benchmark}_{untold}"]
            continue
        if frame[f"{benchmark}_low"].isna().all():
            del columns[f"{benchmark}_span"]
        if {*frame[f"{benchmark}_note"]} - {"", "paired"}:
            columns[f"{benchmark}_note"] = f"{NAMES[benchmark]}: remark"
    with numbers:
        parts.table(written(frame), columns, name, frame)
        metrics = ", ".join(sorted(set(frame["locomo_metric"])))
        parts.remark(
            f"Change against the same memory system without post-processor, {unit}. "
            f"OP-Bench: higher is less over-personalised. LoCoMo: higher is better recall; metric: {metrics}."
        )
        if told:
            parts.remark(
                f"{LIKE_NONE} marks what is not distinguishable from no post-processor: p above 0.05 after Holm's "
                "correction over all post-processors of the run. Intervals and p by a paired bootstrap over users."
            )


def show_scatters(frame: pd.DataFrame, groups: list[tuple[str, str]], unit: str, mark: str, name: str) -> None:
    """One scatter a memory system and model, two in a row where there is room."""
    several = frame["model"].nunique() > 1
    places = st.columns(min(2, len(groups)), gap="small")
    for number, (model, memory) in enumerate(groups):
        group = frame[(frame["model"] == model) & (frame["memory"] == memory)]
        title = f"{theme.name(memory)} · {model}" if several else theme.name(memory)
        with places[number % len(places)]:
            parts.chart(
                tradeoff_scatter(group, unit, mark, title),
                f"{name}-scatter-{number + 1}",
                f"{title}: change on OP-Bench against change on LoCoMo; the table below holds the same numbers",
            )
    parts.remark(
        "Right and up is better on both. The dotted line is the Pareto front: nothing else of this memory system is as "
        "good on both benchmarks and better on one."
    )


def show_prices(frame: pd.DataFrame, unit: str, name: str) -> None:
    shown = written(frame).assign(front=["yes" if on else "" for on in frame["pareto"]])
    number, text = st.column_config.NumberColumn, st.column_config.TextColumn
    columns: dict[str, Any] = {
        "memory": "memory",
        "mitigation": "post-processor",
        "front": text("front", help="On the Pareto front", width=50),
        "op_change": number("OP-Bench", format="%+.1f", help=f"Change in {unit}", width=75),
        "op_span": text("95 %", help="Interval of the change on OP-Bench", width=115),
        "locomo_change": number("LoCoMo", format="%+.1f", help=f"Change in {unit}", width=70),
        "locomo_span": text("95 % ", help="Interval of the change on LoCoMo", width=115),
        "locomo_per_op": number(
            "LoCoMo lost per OP point", format="%.2f", help="Points; negative: LoCoMo gains as well"
        ),
        "seconds": number("post-processing", format="%.2f s", help="Mean of the questions for which a model was asked"),
        "seconds_per_op": number("time per OP point", format="%.2f s"),
        "usd_per_1000": number("$ per 1,000", format="$%.2f", help="More than without, for 1,000 questions"),
        "usd_per_op": number("$ per OP point", format="$%.3f", help="For 1,000 questions"),
        "price_note": "remark",
    }
    if frame["model"].nunique() > 1:
        columns = {"model": "model"} | columns
    if frame["op_low"].isna().all() and frame["locomo_low"].isna().all():
        del columns["op_span"], columns["locomo_span"]
    if frame["usd_per_1000"].isna().all():
        del columns["usd_per_1000"], columns["usd_per_op"]
    if not frame["price_note"].any():
        del columns["price_note"]
    parts.table(shown, columns, name, frame)
    dollars = "" if "usd_per_op" in columns else " What a call costs in money isn't known here."
    parts.remark(
        "Prices are per point gained on OP-Bench (OP), always in points; without a gain there is no price. A loss "
        "below 0 is a gain on LoCoMo." + dollars
    )


def show_controls(frame: pd.DataFrame, unit: str, name: str) -> None:
    parts.heading("Controls: what a post-processor has to beat")
    if frame.empty:
        parts.remark("There are no controls among these results.")
        return
    columns: dict[str, Any] = {"memory": "memory", "mitigation": "control"}
    columns |= change_columns(("op", "locomo"), unit)
    if frame["model"].nunique() > 1:
        columns = {"model": "model"} | columns
    parts.table(written(frame), columns, name, frame)
    parts.remark(
        "A control isn't for use: it answers nothing, remembers nothing, or remembers at random. A method that does no "
        f"better has found nothing. The controls {' and '.join(CONTROL_SYSTEMS.values())} take the memory system's "
        "place; the others are post-processors on it."
    )


def show_published() -> None:
    link.check("kind", list(UNITS))
    parts.published_marks()
    with st.container(horizontal=True, vertical_alignment="bottom"):
        frame = answering.pick_memory(with_prices(published.tradeoff(), published.latency()))
        benchmarks = BENCHMARKS[link.one_of("Benchmark", list(BENCHMARKS), "benchmark", kind="segmented")]
    mark = theme.provenance(published=True)
    show(frame, benchmarks, AS_PRINTED, mark, "trade-off-published")
    parts.remark(
        "GPT-4o-mini, as printed: the paper doesn't tell whether its changes are points or percent, and the averaging "
        "rule and the speakers can't be chosen for them. Prices read them as points. Seconds are table 11's, which "
        "names neither model nor memory system. "
        "Choose a run under “Results of” to see measured ones."
    )
    parts.published_provenance(
        "The paper calls the changes relative and draws them as “+20.0 %”; whether they are points or percent "
        "of the memory system isn't told.",
        "The averages behind them were made by more than one rule (`opbench audit`).",
        "Its LoCoMo scores were made with MemOS's evaluation (appendix B.4): of runs measured here, those by protocol "
        "memos ask and score in that way, with prompts written anew.",
    )


def show_run(current: view.View, status: RunStatus) -> None:
    seen = results.stamp(status)
    data = results.run_data(status.run_id, seen)
    first = ["first speakers only"] if current.first_only else []
    parts.run_marks(status, data, f"rule: {current.rule}", *first)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        kind = link.one_of(
            "Changes in",
            list(UNITS),
            "kind",
            kind="segmented",
            help="Points: difference of two scores from 0 to 100. Relative: that difference in percent of the memory "
            "system's own score.",
        )
        benchmarks = BENCHMARKS[link.one_of("Benchmark", list(BENCHMARKS), "benchmark", kind="segmented")]
        frame = parts.pick_model(priced(status.run_id, seen, current.rule, kind, current.first_only))
        frame = answering.pick_memory(frame)
    if frame.empty or frame["control"].all():
        parts.launch_first(
            "This run has no post-processor to compare: launch a study with “none” and at least one post-processor, "
            "on a memory system other than BASE."
        )
    elif frame[["op_change", "locomo_change"]].isna().all(axis=None):
        reasons = sorted({*frame["op_note"], *frame["locomo_note"]} - {""})
        parts.nothing_yet(f"Nothing can be compared yet: {'; '.join(reasons)}.")
    else:
        mark = theme.provenance(recorded=status.recorded, comparable=data.comparable)
        say_failed(frame, failed(status.run_id, seen))
        show(frame, benchmarks, UNITS[kind], mark, "trade-off")
        parts.say_left_out(frame)
        parts.remark(f"An interval needs {FEWEST_USERS} users. How intervals and p are made: docs/scores.md.")
    if (data.instances["benchmark"] == "locomo").any():
        show_protocol(data, current.first_only)
    parts.run_provenance(status, data, rule=current.rule, speakers="first only" if current.first_only else "all")


def show_protocol(data: RunData, first_only: bool) -> None:
    """What LoCoMo's numbers may be compared with, and the runs of the judge where there are several."""
    for note in locomo_notes(data):
        parts.remark(note)
    if not has_judge_runs(data):
        return
    parts.heading("LoCoMo over the judge's three runs")
    frame = judge_runs(data, first_only)
    shown = parts.named(frame[frame["category"] == ALL])
    if shown["run_mean"].isna().all():
        parts.nothing_yet("No LoCoMo answer is judged yet.")
        return
    shown = shown.assign(n=[theme.scored(*each) for each in zip(shown["n_run_1"], shown["n_planned"], strict=True)])
    number = st.column_config.NumberColumn
    columns: dict[str, Any] = {
        "memory": "memory",
        "mitigation": "post-processor",
        "run_mean": number("correct", format="%.1f", help="Mean of the three runs' accuracies, points"),
        "run_std": number("± std", format="%.2f", help="Population standard deviation over the three runs, points"),
        **{run: number(run.replace("_", " "), format="%.1f", help="Judged correct, points") for run in RUNS},
        "n": st.column_config.TextColumn("n", help="Judged in the first run, of the planned questions"),
        "run_judgements_missing": number("unread", help="Judgements that failed or couldn't be read"),
    }
    if frame["model"].nunique() > 1:
        columns = {"model": "model"} | columns
    parts.table(shown, columns, "judge-runs", frame)
    parts.remark(
        "The spread is the judge's alone: the answers are the same in all three runs. Categories: the download."
    )


parts.title("Does a post-processor stop over-personalisation, and what does it cost in personalisation?")
looked_at = view.current()
if looked_at.status is None:
    show_published()
else:
    show_run(looked_at, looked_at.status)
