"""The Judges page's section on judging: which judges score what, what that takes; starting, stopping, watching it.

Every deed is checked on the server: only editors may.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pandas as pd
import streamlit as st

from opbench.analysis import flips
from opbench.analysis.grids import configuration_keys
from opbench.calibration import launching
from opbench.calibration.choosing import FORCED, parse_choice
from opbench.calibration.estimating import Estimate, estimate_rescore, estimate_set
from opbench.calibration.launching import JudgeOrder, Started
from opbench.judges.packs import BUNDLED, official_folder
from opbench.judges.registry import OFFLINE, registered_judges
from opbench.models import load_registry
from opbench.store.judgings import JudgingRow
from opbench.store.rundata import RunData
from pages.shared import access, chosen_models, detached, judged, judges_sets, link, parts, results, view, wording

_EVERY_S = 2
_SAID = "judging-said"
_RUN = "run"
_MOST_REPEATS = 20
#: MemOS's generous prompt for LoCoMo.
_MEMOS = "memos"


def panel() -> None:
    """What is being judged, renewed every two seconds, and what the last process said at its end."""
    busy = any(each.working for each in launching.started())
    st.fragment(access.watched(_panel), run_every=_EVERY_S if busy else None)()


def _panel() -> None:
    detached.follow("seen_judging", launching.started(), _process, "What the last judging said at its end")


def _process(process: Started) -> None:
    of = f"set {process.order.set_id}" if process.order.set_id else f"run {process.order.run_id}"
    with st.container(border=True):
        st.subheader(f":material/sync: Judging {parts.plain(of)}", anchor=False)
        detached.bar(process.progress())
        if access.may_edit():
            st.button(
                "Stop",
                key=f"stop-judging-{process.id}",
                icon=":material/stop:",
                on_click=access.editing(launching.stop),
                args=(process,),
                help="What was judged stays; started again, it goes on from there.",
            )


def show(current: view.View) -> None:
    """All of the section."""
    for sentence in st.session_state.pop(_SAID, []):
        st.success(parts.plain(sentence), icon=":material/check:")
    if not access.may_edit():
        st.caption("You look as a viewer: what it takes, you can see; only editors start it.")
    off: dict[str, Any] = {"disabled": not access.may_edit()}
    parts.heading("What is judged")
    of = _of(current, off)
    if of is None:
        st.info(
            "Choose a run under “Results of” to have its responses judged anew, or make a set of responses here.",
            icon=":material/info:",
        )
    with st.expander("Make a set of responses", icon=":material/library_add:"):
        judges_sets.offer()
        for kind in ("traps", "bias"):
            judges_sets.offer_made(kind)
    if of is None:
        return
    parts.heading("By whom")
    order = _order(of, current, off)
    if not order.judges:
        st.caption("Name a judge to see what it will take.")
        return
    lacking = _estimate(order)
    _start(order, lacking)


def _of(current: view.View, off: dict[str, Any]) -> str | None:
    """`run` (the chosen one), or a set's id."""
    names = {row.id: judged.describe(row) for row in judged.sets(*judged.KINDS)}
    if current.status is not None:
        names = {_RUN: f"the responses of run {current.status.name or current.status.run_id}"} | names
    return link.one_of("Responses", list(names), "responses", names=names, **off) if names else None


def _order(of: str, current: view.View, off: dict[str, Any]) -> JudgeOrder:
    registry = load_registry()
    left, right = st.columns(2, gap="medium")
    with left:
        by_rule = [OFFLINE, judged.CONTROL, *registered_judges()]
        rules = link.some_of("Judges by rule", by_rule, "by-rule", names=_RULES, **off)
        models = link.some_of("Models as judges", list(registry.models), "by-model", **off)
        packs_there = [*BUNDLED, *(["official"] if official_folder() else []), _MEMOS]
        packs = link.some_of("Prompts", packs_there, "packs", names=_PACKS, placeholder="own", **off)
        # Not in the link: where files lie on this machine is nobody else's business.
        folder = st.text_input(
            "A folder with prompts of one's own",
            key="packs-folder",
            placeholder="/prompts/mine",
            help="Any of irrelevance.txt, fact.txt, value.txt, memory.txt, locomo.txt; what it lacks comes from “own”.",
            **off,
        ).strip()
        forced = link.switch(
            "Hold models to the answer's form",
            "forced",
            help="By a JSON schema: small models that write something else than a score then give one of eleven. It "
            "leaves no room for reasons, so it is another judge than the free one.",
            **off,
        )
    with right:
        repeats = link.number("Repeats", 1, _MOST_REPEATS, 1, "repeats", width=160, **off)
        temperature = link.decimal(
            "Temperature", 0.0, 2.0, 0.0, 0.1, "temperature", width=160, help="0 as the paper's judge", **off
        )
        configurations: list[str] = []
        subtypes: list[str] = []
        if of == _RUN and current.status is not None:
            data = results.run_data(current.status.run_id, results.stamp(current.status))
            configurations, subtypes = _parts_of_run(data, off)
    wanted = [*(packs or ([] if folder else ["own"])), *([folder] if folder else [])]
    judges = [*rules, *(f"{model}@{pack}{FORCED if forced else ''}" for model in models for pack in wanted)]
    return JudgeOrder(
        judges=tuple(judges),
        set_id=None if of == _RUN else of,
        run_id=current.status.run_id if of == _RUN and current.status is not None else None,
        repeats=repeats,
        temperature=temperature,
        configurations=tuple(configurations),
        subtypes=tuple(subtypes),
    )


_RULES = {OFFLINE: "offline (rules)", judged.CONTROL: "random (the control)"}
_PACKS = {
    "own": "own",
    "brief": "brief",
    "official": "official (the public repository's)",
    _MEMOS: "memos (LoCoMo by MemOS's prompt)",
}


def _parts_of_run(data: RunData, off: dict[str, Any]) -> tuple[list[str], list[str]]:
    keys = configuration_keys(data)
    names = dict(zip(("/".join(key) for key in keys), flips.names_of(keys), strict=True))
    configurations = link.some_of("Configurations", list(names), "judged-of", names=names, placeholder="all", **off)
    there = [each for each in dict.fromkeys(data.instances["subtype"]) if each != "repetition"]
    subtypes = link.some_of("Subtypes and categories", there, "judged-subtypes", placeholder="all", **off)
    return configurations, subtypes


def _estimate(order: JudgeOrder) -> list[str]:
    """What it takes, as a table; the variables of keys that are missing."""
    estimates = _estimated(order, tuple((row.id, row.judgements) for row in _judgings(order)))
    frame = pd.DataFrame([_estimate_row(each) for each in estimates])
    number = st.column_config.NumberColumn
    columns: dict[str, Any] = {
        "label": "judge · prompts",
        "judgements": number("judgements to make", format="localized"),
        "kept": number("made before", format="localized"),
        "calls": number("calls to make", format="localized"),
        "prompt_tokens": number("tokens in", format="localized"),
        "completion_tokens": number("tokens out", format="localized"),
        "cost": "cost",
        "time": "time",
        "note": "rests on",
    }
    parts.table(frame, columns, "judging-estimate", frame)
    registry = load_registry()
    models = list(dict.fromkeys(name for each in order.judges if (name := _model_of(each)) in registry.models))
    if not models or not access.may_edit():
        return []
    missing = chosen_models.ask_for_keys(registry, models, "judging")
    chosen_models.offer_to_ask(registry, models)
    return missing


def _model_of(judge: str) -> str:
    return parse_choice(judge).judge


def _estimate_row(each: Estimate) -> dict[str, Any]:
    return {
        "label": each.label,
        "judgements": each.judgements,
        "kept": each.kept,
        "calls": each.calls,
        "prompt_tokens": each.prompt_tokens,
        "completion_tokens": each.completion_tokens,
        "cost": wording.dollars(each.cost_usd),
        "time": _time(each),
        "note": each.note,
    }


def _time(each: Estimate) -> str:
    if not each.calls:
        return "no call"
    return "not known yet" if each.seconds is None else f"≈ {wording.duration(each.seconds)}"


def _judgings(order: JudgeOrder) -> list[JudgingRow]:
    return judged.of_run(order.run_id) if order.run_id is not None else judged.of_set(str(order.set_id))


@st.cache_data(ttl=30, max_entries=16, show_spinner="Looking what is there already…")
def _estimated(order: JudgeOrder, as_of: tuple[tuple[str, int], ...]) -> list[Estimate]:
    store = results.opened().store
    choices = [parse_choice(each, repeats=order.repeats, temperature=order.temperature) for each in order.judges]
    if order.set_id is not None:
        return asyncio.run(estimate_set(store, order.set_id, choices))
    keys: Any = [tuple(each.rsplit("/", 2)) for each in order.configurations]
    return asyncio.run(
        estimate_rescore(store, str(order.run_id), choices, configurations=keys, subtypes=order.subtypes)
    )


def _start(order: JudgeOrder, lacking: list[str]) -> None:
    """The button that starts it, and the command that does the same."""
    if lacking:
        st.info(f"Type a key first: {', '.join(lacking)}.", icon=":material/key:")
    at_work = any(each.working and each.order == order for each in launching.started())
    if access.may_edit() and st.button(
        "Judge",
        key="judge",
        type="primary",
        icon=":material/play_arrow:",
        disabled=bool(lacking) or at_work,
        help="In a process of its own; this page watches it. What is judged already stays.",
    ):
        access.demand_edit()
        launching.launch(order, chosen_models.typed_keys())
        st.session_state[_SAID] = [f"Started: {order.command()}"]
        st.rerun()
    st.caption("The same from the command line:")
    parts.code(order.command(), "bash")
