"""Latency by stage (the paper's table 11), how it is spread, tokens and cost: what a post-processor costs."""

from typing import Any

import pandas as pd
import streamlit as st

from opbench.analysis import latency as analysis
from opbench.analysis import published
from opbench.analysis.grids import KEY
from opbench.analysis.latency import PERCENTILES, STAGE_LABELS
from opbench.figures import theme
from opbench.figures.answers import Answer
from opbench.figures.distributions import spread_boxes, spread_curves
from opbench.figures.latency import latency_bars
from opbench.figures.spending import cost_bars, dollars, token_bars
from opbench.running.budget import spent_on
from opbench.store import runs
from opbench.store.reading import RunStatus
from opbench.store.rundata import RunData
from opbench.study import Study
from opbench.types import Benchmark
from pages.shared import answering, link, parts, results, view

BENCHMARKS: dict[str, Benchmark | None] = {"both": None, "OP-Bench": "op", "LoCoMo": "locomo"}
SHAPES = {"boxes": "boxes", "curves": "ready by then"}
NO_PROBE = "none"
#: Percentiles that the table shows; the download has all that the figures are drawn from.
SHOWN = (5, 25, 50, 75, 95, 99, 100)


@st.cache_data(max_entries=32, show_spinner="Working out the spread…")
def spread(run_id: str, seen: results.Stamp, fresh_only: bool, benchmark: Benchmark | None) -> pd.DataFrame:
    return analysis.spread(results.run_data(run_id, seen), fresh_only, benchmark)


@st.cache_data(max_entries=32, show_spinner="Working out the cost…")
def spending(run_id: str, seen: results.Stamp, benchmark: Benchmark | None) -> pd.DataFrame:
    return analysis.spending(results.run_data(run_id, seen), benchmark)


@st.cache_data(max_entries=32, show_spinner="Working out the cost…")
def paid(run_id: str, seen: results.Stamp) -> dict[str, float]:
    return spent_on(results.opened().store, run_id)


@st.cache_data(max_entries=8, show_spinner=False)
def probes(run_ids: tuple[str, ...]) -> dict[str, Study]:
    """The latency probes among the runs, in their order; a run's study never changes."""
    store = results.opened().store
    studies = {run_id: runs.run_study(store, run_id)[0] for run_id in run_ids}
    return {run_id: study for run_id, study in studies.items() if study.latency_probe}


def milliseconds(label: str, note: str) -> Any:
    return st.column_config.NumberColumn(label, format="%.0f ms", help=note)


def whole(label: str, note: str) -> Any:
    return st.column_config.NumberColumn(label, format="%d", help=note)


def configuration_columns(frame: pd.DataFrame, *more: str) -> dict[str, Any]:
    columns = {"memory": "memory", "mitigation": "post-processor"} | {name: name for name in more}
    return {"model": "model"} | columns if frame["model"].nunique() > 1 else columns


N = whole("n", "Records that had this stage")
N_REUSED = whole("reused", "Of these, with a call made for another record: it keeps the time it took then")
CONCURRENCY = st.column_config.TextColumn("concurrency", help="Requests the model got at a time")


def say_waits(frame: pd.DataFrame) -> None:
    """What post-processing takes, in words, the quickest first."""
    rows = frame[(frame["stage"] == "post") & frame["mean_ms"].notna()].sort_values("mean_ms").to_dict("records")
    told = frame["n"].notna().any()
    heads: dict[str, list[str]] = {}
    for row in rows:
        head = f"{theme.name(row['memory'])} · {row['model']}" if told else "As published"
        heads.setdefault(head, []).append(f"{theme.name(row['mitigation'])} {row['mean_ms'] / 1000:.1f} s")
    answering.say(
        [Answer(head, (f"Post-processing adds, on average: {'; '.join(waits)}.",)) for head, waits in heads.items()]
    )


def show_times(frame: pd.DataFrame, mark: str, name: str, title: str) -> None:
    """Figure over the table with the same numbers."""
    parts.chart(
        latency_bars(frame, mark, title), name, "Mean times by stage as stacked bars; the table holds the same numbers"
    )
    shown = parts.named(frame).assign(stage=frame["stage"].replace(STAGE_LABELS))
    columns = configuration_columns(frame, *(["source"] if "source" in frame else []), "stage") | {
        "mean_ms": milliseconds("mean", "Arithmetic mean"),
        "std_ms": milliseconds("± std", "Sample standard deviation; the paper doesn't tell which it prints"),
        "median_ms": milliseconds("median", "Half of the records took less"),
        "p95_ms": milliseconds("p95", "95 of 100 records took less"),
        "n": N,
        "n_reused": N_REUSED,
        "concurrency": CONCURRENCY,
    }
    if frame["n"].isna().all():
        for untold in ("memory", "median_ms", "p95_ms", "n", "n_reused", "concurrency"):
            del columns[untold]
    parts.table(shown, columns, name, frame)


def show_spread(frame: pd.DataFrame, mark: str) -> None:
    parts.heading("How the times are spread")
    with st.container(horizontal=True, vertical_alignment="bottom"):
        stages = [stage for stage in reversed(STAGE_LABELS) if (frame.loc[frame["stage"] == stage, "n"] > 0).any()]
        stage = link.one_of("Stage", stages, "stage", kind="segmented", names=STAGE_LABELS)
        shape = link.one_of("Drawn as", list(SHAPES), "shape", kind="segmented", names=SHAPES)
    draw = spread_boxes if shape == "boxes" else spread_curves
    title = f"{STAGE_LABELS[stage].capitalize()}, {'spread' if shape == 'boxes' else 'share of records ready by then'}"
    parts.chart(draw(frame, stage, mark, title), "spread", "Percentiles of the times; the table holds the same numbers")
    part = frame[frame["stage"] == stage]
    heads = {0: "shortest", 50: "median", 100: "longest"}
    columns = configuration_columns(frame) | {
        f"p{each}_ms": milliseconds(heads.get(each, f"p{each}"), f"{each} of 100 records took less")
        for each in PERCENTILES
        if each in SHOWN
    }
    columns |= {"n": N, "n_reused": N_REUSED, "concurrency": CONCURRENCY}
    parts.table(parts.named(part), columns, "spread", part)
    if shape == "boxes":
        parts.remark(
            "Box: the middle half, with the median. Whiskers: from the 5th to the 95th percentile. "
            "Diamond: mean. Circle: the longest."
        )
    else:
        parts.remark("Read a curve at 95 %: so long do 95 of 100 queries take at most. Further left is faster.")


def show_tokens(frame: pd.DataFrame, mark: str) -> None:
    parts.heading("Tokens by stage")
    parts.chart(token_bars(frame, mark), "tokens", "Mean tokens of a query by stage; the table holds the same numbers")
    pieces = {
        "post_prompt": "post-processing, in",
        "post_completion": "post-processing, out",
        "response_prompt": "response, in",
        "response_completion": "response, out",
    }
    means = {
        f"{piece}_per_query": st.column_config.NumberColumn(head, format="%.1f", help="Mean of a query")
        for piece, head in pieces.items()
    }
    sums = {f"{piece}_tokens": whole(f"Σ {head}", "Sum over the done records") for piece, head in pieces.items()}
    columns = configuration_columns(frame) | means | sums
    parts.table(parts.named(frame), columns | {"n_done": whole("n", "Done records")}, "tokens", frame)
    parts.remark("Tokens as the endpoint counts them. A query that needed no post-processing call spent none there.")


def show_cost(frame: pd.DataFrame, mark: str, paid: dict[str, float]) -> None:
    parts.heading("Cost")
    unknown = frame[frame["n_priced"] < frame["n_done"]]
    if frame["cost_usd"].max() > 0:
        figure = cost_bars(frame, mark)
        parts.chart(figure, "cost", "Dollars for 1,000 queries by configuration; the table holds the same numbers")
    elif unknown.empty and not any(paid.values()):
        parts.remark("Nothing was spent: the models of this run have a price of $0 in the registry.")
    if len(unknown):
        names = ", ".join(dict.fromkeys(unknown["model"].astype(str)))
        parts.remark(
            f"The price of some calls of {names} isn't known, and unknown is not free: their configurations' cost is "
            "over the records whose price is known. Set price_in and price_out in models.local.toml before a run."
        )
    columns = configuration_columns(frame) | {
        "cost_usd_per_1000": st.column_config.NumberColumn(
            "$ per 1,000 queries", format="$%.4f", help="Post-processing and response, by list price"
        ),
        "cost_usd": st.column_config.NumberColumn("$ in this run", format="$%.4f", help="Over the priced records"),
        "priced": st.column_config.TextColumn("priced", help="Records with a known price of those done"),
    }
    priced = [theme.scored(n, of) for n, of in zip(frame["n_priced"], frame["n_done"], strict=True)]
    parts.table(parts.named(frame).assign(priced=priced), columns, "cost", frame)
    parts.remark(
        "By list price, judging left out. A call that several records share counts in each of them, so the rows add "
        "up to more than was paid."
    )
    if paid["calls"] > 0:
        parts.remark(
            f"Paid for this run's own calls, each counted once and judging among them: {dollars(paid['calls'])}."
        )
    for what, name in (("for taking histories in (ingestion)", "ingestion"), ("for embeddings", "embeddings")):
        if paid[name] > 0:
            parts.remark(f"Paid besides {what}, which is in no row above: {dollars(paid[name])}.")


def pick_probe(status: RunStatus, study: Study) -> str | None:
    """The probe to put beside a run that was taken under load."""
    if study.latency_probe:
        link.check("probe", [NO_PROBE])
        return None
    runs = results.runs()
    found = [run_id for run_id, other in probes(tuple(runs)).items() if analysis.alike(study, other)]
    if not found:
        link.check("probe", [NO_PROBE])
        return None
    names = {run_id: parts.as_label(view.describe(runs[run_id])) for run_id in found} | {NO_PROBE: NO_PROBE}
    chosen = link.one_of(
        "Probe beside it",
        [*found, NO_PROBE],
        "probe",
        names=names,
        width=300,
        help="A run with --latency-probe of the same configurations: one request at a time, nothing reused.",
    )
    return None if chosen == NO_PROBE else chosen


def show_probe(frame: pd.DataFrame, run: RunData, probe_id: str, benchmark: Benchmark | None, recorded: bool) -> None:
    """What the run and the probe both have, side by side."""
    parts.heading("Beside a probe")
    seen = results.stamp(results.status(probe_id))
    probe = results.run_data(probe_id, seen)
    both = analysis.beside(
        frame, results.latency(probe_id, seen, False, benchmark), analysis.alike(run.study, probe.study)
    )
    if both.empty:
        parts.remark(f"Probe {probe_id} has none of the configurations that are chosen.")
        return
    loads = sorted(set(frame["concurrency"]) - {""})
    mark = " · ".join(filter(None, [theme.provenance(recorded=recorded), f"probe {probe_id}"]))
    show_times(both, mark, "latency-probe", "This run and the probe")
    parts.remark(
        f"This run: concurrency {', '.join(loads) or 'not told'}, {len(run.instances):,} instances planned. "
        f"Probe: run {probe_id}, one request at a time, nothing reused, {len(probe.instances):,} instances planned."
    )


def choose(data: RunData) -> pd.DataFrame:
    """The configurations to show; the choices are there when there is something to choose."""
    chosen = data.configurations
    for column, label, every, names in (
        ("model", "Model", "all models", None),
        ("memory", "Memory system", "all memory systems", theme.NAMES),
    ):
        options = [every, *dict.fromkeys(map(str, data.configurations[column]))]
        if len(options) < 3:
            link.check(column, options, names)
            continue
        picked = link.one_of(label, options, column, names=names, width=220)
        chosen = chosen if picked == every else chosen[chosen[column] == picked]
    return chosen


def check_undrawn() -> None:
    """Choices of a link that nothing drawn takes up."""
    link.check("stage", list(STAGE_LABELS), STAGE_LABELS)
    link.check("shape", list(SHAPES), SHAPES)


def show_run(status: RunStatus) -> None:
    seen = results.stamp(status)
    data = results.run_data(status.run_id, seen)
    is_probe = data.study.latency_probe
    parts.run_marks(status, data, *(["latency probe: one at a time, nothing reused"] if is_probe else []))
    with st.container(horizontal=True, vertical_alignment="bottom"):
        benchmark = BENCHMARKS[link.one_of("Benchmark", list(BENCHMARKS), "benchmark", kind="segmented")]
        chosen = choose(data)
        probe_id = pick_probe(status, data.study)
        fresh_only = link.switch(
            "Without reused calls",
            "fresh",
            help="A reused call keeps the time it took when it was made, perhaps under another load.",
        )

    def rows(frame: pd.DataFrame) -> pd.DataFrame:
        return chosen[KEY].merge(frame, on=KEY)

    times = rows(results.latency(status.run_id, seen, fresh_only, benchmark))
    if not times["n"].any():
        parts.nothing_yet("No record with a time to show yet.")
        check_undrawn()
        parts.run_provenance(status, data)
        return
    mark = theme.provenance(recorded=status.recorded)
    loads = ", ".join(sorted(set(times["concurrency"]) - {""}))
    load = "probe: one request at a time" if is_probe else f"concurrency {loads or 'not told'}"
    loaded = " · ".join(filter(None, [mark, load]))
    say_waits(times)
    parts.heading("Time by stage")
    show_times(times, loaded, "latency", "Latency by stage, measured")
    parts.remark(
        "Post-processing of Self-Critic is its second call; its draft is the response stage. A stage that didn't "
        "happen counts in no mean. The averaging rule and the speakers don't matter here."
    )
    if note := analysis.retrieval_note(data):
        parts.remark(note)
    if probe_id is not None:
        show_probe(times, data, probe_id, benchmark, status.recorded)
    show_spread(rows(spread(status.run_id, seen, fresh_only, benchmark)), loaded)
    costs = rows(spending(status.run_id, seen, benchmark))
    show_tokens(costs, mark)
    show_cost(costs, mark, paid(status.run_id, seen))
    parts.run_provenance(status, data)


parts.title("How much longer does the user wait, and what does it cost?")
looked_at = view.current()
if looked_at.status is not None:
    show_run(looked_at.status)
    parts.heading("The paper's, beside it")
else:
    link.check("benchmark", list(BENCHMARKS))
    link.check("fresh", ("true", "false"))
    check_undrawn()
parts.published_marks()
say_waits(published.latency())
show_times(published.latency(), theme.provenance(published=True), "latency-published", "Latency by stage")
parts.remark(
    "Model, memory system, load, sample sizes and medians aren't told; a total has no published deviation. "
    "Tokens and cost weren't published; choose a run under “Results of” to see its own."
)
parts.published_provenance(
    "Table 11. Standard deviations above the mean point to a long tail: see medians of own runs."
)
