"""On every page, text of models, files and people stays text: no HTML, no Markdown, no formula."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from opbench.settings import ROOT
from opbench.store.database import Store
from pages.shared import parts
from tests.pages.conftest import Open
from tests.pages.hostile import NASTY, RUN, strings, write_hostile_run

PAGES = sorted(file.stem for file in (ROOT / "pages" / "views").glob("*.py") if file.stem != "__init__")
#: Elements that show their text as it is.
_AS_IT_IS = {"json", "arrow_data_frame", "text_area", "text_input", "selectbox", "multiselect"}
#: What only does harm where somebody takes it for markup; `\` before it makes it text again.
_MARKUP = re.compile(r"(?<!\\)(?:<script|<img|<a href|!\[p|\[l\]\(|:red\[|:material/skull|\*\*bold)", re.IGNORECASE)
#: Plotly reads some tags in every text of a figure.
_TAGS = re.compile(r"<(?:script|img|a)\b", re.IGNORECASE)
#: A terminal's colours, and what turns the writing round: to be written out, but for tables, where a cell is by itself.
_HIDDEN = re.compile("[\x1b\u202e]")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


@pytest.fixture
def downloads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """What the download buttons of the page hand out: name and content."""
    found: list[tuple[str, Any]] = []
    original = st.download_button

    def noted(label: str, data: Any, file_name: str | None = None, **more: Any) -> bool:
        found.append((file_name or "", data))
        return bool(original(label, data, file_name, **more))

    monkeypatch.setattr(st, "download_button", noted)
    return found


def elements(app: AppTest) -> Iterator[tuple[str, Any]]:
    """All elements and blocks of the page and its sidebar: type and protobuf."""
    waiting: list[Any] = list(app._tree.children.values())
    while waiting:
        node = waiting.pop()
        waiting += getattr(node, "children", {}).values()
        proto = getattr(node, "proto", None)
        if hasattr(proto, "ListFields"):
            yield str(getattr(node, "type", "")), proto


def texts(message: Any) -> Iterator[str]:
    """All texts in a protobuf message."""
    for field, value in message.ListFields():
        for each in value if field.is_repeated else (value,):
            if isinstance(each, str):
                yield each
            elif hasattr(each, "ListFields"):
                yield from texts(each)


def cells(content: str) -> Iterator[str]:
    csv.field_size_limit(10_000_000)
    for row in csv.reader(io.StringIO(content)):
        yield from row


def is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("page", PAGES)
def test_text_stays_text(page: str, visit: Open, store: Store, downloads: list[tuple[str, Any]]) -> None:
    write_hostile_run(store)
    app = visit(page, run=RUN)
    assert not app.exception
    for kind, proto in elements(app):
        if kind == "plotly_chart":
            for text in strings(json.loads(proto.spec)):
                assert not _TAGS.search(text), (page, kind, text[:300])
                assert not _HIDDEN.search(text), (page, kind, text[:300])
            continue
        if kind == "html":
            assert "alert(1)" not in proto.body
            continue
        if kind in ("text", "code"):
            assert not _HIDDEN.search(proto.body if kind == "text" else proto.code_text), (page, kind)
            continue
        if kind in _AS_IT_IS:
            label = getattr(proto, "label", "")
            assert not _MARKUP.search(label), (page, kind, label[:300])
            continue
        for text in texts(proto):
            assert not _MARKUP.search(text), (page, kind, text[:300])
            assert not _HIDDEN.search(text), (page, kind, text[:300])
    for name, data in downloads:
        content = data() if callable(data) else data
        text = content.decode("utf-8", "replace") if isinstance(content, bytes) else str(content)
        if name.endswith(".csv"):
            harmful = [cell[:80] for cell in cells(text) if cell.startswith(_FORMULA) and not is_number(cell)]
            assert harmful == [], (page, name)
        if name.endswith(".html"):
            assert "<script>alert(1)" not in text, (page, name)
            assert "<img src=" not in text, (page, name)


@pytest.mark.parametrize("page", PAGES)
def test_a_link_is_text_too(page: str, visit: Open, store: Store) -> None:
    app = visit(page, run=NASTY, rule=NASTY, first=NASTY)
    assert not app.exception
    assert app.warning
    for _, proto in elements(app):
        for text in texts(proto):
            assert not _MARKUP.search(text), (page, text[:300])


def test_an_address_is_no_link_and_nothing_hides() -> None:
    assert parts.plain("at http://a.example or a@b.example") == (
        "at http\\:\u2060//a\\.example or a\\@\u2060b\\.example"
    )
    assert parts.plain("\x1b[31m\u202ex") == "⟨ESC⟩\\[31m⟨RLO⟩x"
