"""A run at work: how far it is, its steering, its failures: read from the store, so that it outlives a reload."""

from __future__ import annotations

import time

import streamlit as st

from opbench.running.launch import command, launch, log_file
from opbench.store import reading
from opbench.store.reading import RunStatus
from opbench.store.writing import set_request
from opbench.study import Study
from pages.shared import chosen_models, parts, results, view, wording

DEFAULT_CONCURRENCY = 4
_EVERY_S = 2
#: A process that was just started says nothing for as long as it loads its parts.
_STARTING_S = 60
_LOG_LINES = 12
_LOG_BYTES = 20_000


def start(study: Study, concurrency: int) -> str:
    """Start or resume a study in a process of its own, with the keys that were typed; the run's id.

    Raises:
        UsageError, DataError: the study can't be run.
    """
    launched = launch(results.opened().store, study, concurrency=concurrency, keys=chosen_models.typed_keys())
    st.session_state.setdefault("started", {})[launched.run_id] = time.time()
    return launched.run_id


def panel(status: RunStatus) -> None:
    """The run's progress, renewed every two seconds until it is complete."""
    over = status.complete and not status.working
    live = st.fragment(_panel, run_every=None if status.recorded or over else _EVERY_S)
    live(status.run_id)
    with st.container(horizontal=True):
        for page, label in (("trade_off", "Trade-off"), ("oracle_gap", "Oracle gap"), ("latency", "Latency")):
            st.page_link(f"pages/views/{page}.py", label=f"See the {label.lower()}", icon=":material/arrow_forward:")
    _failures(status)
    study, _ = reading.run_study(results.opened().store, status.run_id)
    with st.expander("The same from the command line", icon=":material/terminal:"):
        st.code(command(study, status.worker.get("concurrency")), language="bash", wrap_lines=True)


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
    st.subheader(f"{icon} {parts.plain(status.name or 'Run')} `{status.run_id}`: {state}", anchor=False)
    finished = status.done + status.errors
    st.progress(min(1.0, finished / max(1, status.planned)), text=f"{finished:,} of {status.planned:,} records")
    with st.container(horizontal=True, gap="medium"):
        st.metric("Done", f"{status.done:,}", width="content")
        st.metric("Failed", f"{status.errors:,}", width="content")
        st.metric("Waiting", f"{status.waiting:,}", width="content")
        if status.working:
            rate, left = status.recent_rate, status.seconds_left
            st.metric("Rate", wording.rate(rate) if rate else "–", width="content", help="Over the last minute")
            st.metric("Time left", wording.duration(left) if left is not None else "–", width="content")
            reused, made = status.worker["stats"].get("calls_reused", 0), status.worker["stats"].get("calls_made", 0)
            st.metric("Calls made", f"{made:,}", width="content", help="Since this process started")
            st.metric("Calls reused", f"{reused:,}", width="content", help="Answered from the call store, unpaid")
    _steering(status)
    with st.container(horizontal=True):
        for kind, count in status.error_kinds.items():
            st.badge(f"{count:,} × {parts.plain(kind)}", color="red", icon=":material/error:", help="Failed for good")
        for kind, count in status.worker.get("stats", {}).get("retries", {}).items():
            st.badge(f"{count:,} × {parts.plain(kind)}", color="orange", icon=":material/replay:", help="Tried again")
    if not status.working and not status.recorded and status.waiting and not _starting(status):
        _last_words(run_id)
    with st.expander("By configuration", icon=":material/grid_on:"):
        st.dataframe(
            parts.named(status.by_configuration),
            hide_index=True,
            column_config={
                "mitigation": "post-processor",
                "done": st.column_config.ProgressColumn(
                    "done", max_value=int(status.by_configuration["planned"].max()), format="%d"
                ),
            },
            alt="Records planned, done and failed by configuration",
        )


def _state(status: RunStatus) -> tuple[str, str]:
    if status.recorded:
        return "recorded elsewhere", ":material/inventory_2:"
    if status.working and status.request == "pause":
        return "paused", ":material/pause_circle:"
    if status.working and status.request == "stop":
        return "stopping: what is in flight is finished first", ":material/stop_circle:"
    if status.working:
        return "running", ":material/sync:"
    if status.complete:
        return "complete", ":material/check_circle:"
    if _starting(status):
        return "starting", ":material/hourglass_top:"
    if not status.waiting:
        return "all records tried, some failed", ":material/error:"
    return "stopped", ":material/stop_circle:"


def _starting(status: RunStatus) -> bool:
    started = st.session_state.get("started", {}).get(status.run_id, 0.0)
    return not status.working and not status.complete and time.time() - started < _STARTING_S


def _steering(status: RunStatus) -> None:
    store, run_id = results.opened().store, status.run_id
    if status.recorded or (status.complete and not status.working):
        return
    with st.container(horizontal=True):
        if status.working and status.request == "go":
            st.button(
                "Pause",
                key="pause",
                icon=":material/pause:",
                on_click=set_request,
                args=(store, run_id, "pause"),
                help="Takes up nothing new; the process stays.",
            )
        if status.working and status.request == "pause":
            st.button(
                "Go on",
                key="go",
                type="primary",
                icon=":material/play_arrow:",
                on_click=set_request,
                args=(store, run_id, "go"),
            )
        if status.working and status.request != "stop":
            st.button(
                "Stop",
                key="stop",
                icon=":material/stop:",
                on_click=set_request,
                args=(store, run_id, "stop"),
                help="Finishes what is in flight and ends the process; go on at any time.",
            )
        again = "Try the failed ones again" if not status.waiting else "Go on"
        if (
            not status.working
            and not _starting(status)
            and st.button(again, key="resume", type="primary", icon=":material/play_arrow:")
        ):
            _resume(status)


def _resume(status: RunStatus) -> None:
    study, _ = reading.run_study(results.opened().store, status.run_id)
    run_id = start(study, int(st.session_state.get("concurrency", DEFAULT_CONCURRENCY)))
    notice = f"Data, prompts or models have changed since run {status.run_id} began: this is a new run, {run_id}."
    view.look_at(run_id, notice if run_id != status.run_id else "")


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
        st.code("\n".join(lines), language=None, wrap_lines=True)


def _failures(status: RunStatus) -> None:
    if not (status.errors or status.unscored):
        return
    with st.expander(f"Failures: {status.errors + status.unscored:,}", icon=":material/error:"):
        frame = reading.failures(results.opened().store, status.run_id)
        columns: dict[str, object] = {
            "memory": "memory",
            "mitigation": "post-processor",
            "instance": "instance",
            "kind": st.column_config.TextColumn("kind", help="Kind of error, or the metric that is missing"),
            "reason": st.column_config.TextColumn("reason", width="large"),
        }
        parts.table(parts.named(frame), columns, "failures", frame)
