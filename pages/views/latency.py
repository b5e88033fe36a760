"""Latency by stage, the paper's table 11: what a post-processor costs in waiting."""

import pandas as pd
import streamlit as st

from opbench.analysis import published
from opbench.analysis.latency import STAGE_LABELS
from opbench.figures import theme
from opbench.figures.latency import latency_bars
from opbench.store.reading import RunStatus
from opbench.types import Benchmark
from pages.shared import link, parts, results, view

BENCHMARKS: dict[str, Benchmark | None] = {"both": None, "op": "op", "locomo": "locomo"}


def show_times(frame: pd.DataFrame, mark: str, name: str, title: str) -> None:
    """Figure over the table with the same numbers."""
    parts.chart(
        latency_bars(frame, mark, title), name, "Mean times by stage as stacked bars; the table holds the same numbers"
    )
    shown = parts.named(frame).assign(stage=frame["stage"].replace(STAGE_LABELS))

    def milliseconds(label: str, note: str) -> object:
        return st.column_config.NumberColumn(label, format="%.0f ms", help=note)

    columns = {
        "memory": "memory",
        "mitigation": "post-processor",
        "stage": "stage",
        "mean_ms": milliseconds("mean", "Arithmetic mean"),
        "std_ms": milliseconds("± std", "Sample standard deviation; the paper doesn't tell which it prints"),
        "median_ms": milliseconds("median", "Half of the records took less"),
        "p95_ms": milliseconds("p95", "95 of 100 records took less"),
        "n": st.column_config.NumberColumn("n", format="%d", help="Records that had this stage"),
        "n_reused": st.column_config.NumberColumn(
            "reused", format="%d", help="Of these, with a call made for another record: it keeps the time it took then"
        ),
        "concurrency": st.column_config.TextColumn("concurrency", help="Requests the model got at a time"),
    }
    if frame["model"].nunique() > 1:
        columns = {"model": "model"} | columns
    if frame["n"].isna().all():
        for untold in ("memory", "median_ms", "p95_ms", "n", "n_reused", "concurrency"):
            del columns[untold]
    parts.table(shown, columns, name, frame)


def show_published() -> None:
    show_times(published.latency(), theme.provenance(published=True), "latency-published", "Latency by stage")
    st.caption("Model, memory system, load, sample sizes and medians aren't told; a total has no published deviation.")


def show_run(status: RunStatus) -> None:
    seen = results.stamp(status)
    data = results.run_data(status.run_id, seen)
    probe = ["latency probe: one at a time, nothing reused"] if data.study.latency_probe else []
    parts.run_marks(status, data, *probe)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        benchmark = link.one_of("Benchmark", list(BENCHMARKS), "benchmark", kind="segmented")
        fresh_only = link.switch(
            "Without reused calls",
            "fresh",
            help="A reused call keeps the time it took when it was made, perhaps under another load.",
        )
        frame = parts.pick_model(results.latency(status.run_id, seen, fresh_only, BENCHMARKS[benchmark]))
    if not frame["n"].any():
        parts.nothing_yet("No record with a time to show yet.")
    else:
        show_times(frame, theme.provenance(recorded=status.recorded), "latency", "Latency by stage, measured")
        load = "at concurrency 1" if data.study.latency_probe else "under the load told in the table"
        st.caption(
            f"Taken {load}. Post-processing of Self-Critic is its second call; its draft is the response stage. "
            "The averaging rule and the speakers don't matter here."
        )
    parts.run_provenance(status, data)
    st.header("The paper's, beside it", anchor=False)


parts.title("How much longer does the user wait?")
looked_at = view.current()
if looked_at.status is not None:
    show_run(looked_at.status)
parts.published_marks()
show_published()
parts.published_provenance(
    "Table 11. Standard deviations above the mean point to a long tail: see medians of own runs."
)
