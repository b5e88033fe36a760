"""The form of a study: grouped, kept in the link, and read as a `Study`. What isn't of the study isn't in the link."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import streamlit as st

import mitigations
from opbench.benchmarks import built, exclusions
from opbench.figures import theme
from opbench.models import Registry
from opbench.plugins import plugin_files, plugin_folder
from opbench.running.launch import plugin_methods
from opbench.study import Study, make_study
from opbench.types import LOCOMO_CATEGORIES, OP_CATEGORIES, OP_SUBTYPES, Corpus
from pages.shared import link, memory_systems, parts

EMBEDDED = "smollm2-135m"
DEFAULT_CONCURRENCY = 4
#: Processes that can share a run, at the most: more than there are processors would only wait for each other.
MOST_WORKERS = max(2, os.cpu_count() or 1)
#: Where the conversations come from, as people read it.
DATA = {"auto": "benchmark data", "sample": "bundled sample"}
#: Choices that fit beside each other.
_SIDE_BY_SIDE = 3
#: The extractor's option that says nothing of its own, as a study does.
_OWN_MODEL = "the study's model"
_PROTOCOLS = {
    "uniform": "the same answer prompt for all memory systems, and k memories in all: merged by similarity where a "
    "system keeps both speakers apart.",
    "memos": "as MemOS's own evaluation asks: k memories of each of the two speakers (so twice k in all), the answer "
    "prompt of each system, three judgements a question, categories 1 to 4. It takes k = 15 or 20. Its figures can't "
    "be compared with those of “uniform”.",
}
_BENCHMARKS = {"op": "OP-Bench", "locomo": "LoCoMo"}
_CATEGORIES = {name: name.capitalize() for name in dict.fromkeys(OP_CATEGORIES.values())}
_LOCOMO = tuple(LOCOMO_CATEGORIES.values())
_DEFAULTS: dict[str, list[str]] = {
    "models": [EMBEDDED],
    "memories": ["base", "rag"],
    "mitigations": ["none", "reminder"],
    "benchmarks": list(_BENCHMARKS),
}


@dataclass(frozen=True, slots=True)
class Form:
    """What the form says: the study, and how it is to be run."""

    study: Study
    plugins: tuple[Path, ...]
    concurrency: int
    workers: int
    budget_usd: float | None


def ask(registry: Registry, editor: bool) -> Form:
    """Draw the form. Who is no editor can't change it, and no plugin is loaded for them.

    Raises:
        UsageError, DataError: what is chosen makes no study, or the data can't be read.
    """
    off = {"disabled": not editor}
    first, second = st.columns(2, gap="medium")
    with first.container(border=True, height="stretch"):
        st.subheader("What is compared", anchor=False)
        fields, plugins, judges = _ask_for_grid(registry, off)
    with second.container(border=True, height="stretch"):
        st.subheader("On which questions", anchor=False)
        fields |= _ask_for_slice(off)
    third, fourth, fifth = st.columns(3, gap="medium")
    with third.expander("Judge", icon=":material/gavel:"):
        fields |= _ask_for_judge(registry, judges, off)
    with fourth.expander("Retrieval and decoding", icon=":material/tune:"):
        fields |= _ask_for_decoding(registry, off)
    with fifth.expander("Speed, budget, name", icon=":material/speed:"):
        further, concurrency, workers, budget = _ask_for_limits(off)
    chosen = {name: value for name, value in (fields | further).items() if value is not None}
    return Form(make_study(chosen, where="this form"), plugins, concurrency, workers, budget)


def fill(study: Study, plugins: Iterable[str]) -> None:
    """Let the form describe this study, as far as what it names is here: for a button's callback."""
    state = st.session_state
    values = study.model_dump(mode="json")
    for name in ("models", "memories", "mitigations", "benchmarks", "users", "exclude", "seed", "k", "max_tokens"):
        state[name] = values[name]
    for name in ("temperature", "judge", "judge_pack", "embedder", "adversarial", "latency_probe", "name"):
        state[name] = values[name]
    state["data"] = study.data if study.data in _data() else "auto"
    state["protocol"], state["extractor"] = study.protocol, study.extractor or _OWN_MODEL
    state["plugins"] = [file.name for file in plugin_files() if file.name in set(plugins)]
    state["categories"] = []
    state["subtypes"] = _unless_all([name for name in study.subtypes if name in OP_SUBTYPES], OP_SUBTYPES)
    state["locomo-categories"] = _unless_all([name for name in study.subtypes if name in _LOCOMO], _LOCOMO)
    state["everything"] = study.limit is None
    if study.limit is not None:
        state["limit"] = study.limit


def chosen_subtypes(
    benchmarks: list[str], categories: list[str], subtypes: list[str], locomo: list[str], adversarial: bool
) -> tuple[str, ...]:
    """The study's `subtypes` of two filters, of which either, left empty, means all of its benchmark."""
    of_op = [name for name in OP_SUBTYPES if not categories or OP_CATEGORIES[name] in categories]
    op = [name for name in of_op if not subtypes or name in subtypes]
    asked = [name for name in _LOCOMO if adversarial or name != "adversarial" or name in locomo]
    of_locomo = [name for name in asked if not locomo or name in locomo]
    # A filter that leaves nothing out is the study without it.
    whole = {"op": op == list(OP_SUBTYPES), "locomo": not locomo or of_locomo == asked}
    if all(whole[name] for name in benchmarks):
        return ()
    return (*(op if "op" in benchmarks else ()), *(of_locomo if "locomo" in benchmarks else ()))


def _ask_for_grid(registry: Registry, off: dict[str, Any]) -> tuple[dict[str, Any], tuple[Path, ...], dict[str, str]]:
    """The grid's fields, the plugin files, and the judges that these bring."""
    grid = st.container()
    plugins = _ask_for_plugins(off)
    brought = _methods(tuple((str(file), file.stat().st_mtime) for file in plugins))
    methods = {name: mitigations.get(name).label for name in mitigations.names()} | brought["mitigations"]
    known = memory_systems.labels()
    memories = known | {name: theme.name(name) for name in brought["memories"] if name not in known}
    labels = {name: spec.label for name, spec in registry.models.items()}
    with grid:
        fields: dict[str, Any] = {
            "models": _several(
                "Models", labels, "models", help="From models.toml and your own models.local.toml.", **off
            ),
            "memories": _several(
                "Memory systems",
                memories,
                "memories",
                help="BASE has no memory: it is the oracle, and takes no post-processor.",
                **off,
            ),
        }
        fields["extractor"] = _ask_for_extractor(registry, fields["models"], fields["memories"], off)
        fields |= {
            "mitigations": _several(
                "Post-processors",
                methods,
                "mitigations",
                help="Changes are measured against “no post-processor” of the same memory system: keep it in.",
                **off,
            ),
        }
    return fields, plugins, brought["judges"]


def _ask_for_extractor(registry: Registry, models: list[str], memories: list[str], off: dict[str, Any]) -> str | None:
    """The model that memories are extracted with, where a chosen memory system needs one; None is the study's own."""
    asking = [name for name in memories if memory_systems.needs_extractor(name)]
    memory_systems.say_missing(memory_systems.missing(memories))
    if not asking:
        return None
    options = [*([_OWN_MODEL] if len(models) == 1 else []), *registry.models]
    chosen = link.one_of(
        "Extractor",
        options,
        "extractor",
        default=options[0] if len(models) == 1 or not models else models[0],
        names=distinct({name: spec.label for name, spec in registry.models.items()} | {_OWN_MODEL: _OWN_MODEL}),
        help=f"The model with which {', '.join(memory_systems.label(name) for name in asking)} make memories of the "
        "histories. The same for all models of the study, so that these differ in nothing else.",
        **off,
    )
    return None if chosen == _OWN_MODEL else chosen


def _ask_for_plugins(off: dict[str, Any]) -> tuple[Path, ...]:
    """Files of the user's own folder, by name. A file is never taken from the browser."""
    files = {file.name: file for file in plugin_files()}
    if not files:
        link.check("plugins", ())
        st.caption(f"Methods of your own: put a plugin file into {parts.plain(str(plugin_folder()))}.")
        return ()
    names = link.some_of(
        "Plugin files",
        list(files),
        "plugins",
        placeholder="none",
        help=f"Python files in {parts.plain(str(plugin_folder()))}, with methods of your own. A chosen file is run.",
        **off,
    )
    return () if off["disabled"] else tuple(files[name] for name in names)


@st.cache_data(max_entries=16, show_spinner="Looking at the plugins…")
def _methods(files: tuple[tuple[str, float], ...]) -> dict[str, dict[str, str]]:
    """What plugin files bring; `files` are paths with the times of their last change."""
    return plugin_methods([Path(file) for file, _ in files])


def _ask_for_slice(off: dict[str, Any]) -> dict[str, Any]:
    choices = _data()
    kind: link.Kind = "segmented" if len(choices) <= _SIDE_BY_SIDE else "select"
    data = link.one_of("Data", list(choices), "data", kind=kind, names=choices, **off)
    corpus = built.corpus_of(data)
    say_what_data(corpus, data)
    link.check("benchmarks", list(_BENCHMARKS), _BENCHMARKS)
    benchmarks = st.pills(
        "Benchmarks",
        list(_BENCHMARKS),
        selection_mode="multi",
        default=_DEFAULTS["benchmarks"],
        format_func=_BENCHMARKS.__getitem__,
        key="benchmarks",
        bind="query-params",
        help="A trade-off needs both.",
        **off,
    )
    protocol = _ask_for_protocol(off) if "locomo" in benchmarks else "uniform"
    everything = link.switch("All instances", "everything", **off)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        limit = link.number(
            "Instances a benchmark",
            1,
            100_000,
            12,
            "limit",
            width=170,
            help="Spread evenly over users and subtypes.",
            disabled=everything or off["disabled"],
        )
        seed = link.number(
            "Seed",
            0,
            2**31 - 1,
            0,
            "seed",
            width=110,
            help="Which instances these are.",
            disabled=everything or off["disabled"],
        )
    with st.expander("Only some categories or users", icon=":material/filter_list:"):
        narrowed = _ask_for_parts(corpus, benchmarks, off)
    return {
        "data": data,
        "benchmarks": benchmarks,
        "protocol": protocol,
        "limit": None if everything else limit,
        "seed": 0 if everything else seed,
        **narrowed,
    }


def _ask_for_protocol(off: dict[str, Any]) -> str:
    """How LoCoMo is asked and scored, with what differs."""
    protocol: str = link.one_of("LoCoMo protocol", list(_PROTOCOLS), "protocol", kind="segmented", **off)
    st.caption(f"{protocol}: {_PROTOCOLS[protocol]}")
    return protocol


def _ask_for_parts(corpus: Corpus, benchmarks: list[str], off: dict[str, Any]) -> dict[str, Any]:
    link.check("categories", list(_CATEGORIES), _CATEGORIES)
    categories = st.pills(
        "OP-Bench categories",
        list(_CATEGORIES),
        selection_mode="multi",
        format_func=_CATEGORIES.__getitem__,
        key="categories",
        bind="query-params",
        help="None chosen means all.",
        **off,
    )
    offered = [name for name in OP_SUBTYPES if not categories or OP_CATEGORIES[name] in categories]
    subtypes = _several("OP-Bench subtypes", {name: theme.NAMES[name] for name in offered}, "subtypes", "all", **off)
    locomo = _several("LoCoMo categories", {name: name for name in _LOCOMO}, "locomo-categories", "all", **off)
    adversarial = link.switch(
        "LoCoMo's adversarial questions", "adversarial", help="The usual protocol leaves them out.", **off
    )
    users = _several("Users", {name: name for name in corpus.users}, "users", "all", **off)
    lists = exclusions.lists()
    excluded = _several(
        "Leave out",
        {name: name for name in lists},
        "exclude",
        "nothing",
        help="Named lists of questions, e.g. those whose gold answer is known to be wrong (see Data).",
        **off,
    )
    return {
        "subtypes": chosen_subtypes(benchmarks, categories, subtypes, locomo, adversarial),
        "adversarial": adversarial,
        "users": users,
        "exclude": excluded,
    }


def _ask_for_judge(registry: Registry, brought: Mapping[str, str], off: dict[str, Any]) -> dict[str, Any]:
    judges = {"offline": "offline", **brought, **{name: spec.label for name, spec in registry.models.items()}}
    judge = link.one_of(
        "Judge",
        list(judges),
        "judge",
        names=distinct(judges),
        help="The paper's judge is GPT-4o-mini. The offline judge needs no LLM.",
        **off,
    )
    if judge == "offline":
        st.caption("Rules over the wording, no LLM: not comparable with the paper.")
    return {
        "judge": judge,
        "judge_pack": link.one_of(
            "Judge prompts",
            ["auto", "own", "official"],
            "judge_pack",
            kind="segmented",
            help="official: those of the public repository, where fetched; own: this project's; auto: official where "
            "present.",
            **off,
        ),
    }


def _ask_for_decoding(registry: Registry, off: dict[str, Any]) -> dict[str, Any]:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        return {
            "embedder": link.one_of(
                "Embedder",
                list(registry.embedders),
                "embedder",
                width=220,
                help="Of RAG's retrieval and of the repetition score.",
                **off,
            ),
            "k": link.number("Memories a query", 1, 100, 5, "k", width=150, **off),
            "temperature": link.decimal("Temperature", 0.0, 2.0, 0.0, 0.1, "temperature", width=140, **off),
            "max_tokens": link.number(
                "Longest response, tokens", 1, 100_000, 512, "max_tokens", width=190, help="The paper's: 512.", **off
            ),
        }


def _ask_for_limits(off: dict[str, Any]) -> tuple[dict[str, Any], int, int, float | None]:
    """The name and whether latencies are probed; then concurrency, workers and budget, which are no part of a study."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        concurrency = st.number_input(
            "Records at a time",
            1,
            256,
            DEFAULT_CONCURRENCY,
            key="concurrency",
            width=150,
            persist_state="session",
            help="Latencies are marked with it.",
            **off,
        )
        workers = st.number_input(
            "Workers",
            1,
            MOST_WORKERS,
            1,
            key="workers",
            width=150,
            persist_state="session",
            help="Processes that share the run and its records at a time. One does well until this machine's processor "
            "is what one waits for.",
            **off,
        )
        budget = st.number_input(
            "Budget, $",
            min_value=0.01,
            value=None,
            step=1.0,
            format="%.2f",
            placeholder="no limit",
            key="budget",
            width=150,
            persist_state="session",
            help="By the registry's list prices. Nothing is begun once the run has cost as much; what is under way "
            "then is finished.",
            **off,
        )
    fields = {
        "latency_probe": link.switch(
            "Latency probe", "latency_probe", help="One record at a time and no reuse of calls.", **off
        ),
        "name": link.text("Name of the study", "name", placeholder="for people only", **off),
    }
    return fields, int(concurrency), int(workers), budget


def _several(
    label: str, options: Mapping[str, str], key: str, placeholder: str = "Choose options", **more: Any
) -> list[str]:
    return link.some_of(
        label,
        list(options),
        key,
        names=distinct(options),
        default=[name for name in _DEFAULTS.get(key, []) if name in options],
        placeholder=placeholder,
        **more,
    )


def distinct(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels, with the name where two are the same: the link carries them."""
    written = list(labels.values())
    return {name: label if written.count(label) == 1 else f"{label} ({name})" for name, label in labels.items()}


def _unless_all(chosen: list[str], options: tuple[str, ...]) -> list[str]:
    return [] if set(chosen) == set(options) else chosen


def _data() -> dict[str, str]:
    """What a study can be of, with names: the benchmark data, the sample, and what builds made here."""
    return DATA | {data: built_name(data) for data in built.exported()}


def built_name(data: str) -> str:
    """What a build's exported questions are called, e.g. `build 3fa2c1d0 (a1b2c3)`."""
    return f"build {built.build_of(data)} ({data.rpartition(':')[2][:6]})"


def say_what_data(corpus: Corpus, chosen: str) -> None:
    """What the data that were chosen hold, and how to get the benchmarks where they aren't here."""
    counts = (
        f"{len(corpus.op):,} OP-Bench instances and {len(corpus.locomo):,} LoCoMo questions of "
        f"{len(corpus.users):,} users."
    )
    if chosen == "auto" and corpus.source == "sample":
        st.caption(f"No benchmark data here, so this is the bundled sample: {counts} `opbench data fetch` gets it.")
    else:
        st.caption(counts)
