"""Text of models, memories, files and people, shown as text: never Markdown, HTML or a terminal's colours.

What would hide or reorder is written out (`opbench.sharing.visible`), a long text is cut until it is asked for whole.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import streamlit as st

from opbench.analysis.words import Change, Run, word_marks
from opbench.sharing.sheet import Words
from opbench.sharing.visible import visible
from pages.shared import collecting, parts

#: Signs that are shown before somebody asks for all.
SHOWN = 4_000
#: What Streamlit's Markdown draws as one sign, or turns into a link, even where it is escaped.
_DRAWN = re.compile(r"<->|->|<-|--|>=|<=|~=|://|www\.|@", re.IGNORECASE)
_WORD_JOINER = "\u2060"
_BREAK = "  \n"
_DIFFERS = (":violet-background[**", "**]")
_DROPPED = (":gray[~~", "~~]")


def show(title: str, text: str | None, key: str, absent: str = "none") -> None:
    """A text under its title. `key` is unique on the page; `absent` is what is said where there is no text."""
    whole = _begin(title, text, absent)
    if whole is not None:
        st.text(cut(whole, key))
        _download(whole, key)


def show_beside(title: str, text: str | None, other: str | None, key: str, absent: str = "none") -> None:
    """As `show`, with the words marked in which it differs from `other`: coloured, and bold."""
    whole = _begin(title, text, absent)
    if whole is None:
        return
    part = cut(whole, key)
    if other is None:
        st.text(part)
    else:
        # Of the other one as much is compared as is shown of this one, and of a beginning as much again.
        reach = len(part) if len(part) == len(whole) else SHOWN
        st.markdown(marked(word_marks(part, visible(other)[: max(2 * reach, SHOWN)])[0]))
    _download(whole, key)


def cut(text: str, key: str) -> str:
    """The text, or its beginning while the switch to show all is off."""
    if len(text) <= SHOWN:
        return text
    label = f"Show all {len(text):,} signs"
    if st.toggle(label, key=f"all-{key}"):
        return text
    return text[:SHOWN] + " […]"


def marked(runs: Sequence[Run]) -> str:
    """Pieces as Markdown that shows them as they are, differing ones coloured and bold."""
    return "".join(_mark(piece) if differs else _escaped(piece) for piece, differs in runs)


def changed(runs: Sequence[Change]) -> str:
    """Pieces as Markdown that shows them as they are: dropped ones struck out, added ones coloured and bold."""
    around = {"dropped": _DROPPED, "added": _DIFFERS}
    return "".join(_mark(piece, around[became]) if became in around else _escaped(piece) for piece, became in runs)


def _begin(title: str, text: str | None, absent: str) -> str | None:
    """The title; the text, visible, unless there is none."""
    st.markdown(f"**{parts.plain(title)}**")
    if not text:
        st.caption(parts.plain(absent if text is None else "an empty text"))
        return None
    whole = visible(text)
    collecting.add(Words(title, whole))
    return whole


def _download(whole: str, key: str) -> None:
    if len(whole) > SHOWN:
        st.download_button(
            "Download as text",
            whole,
            file_name=f"{re.sub(r'[^A-Za-z0-9]+', '-', key).strip('-')}.txt",
            mime="text/plain",
            icon=":material/download:",
            key=f"file-{key}",
            on_click="ignore",
            type="tertiary",
        )


def _mark(piece: str, around: tuple[str, str] = _DIFFERS) -> str:
    """Line by line, without the white space at the ends: Markdown's marks don't reach over either."""
    found = []
    for line in re.split(r"(\s*\n\s*)", piece):
        if not line.strip():
            found.append(_escaped(line))
            continue
        inner = line.strip()
        before, after = line[: len(line) - len(line.lstrip())], line[len(line.rstrip()) :]
        found.append(f"{before}{around[0]}{_escaped(inner)}{around[1]}{after}")
    return "".join(found)


def _escaped(text: str) -> str:
    """Markdown that shows the text with its line breaks."""
    lines = [_DRAWN.sub(lambda match: match[0][0] + _WORD_JOINER + match[0][1:], line) for line in text.split("\n")]
    return _BREAK.join(_keep_ends(line) for line in lines)


def _keep_ends(line: str) -> str:
    """`parts.plain` takes off white space at the ends, which between two pieces is a space between two words."""
    inner = parts.plain(line)
    if not inner:
        return " " if line else ""
    return f"{' ' if line[0].isspace() else ''}{inner}{' ' if line[-1].isspace() else ''}"
