"""A run at work: how far it is, read from the store, so that every browser shows the same."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from opbench.figures import theme
from opbench.figures.progress import progress_grid
from opbench.running.launch import command, log_file
from opbench.store import progress, reading
from opbench.store.reading import RunStatus
from pages.shared import access, failed, parts, results, steering, wording

#: Where the run stands on its page, for links to it.
ANCHOR = "progress"
_EVERY_S = 2
_FAILURES_EVERY_S = 10
_LOG_LINES = 12
_LOG_BYTES = 20_000
#: States of a history that isn't in yet.
_UNDER_WAY = ("waiting", "at work")
#: Users that are named beside a bar, and failures that are told.
_USERS = 3
#: Colour and icon of a worker's state (`opbench.running.team`).
_WORKER_MARKS: dict[str, tuple[Any, str]] = {
    "starting": ("grey", ":material/hourglass_top:"),
    "at work": ("blue", ":material/sync:"),
    "ended": ("grey", ":material/check:"),
}


def panel(status: RunStatus) -> None:
    """The run's progress, renewed every two seconds until it is complete."""
    over = status.recorded or (status.complete and not status.working)
    st.fragment(access.watched(_panel), run_every=None if over else _EVERY_S)(status.run_id)
    with st.container(horizontal=True):
        for page, label in (("trade_off", "Trade-off"), ("oracle_gap", "Oracle gap"), ("latency", "Latency")):
            st.page_link(f"pages/views/{page}.py", label=f"See the {label.lower()}", icon=":material/arrow_forward:")
    st.fragment(access.watched(failed.show), run_every=_FAILURES_EVERY_S if status.working else None)(status.run_id)
    study, last = steering.study_of(status.run_id)
    with st.expander("The same from the command line", icon=":material/terminal:"):
        parts.code(command(study, last.get("concurrency"), workers=last.get("workers") or 1), "bash")


def _panel(run_id: str) -> None:
    store = results.opened().store
    status = reading.run_status(store, run_id)
    was = st.session_state.get("seen_working", {}).get(run_id)
    st.session_state.setdefault("seen_working", {})[run_id] = status.working
    if was is not None and was != status.working:
        # The rest of the page (results, failures, what can be started) is drawn from the new state.
        results.forget()
        st.rerun()
    state, icon = _state(status)
    st.subheader(f"{icon} {parts.plain(status.name or 'Run')} `{status.run_id}`: {state}", anchor=ANCHOR)
    finished = status.done + status.errors
    st.progress(min(1.0, finished / max(1, status.planned)), text=f"{finished:,} of {status.planned:,} records")
    _ingesting(status)
    if status.halted:
        st.warning(parts.plain(status.halted), icon=":material/pause_circle:")
    _numbers(status)
    _workers(status)
    steering.buttons(status)
    _kinds(status)
    if not status.working and not status.recorded and status.waiting and not status.halted:
        _last_words(run_id)
    frame = progress.by_configuration(store, status)
    parts.chart(
        progress_grid(frame, mark=f"run {run_id}"),
        "progress",
        f"Records done of the run, by memory system and post-processor: {status.done:,} of {status.planned:,} in all",
    )
    with st.expander("By configuration, as a table", icon=":material/table:"):
        _table(frame, status.working)


def _ingesting(status: RunStatus) -> None:
    """Histories that memory systems take in before the first record: a bar a system while any is under way, and
    afterwards what failed."""
    standings = _standings(status)
    if not status.working or not standings:
        return
    under_way = any(each["state"] in _UNDER_WAY for each in standings)
    if under_way:
        st.caption("First the memory systems take the histories in; records come after.")
    for label in dict.fromkeys(each["label"] for each in standings):
        mine = [each for each in standings if each["label"] == label]
        done, planned = sum(each["done"] for each in mine), sum(each["planned"] for each in mine)
        failed = [each for each in mine if each["state"] == "failed"]
        if under_way:
            at_work = [each["user"] for each in mine if each["state"] == "at work"]
            users = f"; at {', '.join(at_work[:_USERS])}{', …' if len(at_work) > _USERS else ''}" if at_work else ""
            st.progress(
                min(1.0, done / max(1, planned)),
                text=f"{parts.plain(label)}: {done:,} of {planned:,} sessions of {theme.users(len(mine))}, "
                f"{sum(each['memories'] for each in mine):,} memories{parts.plain(users)}",
            )
        for each in failed[:_USERS]:
            st.error(
                f"{parts.plain(label)}, {parts.plain(each['user'])}: {parts.plain(each['error'] or 'failed')}",
                icon=":material/error:",
            )


def _standings(status: RunStatus) -> list[dict[str, Any]]:
    """`opbench.running.ingestion.Standing` of each history of the run, as its process last said."""
    found: list[dict[str, Any]] = status.worker.get("stats", {}).get("ingesting", [])
    return found


def _numbers(status: RunStatus) -> None:
    stats = status.worker.get("stats", {})
    with st.container(horizontal=True, gap="medium"):
        st.metric("Done", f"{status.done:,}", width="content")
        st.metric("Failed", f"{status.errors:,}", width="content")
        st.metric("Waiting", f"{status.waiting:,}", width="content")
        if status.working:
            rate, left = status.recent_rate, status.seconds_left
            st.metric("Rate", wording.rate(rate) if rate else "–", width="content", help="Over the last minute")
            st.metric("Time left", wording.duration(left) if left is not None else "–", width="content")
            st.metric(
                "Calls made",
                f"{stats.get('calls_made', 0):,}",
                width="content",
                help="Of models and of retrieval, since this process started",
            )
            st.metric(
                "Calls reused",
                f"{stats.get('calls_reused', 0):,}",
                width="content",
                help="Answered from the call store, unpaid",
            )
        if not status.recorded:
            spent = stats.get("spent_usd")
            budget = stats.get("budget_usd")
            st.metric(
                "Spent" if budget is None else f"Spent of {wording.dollars(budget)}",
                wording.dollars(steering.spent(status) if spent is None else spent),
                width="content",
                help="What the run's own calls cost by the registry's list prices; reused ones cost nothing.",
            )


def _workers(status: RunStatus) -> None:
    """The processes that share the run, a badge each; nothing for a run of one."""
    members = status.members if status.working else []
    if not members:
        return
    with st.container(horizontal=True):
        for each in members:
            color, icon = _WORKER_MARKS[each["state"]]
            failed = f", {each['errors']:,} failed" if each["errors"] else ""
            again = f", replaced {each['replaced']} ×" if each["replaced"] else ""
            where = f" on {parts.plain(each['host'])}" if each["host"] and each["host"] != status.worker["host"] else ""
            st.badge(
                f"Worker {each['number']}{where}: {each['state']}, {each['done']:,} done{failed}{again}",
                color=color,
                icon=icon,
            )


def _kinds(status: RunStatus) -> None:
    """Errors by kind, and what was tried again since the process started."""
    retries = status.worker.get("stats", {}).get("retries", {})
    if not (status.error_kinds or retries):
        return
    with st.container(horizontal=True):
        for kind, count in status.error_kinds.items():
            st.badge(f"{count:,} failed: {parts.plain(kind)}", color="red", icon=":material/error:")
        for kind, count in retries.items():
            st.badge(f"{count:,} tried again: {parts.plain(kind)}", color="orange", icon=":material/replay:")


def _table(frame: pd.DataFrame, working: bool) -> None:
    shown = parts.named(frame).assign(minutes_left=frame["seconds_left"] / 60, a_minute=60 * frame["rate"])
    columns: dict[str, Any] = {
        "model": st.column_config.TextColumn("model"),
        "memory": st.column_config.TextColumn("memory"),
        "mitigation": st.column_config.TextColumn("post-processor"),
        "done": st.column_config.NumberColumn("done", format="%d"),
        "planned": st.column_config.NumberColumn("of", format="%d"),
        "errors": st.column_config.NumberColumn("failed", format="%d"),
        "kinds": st.column_config.TextColumn("kinds of failure"),
    }
    if working:
        columns |= {
            "a_minute": st.column_config.NumberColumn("records a minute", format="%.1f"),
            "minutes_left": st.column_config.NumberColumn("minutes left", format="%.1f"),
        }
    parts.table(shown, columns, "progress", frame)


def _state(status: RunStatus) -> tuple[str, str]:
    if status.recorded:
        return "recorded elsewhere", ":material/inventory_2:"
    if status.working and status.request == "pause":
        return "paused", ":material/pause_circle:"
    if status.working and status.request == "stop":
        return "stopping: what is in flight is finished first", ":material/stop_circle:"
    if status.working and status.worker["stats"].get("starting"):
        return "starting", ":material/hourglass_top:"
    if status.working and any(each["state"] in _UNDER_WAY for each in _standings(status)):
        return "ingesting", ":material/memory:"
    if status.working:
        return "running", ":material/sync:"
    if status.complete:
        return "complete", ":material/check_circle:"
    if not status.waiting:
        return "all records tried, some failed", ":material/error:"
    return "stopped", ":material/stop_circle:"


def _last_words(run_id: str) -> None:
    """What the process wrote last, when it ended before its work did."""
    file = log_file(run_id)
    if not file.is_file():
        return
    with file.open("rb") as log:
        log.seek(max(0, file.stat().st_size - _LOG_BYTES))
        lines = log.read().decode("utf-8", "replace").splitlines()[-_LOG_LINES:]
    if lines:
        st.caption("What its process said last:")
        parts.code("\n".join(lines))
