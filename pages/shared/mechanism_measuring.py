"""The Mechanism page's section on measuring: what is measured of a run, starting and stopping it, watching it.

Every deed is checked on the server: only editors may.
"""

from __future__ import annotations

import os
from typing import Any

import streamlit as st

from opbench.errors import OpbenchError
from opbench.figures.attention import configuration_name
from opbench.mechanism import launching
from opbench.mechanism.estimate import left, seconds_a_record
from opbench.mechanism.launching import AttentionOrder, Order, SimilarityOrder, Started
from opbench.mechanism.measuring import LIMIT, Plan, plan
from opbench.models import load_registry
from opbench.models.embedded import NAME as EMBEDDED
from opbench.store import similarities as similarity_store
from opbench.store.reading import RunStatus
from opbench.store.rundata import KEY, RunData
from pages.shared import access, chosen_models, detached, link, parts, results, wording

_EVERY_S = 2
_SAID = "measuring-said"
_FOLDER = "a folder"
_READERS = {EMBEDDED: "the embedded model (SmolLM2)", _FOLDER: "a model in a folder"}
#: A process that starts loads its libraries first.
_MOST_INSTANCES = 1_000
WITHOUT_TEXTS = (
    "This run came from a bundle, which holds no calls, and often no texts: no prompt can be read again and no memory "
    "compared with its question. What can be shown of it is what its numbers and embeddings hold. Measure in the store "
    "where the run was made."
)


def panel(run_id: str) -> None:
    """What is being measured of the run, renewed every two seconds, and what the last process said at its end."""
    busy = any(each.working for each in launching.started(run_id))
    st.fragment(access.watched(_panel), run_every=_EVERY_S if busy else None)(run_id)


def _panel(run_id: str) -> None:
    processes = launching.started(run_id)
    detached.follow(f"seen_measuring-{run_id}", processes, _process, "What the last measurement said at its end")


def _process(process: Started) -> None:
    with st.container(border=True):
        st.subheader(f":material/sync: Measuring {process.order.what}", anchor=False)
        detached.bar(process.progress())
        if access.may_edit():
            st.button(
                "Stop",
                key=f"stop-{process.id}",
                icon=":material/stop:",
                on_click=access.editing(launching.stop),
                args=(process,),
                help="What was measured stays; measuring again goes on from there.",
            )


def show(status: RunStatus, data: RunData) -> None:
    """All of the section."""
    for sentence in st.session_state.pop(_SAID, []):
        st.success(parts.plain(sentence), icon=":material/check:")
    if status.recorded or data.text_left_out:
        st.info(WITHOUT_TEXTS, icon=":material/inventory_2:")
        return
    if not access.may_edit():
        st.caption("You look as a viewer: what is measured, you can see; only editors start it.")
    for section in (_similarities, _attention):
        try:
            section(status, data)
        except OpbenchError as error:
            st.info(parts.plain(str(error)), icon=":material/hourglass_empty:")
    st.caption("Language and repetition need no measuring: they are worked out from the run's records.")


def _similarities(status: RunStatus, data: RunData) -> None:
    parts.heading("Similarity of questions and memories")
    store = results.opened().store
    registry = load_registry()
    names = list(registry.embedders)
    default = data.study.embedder if data.study.embedder in names else None
    embedder = link.one_of(
        "Embedder",
        names,
        "embedder",
        default=default,
        width=260,
        disabled=not access.may_edit(),
        help="One for all memory systems; the paper's is text-embedding-3-small.",
    )
    waiting = similarity_store.waiting_similarities(store, status.run_id, embedder)
    whole = len(similarity_store.retrieved_by(store, status.run_id))
    measured = similarity_store.measured_embedders(store, status.run_id)
    with st.container(horizontal=True, gap="medium", key="similarity-quote"):
        st.metric("Retrievals", f"{whole:,}", width="content", help="Memory systems × instances")
        st.metric("To measure", f"{waiting:,}", width="content")
        st.metric("Measured by", ", ".join(measured) or "none", width="content")
    if registry.embedder(embedder).kind == "endpoint":
        _vectors_cost(registry.embedder(embedder).price_in)
    order = SimilarityOrder(status.run_id, embedder)
    lacking = _lacking_key(registry.embedder(embedder).key_env)
    _offer(order, "Measure similarities", bool(waiting), lacking, "All retrievals are measured by this embedder.")


def _vectors_cost(price: float | None) -> None:
    if price:
        st.caption(f"The embedder costs ${price:g} for a million tokens; texts that were embedded before cost nothing.")
    elif price is None:
        st.caption("What the embedder costs isn't known: its price isn't in the registry.")


def _lacking_key(variable: str | None) -> str:
    """The name of the environment variable with the key that is missing; it is asked for. Empty: none is."""
    if not variable or os.environ.get(variable) or not access.may_edit():
        return ""
    typed = st.text_input(
        f"Key for the embedder ({variable})",
        type="password",
        key=f"{chosen_models.KEY_PREFIX}{variable}",
        autocomplete="off",
        help="Goes to the measuring process and nowhere else.",
    )
    return "" if typed else variable


def _attention(status: RunStatus, data: RunData) -> None:
    parts.heading("Attention")
    order = _order(status.run_id, data)
    if order is None:
        st.caption("Name the folder to see what measuring will take.")
        return
    chosen = _plan(order, results.stamp(status))
    to_read = left(results.opened().store, chosen, order.reader)
    _estimate(chosen, to_read, order.reader)
    _offer(order, "Measure attention", bool(to_read), "", "All of these records are measured by this model.")


def _order(run_id: str, data: RunData) -> AttentionOrder | None:
    off: dict[str, Any] = {"disabled": not access.may_edit()}
    keys = {"/".join(key): key for key in data.configurations[list(KEY)].itertuples(index=False, name=None)}
    several = data.configurations["model"].nunique() > 1
    names = {label: configuration_name(*key, several_models=several) for label, key in keys.items()}
    left_, right = st.columns(2, gap="medium")
    with left_:
        kind = link.one_of("Reading model", list(_READERS), "read-with", kind="segmented", names=_READERS, **off)
        reader = kind
        if kind == _FOLDER:
            # Not in the link: where files lie on this machine is nobody else's business.
            reader = st.text_input(
                "Folder with the model",
                key="reader-folder",
                placeholder="/models/Qwen3-8B",
                help="As transformers saves it (config.json, tokenizer.json, *.safetensors), on the machine that "
                "serves this page. Nothing is fetched, and no code in it is run.",
                **off,
            ).strip()
        limit = link.number("Instances of each subtype", 1, _MOST_INSTANCES, LIMIT, "read-limit", width=220, **off)
    with right:
        configurations = link.some_of("Configurations", list(keys), "read-of", names=names, placeholder="all", **off)
        there = list(dict.fromkeys(data.instances["subtype"]))
        subtypes = link.some_of("Subtypes and categories", there, "read-subtypes", placeholder="all of OP-Bench", **off)
    if not reader:
        return None
    return AttentionOrder(run_id, reader, tuple(configurations), tuple(subtypes), limit)


@st.cache_data(ttl=10, max_entries=16, show_spinner="Choosing what to read…")
def _plan(order: AttentionOrder, stamp: results.Stamp) -> Plan:
    keys = [tuple(each.rsplit("/", 2)) for each in order.configurations]
    return plan(
        results.opened().store,
        order.run_id,
        configurations=keys,  # type: ignore[arg-type]
        subtypes=order.subtypes,
        limit=order.limit,
    )


def _estimate(chosen: Plan, to_read: int, reader: str) -> None:
    pace = seconds_a_record(results.opened().store, reader)
    with st.container(horizontal=True, gap="medium", key="attention-quote"):
        st.metric("Instances", f"{sum(chosen.instances.values()):,}", width="content")
        st.metric("Users", f"{chosen.users:,}", width="content", help="Fewer than 5 give no interval")
        st.metric("Records to read", f"{to_read:,}", width="content", help=f"Of {len(chosen.records):,}")
        st.metric(
            "Tokens",
            "not told" if chosen.tokens is None else f"{chosen.tokens:,}",
            width="content",
            help="Of all these prompts and responses, as endpoints counted them",
        )
        st.metric(
            "Time",
            "not known yet" if pace is None else f"≈ {wording.duration(pace * to_read)}",
            width="content",
            help="By the pace at which this model read before, here. It costs no money.",
        )
    counts = ", ".join(f"{subtype} {n}" for subtype, n in chosen.instances.items())
    st.caption(parts.plain(f"The same instances of every configuration, spread over users: {counts}."))
    if chosen.users < 5:
        st.caption("They are of fewer than five users: there will be no intervals.")
    if chosen.unpaired:
        st.caption(f"{chosen.unpaired:,} instances are passed over: some configuration hasn't responded to them yet.")
    if chosen.uncalled:
        names = ", ".join(configuration_name(*key) for key in chosen.uncalled)
        st.caption(parts.plain(f"Left out, since they answer without asking a model: {names}."))


def _offer(order: Order, label: str, waiting: bool, lacking: str, done: str) -> None:
    """The button that starts it, and the command that does the same."""
    if not waiting:
        st.caption(f":material/check_circle: {done}")
    if lacking:
        st.info(f"Type a key first: {lacking}.", icon=":material/key:")
    at_work = any(each.working and each.order.what == order.what for each in launching.started(order.run_id))
    if access.may_edit() and st.button(
        label,
        key=f"measure-{order.what}",
        type="primary",
        icon=":material/play_arrow:",
        disabled=not waiting or bool(lacking) or at_work,
        help="In a process of its own; this page watches it. What is measured already stays.",
    ):
        access.demand_edit()
        launching.launch(order, chosen_models.typed_keys())
        st.session_state[_SAID] = [f"Started: {order.command()}"]
        st.rerun()
    st.caption("The same from the command line:")
    parts.code(order.command(), "bash")
