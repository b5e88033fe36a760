"""What the checks read out of a model's answers, and which lines of a history a memory is compared with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opbench.construction import needs, truths
from opbench.construction.asking import Wrong
from opbench.construction.loading import read_source
from opbench.construction.people import Fact
from opbench.construction.truths import History, Line
from opbench.construction.wording import Question

KITE = Question("c1", "c/Wanda", "memory", "Remember that my kites went up in May?")
LINES = (
    Line("D1:1", "1 May 2024", "Wanda: The kite is up.", frozenset({"D1:1"})),
    Line("D1:1, D1:4", "1 May 2024", "Wanda flies kites.", frozenset({"D1:1", "D1:4"})),
)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"line": "1", "verdict": "false"}, None),
        ({"line": "none", "verdict": "untold"}, None),
        ({"line": "1", "verdict": "true"}, "true after all: “Wanda: The kite is up.” (D1:1, 1 May 2024)"),
        ({"line": " [2] ", "verdict": "TRUE"}, "true after all: “Wanda flies kites.” (D1:1, D1:4, 1 May 2024)"),
    ],
)
def test_a_true_memory_names_the_line_that_makes_it_true(answer: dict[str, Any], reason: str | None) -> None:
    why = truths.read(answer, KITE, LINES).why
    assert (None if why is None else why.reason) == reason


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"line": "1", "verdict": "maybe"},
        {"line": "none", "verdict": "true"},
        {"line": "3", "verdict": "true"},
        {"line": "0", "verdict": "true"},
        {"line": None, "verdict": "true"},
        {"line": "²", "verdict": "true"},
    ],
)
def test_a_verdict_that_rests_on_nothing_is_wrong(answer: dict[str, Any]) -> None:
    with pytest.raises(Wrong):
        truths.read(answer, KITE, LINES)


def test_what_a_true_memory_rests_on_is_kept() -> None:
    why = truths.read({"line": "2", "verdict": "true"}, KITE, LINES).why
    assert why is not None
    assert why.details == {"memory": "Wanda flies kites.", "turns": ["D1:1", "D1:4"], "date": "1 May 2024"}


def test_true_is_not_believed_of_a_line_that_has_nothing_of_the_question() -> None:
    other = Question("c1", "c/Wanda", "memory", "Do you remember that I wanted to see Norway?")
    checked = truths.read({"line": "1", "verdict": "true"}, other, LINES)
    assert checked.why is None
    assert checked.answer == {"verdict": "true", "line": "Wanda: The kite is up.", "believed": False}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"missing": "nothing", "verdict": "general"}, None),
        ({"missing": "their diet", "verdict": "general"}, None),
        ({"missing": "their  diet", "verdict": "personal"}, "needs personalisation after all: their diet"),
        ({"missing": "Nothing", "verdict": "personal"}, "needs personalisation after all"),
        ({"verdict": "personal"}, "needs personalisation after all"),
    ],
)
def test_a_personal_question_tells_what_it_would_need(answer: dict[str, Any], reason: str | None) -> None:
    why = needs.read(answer).why
    assert (None if why is None else why.reason) == reason


def test_no_verdict_is_wrong() -> None:
    with pytest.raises(Wrong):
        needs.read({"missing": "nothing"})


def test_a_history_holds_the_turns_and_what_was_noted_of_the_user_in_order() -> None:
    conversation = read_source("sample").conversations["sample-1"]
    first, second = conversation.sessions[:2]
    facts = (Fact("Late.", (second.turns[0].id,)), Fact("Nowhere.", ()), Fact("Early.", (first.turns[2].id, "D9:1")))
    lines = truths.lines_of(conversation, facts)
    texts = [line.text for line in lines]
    assert len(lines) == sum(len(session.turns) for session in conversation.sessions) + 3
    n, m = len(first.turns), len(second.turns)
    assert texts[n] == "Early."
    assert texts[n + 1 + m] == "Late."
    assert texts[-1] == "Nowhere."
    assert (lines[0].id, lines[0].date) == ("D1:1", "14 January 2024")
    assert lines[-1].shown == "Nowhere."


def test_a_question_is_compared_with_the_likest_lines_and_those_that_its_memory_was_made_from() -> None:
    lines = [Line(f"D1:{n}", "1 May 2024", f"line {n}", frozenset({f"D1:{n}"})) for n in range(30)]
    lines.append(Line("D1:3, D1:5", "1 May 2024", "the observation", frozenset({"D1:3", "D1:5"})))
    # Line n lies at n degrees, the question at 0: the ten likest are 0 to 9.
    angles = np.radians([*range(30), 90.0])
    history = History(tuple(lines), np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32))
    question = Question("c1", "c/U", "memory", "?", falsifies="the  observation", evidence=("D1:20", "D1:3"))
    shown = history.around(question, np.array([1.0, 0.0], dtype=np.float32))
    assert [line.id for line in shown] == [*(f"D1:{n}" for n in range(10)), "D1:20", "D1:3, D1:5"]
