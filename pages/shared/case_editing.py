"""Changing a column in place and asking it beside the first: its memories, its prompt, k, the temperature."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import streamlit as st
from pydantic import ValidationError

import mitigations
from mitigations import PostProcessor
from opbench.cases.drafts import method as method_of
from opbench.cases.outcome import Found
from opbench.cases.spec import Column, Given
from opbench.errors import UsageError
from opbench.study import NO_MITIGATION
from pages.shared import access, case_live, parts
from pages.shared.case_view import CaseView


def draw(view: CaseView) -> None:
    """Choose a column that is over, change it, ask it again; nothing where nobody may ask."""
    places = [place for place, outcome in enumerate(view.outcomes) if outcome.over]
    live = view.live
    if live is None or not view.asks or not places:
        return
    st.header("Change it and ask again", anchor=False)
    with_memories = [place for place in places if not view.is_base(place)]
    place = int(
        st.selectbox(
            "Column",
            places,
            places.index((with_memories or places)[0]),
            format_func=lambda each: parts.as_label(view.names[each]),
            key="case-edit",
            width=330,
        )
    )
    column, found = view.column(place), view.outcomes[place].retrieved or ()
    with st.container(border=True):
        with st.container(horizontal=True, vertical_alignment="bottom"):
            k = int(column.k or view.spec.k)
            if not view.is_base(place):
                k = int(
                    st.number_input(
                        "Memories a query (k)",
                        1,
                        100,
                        k,
                        key=f"case-edit-k-{place}",
                        width=160,
                        help="Retrieves anew, unless the memories below are changed.",
                    )
                )
            had = view.spec.temperature if column.temperature is None else column.temperature
            temperature = float(
                st.number_input("Temperature", 0.0, 2.0, had, 0.1, key=f"case-edit-temperature-{place}", width=140)
            )
        changes: dict[str, object] = {}
        if not view.is_base(place):
            given = _memories(view, place, found)
            if given is not None:
                changes |= {"given": given, "without": ()}
            changes["prompts"] = _prompts(column, place)
        if k != (column.k or view.spec.k):
            changes["k"] = k
        if temperature != had:
            changes["temperature"] = temperature
        _offer(view, place, changes)


def _memories(view: CaseView, place: int, found: Sequence[Found]) -> tuple[Given, ...] | None:
    """The memories as somebody changed them; None while they are as they were retrieved."""
    before = pd.DataFrame(
        [{"text": each.text, "date": each.date} for each in found], columns=["text", "date"], dtype="object"
    )
    st.caption("Memories, in rank order: change words and dates, add rows at the end, tick rows to delete them.")
    edited = st.data_editor(
        before,
        hide_index=True,
        num_rows="dynamic",
        column_config={
            "text": st.column_config.TextColumn("memory", width="large"),
            "date": st.column_config.TextColumn("date", width=150, help="As prose, e.g. 9 May 2024"),
        },
        key=f"case-edit-memories-{place}-{len(found)}",
        alt="Memories, to be changed",
    )
    rows = [
        (str(text).strip(), None if pd.isna(date) or not str(date).strip() else str(date).strip())
        for text, date in zip(edited["text"], edited["date"], strict=True)
        if not pd.isna(text) and str(text).strip()
    ]
    if rows == [(each.text.strip(), each.date) for each in found]:
        return None
    # A memory that was left as it is keeps the similarity that it was retrieved with.
    scores = {(each.text.strip(), each.date): each.score for each in found}
    try:
        return tuple(Given(text=text, date=date, score=scores.get((text, date))) for text, date in rows)
    except ValidationError as error:
        raise UsageError(f"this can't be a memory: {error.errors(include_input=False)[0]['msg']}") from None


def _prompts(column: Column, place: int) -> dict[str, str]:
    """The sections of the post-processor's prompt that are worded otherwise than the method has them."""
    own: PostProcessor
    if column.draft is not None:
        own = method_of(column.draft)
    elif column.mitigation == NO_MITIGATION:
        return {}
    else:
        own = mitigations.get(column.mitigation)
    sections = mitigations.prompt_sections(own)
    if not sections:
        st.caption(f"{parts.plain(own.label)} has no prompt that could be changed.")
        return {}
    changed = {}
    with st.expander(f"Prompt of {parts.as_label(own.label)}", icon=":material/edit_note:"):
        for name, text in sections.items():
            typed = st.text_area(
                parts.as_label(name.replace("_", " ")),
                column.prompts.get(name, text),
                key=f"case-edit-prompt-{place}-{name}",
                height=180,
            )
            if typed != text:
                changed[name] = str(typed)
    return changed


def _offer(view: CaseView, place: int, changes: dict[str, object]) -> None:
    live, before = view.live, view.column(place)
    assert live is not None
    after = before.model_copy(update=changes)
    if after == before and not (after.temperature or view.spec.temperature):
        st.caption("Change something first: the same again would be the same answer.")
    again = after == before
    if again:
        # The same at a temperature: another draw.
        same = [each for each in view.spec.columns if each.model_copy(update={"repeat": 0}) == _first_draw(before)]
        after = before.model_copy(update={"repeat": max(each.repeat for each in same) + 1})
    cannot = again and not (before.temperature or view.spec.temperature)
    label = "Draw it again beside it" if again and not cannot else "Ask it beside the first"
    if st.button(label, key="case-edit-ask", type="primary", icon=":material/play_arrow:", disabled=cannot):
        access.demand_edit()
        case_live.ask_beside(live, Column.model_validate(after.model_dump()))
        st.rerun()


def _first_draw(column: Column) -> Column:
    return column.model_copy(update={"repeat": 0})


def without(view: CaseView, place: int, number: int) -> None:
    """Below a memory: the button that asks the column again without it."""
    live, column = view.live, view.column(place)
    if live is None or not view.asks or view.outcomes[place].state != "done":
        return
    if st.button(
        f"Answer without memory {number}",
        key=f"case-without-{place}-{number}",
        type="tertiary",
        icon=":material/remove_circle:",
    ):
        access.demand_edit()
        numbers = tuple(sorted({*column.without, number}))
        case_live.ask_beside(live, column.model_copy(update={"without": numbers}))
        st.rerun()
