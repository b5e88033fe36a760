"""Trying a draft on a small slice: what it takes first, then a run of its own, watched and linked."""

from __future__ import annotations

import os
from collections.abc import Callable

import streamlit as st

from opbench.cases import drafts
from opbench.cases.spec import CaseSpec, Column, Draft
from opbench.errors import OpbenchError
from opbench.models import Registry
from opbench.running.launch import command, quote_with_plugins
from opbench.running.quote import Quote
from opbench.store import reading
from opbench.study import Study
from pages.shared import access, chosen_models, parts, quoting, results, steering, study_form, view

_QUOTED, _RUN = "draft-quoted", "draft-run"
_EVERY_S = 2
Key = tuple[Study, Draft]


def draw(spec: CaseSpec, column: Column, draft: Draft, registry: Registry, *, saved: Callable[[Draft], None]) -> None:
    """Choose the slice, quote it, start it; and how far the last one is. `saved` is told of a draft that was saved."""
    with st.container(border=True):
        st.markdown("**Try it on a slice**")
        with st.container(horizontal=True, vertical_alignment="bottom"):
            size = int(
                st.number_input(
                    "Instances",
                    4,
                    500,
                    drafts.TRIAL_SIZE,
                    key="draft-size",
                    width=120,
                    help="Spread evenly over users and subtypes.",
                )
            )
            locomo = st.toggle(
                "Half of them LoCoMo's", key="draft-locomo", help="What it costs where memories are needed."
            )
            this_user = st.toggle(
                f"Only about {parts.as_label(spec.user)}",
                key="draft-user",
                help="Else a memory system that takes histories in would first take in those of all users.",
            )
        st.caption("BASE, the memory system alone, and the memory system with the draft, each on the same instances.")
        try:
            study = drafts.trial(spec, column, draft, size, locomo=locomo, this_user=this_user)
            _offer(study, draft, registry, saved)
        except OpbenchError as error:
            st.error(parts.plain(str(error)), icon=":material/error:")
        _watch()


def may_replace(draft: Draft) -> bool:
    """Whether a saved draft of that name may be overwritten: asked where another one is saved."""
    saved = drafts.read(drafts.file_of(draft))
    if saved is None or saved == draft:
        return False
    return bool(
        st.checkbox(
            f"Replace the saved draft “{parts.as_label(saved.label)}” ({draft.name}), which says something else",
            key=f"draft-replace-{draft.name}",
        )
    )


def _offer(study: Study, draft: Draft, registry: Registry, saved: Callable[[Draft], None]) -> None:
    key: Key = (study, draft)
    if st.button("What would it take?", key="draft-quote", icon=":material/calculate:"):
        access.demand_edit()
        with st.spinner("Working out what it takes…"):
            st.session_state[_QUOTED] = (key, _quote(study, draft))
    quoted: tuple[Key, Quote] | None = st.session_state.get(_QUOTED)
    if quoted is None or quoted[0] != key:
        st.caption("First see what it takes; then start it.")
        return
    estimate = quoted[1]
    quoting.show(study, estimate, study_form.DEFAULT_CONCURRENCY)
    missing = _missing_keys(registry, study)
    if missing:
        st.info(f"Type a key first: {', '.join(missing)}.", icon=":material/key:")
    if not estimate.to_do:
        st.info("This very slice is done already.", icon=":material/check_circle:")
    clashes = _clashes(draft)
    if st.button(
        "Save the draft and start",
        key="draft-start-run",
        type="primary",
        icon=":material/play_arrow:",
        disabled=bool(missing) or not estimate.to_do or clashes,
        help="As a run of its own, which goes on when this page is closed.",
    ):
        access.demand_edit()
        file = drafts.save(draft)
        saved(draft)
        st.session_state[_RUN] = steering.start(study, study_form.DEFAULT_CONCURRENCY, plugins=(file,))
        st.session_state.pop(_QUOTED)
        view.look_at(st.session_state[_RUN])
    if clashes:
        st.caption("Another draft of that name is saved: replace it below first, or give this one another name.")
    st.caption("The same from the command line, once the draft is saved:")
    parts.code(command(study, study_form.DEFAULT_CONCURRENCY, plugins=[drafts.file_of(draft)]), "bash")


def _quote(study: Study, draft: Draft) -> Quote:
    with drafts.lent(draft) as file:
        return quote_with_plugins(study, [file], study_form.DEFAULT_CONCURRENCY)[1]


def _clashes(draft: Draft) -> bool:
    return drafts.file_of(draft).exists() and not drafts.is_saved(draft)


def _missing_keys(registry: Registry, study: Study) -> list[str]:
    """The variables of keys that neither the environment nor this session has; the case's form asks for them."""
    named = [*study.models, study.judge, study.extractor or ""]
    wanted = [registry.models[name].key_env for name in named if name in registry.models]
    typed = chosen_models.typed_keys()
    return [each for each in dict.fromkeys(wanted) if each and not os.environ.get(each) and each not in typed]


def _watch() -> None:
    """The last trial of this browser session, renewed while it is at work."""
    run_id = st.session_state.get(_RUN)
    if run_id is None or run_id not in results.runs():
        return
    working = results.status(run_id).working
    st.fragment(access.watched(_progress), run_every=_EVERY_S if working else None)(run_id, working)
    with st.container(horizontal=True):
        for page, label in (("trade_off", "Trade-off of the trial"), ("instances", "Its instances")):
            st.page_link(
                f"pages/views/{page}.py", label=label, icon=":material/arrow_forward:", query_params={"run": run_id}
            )
        st.page_link(
            "pages/views/launch.py", label="Pause or stop it", icon=":material/tune:", query_params={"run": run_id}
        )


def _progress(run_id: str, was_working: bool) -> None:
    status = reading.run_status(results.opened().store, run_id)
    if was_working and not status.working:
        results.forget()
        st.rerun()
    done = status.done + status.errors
    state = "at work" if status.working else "complete" if status.complete else "stopped"
    st.progress(
        min(1.0, done / max(1, status.planned)),
        text=f"Trial {run_id}, {state}: {done:,} of {status.planned:,} records"
        + (f", {status.errors:,} failed" if status.errors else ""),
    )
