"""Starting a study: choose the grid and the slice, see what it takes, start it, watch it."""

from __future__ import annotations

import math

import pandas as pd
import streamlit as st

from opbench.errors import OpbenchError
from opbench.figures.progress import progress_grid
from opbench.models import Registry, load_registry
from opbench.running.launch import command
from opbench.running.quote import Quote
from opbench.store.reading import RunStatus
from pages.shared import access, chosen_models, parts, quoting, results, steering, study_form, view, watching
from pages.shared.study_form import Form

#: A pilot of at least so many records, in whole rounds of configurations × benchmarks: two of each tell the spread.
_PILOT_AT_LEAST = 12
_PILOT_ROUNDS = 2


def draw_grid(form: Form, status: RunStatus | None, estimate: Quote) -> None:
    """The study as a picture: what is done of it, what there is to do."""
    configurations = form.study.configurations()
    planned = estimate.planned // len(configurations)
    frame = (
        status.by_configuration
        if status is not None
        else pd.DataFrame(
            [
                {"model": each.model, "memory": each.memory, "mitigation": each.mitigation, "planned": planned}
                for each in configurations
            ]
        ).assign(done=0, errors=0)
    )
    done = f"{int(frame['done'].sum()):,} of {estimate.planned:,} records are done"
    parts.chart(progress_grid(frame, "The study's grid", done), "grid", f"The study's grid: {done}")
    with st.expander("The grid as a table", icon=":material/table:"):
        columns = {
            "model": "model",
            "memory": "memory",
            "mitigation": "post-processor",
            "done": "done",
            "planned": "of",
            "errors": "failed",
        }
        parts.table(parts.named(frame), columns, "grid", frame)


def offer(
    form: Form, run_id: str, known: RunStatus | None, estimate: Quote, missing_keys: list[str], shown_above: bool
) -> None:
    """The buttons that start, for editors, and the command that does the same."""
    working = known is not None and known.working
    if missing_keys:
        st.info(f"Type a key first: {', '.join(missing_keys)}.", icon=":material/key:")
    elif not estimate.to_do:
        st.info(f"Nothing is left to do of this study: it is run `{run_id}`.", icon=":material/check_circle:")
    elif working:
        there = f" Its progress is [at the top of this page](#{watching.ANCHOR})." if shown_above else ""
        st.info(f"This study is being worked on: run `{run_id}`.{there}", icon=":material/sync:")
    cannot = bool(missing_keys) or not estimate.to_do or working
    pilot = None
    if access.may_edit():
        with st.container(horizontal=True, vertical_alignment="bottom"):
            if st.button(
                "Go on" if known is not None and estimate.finished else "Start",
                key="start",
                type="primary",
                icon=":material/play_arrow:",
                disabled=cannot,
            ):
                start(form)
            pilot = _offer_pilot(form, estimate, cannot)
    if (
        known is not None
        and not shown_above
        and st.button("Look at this run", key="look", icon=":material/visibility:")
    ):
        view.look_at(run_id)
    st.caption("The same from the command line:")
    parts.code(
        command(form.study, form.concurrency, budget_usd=form.budget_usd, plugins=form.plugins, workers=form.workers),
        "bash",
    )
    if pilot:
        st.caption(f"With `--pilot {pilot}` it does the pilot only, with `--dry-run` it only tells what it takes.")


def _offer_pilot(form: Form, estimate: Quote, cannot: bool) -> int | None:
    """The button that does a few records, and how many."""
    if not estimate.to_do:
        return None
    round_size = len(form.study.configurations()) * len(form.study.benchmarks)
    rounds = max(_PILOT_ROUNDS, math.ceil(_PILOT_AT_LEAST / round_size))
    records = int(
        st.number_input(
            "Pilot, records",
            1,
            estimate.to_do,
            min(rounds * round_size, estimate.to_do),
            key=f"pilot-records-{round_size}-{estimate.to_do}",
            width=130,
            help="The study's own records, spread over its configurations and benchmarks: nothing of a pilot is "
            "wasted. Afterwards the quote rests on what they took.",
        )
    )
    if st.button("Run a pilot", key="pilot", icon=":material/science:", disabled=cannot):
        start(form, records)
    return records


def start(form: Form, pilot_records: int | None = None) -> None:
    """Start the form's study, or its pilot, and look at it."""
    run_id = steering.start(
        form.study,
        form.concurrency,
        budget_usd=form.budget_usd,
        pilot_records=pilot_records,
        plugins=form.plugins,
        workers=form.workers,
    )
    view.look_at(run_id)


def draw_new_study(registry: Registry, looked_at: RunStatus | None) -> None:
    editor = access.may_edit()
    if not editor:
        st.info(
            "You look as a viewer: what a study takes and how far it is, you can see; only editors start one.",
            icon=":material/visibility:",
        )
    form = study_form.ask(registry, editor)
    judge = [form.study.judge] if form.study.judge in registry.models else []
    extractor = [form.study.extractor] if form.study.extractor else []
    asked = [name for name in dict.fromkeys((*form.study.models, *extractor, *judge)) if name in registry.models]
    chosen_models.show_notes(registry, asked)
    missing: list[str] = []
    if editor:
        missing = chosen_models.ask_for_keys(registry, asked)
        chosen_models.offer_to_ask(registry, asked)
    run_id, estimate = quoting.of(form)
    known = results.status(run_id) if run_id in results.runs() else None
    with st.container(border=True):
        st.subheader("What it takes", anchor=False)
        quoting.show(form.study, estimate, form.concurrency)
        shown_above = looked_at is not None and looked_at.run_id == run_id
        if shown_above:
            st.caption("This is the study of the run above, whose grid stands there.")
        else:
            draw_grid(form, known, estimate)
        offer(form, run_id, known, estimate, missing, shown_above)


parts.title("What will a study take, and how far is it?")
looked_at = view.current().status
if looked_at is not None:
    with st.container(border=True):
        watching.panel(looked_at)

st.header("New study", anchor=False)
try:
    draw_new_study(load_registry(), looked_at)
except OpbenchError as error:
    st.error(parts.plain(str(error)), icon=":material/error:")
