"""Whether a false memory turns out to be true: the model is shown what of the history is most like the question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from opbench.construction.asking import Shape, Wrong
from opbench.construction.people import Fact
from opbench.construction.prompting import Prompt, load_prompt
from opbench.construction.wording import Checked, Question, Why
from opbench.judges.words import content
from opbench.models.embeddings import Vectors
from opbench.types import Conversation, Message

PROMPT = "check_memory"
#: Lines of the history that are most like the question, beside those that the false memory was made from.
SHOWN = 10
_NONE = "none"
_VERDICTS = ("false", "untold", "true")
#: Signs of a line that are shown, and that are embedded.
_LONGEST_LINE = 400


@dataclass(frozen=True, slots=True)
class Line:
    """A turn of the history, or an observation noted down from it."""

    id: str
    """The turn's id, or of an observation the ids of the turns that it rests on; may be empty."""
    date: str
    """Of the session, such as `8 May 2023`; empty when it isn't known."""
    text: str
    turns: frozenset[str]

    @property
    def shown(self) -> str:
        return f"({self.date}) {self.text}" if self.date else self.text


@dataclass(frozen=True, slots=True)
class History:
    """A conversation's lines with their vectors, in the order of time."""

    lines: tuple[Line, ...]
    vectors: Vectors

    def around(self, question: Question, vector: np.ndarray) -> list[Line]:
        """The `SHOWN` lines most like the question and those that its false memory was made from, in order."""
        cosines = self.vectors @ vector
        nearest = np.argsort(-cosines, kind="stable")[:SHOWN]
        evidence = set(question.evidence)
        of_memory = [
            place
            for place, line in enumerate(self.lines)
            if line.text == _flat(question.falsifies or "") or (len(line.turns) == 1 and line.turns <= evidence)
        ]
        return [self.lines[place] for place in sorted({*map(int, nearest), *of_memory})]


def lines_of(conversation: Conversation, facts: Sequence[Fact]) -> tuple[Line, ...]:
    """All turns of a conversation and what was noted of a user, in the order of time; of a session the turns first.
    Facts that rest on no turn come last, without a date."""
    found: list[Line] = []
    placed: set[int] = set()
    for session in conversation.sessions:
        turns = {turn.id for turn in session.turns}
        for turn in session.turns:
            text = f"{turn.speaker}: {_flat(turn.text)}"[:_LONGEST_LINE]
            found.append(Line(turn.id, session.day, text, frozenset((turn.id,))))
        for number, fact in enumerate(facts):
            if fact.evidence and fact.evidence[0] in turns:
                placed.add(number)
                found.append(_noted(fact, session.day))
    return (*found, *(_noted(fact, "") for number, fact in enumerate(facts) if number not in placed))


def _noted(fact: Fact, date: str) -> Line:
    return Line(", ".join(fact.evidence), date, _flat(fact.text)[:_LONGEST_LINE], frozenset(fact.evidence))


def _flat(text: str) -> str:
    return " ".join(text.split())


def prompt() -> Prompt:
    return load_prompt(PROMPT)


def messages(question: Question, speaker: str, lines: Sequence[Line]) -> tuple[Message, ...]:
    """What the checker is asked; lines are labelled from 1."""
    listed = "\n".join(f"[{number}] {line.shown}" for number, line in enumerate(lines, start=1))
    return prompt().messages(
        {
            "speaker": speaker,
            "question": question.text,
            "falsifies": question.falsifies or "(nothing)",
            "lines": listed or "(none)",
        }
    )


def shape(n_lines: int) -> Shape:
    """The answer to `messages` with so many lines."""
    labels = [*(str(number) for number in range(1, n_lines + 1)), _NONE]
    properties = {"line": {"type": "string", "enum": labels}, "verdict": {"type": "string", "enum": list(_VERDICTS)}}
    return Shape(
        "check",
        {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False},
    )


def read(value: Any, question: Question, lines: Sequence[Line]) -> Checked:
    """Dropped when its memory is true; not when it is false, as it should be, or isn't told.

    A verdict of "true" isn't believed when the line that it names has no content word of the question: weak models say
    "true" to everything, and a question that is kept wrongly is seen by people, one that is dropped wrongly isn't.

    Raises:
        Wrong: no verdict, or one of "true" that names no line.
    """
    verdict = str(value.get("verdict", "")).strip().lower()
    if verdict not in _VERDICTS:
        raise Wrong(f'"verdict" must be one of {", ".join(_VERDICTS)}')
    label = str(value.get("line", "")).strip().strip("[]")
    line = lines[int(label) - 1] if label.isascii() and label.isdigit() and 1 <= int(label) <= len(lines) else None
    answer = {"verdict": verdict, "line": None if line is None else line.text}
    if verdict != "true":
        return Checked(None, answer)
    if line is None:
        raise Wrong('a verdict of "true" needs the label of the line that says so as "line"')
    if not content(question.text) & content(line.text):
        return Checked(None, {**answer, "believed": False})
    where = ", ".join(part for part in (line.id, line.date) if part)
    details = {"memory": line.text, "turns": sorted(line.turns), "date": line.date}
    return Checked(Why(f"true after all: “{line.text}”" + (f" ({where})" if where else ""), details), answer)
