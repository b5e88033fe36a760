"""A build at work: how far it is, read from the store, so that every browser shows the same; stopped and gone on with.

Every deed is checked on the server: only editors may.
"""

from __future__ import annotations

import streamlit as st

from opbench.construction import launching
from opbench.construction.launching import BuildOrder
from opbench.construction.progress import Progress, read_progress
from opbench.models import load_registry
from opbench.store.builds import Build
from pages.shared import access, build_candidates, builds, chosen_models, parts, results, wording

_EVERY_S = 2
_STAGES = {"profiles": "Profiles and topics", "tasks": "Questions", "filtering": "Filters"}


def panel(build: Build) -> None:
    """The build's progress, renewed every two seconds while anybody is at work on it."""
    found = read_progress(results.opened().store, build.id)
    busy = found.working or any(each.working for each in launching.started(build.id))
    st.fragment(access.watched(_panel), run_every=_EVERY_S if busy else None)(build.id)
    if not busy:
        _steer(build, found)


def _panel(build_id: str) -> None:
    store = results.opened().store
    found = read_progress(store, build_id)
    processes = launching.started(build_id)
    starting = not found.working and any(each.working for each in processes)
    seen = (found.working, starting)
    was = st.session_state.get("seen_building", {}).get(build_id)
    st.session_state.setdefault("seen_building", {})[build_id] = seen
    if was is not None and was != seen:
        # The rest of the page is drawn from the new state.
        builds.forget()
        st.rerun()
    with st.container(border=True):
        name = builds.load(build_id).name
        state, icon = _state(found, starting)
        st.subheader(f":material/{icon}: {parts.plain(name)} `{build_id}`: {state}", anchor=False)
        for stage, count in found.stages.items():
            finished = count.done + count.failed
            failed = f", {count.failed:,} failed" if count.failed else ""
            st.progress(
                min(1.0, finished / count.planned) if count.planned else 1.0,
                text=f"{_STAGES[stage]}: {finished:,} of {count.planned:,} units{failed}",
            )
        _filtering(found)
        if found.halted and not found.working:
            st.warning(parts.plain(found.halted), icon=":material/pause_circle:")
        _numbers(found)
        if found.failures:
            with st.container(horizontal=True):
                for reason, n in list(found.failures.items())[:3]:
                    st.badge(f"{n:,} × {parts.plain(reason[:120])}", color="red", icon=":material/error:")
        if (found.working or starting) and access.may_edit():
            st.button(
                "Stop",
                key=f"stop-build-{build_id}",
                icon=":material/stop:",
                disabled=found.request == "stop",
                on_click=access.editing(launching.stop),
                args=(store, build_id),
                help="What is in hand is finished; go on at any time.",
            )
        if not found.working and not starting and processes and (words := processes[0].last_words()):
            with st.expander("What its last process said at its end", icon=":material/terminal:"):
                parts.code("\n".join(words))


def _filtering(found: Progress) -> None:
    """How many candidates the filters have decided, while and after they do."""
    made = sum(found.candidates.values())
    if not made:
        return
    decided = made - found.candidates.get("candidate", 0)
    st.progress(decided / made, text=f"Filters: {decided:,} of {made:,} questions decided")


def _numbers(found: Progress) -> None:
    spent = found.spent
    with st.container(horizontal=True, gap="medium"):
        st.metric("Candidates", f"{sum(found.candidates.values()):,}", width="content")
        for state, (_, _, label) in build_candidates.STATES.items():
            if state != "candidate" and found.candidates.get(state):
                st.metric(label.capitalize(), f"{found.candidates[state]:,}", width="content")
        st.metric("Repaired", f"{found.repaired:,}", width="content", help="Answers that took a second call.")
        st.metric("Tokens in", _told(spent.prompt_tokens), width="content", help="Of profiles and questions.")
        st.metric("Tokens out", _told(spent.completion_tokens), width="content")
        st.metric(
            "Cost", wording.dollars(spent.cost_usd), width="content", help="By list price, reused calls included."
        )
        if found.seconds_left is not None:
            st.metric("Time left", f"≈ {wording.duration(found.seconds_left)}", width="content")


def _told(count: int | None) -> str:
    return "not told" if count is None else f"{count:,}"


def _state(found: Progress, starting: bool) -> tuple[str, str]:
    if found.working and found.request == "stop":
        return "stopping: what is in hand is finished first", "stop_circle"
    if found.working:
        return ("filtering" if _made(found) else "building"), "sync"
    if starting:
        return "starting", "hourglass_top"
    if not _made(found):
        return "stopped", "pause_circle"
    if found.failed:
        return "all units tried, some failed", "error"
    if found.candidates.get("candidate"):
        return "made, not all filtered", "filter_alt"
    return "complete", "check_circle"


def _made(found: Progress) -> bool:
    """Whether every unit that makes candidates is tried."""
    return not any(count.left for count in found.stages.values())


def _steer(build: Build, found: Progress) -> None:
    """Go on with what is missing, ask failed units again, or filter alone: for editors."""
    if not access.may_edit():
        return
    waiting = found.candidates.get("candidate", 0)
    unfinished = not _made(found) or found.failed or waiting
    registry = load_registry()
    spec = build.spec
    asked = dict.fromkeys([spec.extractor, *spec.generators, spec.similarity, spec.checker])
    known = [name for name in asked if name in registry.models]
    missing = chosen_models.ask_for_keys(registry, known, place="go-on") if unfinished else []
    if missing:
        st.info(f"Type a key first: {', '.join(missing)}.", icon=":material/key:")
    with st.container(horizontal=True, vertical_alignment="center"):
        if unfinished and st.button(
            "Go on",
            key="go-on-building",
            type="primary",
            icon=":material/play_arrow:",
            disabled=bool(missing),
            help="Makes what is missing, and filters it.",
        ):
            _launch(BuildOrder(build.id))
        if found.failed and st.button(
            "Ask again where answers were unusable",
            key="again-building",
            icon=":material/replay:",
            disabled=bool(missing),
            help="Under another seed.",
        ):
            _launch(BuildOrder(build.id, again=True))
    if unfinished:
        parts.code(BuildOrder(build.id).command(), "bash")


def _launch(order: BuildOrder) -> None:
    access.demand_edit()
    launching.launch(results.opened().store, order, chosen_models.typed_keys())
    builds.look_again(order.build_id, f"Started: {order.command()}")
