"""A case's texts with marks: what of a response stands in a memory, what became of a memory, what differs.

Texts of models and files stay text: they are Markdown that is escaped (`pages.shared.texts`), or go to a component that
puts them into the page as text nodes. Marks are told by line, number or weight as well as by colour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from opbench.cases.marks import DEFINITION, Run, Span, spans
from opbench.cases.outcome import Found
from opbench.sharing.sheet import Words
from opbench.sharing.visible import visible
from pages.shared import collecting, parts, texts
from pages.shared.case_view import CaseView

#: As text nodes alone: nothing of a text is ever read as HTML.
_SCRIPT = """
export default function ({ data, parentElement }) {
  const page = parentElement.ownerDocument;
  const text = parentElement.querySelector(".text");
  const note = parentElement.querySelector(".note");
  text.replaceChildren();
  note.replaceChildren();
  note.hidden = true;
  const marks = [];
  const show = (numbers) => {
    note.replaceChildren(...numbers.map((number) => {
      const line = page.createElement("div");
      const head = page.createElement("b");
      head.textContent = `Memory ${number}: `;
      line.append(head, data.memories[number] ?? "");
      return line;
    }));
    note.hidden = false;
    for (const [mark, held] of marks) mark.classList.toggle("on", held.some((number) => numbers.includes(number)));
  };
  for (const [piece, numbers] of data.pieces) {
    if (!numbers.length) {
      text.append(piece);
      continue;
    }
    const mark = page.createElement("mark");
    mark.textContent = piece;
    mark.addEventListener("mouseenter", () => show(numbers));
    marks.push([mark, numbers]);
    text.append(mark);
    for (const number of numbers) {
      const button = page.createElement("button");
      button.type = "button";
      button.dataset.number = number;
      button.setAttribute("aria-label", `from memory ${number}`);
      button.title = "To the memory";
      button.addEventListener("focus", () => show([number]));
      button.addEventListener("mouseenter", () => show([number]));
      button.addEventListener("click", () => {
        show([number]);
        const target = page.querySelector(`.st-key-${data.target}-${number}`);
        target?.scrollIntoView({ behavior: "smooth", block: "center" });
      });
      text.append(button);
    }
  }
}
"""
# The numbers are drawn by the style, so that a copied text is the response alone.
_STYLE = """
.text { white-space: pre-wrap; overflow-wrap: anywhere; font-family: var(--st-font); color: var(--st-text-color);
  line-height: 1.6; }
mark { background: rgba(230, 159, 0, 0.28); color: inherit; border-bottom: 2px solid #e69f00; border-radius: 2px; }
mark.on { outline: 2px solid #e69f00; }
button { font: inherit; font-size: 0.7rem; font-weight: 700; line-height: 1; vertical-align: super; cursor: pointer;
  color: inherit; background: transparent; border: 1px solid #e69f00; border-radius: 0.6rem; padding: 0.1rem 0.3rem;
  margin: 0 0.1rem; }
button::before { content: attr(data-number); }
button:focus-visible { outline: 2px solid var(--st-primary-color); }
.note { margin-top: 0.4rem; padding: 0.3rem 0.6rem; border-left: 3px solid #e69f00; font-size: 0.875rem;
  font-family: var(--st-font); color: var(--st-text-color); overflow-wrap: anywhere; }
"""
_BODY = '<div class="text"></div><div class="note" role="status" hidden></div>'


def response(view: CaseView, place: int) -> None:
    """A column's response with its marks, and what they mean."""
    outcome = view.outcomes[place]
    key = f"case-response-{place}"
    whole = visible(outcome.response)
    collecting.add(Words(f"Response, {view.names[place]}", whole))
    shown = texts.cut(whole, key)
    numbers = view.numbers(place)
    found = dict(zip(numbers, outcome.retrieved or (), strict=True))
    held = spans(
        shown,
        list(found.values()),
        view.spec.question,
        numbers=numbers,
        known=(view.spec.user.rpartition("/")[2],),
    )
    marked(shown, held, found, place)


def marked(text: str, found: Sequence[Span], memories: Mapping[int, Found], place: int | str) -> None:
    """A text with its spans: each underlined, with the numbers of its memories, which show the memory and lead to it.

    `memories` by number. `place` tells the columns of a page apart.
    """
    if not found:
        st.text(text)
        if memories:
            st.caption("No wording of a memory in it. That is no proof that none had an effect.")
        return
    component = st.components.v2.component("case_marked_text", html=_BODY, css=_STYLE, js=_SCRIPT)
    component(
        key=f"marked-{place}",
        data={
            "pieces": pieces(text, found),
            "memories": {str(number): visible(_dated(memory)) for number, memory in memories.items()},
            "target": _target(place),
        },
    )
    st.caption("Shared wording, no proof of cause.", help=parts.plain(DEFINITION))


def pieces(text: str, found: Sequence[Span]) -> list[tuple[str, list[int]]]:
    """The text in pieces, each with the numbers of its memories: none for what isn't marked."""
    made: list[tuple[str, list[int]]] = []
    end = 0
    for span in found:
        made += [(visible(text[end : span.start]), []), (visible(text[span.start : span.end]), list(span.memories))]
        end = span.end
    return [piece for piece in [*made, (visible(text[end:]), [])] if piece[0]]


def number(place: int | str, number: int) -> None:
    """The number of a memory, to which a mark in the response leads."""
    with st.container(key=f"{_target(place)}-{number}", width="content"):
        st.badge(str(number), color="orange", help=f"Memory {number}, as marked in the response")


def memory(runs: Sequence[Run]) -> None:
    """A memory word by word: dropped words struck out, added ones bold."""
    shown = [(visible(text), became) for text, became in runs]
    if {became for _, became in shown} <= {"kept"}:
        st.text("".join(text for text, _ in shown))
    else:
        st.markdown(texts.changed(shown))


def beside(left: Any, right: Any, before: tuple[str, str], after: tuple[str, str]) -> None:
    """Two texts, each with its title, in two places: the words marked in which they differ."""
    for side, place, (title, text), other in (("before", left, before, after), ("after", right, after, before)):
        with place:
            texts.show_beside(title, text, other[1], f"case-{side}", "no response")


def _dated(memory: Found) -> str:
    return f"({memory.date}) {memory.text}" if memory.date else memory.text


def _target(place: int | str) -> str:
    return f"case-memory-{place}"
