"""Starting a run and steering it. Every deed is checked on the server: only editors may."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import streamlit as st

from opbench.errors import OpbenchError, UsageError
from opbench.plugins import plugin_files, plugin_folder
from opbench.running.budget import spent_before
from opbench.running.launch import launch
from opbench.store import runs
from opbench.store.reading import RunStatus
from opbench.store.writing import set_request
from opbench.study import Study
from pages.shared import access, chosen_models, parts, results, study_form, view, wording


def start(
    study: Study,
    concurrency: int,
    *,
    budget_usd: float | None = None,
    pilot_records: int | None = None,
    plugins: tuple[Path, ...] = (),
    workers: int = 1,
) -> str:
    """Start or resume a study in a process of its own, with the keys that were typed; the run's id.

    Raises:
        UsageError, DataError: the study can't be run, or the visitor is no editor.
    """
    access.demand_edit()
    launched = launch(
        results.opened().store,
        study,
        concurrency=concurrency,
        keys=chosen_models.typed_keys(),
        budget_usd=budget_usd,
        pilot_records=pilot_records,
        plugins=plugins,
        workers=workers,
    )
    return launched.run_id


def study_of(run_id: str) -> tuple[Study, dict[str, Any]]:
    """The run's study, and what is known of its last execution: concurrency, workers, budget_usd, …, with the
    names of its plugin files as `plugins`."""
    study, provenance = runs.run_study(results.opened().store, run_id)
    executions = provenance.get("executions") or [{}]
    return study, {**executions[-1], "plugins": list(provenance.get("plugins", {}))}


@st.cache_data(max_entries=16, show_spinner=False)
def _spent(run_id: str, seen: results.Stamp) -> float:
    return spent_before(results.opened().store, run_id)


def spent(status: RunStatus) -> float:
    """US dollars that the run has cost so far."""
    return _spent(status.run_id, results.stamp(status))


def buttons(status: RunStatus) -> None:
    """Pause, go on, stop, as the run's state has them; nothing for who may not."""
    store, run_id = results.opened().store, status.run_id
    if not access.may_edit() or status.recorded:
        return
    with st.container(horizontal=True, vertical_alignment="bottom"):
        if status.working and status.request == "go":
            st.button(
                "Pause",
                key="pause",
                icon=":material/pause:",
                on_click=access.editing(set_request),
                args=(store, run_id, "pause"),
                help="Takes up nothing new; the process stays.",
            )
        if status.working and status.request == "pause":
            st.button(
                "Go on",
                key="go",
                type="primary",
                icon=":material/play_arrow:",
                on_click=access.editing(set_request),
                args=(store, run_id, "go"),
            )
        if status.working and status.request != "stop":
            st.button(
                "Stop",
                key="stop",
                icon=":material/stop:",
                on_click=access.editing(set_request),
                args=(store, run_id, "stop"),
                help="Finishes what is in flight and ends the process; go on at any time.",
            )
        if not status.working and not status.complete:
            _offer_to_go_on(status)
        study, last = study_of(run_id)
        st.button(
            "Fill the form with this study",
            key="fill",
            type="tertiary",
            icon=":material/edit_note:",
            on_click=study_form.fill,
            args=(study, last["plugins"]),
            help="To start one like it, with changes.",
        )


def _offer_to_go_on(status: RunStatus) -> None:
    """The button that goes on, and the budget with which; one that is reached must be raised."""
    _, last = study_of(status.run_id)
    before = last.get("budget_usd")
    so_far = spent(status) if before is not None else 0.0
    reached = before is not None and so_far >= before
    budget = before
    if before is not None:
        budget = st.number_input(
            "Budget, $",
            min_value=0.01,
            value=None if reached else float(before),
            step=1.0,
            format="%.2f",
            placeholder=f"more than {wording.dollars(so_far)}" if reached else "no limit",
            key=f"raised-{status.run_id}",
            width=170,
            help=f"So far the run has cost {wording.dollars(so_far)}.",
        )
    if st.button(
        "Go on" if status.waiting else "Try the failed ones again",
        key="resume",
        type="primary",
        icon=":material/play_arrow:",
        disabled=reached and (budget is None or budget <= so_far),
        help="What is finished stays. Failed records are tried again.",
    ):
        resume(status, budget)


def resume(status: RunStatus, budget_usd: float | None) -> None:
    """Go on with the run as it went before, but for the budget; what hinders is said."""
    study, last = study_of(status.run_id)
    concurrency = int(last.get("concurrency") or study_form.DEFAULT_CONCURRENCY)
    # Those of a cluster may have been more than there is room for here.
    workers = min(int(last.get("workers") or 1), study_form.MOST_WORKERS)
    try:
        run_id = start(study, concurrency, budget_usd=budget_usd, plugins=_plugins(last["plugins"]), workers=workers)
    except OpbenchError as error:
        st.error(parts.plain(str(error)), icon=":material/error:")
        return
    notice = f"Data, prompts or models have changed since run {status.run_id} began: this is a new run, {run_id}."
    view.look_at(run_id, notice if run_id != status.run_id else "")


def _plugins(names: list[str]) -> tuple[Path, ...]:
    there = {file.name: file for file in plugin_files()}
    if missing := [name for name in names if name not in there]:
        raise UsageError(
            f"this run rests on the plugin files {', '.join(missing)}: put them into {plugin_folder()} to go on."
        )
    return tuple(there[name] for name in names)
