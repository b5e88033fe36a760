"""The one parser: every step of it, and what must never pass."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mitigations import Reply
from mitigations.evidence import Evidence
from mitigations.lines import says_nothing
from mitigations.parsing import Parsed, after_last, clean, parse
from tests.mitigations.scripted import STORE

EVIDENCE = Evidence("How does a heat pump work?", STORE)


def read(text: str, threshold: float = 0.6, finish_reason: str = "stop") -> Parsed:
    return parse(Reply(text, finish_reason), EVIDENCE, threshold=threshold)


@pytest.mark.parametrize(
    ("raw", "cleaned"),
    [
        ("<think>Bees? No.</think>\nNONE", "NONE"),
        ("<THINKING>a\nb</THINKING> NONE", "NONE"),
        ("a thought that began in the prompt</think>NONE", "NONE"),
        ("<think>cut off in its thou", ""),
        ("```text\n[2] walnuts\n```", "[2] walnuts"),
        ("**[2]** walnuts", "[2] walnuts"),
        ("*NONE*", "NONE"),
        ("“NONE”", "NONE"),
        ("`NONE`", "NONE"),
        ("[2] Mara’s class", "[2] Mara's class"),
        ("［２］ ｗａｌｎｕｔｓ", "[2] walnuts"),
        ("NO\u200bNE\ufeff", "NONE"),
        ("<memories>\n[2] walnuts\n</memories>", "[2] walnuts"),
        ('"one" and "two"', '"one" and "two"'),
    ],
)
def test_cleaning(raw: str, cleaned: str) -> None:
    assert clean(raw) == cleaned


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("Context: x", "x"),
        ("CONTEXT:\nx", "x"),
        ("**Context:** x", "x"),
        ("**Context**: x", "x"),
        ("### Context\nx", "x"),
        ("3. Context: x", "x"),
        ("(3) context: x", "x"),
        ("Context: a\nContext: x", "x"),
        ("Context matters here", None),
        ("the Context: x", None),
    ],
)
def test_last_label(line: str, found: str | None) -> None:
    assert after_last(line, ("context",)) == found


def test_a_long_rule_is_no_trap_for_the_label_search() -> None:
    assert after_last("- " * 5000 + "#" * 5000, ("context",)) is None


@pytest.mark.parametrize(
    "line",
    [
        "[2] Mara is allergic to walnuts.",
        "- [2] Mara is allergic to walnuts.",
        "* [2]: Mara is allergic to walnuts.",
        "• [2] - Mara is allergic to walnuts.",
        "2. Mara is allergic to walnuts.",
        "2) Mara is allergic to walnuts.",
        "(2) Mara is allergic to walnuts.",
        "M2 Mara is allergic to walnuts.",
        "M2: Mara is allergic to walnuts.",
        "Memory 2: Mara is allergic to walnuts.",
        "[Memory 2] Mara is allergic to walnuts.",
        "1. [2] Mara is allergic to walnuts.",
        "[2] (14 Mar 2024) Mara is allergic to walnuts.",
        "[2] (March 14, 2024) Mara is allergic to walnuts.",
        '[2] "Mara is allergic to walnuts."',
        "Mara is allergic to walnuts. [2]",
        "Mara is allergic to walnuts.",
    ],
)
def test_every_way_to_number_a_line(line: str) -> None:
    (entry,) = read(line).entries
    assert entry.sources == (2,)
    assert entry.aligned
    assert entry.text == "Mara is allergic to walnuts."


@pytest.mark.parametrize(
    ("line", "sources"), [("[3,5] x", (3, 5)), ("[3] [5] x", (3, 5)), ("[2-4] x", (2, 3, 4)), ("[3 and 5]", (3, 5))]
)
def test_several_numbers(line: str, sources: tuple[int, ...]) -> None:
    assert read(line).entries[0].sources == sources


@pytest.mark.parametrize(
    "line", ["[6] Mara likes tea.", "[0] Mara likes tea.", "[17]", "M9: Mara likes tea.", "2024. A year."]
)
def test_numbers_of_no_memory_are_refused(line: str) -> None:
    assert not any(entry.aligned or entry.sources for entry in read(line).entries)


def test_one_number_of_two_is_refused() -> None:
    assert read("[2, 9]").entries[0].sources == (2,)


def test_the_words_win_over_a_wrong_number() -> None:
    assert read("[1] Mara is allergic to walnuts.").entries[0].sources == (2,)
    assert read("1. Mara moved from Ghent to Utrecht.").entries[0].sources == (3,)
    assert read("1. Mara teaches woodworking to teenagers on the roof.").entries[0].sources == (4,)


def test_a_heading_line_is_dropped() -> None:
    parsed = read("Here are the relevant memories:\n[2] Mara is allergic to walnuts.")
    assert [entry.sources for entry in parsed.entries] == [(2,)]


def test_two_numbered_sentences_on_a_line_are_two_lines() -> None:
    parsed = read("[2] Mara is allergic to walnuts. [3] Mara moved from Ghent to Utrecht last weekend.")
    assert [entry.sources for entry in parsed.entries] == [(2,), (3,)]


@pytest.mark.parametrize(
    ("line", "share"),
    [
        ("[2] Mara is allergic to hazelnuts.", 1 / 2),  # allergic; the user's name doesn't count
        ("[3] Mara moved from Ghent to Amsterdam.", 2 / 3),  # moved, Ghent
        ("[1] Mara keeps bees, which is lovely.", 2 / 3),  # keeps, bees
        ("[4,5] Her woodworking class was on Thursdays.", 1.0),
        ("[2] (14 Mar 2024) Mara likes tea.", 0.0),  # the source's own date is no evidence for the rest
        ("[1] The bees moved.", 1 / 2),
    ],
)
def test_share(line: str, share: float) -> None:
    assert read(line).entries[0].share == pytest.approx(share)


@pytest.mark.parametrize("line", ["Walnuts.", "Last weekend.", "In Utrecht, from Ghent.", "On Tuesdays.", "Bees", "2"])
def test_an_unnumbered_fragment_is_an_answer(line: str) -> None:
    assert not any(entry.aligned for entry in read(line).entries)


@pytest.mark.parametrize(
    "text",
    [
        "NONE",
        "none.",
        "None",
        "(None)",
        "[NONE]",
        "- NONE",
        "[]",
        "[ ]",
        "N/A",
        "n/a.",
        "NO RELEVANT CONTEXT",
        "There is no relevant context.",
        "None of the memories are directly relevant to the question.",
        "Nothing here is useful.",
        "No memories were found that are useful for this.",
        "Relevant memories: none",
        "The memories are not relevant to the question.",
        "[1] NONE",
        "NONE\n\nThe question asks about a device and can be answered from general knowledge by anybody at all.",
    ],
)
def test_nothing(text: str) -> None:
    parsed = read(text)
    assert parsed.nothing
    assert not any(entry.aligned for entry in parsed.entries)


@pytest.mark.parametrize(
    "text",
    [
        "No, walnuts are not related to hazelnuts.",
        "Mara has no relatives there.",
        "You have nothing useful to fear.",
        "It is not.",
        "None of this explains the long and winding history of the heat pump, which is of course "
        "a very relevant and useful invention.",
        "Nobody knows.",
        "No.",
        "0",
        "A nonesuch is related to nothing on the list that anybody would ever be willing to call by such a name.",
    ],
)
def test_an_answer_is_not_nothing(text: str) -> None:
    assert not says_nothing(text)


def test_aligned_lines_beat_a_marker() -> None:
    parsed = read("NO RELEVANT CONTEXT\n[2] Mara is allergic to walnuts.")
    assert not parsed.nothing
    assert [entry.sources for entry in parsed.entries if entry.aligned] == [(2,)]


@pytest.mark.parametrize("text", ["", "  \n ", "```\n```", '""', "<think>only thoughts</think>"])
def test_blank(text: str) -> None:
    parsed = read(text)
    assert parsed.problem == "blank reply"
    assert parsed.counts["blank"] == 1
    assert not parsed.nothing


def test_a_reply_cut_by_the_limit_keeps_its_complete_lines() -> None:
    parsed = read("[2] Mara is allergic to walnuts.\n[3] Mara moved from Gh", finish_reason="length")
    assert [entry.sources for entry in parsed.entries] == [(2,)]
    assert parsed.counts["truncated"] == 1


def test_a_reply_cut_in_its_first_line_is_a_problem() -> None:
    parsed = read("[2] Mara is aller", finish_reason="length")
    assert parsed.problem is not None
    assert not parsed.entries


def test_numbers_that_count_an_answers_steps_are_no_sources() -> None:
    steps = "It takes heat from the air.", "A compressor raises the pressure.", "The heat goes into water."
    for form in ("{}. {}", "[{}] {}"):
        text = "\n".join(form.format(place, step) for place, step in enumerate(steps, start=1))
        assert not any(entry.aligned or entry.cited for entry in read(text).entries)


@given(st.text(max_size=300), st.sampled_from(["stop", "length", "content_filter"]))
def test_any_text_can_be_read(text: str, finish_reason: str) -> None:
    parsed = read(text, finish_reason=finish_reason)
    for entry in parsed.entries:
        assert all(1 <= number <= len(STORE) for number in entry.sources)
        assert not entry.aligned or entry.share >= 0.6 or not entry.text or entry.whole


@given(st.integers(min_value=-999, max_value=999).filter(lambda number: not 1 <= number <= len(STORE)))
def test_no_number_outside_the_memories_is_read(number: int) -> None:
    for form in (f"[{number}]", f"[{number}] text", f"({number}) text", f"{number}. text", f"M{number} text"):
        assert all(not entry.sources for entry in read(form).entries)


@given(st.lists(st.text(alphabet=string.ascii_lowercase, min_size=9, max_size=12), min_size=1, max_size=12))
def test_made_up_words_never_align(words: list[str]) -> None:
    assert not any(entry.aligned for entry in read(" ".join(words)).entries)
