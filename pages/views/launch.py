"""Starting a study: choose the grid and the slice, see what it takes, start it, watch it."""

from __future__ import annotations

import asyncio
from typing import Any

import streamlit as st

import mitigations
from opbench.benchmarks import load
from opbench.errors import OpbenchError
from opbench.figures import theme
from opbench.memories import memory_names
from opbench.models import Registry, load_registry
from opbench.running.launch import command
from opbench.running.prepare import prepare
from opbench.running.quote import Quote, quote
from opbench.study import Study, make_study
from opbench.types import LOCOMO_CATEGORIES, OP_SUBTYPES, Corpus
from pages.shared import chosen_models, parts, results, view, watching, wording

EMBEDDED = "smollm2-135m"
DATA = {"auto": "benchmark data", "sample": "bundled sample"}
SESSION: dict[str, Any] = {"persist_state": "session"}


@st.cache_data(ttl=10, max_entries=16, show_spinner="Working out what it takes…")
def quoted(study: Study, concurrency: int) -> tuple[str, Quote]:
    """The run's id and what is left to do of it."""
    prepared = prepare(study)
    try:
        return prepared.run_id, quote(results.opened().store, prepared, concurrency=concurrency)
    finally:
        asyncio.run(prepared.aclose())


def ask_for_study(registry: Registry) -> tuple[Study, int]:
    """The study that the form describes, and the concurrency.

    Raises:
        UsageError, DataError: what is chosen makes no study, or the data can't be read.
    """
    grid, part = st.columns(2, gap="large")
    with grid:
        st.subheader("Configurations", anchor=False)
        fields: dict[str, Any] = {
            "models": st.multiselect(
                "Models",
                list(registry.models),
                [EMBEDDED],
                format_func=lambda name: registry.models[name].label,
                key="models",
                help="From models.toml and your own models.local.toml.",
                **SESSION,
            ),
            "memories": st.multiselect(
                "Memory systems",
                memory_names(),
                ["base", "rag"],
                format_func=lambda name: theme.NAMES.get(name, name),
                key="memories",
                help="BASE has no memory: it is the oracle, and takes no post-processor.",
                **SESSION,
            ),
            "mitigations": st.multiselect(
                "Post-processors",
                mitigations.names(),
                ["none", "reminder"],
                format_func=lambda name: mitigations.get(name).label,
                key="mitigations",
                help="Changes are measured against “none” of the same memory system: keep it in.",
                **SESSION,
            ),
            "judge": st.selectbox(
                "Judge",
                ["offline", *registry.models],
                format_func=lambda name: (
                    "offline (no LLM; not comparable with the paper)"
                    if name == "offline"
                    else registry.models[name].label
                ),
                key="judge",
                help="The paper's judge is GPT-4o-mini. The offline judge needs no LLM.",
                **SESSION,
            ),
        }
    with part:
        st.subheader("Slice", anchor=False)
        fields["data"] = st.segmented_control(
            "Data", list(DATA), format_func=DATA.__getitem__, default="auto", required=True, key="data", **SESSION
        )
        corpus = load("sample" if fields["data"] == "sample" else None)
        say_what_data(corpus, fields["data"])
        fields["benchmarks"] = st.pills(
            "Benchmarks",
            ["op", "locomo"],
            selection_mode="multi",
            default=["op", "locomo"],
            format_func={"op": "OP-Bench", "locomo": "LoCoMo"}.__getitem__,
            key="benchmarks",
            help="A trade-off needs both.",
            **SESSION,
        )
        fields["users"] = st.multiselect(
            "Users", list(corpus.users), placeholder="all", key=f"users-{corpus.source}", **SESSION
        )
        with st.container(horizontal=True, vertical_alignment="bottom"):
            fields["limit"] = st.number_input(
                "Instances a benchmark",
                min_value=1,
                value=12,
                step=1,
                placeholder="all",
                key="limit",
                width=190,
                help="Spread evenly over users and subtypes; empty it to take all.",
                **SESSION,
            )
            fields["seed"] = st.number_input(
                "Seed",
                min_value=0,
                value=0,
                step=1,
                key="seed",
                width=110,
                help="Which instances these are.",
                **SESSION,
            )
    further, concurrency = ask_for_details(registry)
    chosen = {name: value for name, value in (fields | further).items() if value is not None}
    return make_study(chosen, where="this form"), concurrency


def ask_for_details(registry: Registry) -> tuple[dict[str, Any], int]:
    """What has a good default."""
    with st.expander("Retrieval, decoding, judge prompts, concurrency", icon=":material/tune:"):
        with st.container(horizontal=True, vertical_alignment="bottom"):
            fields: dict[str, Any] = {
                "k": st.number_input("Memories a query", 1, 100, 5, key="k", width=150, **SESSION),
                "max_tokens": st.number_input(
                    "Longest response, tokens", 1, None, 512, key="max_tokens", width=190, **SESSION
                ),
                "temperature": st.number_input(
                    "Temperature", 0.0, 2.0, 0.0, 0.1, key="temperature", width=140, **SESSION
                ),
                "embedder": st.selectbox("Embedder", list(registry.embedders), key="embedder", width=210, **SESSION),
            }
            concurrency = int(
                st.number_input(
                    "Records at a time",
                    1,
                    256,
                    watching.DEFAULT_CONCURRENCY,
                    key="concurrency",
                    width=150,
                    help="Latencies are marked with it.",
                    **SESSION,
                )
            )
        fields["subtypes"] = st.multiselect(
            "Subtypes and categories",
            [*OP_SUBTYPES, *LOCOMO_CATEGORIES.values()],
            placeholder="all",
            key="subtypes",
            **SESSION,
        )
        with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
            fields["judge_pack"] = st.segmented_control(
                "Judge prompts",
                ["auto", "own", "official"],
                default="auto",
                required=True,
                key="judge_pack",
                help="official: those of the public repository, where fetched; own: this project's; auto: official "
                "where present.",
                **SESSION,
            )
            fields["adversarial"] = st.toggle(
                "LoCoMo's adversarial questions",
                key="adversarial",
                help="The usual protocol leaves them out.",
                **SESSION,
            )
            fields["latency_probe"] = st.toggle(
                "Latency probe", key="latency_probe", help="One record at a time and no reuse of calls.", **SESSION
            )
        fields["name"] = st.text_input("Name of the study", placeholder="for people only", key="name", **SESSION)
    return fields, concurrency


def say_what_data(corpus: Corpus, chosen: str) -> None:
    sizes = len(corpus.op), len(corpus.locomo), len(corpus.users)
    counts = "{:,} OP-Bench instances and {:,} LoCoMo questions of {} users.".format(*sizes)
    if chosen == "auto" and corpus.source == "sample":
        st.caption(f"No benchmark data here, so this is the bundled sample: {counts} `opbench data fetch` gets it.")
    else:
        st.caption(f"{counts}")


def show_quote(study: Study, estimate: Quote, concurrency: int) -> None:
    with st.container(horizontal=True, gap="medium", key="quote"):
        st.metric("Configurations", len(study.configurations()), width="content")
        st.metric(
            "Records to do", f"{estimate.to_do:,}", width="content", help=f"{estimate.finished:,} are done already."
        )
        st.metric(
            "Model calls, at most",
            f"{estimate.calls:,}",
            width="content",
            help=f"{estimate.calls_naive:,} without sharing of plain responses between post-processors.",
        )
        st.metric("Tokens in", f"{estimate.prompt_tokens:,}", width="content")
        st.metric("Tokens out", f"{estimate.completion_tokens:,}", width="content")
        st.metric("Cost", wording.dollars(estimate.cost_usd), width="content", help="By the registry's list prices.")
        st.metric(
            "Time", f"≈ {wording.duration(estimate.seconds)}", width="content", help=f"At {concurrency} at a time."
        )
    st.caption(f"An estimate: {parts.plain(estimate.basis)}.")


def offer(study: Study, concurrency: int, missing_keys: list[str]) -> None:
    """The quote, the button that starts, and the command that does the same."""
    run_id, estimate = quoted(study, concurrency)
    show_quote(study, estimate, concurrency)
    known = results.status(run_id) if run_id in results.runs() else None
    working = known is not None and known.working
    if missing_keys:
        st.info(f"Type a key first: {', '.join(missing_keys)}.", icon=":material/key:")
    elif not estimate.to_do:
        st.info(f"Nothing is left to do of this study: it is run `{run_id}`.", icon=":material/check_circle:")
    elif working:
        st.info(f"This study is being worked on: run `{run_id}`.", icon=":material/sync:")
    with st.container(horizontal=True):
        if st.button(
            "Go on" if known is not None and estimate.finished else "Start",
            key="start",
            type="primary",
            icon=":material/play_arrow:",
            disabled=bool(missing_keys) or not estimate.to_do or working,
        ):
            view.look_at(watching.start(study, concurrency))
        if known is not None and st.button("Look at this run", key="look", icon=":material/visibility:"):
            view.look_at(run_id)
    st.caption("The same from the command line:")
    st.code(command(study, concurrency), language="bash", wrap_lines=True)


parts.title("What will a study take, and how far is it?")
looked_at = view.current().status
if looked_at is not None:
    with st.container(border=True):
        watching.panel(looked_at)

st.header("New study", anchor=False)
try:
    models = load_registry()
    study, concurrency = ask_for_study(models)
    asked = list(dict.fromkeys((*study.models, *([study.judge] if study.judge in models.models else []))))
    chosen_models.show_notes(models, asked)
    missing = chosen_models.ask_for_keys(models, asked)
    chosen_models.offer_to_ask(models, asked)
    with st.container(border=True):
        offer(study, concurrency, missing)
except OpbenchError as error:
    st.error(parts.plain(str(error)), icon=":material/error:")
