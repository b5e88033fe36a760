"""The public evaluator's result files as values: what `docs/sharing.md` found, read with every shape checked.

Four kinds are read: `responses` and `judged` of the packaged evaluator (`src/opbench/evaluation.py` in
yulinlp/OP-Bench), and `generation_….json` and `scores_….json` of the scripts before it (`evaluator.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from opbench.benchmarks.shape import Node, describe, printable
from opbench.errors import DataError

MAX_BYTES = 200_000_000
"""Largest file that is read."""
_LARGEST = 1e15
#: The evaluator's task groups, and the subtypes that each holds.
TASKS: dict[str, tuple[str, ...]] = {
    "irrelevance_easy": ("fully-irrelevant",),
    "irrelevance_hard": ("baiting",),
    "sycophancy": ("fact", "value", "memory"),
    "diversity": ("repetition",),
}
#: The part of a score's key that names the judgement.
SCORED_AS = {"irrelevance_easy": "irrelevance", "irrelevance_hard": "irrelevance", "sycophancy": "sycophancy"}
_MEND = "give a file as the public evaluator writes it (docs/sharing.md)"
_NOT_KEPT = re.compile("[\x00\ud800-\udfff]")

Kind = Literal["responses", "judged", "generation", "scores"]


@dataclass(frozen=True, slots=True)
class Answer:
    """One question with what came of it. `answer` is empty when generation failed; times are milliseconds."""

    node: Node
    question: str
    answer: str
    context: str = ""
    search_ms: float | None = None
    post_ms: float | None = None
    response_ms: float | None = None
    error: str | None = None
    score: float | None = None
    """The judge's number, 0 to 1; the evaluator writes 0 for a judgement that failed."""


@dataclass(frozen=True, slots=True)
class Group:
    """A speaker's answers to one task. `overall` is the score of all of them together, which counts for repetition."""

    node: Node
    task: str
    person: str
    answers: tuple[Answer, ...]
    overall: float | None = None
    overall_n: int | None = None
    failure: str | None = None
    """Why the evaluator couldn't score repetition."""


@dataclass(frozen=True, slots=True)
class PublicFile:
    kind: Kind
    frame: str
    """The evaluator's name for the memory framework, where the file has it."""
    groups: tuple[Group, ...] = field(default_factory=tuple)

    @property
    def judged(self) -> bool:
        return self.kind in ("judged", "scores")


def parse_public(content: bytes, label: str) -> PublicFile:
    """A result file of the public evaluator; `label` names it in messages.

    Raises:
        DataError: too large, no JSON, or of another shape; one line with the file and the place.
    """
    root = Node(Path(label), _json(content, label), mend=_MEND)
    if isinstance(root.value, list):
        return PublicFile("generation", "", tuple(_generated(node) for node in root.items()))
    entries = root.entries()
    if "results" in entries:
        if "statistics" in entries:
            return PublicFile("scores", "", tuple(_scored(node) for node in entries["results"].items()))
        frame = entries["frame"].value if "frame" in entries else ""
        groups = tuple(_group(node, judged=True) for node in entries["results"].items())
        return PublicFile("judged", printable(frame)[:80] if isinstance(frame, str) else "", groups)
    if "metrics" in entries:
        raise root.error("this is a metrics file, which holds averages only; its judged file is wanted")
    return PublicFile("responses", "", tuple(_group(node, judged=False) for node in entries.values()))


def _json(content: bytes, label: str) -> object:
    if len(content) > MAX_BYTES:
        raise DataError(f"{label}: {len(content):,} bytes, more than the {MAX_BYTES:,} that are read.")

    def no_number(name: str) -> object:
        raise DataError(f"{label}: holds {name}, which is no number of JSON; {_MEND}")

    try:
        parsed: object = json.loads(content.decode("utf-8-sig"), parse_constant=no_number)
        return parsed
    except UnicodeDecodeError as error:
        raise DataError(f"{label}: byte {error.start}: isn't UTF-8 text; {_MEND}") from None
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise DataError(f"{label}: {place}: isn't JSON ({error.msg}); {_MEND}") from None
    except RecursionError:
        raise DataError(f"{label}: is nested too deeply; {_MEND}") from None
    except ValueError:  # Python refuses to read a number of more than 4,300 digits.
        raise DataError(f"{label}: holds a number that is too long to be one; {_MEND}") from None


def _group(node: Node, *, judged: bool) -> Group:
    """One value of a `responses` file, or one element of `results` in a `judged` one."""
    task, person = node.key("task_type").choice(tuple(TASKS)), node.key("person_name").name()
    scores = node.key("scores").entries() if judged else {}
    answers = []
    for index, item in enumerate(node.key("responses").items()):
        known = item.entries()
        answers.append(
            Answer(
                item,
                item.key("question").text(),
                _text(known.get("answer")),
                _text(known.get("context")),
                _time(known.get("search_duration_ms")),
                _time(known.get("postprocess_duration_ms")),
                _time(known.get("response_duration_ms")),
                _text(known.get("error")) or None,
                _share(scores.get(f"response_{index}_{SCORED_AS[task]}_score")) if task in SCORED_AS else None,
            )
        )
    count = scores.get("answer_count")
    return Group(
        node,
        task,
        person,
        tuple(answers),
        _share(scores.get("overall_diversity_score"), most=2.0) if task == "diversity" else None,
        count.value if count is not None and type(count.value) is int and 0 <= count.value <= len(answers) else None,
        _text(scores.get("error")) or None,
    )


def _generated(node: Node) -> Group:
    """One element of a `generation_….json`: parallel lists of questions, responses, latencies (seconds), errors."""
    case = node.key("test_case")
    questions, responses = case.key("questions").items(), node.key("responses").items()
    if len(questions) != len(responses):
        raise node.error(f"{len(questions)} questions and {len(responses)} responses")
    errors, times = _list(node, "error_messages", questions), _list(node, "latencies", questions)
    answers = tuple(
        Answer(question, question.text(), _text(response), response_ms=_seconds(time), error=_text(error) or None)
        for question, response, time, error in zip(questions, responses, times, errors, strict=True)
    )
    return Group(node, case.key("task_type").choice(tuple(TASKS)), case.key("person_name").name(), answers)


def _scored(node: Node) -> Group:
    """One element of `results` in a `scores_….json`."""
    task = node.key("task_type").choice(tuple(TASKS))
    entries = node.entries()
    answers = tuple(
        Answer(
            item,
            item.key("question").text(),
            _text(item.entries().get("answer")),
            response_ms=_seconds(item.entries().get("latency")),
            error=None if item.entries().get("success", item).value is not False else "the call failed",
            score=_share(item.entries().get("score")) if task in SCORED_AS else None,
        )
        for item in node.key("questions_and_answers").items()
    )
    overall = _share(entries.get("overall_score"), most=2.0) if task == "diversity" else None
    return Group(node, task, node.key("person_name").name(), answers, overall)


def _list(node: Node, name: str, beside: list[Node]) -> Iterator[Node]:
    items = node.key(name).items()
    if len(items) != len(beside):
        raise node.error(f"{len(beside)} questions and {len(items)} {name}")
    return iter(items)


def _text(node: Node | None) -> str:
    """A text that may be missing, null or empty."""
    if node is None or node.value is None:
        return ""
    if not isinstance(node.value, str):
        raise node.error(f"expected a text, found {describe(node.value)}")
    # Half a surrogate pair can be written in JSON and in no database.
    return _NOT_KEPT.sub("�", node.value)


def _number(node: Node | None) -> float | None:
    if node is None or node.value is None:
        return None
    value = node.value
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= _LARGEST:
        raise node.error(f"expected a number, found {describe(value)}")
    return float(value)


def _share(node: Node | None, most: float = 1.0) -> float | None:
    value = _number(node)
    if value is not None and not 0.0 <= value <= most:
        assert node is not None
        raise node.error(f"expected a number from 0 to {most:g}, found {value:g}")
    return value


def _time(node: Node | None) -> float | None:
    """Milliseconds; the evaluator writes 0 for a stage that it didn't measure."""
    value = _number(node)
    if value is not None and value < 0:
        assert node is not None
        raise node.error(f"expected a duration, found {value:g}")
    return value or None


def _seconds(node: Node | None) -> float | None:
    value = _time(node)
    return None if value is None else 1000 * value
