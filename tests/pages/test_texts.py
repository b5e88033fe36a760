"""Text as Markdown that shows it as it is, with differing words marked."""

from __future__ import annotations

import pytest

from opbench.analysis.words import word_marks
from pages.shared import parts
from pages.shared.texts import marked

JOINER = "\u2060"


def shown(text: str) -> str:
    """What Markdown makes of it: escapes undone, joiners unseen."""
    return marked([(text, False)]).replace("\\", "").replace(JOINER, "").replace("  \n", "\n")


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script> ![p](http://example.invalid/p.png) **b** `c` $x$",
        ":material/skull: :smile: :red[r] a -> b <= c",
        "# no heading\n- no list\n1. none either\n> no quote\n| no | table |",
        "line\n\n\nline",
    ],
)
def test_every_sign_is_shown(text: str) -> None:
    assert shown(text) == text


@pytest.mark.parametrize("text", [":material/skull:", ":smile:", ":+1:", "a -> b", "http://x.y", "www.x.y", "a@b.c"])
def test_what_markdown_replaces_even_when_escaped_is_kept_apart(text: str) -> None:
    assert JOINER in marked([(text, False)])


@pytest.mark.parametrize("text", [":material/skull:", ":smile:", ":streamlit:"])
def test_plain_text_makes_no_icon(text: str) -> None:
    assert parts.plain(text).replace("\\", "").startswith(f":{JOINER}")


def test_times_and_ratios_are_left_alone() -> None:
    assert JOINER not in parts.plain("12:30:45, 3:1, note: this")


def test_a_mark_has_a_colour_and_is_bold_line_by_line() -> None:
    runs = word_marks("one *two*\nthree four", "one five\nsix four")[0]
    assert marked(runs) == "one :violet-background[**\\*two\\***]  \n:violet-background[**three**] four"


def test_a_line_does_not_become_code_by_its_indent() -> None:
    assert marked([("    indented", False)]) == " indented"
