"""What a build came to: the funnel from candidates to questions, cost and acceptance by generator, and its work."""

from __future__ import annotations

from typing import Any

import streamlit as st

from opbench.analysis import builds as tables
from opbench.analysis.funnel import published_funnel
from opbench.figures import theme
from opbench.figures.funnel import funnel as funnel_figure
from pages.shared import build_candidates, builds, link, parts

_OURS, _PAPERS = "this build", "the paper's"


def funnel(build_id: str) -> None:
    """How many candidates each step has left, beside the paper's."""
    parts.heading("From candidates to questions")
    frame = builds.funnel(build_id)
    if frame.empty or not frame["n"].max() > 0:
        st.info("No candidate is written yet.", icon=":material/hourglass_empty:")
        return
    whose = link.one_of("Funnel", [_OURS, _PAPERS], "funnel", kind="segmented", label_visibility="collapsed")
    if whose == _PAPERS:
        frame, title, mark = published_funnel(), "What became of the paper's candidates", "published"
    else:
        title, mark = "What becomes of the candidates", f"build {build_id}"
    parts.chart(funnel_figure(frame, title, mark), "build-funnel", f"{title}; the table below holds the same numbers")
    for label, note in zip(frame["label"], frame["note"], strict=True):
        if note:
            parts.remark(f"{label}: {note}.")
    if whose == _PAPERS:
        parts.remark(f"As published with {parts.PAPER}, appendix A.3; of its own conversations and models.")
    with st.expander("As a table", icon=":material/table:"):
        number = st.column_config.NumberColumn
        columns: dict[str, Any] = {
            "label": st.column_config.TextColumn("step", width=300),
            "n": number("left", format="localized"),
            "dropped": number("dropped", format="localized", help="By this step"),
            "undecided": number("waiting", format="localized", help="Neither dropped by it nor gone on to the next"),
            "percent": number("left, %", format="%.1f", help="Of all that were generated"),
        }
        parts.table(frame.assign(percent=100 * frame["share"]), columns, "build-funnel", frame)
    if whose == _OURS:
        _reasons(build_id)


def _reasons(build_id: str) -> None:
    """What was dropped, by generator, subtype and filter."""
    frame = builds.reasons(build_id)
    if frame.empty:
        return
    with st.expander("What filters dropped, by generator and subtype", icon=":material/filter_alt_off:"):
        columns: dict[str, Any] = {
            "generator": st.column_config.TextColumn("generator"),
            "subtype": st.column_config.TextColumn("subtype"),
            "filter": st.column_config.TextColumn("filter"),
            "n": st.column_config.NumberColumn("dropped", format="localized"),
        }
        shown = frame.assign(
            subtype=[theme.name(name) for name in frame["subtype"]],
            filter=[build_candidates.decider(name) for name in frame["filter"]],
        )
        parts.table(shown, columns, "dropped", frame)


def generators(build_id: str) -> None:
    """What each generator's questions cost, and how many of them people accepted (the paper's table 4)."""
    parts.heading("What each generator gives and costs")
    by_subtype = link.switch("By subtype", "by-subtype")
    frame = builds.generators(build_id, by_subtype)
    if frame.empty:
        st.info("No question is written yet.", icon=":material/hourglass_empty:")
        return
    shown = frame.assign(
        subtype=[theme.name(str(name)) for name in frame["subtype"]],
        percent=100 * frame["acceptance"],
        interval=[
            note or f"{100 * low:.0f} to {100 * high:.0f}"
            for low, high, note in zip(frame["low"], frame["high"], frame["note"], strict=True)
        ],
    )
    number, text = st.column_config.NumberColumn, st.column_config.TextColumn
    columns: dict[str, Any] = {
        "generator": text("generator", width=150),
        "subtype": text("subtype", width=120),
        "generated": number("written", format="localized", width=75),
        "kept": number("kept", format="localized", width=65, help="They wait for people's review"),
        "reviewed": number("reviewed", format="localized", width=80, help="Accepted or rejected by people"),
        "accepted": number("accepted", format="localized", width=80),
        "percent": number("accepted, %", format="%.0f", width=95, help="Of those reviewed"),
        "interval": text("95 % interval", width=170, help="Questions of one user resemble each other: it says so"),
        "cost_usd": number("cost", format="$%.4f", width=80, help="By list price, reused calls included"),
        "usd_per_accepted": number(
            "cost an accepted",
            format="$%.4f",
            width=115,
            help="Told once people have decided on all; without profiles, topics and checks",
        ),
        "prompt_tokens": number("tokens in", format="localized", width=85),
        "completion_tokens": number("tokens out", format="localized", width=85),
        "seconds": number("time", format="%.0f s", width=75, help="Calls one after the other"),
        "dropped": number("dropped", format="localized", width=75, help="By filters"),
        "undecided": number("not filtered", format="localized", width=95),
        "calls": number("units", format="localized", width=65, help="Pieces of work that were asked for"),
        "failed": number("failed", format="localized", width=65),
        "repaired": number("repaired", format="localized", width=75),
    }
    if not by_subtype:
        del columns["subtype"]
    parts.table(shown, columns, "generators", frame)


def work(build_id: str) -> None:
    """What was asked of models, by stage and role."""
    units = builds.units(build_id)
    if not units:
        return
    frame = tables.work(units.values())
    with st.expander("What was asked of models, by stage and role", icon=":material/table:"):
        number, text = st.column_config.NumberColumn, st.column_config.TextColumn
        columns: dict[str, Any] = {
            "stage": text("stage", width=90),
            "role": text("role", width=90),
            "model": text("model", width=150),
            "units": number("units", format="localized", width=65, help="Pieces of work"),
            "failed": number("failed", format="localized", width=65),
            "repaired": number(
                "repaired", format="localized", width=75, help="Took a second call that shows the fault"
            ),
            "calls": number("calls", format="localized", width=65, help="Reused ones included"),
            "tokens_in": number("tokens in", format="localized", width=85),
            "tokens_out": number("tokens out", format="localized", width=85),
            "cost_usd": number("cost", format="$%.4f", width=80, help="By list price"),
            "untold": number("cost unknown", format="localized", width=100, help="Units whose cost isn't known"),
            "seconds": number("time", format="%.0f s", width=75, help="Calls one after the other"),
        }
        parts.table(frame, columns, "build-work", frame)


def failures(build_id: str) -> None:
    """The units that failed, each with why."""
    failed = tables.failed(builds.units(build_id).values())
    if failed.empty:
        return
    with st.expander(f"{len(failed):,} units failed", icon=":material/error:"):
        columns: dict[str, Any] = {
            "unit": st.column_config.TextColumn("unit", width=260),
            "model": st.column_config.TextColumn("model", width=130),
            "again": st.column_config.TextColumn("done again", width=90, help="By the next start"),
            "reason": st.column_config.TextColumn("why", width="large"),
        }
        parts.table(failed, columns, "failed-units", failed, ["reason"])
