"""A post-processor written in the page: seen as it is sent, a column of the case, tried on a slice, saved."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st
from pydantic import ValidationError

import mitigations
from mitigations import Memory
from mitigations.context import prepare
from mitigations.prompting import sections
from opbench.cases import drafts
from opbench.cases.spec import LONGEST_TEXT, CaseSpec, Column, Draft
from opbench.errors import OpbenchError, UsageError
from opbench.models import Registry
from opbench.study import BASE
from pages.shared import access, case_form, case_live, draft_trial, memory_systems, parts, texts

_TAKEN = "drafts"
_NAME, _LABEL, _FAMILY = "draft-name", "draft-label", "draft-family"
_LIMIT, _WORDS, _START, _COLUMN = "draft-limit", "draft-words", "draft-start", "draft-column"
_FAMILIES = {"filter": "filters: keeps memories", "compression": "condenses: findings in its own words"}
_AT_FIRST = {_LABEL: "My draft", _NAME: "my-draft", _LIMIT: 512, _FAMILY: "filter"}
_EMPTY = "an empty page"
#: Stand for what is retrieved until something is.
_INVENTED = (
    Memory("Mara keeps bees on the roof of her building.", "2 Feb 2024"),
    Memory("Mara is allergic to walnuts.", "14 Mar 2024"),
)


def offered() -> list[Draft]:
    """The drafts that a case's columns may take: this browser session's, then the saved ones; each name once."""
    mine: dict[str, Draft] = st.session_state.get(_TAKEN, {})
    return list(({draft.name: draft for draft in drafts.saved_drafts()} | mine).values())


def panel(spec: CaseSpec, registry: Registry) -> None:
    """Write a draft for the case as its form says it; nothing for who may not ask."""
    if not access.may_edit():
        return
    with st.expander("Write a post-processor of your own", icon=":material/stylus_note:", key="draft-panel"):
        st.caption(
            "A post-processor that is one prompt: it gets the retrieved memories and the question before the response "
            "is made. Try it here, then on a slice; saved, it is a plugin that studies can use."
        )
        _choose_start()
        draft = _write()
        if draft is None:
            return
        column = _choose_column(spec)
        _preview(draft, spec, column)
        if column is None:
            st.info("Choose a column with a memory system above: BASE has no memories.", icon=":material/memory:")
        else:
            _offer_column(draft, column)
            draft_trial.draw(spec, column, draft, registry, saved=_keep)
        _offer_to_save(draft)


def _choose_start() -> None:
    known = {draft.name: draft for draft in offered()}
    names = [_EMPTY, *(label for label, _, _ in _wordings()), *known]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.selectbox(
            "Begin with",
            names,
            format_func=lambda name: parts.as_label(f"{known[name].label} · {name}" if name in known else name),
            key=_START,
            width=330,
        )
        st.button(
            "Fill in",
            key="draft-fill",
            icon=":material/edit_note:",
            on_click=access.editing(_fill),
            help="Overwrites what is written below.",
        )


def _wordings() -> list[tuple[str, str, str]]:
    """Wordings to begin with: (what it is, family, instructions without a reply form)."""
    found: list[tuple[str, str, str]] = []
    role = sections("common")["role"]
    for name in ("reminder", "comorag"):
        method = mitigations.get(name)
        words = mitigations.prompt_sections(method)["system"].partition("Reply form:")[0].strip()
        # What every draft says with its reply form, that memories are data, isn't said twice.
        words = words.replace(role, role.partition("\n\n")[0])
        found.append((f"{method.label}'s words", method.family, words))
    return found


def _fill() -> None:
    state = st.session_state
    start = state[_START]
    for draft in offered():
        if draft.name != start:
            continue
        state[_NAME], state[_LABEL], state[_WORDS] = draft.name, draft.label, draft.instructions
        state[_FAMILY], state[_LIMIT] = draft.family, draft.max_tokens
        return
    state[_WORDS] = ""
    for label, family, words in _wordings():
        if label == start:
            state[_WORDS], state[_FAMILY] = words, family


def _write() -> Draft | None:
    """The draft as it is written; None while something is missing, which is said."""
    for key, value in _AT_FIRST.items():
        st.session_state.setdefault(key, value)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.text_input("Label", max_chars=60, key=_LABEL, width=200, persist_state="session")
        st.text_input(
            "Name",
            max_chars=40,
            key=_NAME,
            width=200,
            help="As on the command line: small letters, digits and hyphens.",
            persist_state="session",
        )
        st.number_input(
            "Longest reply, tokens",
            1,
            8_192,
            key=_LIMIT,
            width=170,
            help="The paper's: 512.",
            persist_state="session",
        )
    st.segmented_control(
        "What it does",
        list(_FAMILIES),
        required=True,
        format_func=_FAMILIES.__getitem__,
        key=_FAMILY,
        help="Decides how a reply is read. Either way it may say that no memory is needed.",
        persist_state="session",
    )
    st.text_area(
        "Instructions",
        key=_WORDS,
        height=220,
        max_chars=LONGEST_TEXT,
        placeholder="What is the model to do with the memories? How a reply must look is added by the workbench.",
        persist_state="session",
    )
    try:
        return _written()
    except OpbenchError as error:
        st.caption(parts.plain(str(error)))
        return None


def _written() -> Draft:
    """The draft as the fields say it, also in a callback, which runs before they are drawn.

    Raises:
        UsageError: it is none; says what is missing.
    """
    state = st.session_state
    words = str(state.get(_WORDS) or "")
    if not words.strip():
        raise UsageError("Write instructions, or begin with words that are there.")
    try:
        draft = Draft(
            name=state[_NAME], label=state[_LABEL], family=state[_FAMILY], max_tokens=state[_LIMIT], instructions=words
        )
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_input=False)[0]
        where = str(wrong["loc"][0]) if wrong["loc"] else "draft"
        mend = "two to forty small letters, digits and hyphens, the first a letter" if where == "name" else wrong["msg"]
        raise UsageError(f"{where.capitalize()}: {mend}.") from None
    drafts.demand_free(draft.name)
    return draft


def _choose_column(spec: CaseSpec) -> Column | None:
    """Whose memories it works on: one of the case's models with a memory system; None where there is none."""
    pairs: dict[tuple[str, str], Column] = {}
    for column in spec.columns:
        if column.memory != BASE:
            pairs.setdefault((column.model, column.memory), column)
    if not pairs:
        return None
    several = len({model for model, _ in pairs}) > 1
    chosen = st.selectbox(
        "On the memories of",
        list(pairs),
        format_func=lambda pair: parts.as_label(memory_systems.label(pair[1]) + (f" · {pair[0]}" if several else "")),
        key=_COLUMN,
        width=330,
    )
    return pairs[chosen]


def _preview(draft: Draft, spec: CaseSpec, column: Column | None) -> None:
    """The messages as the model gets them."""
    found, which = _memories(spec, column)
    with st.expander("As it is sent to the model", icon=":material/visibility:", key="draft-preview"):
        st.caption(parts.plain(which))
        for number, (role, text) in enumerate(drafts.method(draft).messages(spec.question, found)):
            texts.show("System message" if role == "system" else "User message", text, f"draft-message-{number}")
        st.caption(
            f"At temperature 0, at most {draft.max_tokens:,} tokens. A reply that can't be read leaves the memories as "
            "they are, and counts as failed."
        )


def _memories(spec: CaseSpec, column: Column | None) -> tuple[Sequence[Memory], str]:
    """The memories that the preview shows, and which they are."""
    live = case_live.current()
    if column is not None and column.given is not None:
        given = [Memory(each.text, each.date, each.score) for each in column.given]
        return prepare(given).memories, "With the memories that the column was given."
    if column is not None and live is not None and (live.spec.question, live.spec.user) == (spec.question, spec.user):
        for asked, outcome in zip(live.spec.columns, live.outcomes(), strict=True):
            if asked.memory == column.memory and outcome.retrieved:
                memories = [Memory(each.text, each.date, each.score) for each in outcome.retrieved]
                name = memory_systems.label(column.memory)
                return prepare(memories).memories, f"With the memories that {name} retrieved for this question."
    return _INVENTED, "Nothing has been retrieved for this question yet: two invented memories stand in."


def _offer_column(draft: Draft, column: Column) -> None:
    live = case_live.current()
    with st.container(horizontal=True):
        st.button(
            "Take it as a column",
            key="draft-take",
            icon=":material/view_column:",
            on_click=access.editing(_take),
            help="Among the columns above, for this browser session. Take it again after a change.",
        )
        if (
            live is not None
            and not live.working
            and st.button(
                "Ask it beside the case",
                key="draft-ask",
                icon=":material/play_arrow:",
                help="Beside the columns that have answered.",
            )
        ):
            _keep(draft)
            case_live.ask_beside(
                live, column.model_copy(update={"mitigation": draft.name, "draft": draft, "prompts": {}})
            )
            st.rerun()


def _keep(draft: Draft) -> None:
    st.session_state[_TAKEN] = st.session_state.get(_TAKEN, {}) | {draft.name: draft}


def _take() -> None:
    try:
        draft = _written()
    except OpbenchError:
        return  # said where it is written
    _keep(draft)
    _, memory = st.session_state[_COLUMN]
    case_form.add_column(memory, draft.name)


def _offer_to_save(draft: Draft) -> None:
    with st.container(border=True):
        st.markdown("**Save as a plugin**")
        path = drafts.file_of(draft)
        if drafts.is_saved(draft):
            st.caption("It is saved as it stands here. The Launch page offers it under Plugins, and so does:")
            parts.code(f"opbench run --plugin {path} --memories base,rag --mitigations none,{draft.name}", "bash")
            _offer_to_delete(draft)
            return
        st.caption(f"As {parts.plain(str(path))}: a Python file that anyone can read, for studies and for others.")
        replace = draft_trial.may_replace(draft)
        if st.button("Save", key="draft-save", icon=":material/save:"):
            access.demand_edit()
            try:
                drafts.save(draft, replace=replace)
            except OpbenchError as error:
                st.error(parts.plain(str(error)), icon=":material/error:")
                return
            _keep(draft)
            st.rerun()


def _offer_to_delete(draft: Draft) -> None:
    with st.popover("Delete", icon=":material/delete:", width="content"):
        st.caption("The file, for everybody. What is written above stays, and so do runs that were made with it.")
        if st.button("Delete the saved draft", key="draft-delete", icon=":material/delete_forever:"):
            access.demand_edit()
            drafts.delete(draft.name)
            st.rerun()
