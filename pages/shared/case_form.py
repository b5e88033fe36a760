"""The form of a case: question, columns, decoding, judge. Kept in the link, and read as a `CaseSpec`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamlit as st
from pydantic import ValidationError

import mitigations
from opbench.benchmarks import load
from opbench.cases.spec import MOST_COLUMNS, CaseSpec, Column, Draft
from opbench.errors import UsageError
from opbench.figures import theme
from opbench.judges import registered_judges
from opbench.memories import needs_extractor
from opbench.models import Registry
from opbench.sharing.visible import visible
from opbench.study import BASE, NO_MITIGATION
from pages.shared import case_question, link, memory_systems, parts, published_cases, reading_user, study_form, texts
from pages.shared.case_question import Asked

_OWN_MODEL = "each column's own model"
_BETWEEN = "+"
_COLUMNS = "columns"
_DEFAULT_COLUMNS = ("rag", f"rag{_BETWEEN}few-shot-cot")


def ask(registry: Registry, editor: bool, drafts: Sequence[Draft] = ()) -> CaseSpec | None:
    """Draw the form; None while something is missing, which is said. `drafts` may be columns too.

    Raises:
        UsageError: what is chosen makes no case.
        DataError: the data can't be read.
    """
    off = {"disabled": not editor}
    with st.container(border=True):
        st.subheader("What is asked", anchor=False)
        asked = case_question.choose(off, published_cases.choose)
        if asked is not None:
            _show_asked(asked)
    with st.container(border=True):
        st.subheader("Who answers", anchor=False)
        fields, columns = _ask_for_columns(registry, drafts, asked, off)
        left, right = st.columns(2, gap="medium")
        with left.expander("Retrieval and decoding", icon=":material/tune:"):
            fields |= _ask_for_decoding(registry, off)
        with right.expander("Judge", icon=":material/gavel:"):
            fields |= _ask_for_judge(registry, off)
    if asked is None:
        st.info("Choose or type a question first.", icon=":material/edit:")
        return None
    return _spec(asked, columns, fields)


def add_column(memory: str, mitigation: str) -> None:
    """Choose a further column beside BASE: for a button's callback, before the form is drawn."""
    option = f"{memory}{_BETWEEN}{mitigation}"
    chosen = st.session_state.get("columns", list(_DEFAULT_COLUMNS))
    st.session_state["columns"] = list(dict.fromkeys((*chosen, option)))


def _show_asked(asked: Asked) -> None:
    with st.container(horizontal=True, gap="small"):
        st.badge(parts.plain(asked.user), icon=":material/person:", color="gray")
        st.badge(parts.plain(theme.name(asked.subtype)), color="gray")
        if asked.instance:
            st.badge(parts.plain(asked.instance), color="blue")
    if asked.instance or asked.published:
        st.text(texts.cut(visible(asked.question), "case-asked"))
    corpus = load("sample" if asked.data == "sample" else None)
    if asked.user in corpus.users:
        with st.expander(
            f"About {parts.as_label(asked.user)}: profile, observations, history", icon=":material/person:"
        ):
            reading_user.draw(corpus, asked.user)


def _ask_for_columns(
    registry: Registry, drafts: Sequence[Draft], asked: Asked | None, off: dict[str, Any]
) -> tuple[dict[str, Any], tuple[Column, ...]]:
    """The extractor, where one is needed; and the columns, BASE of each model before its others."""
    models = link.some_of(
        "Models",
        list(registry.models),
        "models",
        names=study_form.distinct({name: spec.label for name, spec in registry.models.items()}),
        default=[study_form.EMBEDDED],
        placeholder="Choose one or several",
        help="From models.toml and your own models.local.toml.",
        **off,
    )
    if asked is not None and asked.columns:
        columns = _own_columns(asked, models)
        st.caption("The columns are those that the case brings along, for each model.")
    else:
        columns = _chosen_columns(models, drafts, off)
    memories = list(dict.fromkeys(column.memory for column in columns))
    memory_systems.say_missing(memory_systems.missing(memories))
    fields: dict[str, Any] = {}
    if asking := [name for name in memories if needs_extractor(name)]:
        chosen = link.one_of(
            "Extractor",
            [_OWN_MODEL, *registry.models],
            "extractor",
            names=study_form.distinct(
                {name: spec.label for name, spec in registry.models.items()} | {_OWN_MODEL: _OWN_MODEL}
            ),
            help=f"With which {', '.join(map(memory_systems.label, asking))} took the history in: what is kept is "
            "found by it.",
            width=300,
            **off,
        )
        fields["extractor"] = None if chosen == _OWN_MODEL else chosen
    return fields, columns


def _own_columns(asked: Asked, models: Sequence[str]) -> tuple[Column, ...]:
    """The case's columns, asked of the chosen models in the place of its own."""
    own: list[Column] = []
    for column in asked.columns:
        nobody = column.model_copy(update={"model": ""})
        if nobody not in own:
            own.append(nobody)
    return tuple(column.model_copy(update={"model": model}) for model in models for column in own)


def _chosen_columns(models: Sequence[str], drafts: Sequence[Draft], off: dict[str, Any]) -> tuple[Column, ...]:
    memories = {name: label for name, label in memory_systems.labels().items() if name != BASE}
    methods = {name: mitigations.get(name).label for name in mitigations.names() if name != NO_MITIGATION}
    named = {draft.name: draft for draft in drafts}
    methods |= {name: f"{draft.label} (draft)" for name, draft in named.items()}
    options = memories | {
        f"{memory}{_BETWEEN}{method}": f"{label} + {methods[method]}"
        for memory, label in memories.items()
        for method in methods
    }
    chosen = link.some_of(
        "Columns beside BASE",
        list(options),
        _COLUMNS,
        names=study_form.distinct(options),
        default=list(_DEFAULT_COLUMNS),
        placeholder="BASE alone",
        help="A memory system, alone or with a post-processor. BASE, without memories, is always there.",
        **off,
    )
    columns = []
    for model in models:
        columns.append(Column(model=model))
        for each in chosen:
            memory, _, method = each.partition(_BETWEEN)
            columns.append(
                Column(model=model, memory=memory, mitigation=method or NO_MITIGATION, draft=named.get(method))
            )
    return tuple(columns)


def _ask_for_decoding(registry: Registry, off: dict[str, Any]) -> dict[str, Any]:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        return {
            "k": link.number("Memories a query (k)", 1, 100, 5, "k", width=160, **off),
            "temperature": link.decimal("Temperature", 0.0, 2.0, 0.0, 0.1, "temperature", width=140, **off),
            "max_tokens": link.number(
                "Longest response, tokens", 1, 32_768, 512, "max_tokens", width=190, help="The paper's: 512.", **off
            ),
            "embedder": link.one_of(
                "Embedder",
                list(registry.embedders),
                "embedder",
                width=200,
                help="Of RAG's retrieval, and of how much a response changes.",
                **off,
            ),
        }


def _ask_for_judge(registry: Registry, off: dict[str, Any]) -> dict[str, Any]:
    models = {name: spec.label for name, spec in registry.models.items()}
    judges = {name: name for name in ("offline", *registered_judges())} | models
    judge = link.one_of(
        "Judge", list(judges), "judge", names=study_form.distinct(judges), help="The paper's is GPT-4o-mini.", **off
    )
    if judge == "offline":
        st.caption("Rules over the wording, no LLM: not comparable with the paper.")
    pack = link.one_of(
        "Judge prompts",
        ["auto", "own", "official"],
        "judge_pack",
        kind="segmented",
        help="official: those of the public repository, where fetched; own: this project's; auto: official where "
        "present.",
        **off,
    )
    return {"judge": judge, "judge_pack": pack}


def _spec(asked: Asked, columns: Sequence[Column], fields: dict[str, Any]) -> CaseSpec | None:
    """The case; None where the columns are none or too many, which is said."""
    if not columns:
        st.info("Choose a model first.", icon=":material/smart_toy:")
        return None
    if len(columns) > MOST_COLUMNS:
        st.info(
            f"These are {len(columns)} columns, BASE of each model included; a case has at most {MOST_COLUMNS}. Take "
            "some away.",
            icon=":material/view_column:",
        )
        return None
    try:
        return CaseSpec(
            question=asked.question,
            user=asked.user,
            instance=asked.instance,
            published=asked.published,
            data=asked.data,
            subtype=asked.subtype,
            columns=tuple(columns),
            **fields,
        )
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise UsageError(f"this makes no case: {first['msg'].removeprefix('Value error, ')}") from None
