"""What is looked at: the run, the averaging rule, the speakers. Chosen once for all pages and kept in the URL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import streamlit as st

from opbench import __version__
from opbench.analysis.aggregate import RULE_TEXTS, RULES, Rule
from opbench.benchmarks import exclusions
from opbench.errors import OpbenchError, UsageError
from opbench.store.reading import RunRow, RunStatus, find_run
from pages.shared import access, collecting, link, memory, results, review_door, share
from pages.shared.parts import plain

PUBLISHED = "published"
_RUN, _RULE, _FIRST = "run", "rule", "first"
# Streamlit leaves five rem on either side, which two columns of figure and table miss; and a table keeps the width of
# a moment ago when the window turns its column's width.
_STYLE = """<style>
@media (min-width: 768px) { [data-testid="stMainBlockContainer"] { padding-left: 3rem; padding-right: 3rem; } }
[data-testid="stDataFrame"] { max-width: 100%; overflow-x: clip; }
</style>"""


@dataclass(frozen=True, slots=True)
class View:
    """`status` is None when the published figures are looked at."""

    status: RunStatus | None
    rule: Rule
    first_only: bool


def show(page: Any) -> None:
    """Draw the sidebar and the chosen page; an error of ours is a sentence. What stands above is drawn last: by then
    it is known what the page shows and what of its link couldn't be followed. Who may not see it sees none of this."""
    try:
        if review_door.guest_at(page.url_path) or not access.gate():
            return
    except OpbenchError as error:
        st.error(plain(str(error)), icon=":material/lock:")
        return
    st.html(_STYLE)
    head = st.container()
    collecting.begin(page.url_path or "trade-off")
    _forget_notices(page.url_path)
    try:
        _draw_sidebar()
        page.run()
    except OpbenchError as error:
        st.error(plain(str(error)), icon=":material/error:")
    st.caption(f"OP-Bench Workbench {__version__}")
    with head:
        share.bar(collecting.sheet())
        for sentence in (*results.problems(), *link.notices()):
            st.warning(plain(sentence), icon=":material/link_off:")
    memory.settle(page.url_path)


def current() -> View:
    """The view as the sidebar says it."""
    state = st.session_state
    chosen = state["chosen_run"]
    return View(None if chosen == PUBLISHED else results.status(chosen), state[_RULE], state[_FIRST])


def look_at(run_id: str, notice: str = "") -> None:
    """Choose a run and draw the page anew, with something to say about it."""
    st.session_state["next_run"] = run_id
    if notice:
        st.session_state.update({"notices": [notice], "noted_run": run_id})
    results.forget()
    st.rerun()


def describe(status: RunRow) -> str:
    """A run in a line, e.g. `pilot · recorded · 3fa2c1d0`. Nothing that changes while it is worked on belongs here:
    the browser sends the chosen line back, and a line that is there no more chooses nothing."""
    return " · ".join(part for part in (status.name, "recorded" if status.recorded else "", status.run_id) if part)


def _draw_sidebar() -> None:
    _follow_link()
    runs = results.runs()
    if st.session_state.get("chosen_run", PUBLISHED) not in {PUBLISHED, *runs}:
        del st.session_state["chosen_run"]  # deleted meanwhile
    labels = {PUBLISHED: "Published figures (the paper)"} | {key: describe(run) for key, run in runs.items()}
    with st.sidebar:
        chosen = st.selectbox("Results of", list(labels), format_func=labels.__getitem__, key="chosen_run")
        link.one_of(
            "Averaging rule",
            RULES,
            _RULE,
            kind="radio",
            help="\n".join(f"- **{rule}**: {text}" for rule, text in RULE_TEXTS.items())
            + "\n\nThe paper's table mixes the three; here one rule serves all rows.",
        )
        link.switch(
            "First speakers only",
            _FIRST,
            help="The public evaluator scores the first speaker of each conversation only: 859 of the 1,700 instances.",
        )
        link.some_of(
            "Leave out",
            list(exclusions.lists()),
            results.WITHOUT,
            placeholder="nothing",
            help="Named lists of instances, such as LoCoMo questions whose gold answer is wrong (Data page): neither "
            "planned nor scored in what is measured. Published figures stay as they are.",
        )
        access.show_who()
    _write_link(None if chosen == PUBLISHED else chosen)


def _follow_link() -> None:
    """Take the run from the URL when the link is new, and say what of it can't be followed."""
    state = st.session_state
    parameters = st.query_params
    if "next_run" in state:
        state["chosen_run"] = state.pop("next_run")
        state["linked_run"] = parameters.get(_RUN)
    wanted = parameters.get(_RUN)
    if wanted is not None and wanted != state.get("linked_run"):
        state["linked_run"] = wanted
        state["chosen_run"] = PUBLISHED
        state["notices"] = []
        results.forget()
        if wanted != PUBLISHED:
            try:
                state["chosen_run"] = find_run(results.opened().store, wanted)
            except UsageError as error:
                link.say(f"The link's run can't be shown, here are the published figures: {error}"[:400])


def _forget_notices(page: str) -> None:
    """A notice of one page isn't true of the next."""
    if st.session_state.get("noted_page", page) != page:
        st.session_state.pop("notices", None)
    st.session_state["noted_page"] = page


def _write_link(run_id: str | None) -> None:
    state, parameters = st.session_state, st.query_params
    if run_id != parameters.get(_RUN):
        if run_id is None:
            del parameters[_RUN]
        else:
            parameters[_RUN] = run_id
    if run_id != state.get("noted_run", run_id):
        state.pop("notices", None)
    state["noted_run"] = run_id
    state["linked_run"] = run_id
