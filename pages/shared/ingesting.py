"""Taking histories in: what it will take, starting it, watching it, stopping it, and making one anew.

Every deed is checked on the server: only editors may.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import streamlit as st

from opbench.benchmarks import load
from opbench.errors import OpbenchError, UsageError
from opbench.memories.manifest import Manifest, remove
from opbench.models import load_registry
from opbench.running import keeping, launch_ingestion
from opbench.running.ingestion_quote import IngestionLine, basis, seconds_at
from opbench.running.launch_ingestion import Order, Started
from pages.shared import access, chosen_models, ingestions, link, memory_systems, parts, results, study_form, wording

_EVERY_S = 2
#: Histories that `opbench memory ingest` takes in at a time.
AT_ONCE = 4
_SAID = "ingesting-said"


def panel() -> None:
    """What is at work and the table of all ingestions, renewed every two seconds while anything is."""
    busy = _busy()
    st.fragment(access.watched(_panel), run_every=_EVERY_S if busy else None)()


def _busy() -> bool:
    return any(each.working for each in launch_ingestion.started()) or any(
        each.state == "at work" for each in ingestions.read()
    )


def _panel() -> None:
    processes = launch_ingestion.started()
    working = [each for each in processes if each.working]
    at_work = [each for each in ingestions.read() if each.state == "at work"]
    seen = (tuple(each.id for each in working), tuple((each.digest, each.user) for each in at_work))
    was = st.session_state.get("seen_ingesting")
    st.session_state["seen_ingesting"] = seen
    if was is not None and was != seen:
        # The rest of the page is drawn from the new state.
        ingestions.forget()
        st.rerun()
    for process in working:
        _process(process, at_work)
    by_hand = [each for each in at_work if not any(_concerns(process, each) for process in working)]
    if by_hand:
        with st.container(border=True):
            st.subheader(":material/sync: At work by a run, or from the command line", anchor=False)
            _bars(by_hand)
    if processes and not processes[0].working:
        _ended(processes[0])
    if found := ingestions.read():
        ingestions.table(found)


def _process(process: Started, at_work: Sequence[Manifest]) -> None:
    order = process.order
    with st.container(border=True):
        systems = ", ".join(memory_systems.label(name) for name in order.systems)
        users = f"{len(order.users)} users" if len(order.users) > 1 else "".join(order.users) or "all users"
        st.subheader(f":material/sync: Ingesting {parts.plain(systems)}: {parts.plain(users)}", anchor=False)
        mine = [each for each in at_work if _concerns(process, each)]
        if mine:
            _bars(mine)
        else:
            st.caption("It is starting, or between two users.")
        if access.may_edit():
            st.button(
                "Stop",
                key=f"stop-{process.id}",
                icon=":material/stop:",
                on_click=access.editing(_stop),
                args=(process,),
                help="What was taken in stays; the session in flight is done again next time, its calls from the "
                "call store.",
            )


def _bars(manifests: Sequence[Manifest]) -> None:
    for each in manifests:
        done, planned = len(each.sessions), each.sessions_planned
        st.progress(
            min(1.0, done / max(1, planned)),
            text=f"{parts.plain(each.label)} · {parts.plain(each.user)}: {done:,} of {planned:,} sessions, "
            f"{each.memories:,} memories, {each.usage.calls:,} calls ({each.usage.reused:,} reused)",
        )


def _ended(process: Started) -> None:
    """The last words of the newest process, unless all that it was asked for is there."""
    order = process.order
    complete = {(each.system, each.user) for each in ingestions.read() if each.complete and _concerns(process, each)}
    words = process.last_words()
    if words and (not order.users or len(complete) < len(order.systems) * len(order.users)):
        with st.expander("What the last ingestion said at its end", icon=":material/terminal:"):
            parts.code("\n".join(words))


def _concerns(process: Started, manifest: Manifest) -> bool:
    return process.concerns(manifest.system, manifest.user)


def _stop(process: Started) -> None:
    launch_ingestion.stop(process)
    ingestions.forget()


def form() -> None:
    """What to take in: systems, users, models; what that will take; the button that starts it."""
    editor = access.may_edit()
    off: dict[str, Any] = {"disabled": not editor}
    registry = load_registry()
    systems = memory_systems.libraries()
    missing = memory_systems.missing(systems)
    labels = {name: memory_systems.label(name) for name in systems}
    with st.container(horizontal=True, vertical_alignment="bottom"):
        data = link.one_of("Data", list(study_form.DATA), "data", kind="segmented", names=study_form.DATA, **off)
    corpus = load("sample" if data == "sample" else None)
    study_form.say_what_data(corpus, data)
    first, second = st.columns(2, gap="medium")
    with first:
        chosen = link.some_of(
            "Memory systems", [name for name in systems if name not in missing], "ingest", names=labels, **off
        )
        users = link.some_of("Users", list(corpus.users), "users", placeholder="all", **off)
    with second:
        extractor = link.one_of(
            "Extractor",
            list(registry.models),
            "extractor",
            names={name: spec.label for name, spec in registry.models.items()},
            default=study_form.EMBEDDED if study_form.EMBEDDED in registry.models else None,
            help="The model that memories are extracted with.",
            **off,
        )
        embedder = link.one_of("Embedder", list(registry.embedders), "embedder", **off)
    memory_systems.say_missing(missing)
    if not chosen:
        st.caption("Choose memory systems to see what taking histories in will take.")
        return
    asks = any(memory_systems.needs_extractor(name) for name in chosen)
    if asks:
        chosen_models.show_notes(registry, [extractor])
    lacking = chosen_models.ask_for_keys(registry, [extractor]) if asks and editor else []
    order = Order(
        tuple(chosen),
        tuple(users),
        extractor if asks else None,
        embedder,
        "sample" if data == "sample" else "auto",
        _budget(off),
    )
    to_do = _estimate(order)
    if lacking:
        st.info(f"Type a key first: {', '.join(lacking)}.", icon=":material/key:")
    if editor and st.button(
        "Ingest",
        key="start-ingesting",
        type="primary",
        icon=":material/play_arrow:",
        disabled=bool(lacking) or not to_do,
        help="In a process of its own; this page watches it. What is in already stays.",
    ):
        start(order)
    st.caption("The same from the command line; with --dry-run it only tells what it takes:")
    parts.code(order.command(), "bash")


def _budget(off: dict[str, Any]) -> float | None:
    budget = st.number_input(
        "Budget, $",
        min_value=0.01,
        value=None,
        step=1.0,
        format="%.2f",
        placeholder="no limit",
        key="ingest-budget",
        width=150,
        help="By the registry's list prices. No session is begun once as much is spent.",
        **off,
    )
    return None if budget is None else float(budget)


@st.cache_data(ttl=10, max_entries=16, show_spinner="Working out what it takes…")
def _lines(order: Order) -> list[IngestionLine]:
    return keeping.estimate(results.opened().store, order)


def _estimate(order: Order) -> bool:
    """Show what an order will take; whether anything is left to do."""
    lines = _lines(order)
    frame = pd.DataFrame([line.to_dict() for line in lines]).astype({"cost_usd": "float64"})
    if not frame["sessions"].sum():
        st.info("All of this is ingested already: nothing is left to do.", icon=":material/check_circle:")
        return False
    cost = frame["cost_usd"].sum(skipna=False)
    with st.container(horizontal=True, gap="medium", key="ingestion-quote"):
        st.metric("Sessions to do", f"{frame['sessions'].sum():,}", width="content")
        st.metric("Model calls, at most", f"{frame['calls'].sum():,}", width="content")
        st.metric("Tokens in", f"{frame['prompt_tokens'].sum():,}", width="content")
        st.metric("Tokens out", f"{frame['completion_tokens'].sum():,}", width="content")
        st.metric("Tokens embedded", f"{frame['embedded_tokens'].sum():,}", width="content")
        st.metric("Cost", wording.dollars(None if pd.isna(cost) else float(cost)), width="content")
        st.metric(
            "Time",
            f"≈ {wording.duration(seconds_at(lines, AT_ONCE))}",
            width="content",
            help=f"{AT_ONCE} histories at a time; each one session after the other.",
        )
    reasons = sorted(set(frame["reason"]) - {""})
    st.caption(
        f"An estimate: {parts.plain(basis(lines))}. Calls that the call store has already cost nothing."
        + (f" The cost isn't known: {parts.plain('; '.join(reasons))}." if reasons else "")
    )
    with st.expander("By memory system and user", icon=":material/table:"):
        columns: dict[str, Any] = {
            "label": "memory system",
            "user": "user",
            "sessions": st.column_config.NumberColumn("sessions to do"),
            "calls": st.column_config.NumberColumn("calls", format="localized"),
            "prompt_tokens": st.column_config.NumberColumn("tokens in", format="localized"),
            "completion_tokens": st.column_config.NumberColumn("tokens out", format="localized"),
            "embedded_tokens": st.column_config.NumberColumn("tokens embedded", format="localized"),
            "cost_usd": st.column_config.NumberColumn("cost", format="$%.4f"),
            "seconds": st.column_config.NumberColumn("seconds", format="%.0f", help="One session after the other"),
        }
        parts.table(frame, columns, "ingestion-quote", frame)
    return True


def start(order: Order) -> None:
    """Start an ingestion with the keys that were typed, and watch it."""
    access.demand_edit()
    launch_ingestion.launch(order, chosen_models.typed_keys())
    _look_again(f"Started: {order.command()}")


def steer(manifest: Manifest) -> None:
    """Go on with an ingestion, make it anew, or remove it: for editors."""
    if not access.may_edit():
        return
    if manifest.state == "at work":
        st.caption("It is being worked on; stop that above to change anything.")
        return
    try:
        order = keeping.order_of(manifest)
    except OpbenchError as error:
        order = None
        st.caption(parts.plain(str(error)))
    if (
        not manifest.complete
        and order is not None
        and st.button(
            "Go on",
            key="go-on-ingesting",
            type="primary",
            icon=":material/play_arrow:",
            help="Takes in the sessions that are missing.",
        )
    ):
        start(order)
    with st.expander("Make anew or remove", icon=":material/restart_alt:"):
        st.markdown(
            f"Its {manifest.memories:,} memories and the record of its {len(manifest.sessions):,} sessions are deleted "
            "from the disk; nothing of them is kept. The answers of its calls stay in the call store, so that making "
            "it anew with the same settings pays only for what isn't there. Runs that were made with it keep what they "
            "retrieved. What a memory server of its own holds of this user stays there."
        )
        with st.form(f"rebuild-{manifest.digest[:12]}-{manifest.user}", border=False):
            sure = st.checkbox(f"Yes, delete these {manifest.memories:,} memories")
            with st.container(horizontal=True):
                again = st.form_submit_button(
                    "Delete and ingest anew", icon=":material/restart_alt:", disabled=order is None
                )
                gone = st.form_submit_button("Delete", icon=":material/delete_forever:")
        if again or gone:
            access.demand_edit()
            if not sure:
                raise UsageError("nothing was deleted: tick the box first.")
            keeping.forget(manifest)
            remove(manifest)
            if again and order is not None:
                start(order)
            _look_again(f"Deleted: {manifest.label}'s memories of {manifest.user} ({manifest.digest[:12]}).")


def tell() -> None:
    """What was done before the page was drawn anew."""
    for sentence in st.session_state.pop(_SAID, []):
        st.success(parts.plain(sentence), icon=":material/check:")


def _look_again(sentence: str) -> None:
    st.session_state[_SAID] = [sentence]
    ingestions.forget()
    _lines.clear()
    st.rerun()
