"""What a study will take, drawn: the quote, its range where it was measured, and where it comes from."""

from __future__ import annotations

import asyncio
from dataclasses import asdict

import pandas as pd
import streamlit as st

from opbench.figures import theme
from opbench.running.launch import quote_with_plugins
from opbench.running.prepare import prepare
from opbench.running.quote import Quote, quote
from opbench.study import Study
from pages.shared import parts, results, wording
from pages.shared.study_form import Form

_STAGES = {"ingestion": "ingestion", "post": "post-processing", "response": "response", "judge": "judging"}


def of(form: Form) -> tuple[str, Quote]:
    """The run's id and what is left to do of it. Up to ten seconds old.

    Raises:
        UsageError, DataError: the study can't be run.
    """
    files = tuple((str(file), file.stat().st_mtime) for file in form.plugins)
    return _quoted(form.study, form.concurrency, files, form)


@st.cache_data(ttl=10, max_entries=16, show_spinner="Working out what it takes…")
def _quoted(study: Study, concurrency: int, files: tuple[tuple[str, float], ...], _form: Form) -> tuple[str, Quote]:
    if files:
        return quote_with_plugins(study, _form.plugins, concurrency)
    prepared = prepare(study)
    try:
        return prepared.run_id, quote(results.opened().store, prepared, concurrency=concurrency)
    finally:
        asyncio.run(prepared.aclose())


def show(study: Study, estimate: Quote, concurrency: int) -> None:
    """The quote in numbers, its range, and the table by configuration and stage."""
    with st.container(horizontal=True, gap="medium", key="quote"):
        st.metric("Configurations", len(study.configurations()), width="content")
        st.metric(
            "Records to do", f"{estimate.to_do:,}", width="content", help=f"{estimate.finished:,} are done already."
        )
        st.metric(
            "Model calls, at most",
            f"{estimate.calls:,}",
            width="content",
            help=f"{estimate.calls_naive:,} without the call store, which makes a call that several records need once.",
        )
        st.metric("Tokens in", f"{estimate.prompt_tokens:,}", width="content")
        st.metric("Tokens out", f"{estimate.completion_tokens:,}", width="content")
        st.metric("Cost", wording.dollars(estimate.cost_usd), width="content", help="By the registry's list prices.")
        st.metric(
            "Time", f"≈ {wording.duration(estimate.seconds)}", width="content", help=f"At {concurrency} at a time."
        )
    if estimate.to_do:
        st.caption(" ".join(_sentences(estimate)))
    _ingestion(estimate)
    if estimate.lines:
        with st.expander("By configuration and stage", icon=":material/table:"):
            _table(estimate)


def _ingestion(estimate: Quote) -> None:
    """What memory systems take in before the first record; it is in the numbers above."""
    for line in estimate.ingestion:
        takes = f"{line.label} first takes in {line.sessions:,} sessions of {theme.users(line.users)}"
        if line.extractor is None:
            said = f"{takes} with its own models: what they take isn't known here, and isn't in the numbers above."
            st.caption(f":material/memory: {parts.plain(said)}")
            continue
        cost = f"cost unknown ({line.reason})" if line.cost_usd is None else wording.dollars(line.cost_usd)
        said = (
            f"{takes}: {line.calls:,} calls of {line.extractor}, {line.prompt_tokens:,} tokens in, "
            f"{line.completion_tokens:,} out, {cost}, about {wording.duration(line.seconds)} one after the other."
        )
        st.caption(f":material/memory: {parts.plain(said)}")


def _sentences(estimate: Quote) -> list[str]:
    """Markdown: what the call store saves, what the quote rests on, and its range."""
    colon = "" if estimate.basis.startswith("from") else ":"
    said = [f"An estimate{colon} {parts.plain(estimate.basis)}."]
    if saved := estimate.calls_naive - estimate.calls:
        said.append(
            f"The call store saves {saved:,} of {estimate.calls_naive:,} calls "
            f"({100 * saved / estimate.calls_naive:.0f} %)."
        )
    if ranges := _ranges(estimate):
        said.append(f"If the rest is like what was measured, with 95 % confidence: {', '.join(ranges)}.")
    return said


def _ranges(estimate: Quote) -> list[str]:
    found = []
    for name, write, unit in (
        ("prompt_tokens", _whole, " tokens in"),
        ("completion_tokens", _whole, " tokens out"),
        ("cost_usd", wording.dollars, ""),
        ("seconds", wording.duration, ""),
    ):
        low, high = estimate.ranges.get(name, (0.0, 0.0))
        if high > low:
            found.append(f"{parts.plain(write(low))} to {parts.plain(write(high))}{unit}")
    return found


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def _table(estimate: Quote) -> None:
    whole = pd.DataFrame([asdict(line) for line in estimate.lines]).astype({"cost_usd": "float64"})
    whole["basis"] = whole.pop("measured").map({True: "measured", False: "assumed"})
    shown = parts.named(whole).assign(stage=whole["stage"].map(_STAGES), saved=whole["calls_naive"] - whole["calls"])
    columns = {
        "model": st.column_config.TextColumn("model"),
        "memory": st.column_config.TextColumn("memory"),
        "mitigation": st.column_config.TextColumn("post-processor"),
        "stage": st.column_config.TextColumn("stage"),
        "calls": st.column_config.NumberColumn("calls", format="%.0f"),
        "saved": st.column_config.NumberColumn("saved", format="%.0f", help="Answered from the call store"),
        "prompt_tokens": st.column_config.NumberColumn("tokens in", format="%.0f"),
        "completion_tokens": st.column_config.NumberColumn("tokens out", format="%.0f"),
        "cost_usd": st.column_config.NumberColumn("cost", format="$%.4f"),
        "seconds": st.column_config.NumberColumn("seconds", format="%.0f"),
        "basis": st.column_config.TextColumn("basis", help="Measured on this study's own records, or assumed"),
    }
    parts.table(shown, columns, "quote", whole)
