"""Signs that hide, reorder or steer are written out; all others stay."""

from __future__ import annotations

import pytest

from opbench.sharing.visible import one_line, visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "⟨ESC⟩[31mred⟨ESC⟩[0m"),
        ("\x9b31m", "⟨U+009B⟩31m"),
        ("a\x00b\x07c\x7f", "a⟨NUL⟩b⟨BEL⟩c⟨DEL⟩"),
        ("over\rwritten", "over⟨CR⟩written"),
        ("photo\u202egnp.exe", "photo⟨RLO⟩gnp.exe"),
        ("\u2066a\u2069\u200f", "⟨LRI⟩a⟨PDI⟩⟨RLM⟩"),
        ("pass\u200bword\ufeff\u2060\u00ad", "pass⟨ZWSP⟩word⟨BOM⟩⟨WJ⟩⟨SHY⟩"),
        ("hi\U000e0041\U000e0062", "hi⟨TAG A⟩⟨TAG b⟩"),
        ("\ue000 \ud800", "⟨U+E000⟩ ⟨U+D800⟩"),
        ("a\u2028b", "a⟨LS⟩b"),
    ],
)
def test_what_hides_is_written_out(text: str, shown: str) -> None:
    assert visible(text) == shown


@pytest.mark.parametrize(
    "text", ["one\ntwo\tthree", "<b>&amp; =1+1 **x**", "שלום עולם", "日本語", "naïve café", "❤️ 👩‍👩‍👧 👩🏽‍❤️‍👩"]
)
def test_what_is_seen_stays(text: str) -> None:
    assert visible(text) == text


def test_a_windows_line_end_is_a_line_end() -> None:
    assert visible("a\r\nb") == "a\nb"


def test_a_joiner_between_letters_is_shown() -> None:
    assert visible("a\u200db") == "a⟨ZWJ⟩b"


def test_a_cell_is_one_line_of_the_beginning() -> None:
    assert one_line("  two\n\n words ", 20) == "two words"
    assert one_line("abcdefgh", 5) == "abcd…"
    assert one_line("abcde", 5) == "abcde"
    assert one_line(" " * 30 + "x", 5) == "…"
