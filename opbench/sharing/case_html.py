"""A saved case, or a book of them, as one HTML file that opens anywhere, offline, and runs no script.

Texts are escaped by the template and every sign of them is visible; the responses' marked pieces link to the memories
that they share wording with. The data stands in a JSON block in which no tag can end.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup

from opbench import __version__
from opbench.cases.marks import DEFINITION
from opbench.cases.saved import Book, SavedCase
from opbench.errors import UsageError
from opbench.models.registry import load_registry
from opbench.sharing.case_data import numbers_of
from opbench.sharing.case_view import case_parts, title_of
from opbench.sharing.html import details_of, embedded_json, environment, facts_of, packaged
from opbench.sharing.visible import visible

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def case_html(case: SavedCase, *, link: str = "", with_texts: bool = False, made: datetime | None = None) -> str:
    """A case as one HTML file.

    `link` is the case's address, `made` when it was exported (default: now). Without `with_texts` the question, the
    memories, the responses and whatever else may quote them are left out, and the file says so.
    """
    return _html([case], None, title_of(case, with_texts), link, with_texts, made)


def book_html(book: Book, *, link: str = "", with_texts: bool = False, made: datetime | None = None) -> str:
    """A book's cases, in its order, as one HTML file; a case that is gone is named as that. Otherwise as `case_html`.

    Raises:
        UsageError: none of its cases is there.
    """
    if not book.cases:
        raise UsageError(f"case book {book.id} '{book.name}' has no case that can be read: there is nothing to export.")
    return _html(book.cases, book, visible(book.name), link, with_texts, made)


def _html(
    cases: Sequence[SavedCase], book: Book | None, title: str, link: str, with_texts: bool, made: datetime | None
) -> str:
    made = made or datetime.now(UTC)
    anchors = {case.id: f"case-{number}" for number, case in enumerate(cases, 1)}
    models = _labels()
    parts = [
        {
            **case_parts(case, anchors[case.id], with_texts, models),
            "provenance": facts_of(_provenance(case)),
            "details": details_of(case.provenance),
        }
        for case in cases
    ]
    data: dict[str, Any] = {
        "title": title,
        "link": link,
        "made": made.isoformat(timespec="seconds"),
        "with_texts": with_texts,
        "cases": [numbers_of(case, with_texts) for case in cases],
    }
    return (
        environment()
        .get_template("case.html.jinja")
        .render(
            title=title,
            marks=[visible(mark) for mark in dict.fromkeys(mark for case in cases for mark in case.marks)],
            link=link if re.match("https?://", link) else "",
            made=made.strftime("%Y-%m-%d %H:%M UTC"),
            version=__version__,
            with_texts=with_texts,
            book=None if book is None else _contents(book, anchors, with_texts),
            cases=parts,
            definition=DEFINITION,
            style=Markup(packaged("view.css") + packaged("case.css")),
            policy=_POLICY,
            data=Markup(embedded_json(data)),
        )
    )


def _provenance(case: SavedCase) -> dict[str, Any]:
    """With the times as people read them."""
    asked = case.provenance.get("asked_at")
    told = {"asked_at": _when(asked)} if isinstance(asked, int | float) else {}
    return {**case.provenance, **told, "saved_at": _when(case.made_at)}


def _when(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (ValueError, OverflowError, OSError):
        return f"{seconds:g}"


def _contents(book: Book, anchors: dict[str, str], with_texts: bool) -> dict[str, Any]:
    return {
        "note": visible(book.note) if with_texts else "",
        "entries": [
            {
                "anchor": anchors.get(entry.id, ""),
                "title": "" if entry.case is None else title_of(entry.case, with_texts),
                "problem": visible(entry.problem or ""),
            }
            for entry in book.entries
        ],
    }


def _labels() -> dict[str, str]:
    """Models' names for people; none where the registry can't be read, since a saved case needs none."""
    try:
        return {name: spec.label for name, spec in load_registry().models.items()}
    except UsageError:
        return {}
