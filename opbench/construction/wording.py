"""Filters that look at a question's wording alone: format, length, template redundancy (paper, A.3.1)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from opbench.benchmarks.op_bench import BAITING_KINDS
from opbench.construction.spec import Filters

MEMORY_KINDS = ("fine-grained", "coarse-grained")
_WORD = re.compile(r"\w+(?:['’.,-]\w+)*")
_NUMBERED = re.compile(r"\s*(?:\d{1,3}[.)]|[-*•]|q(?:uestion)?\s*\d*\s*[:.)])\s", re.IGNORECASE)
#: A gap that a generator should have filled: [name], {topic}, <question>, ____.
_GAP = re.compile(r"\[[a-z _]{2,30}\]|\{[a-z _]{2,30}\}|<[a-z_/][a-z _/]{0,28}[a-z_]>|_{3,}", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Question:
    """What the filters look at of a candidate."""

    id: str
    user: str
    """User id."""
    subtype: str
    text: str
    kind: str | None = None
    topic: str | None = None
    falsifies: str | None = None
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Why:
    """Why a question is dropped: a sentence, and the numbers and names that it rests on."""

    reason: str
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Checked:
    """What a model's check found: why the question is dropped (None: it isn't), and the answer as it is kept."""

    why: Why | None
    answer: dict[str, Any]


def words(text: str) -> list[str]:
    """The words of a text, in lower case."""
    return [word.casefold() for word in _WORD.findall(text)]


def bad_format(question: Question) -> Why | None:
    """What of the question's form makes it unusable; None for nothing."""
    text = question.text
    if not any(char.isalpha() for char in text):
        return Why("no letter in it")
    if "\n" in text.strip() or not text.strip().isprintable():
        return Why("more than one line, or signs that can't be shown")
    if found := _NUMBERED.match(text):
        return Why(f"the number or mark of a list before it: {found[0].strip()}", {"found": found[0].strip()})
    if found := _GAP.search(text):
        return Why(f"a gap that wasn't filled in: {found[0]}", {"found": found[0]})
    if question.subtype == "baiting" and question.kind not in BAITING_KINDS:
        return Why(f"no kind of baiting: {question.kind or 'none'}", {"kind": question.kind})
    if question.subtype == "memory" and question.kind not in MEMORY_KINDS:
        return Why(f"neither fine-grained nor coarse-grained: {question.kind or 'none'}", {"kind": question.kind})
    if question.subtype == "memory" and not (question.falsifies or "").strip():
        return Why("the memory that it falsifies isn't told")
    if question.subtype in ("fully-irrelevant", "repetition") and not (question.topic or "").strip():
        return Why("its topic isn't told")
    return None


def bad_length(question: Question, filters: Filters) -> Why | None:
    """Whether the question has too few or too many words; None when it has neither."""
    count = len(words(question.text))
    if count < filters.fewest_words:
        limit = {"fewest": filters.fewest_words}
        return Why(f"{_counted(count)}, fewer than {filters.fewest_words}", {"words": count, **limit})
    if count > filters.most_words:
        return Why(f"{_counted(count)}, more than {filters.most_words}", {"words": count, "most": filters.most_words})
    return None


def template_redundant(questions: Sequence[Question], filters: Filters, settled: int = 0) -> dict[str, Why]:
    """By id, those whose first words too many earlier questions of their subtype have.

    Of a subtype's n questions at most `template_share` · n (and always `template_fewest`) may begin alike; the first
    ones stay, and the first `settled` of `questions` whatever they begin with.
    """
    of_subtype = Counter(question.subtype for question in questions)
    seen: Counter[tuple[str, str]] = Counter()
    found: dict[str, Why] = {}
    for place, question in enumerate(questions):
        n = of_subtype[question.subtype]
        most = max(filters.template_fewest, int(filters.template_share * n + 1e-9))
        beginning = " ".join(words(question.text)[: filters.template_words])
        key = question.subtype, beginning
        if seen[key] >= most and place >= settled:
            found[question.id] = Why(
                f"begins “{beginning} …” as {seen[key]} earlier ones of its subtype do; {most} of {n} may",
                {"beginning": beginning, "earlier": seen[key], "most": most, "of": n},
            )
        else:
            seen[key] += 1
    return found


def _counted(n: int) -> str:
    return "1 word" if n == 1 else f"{n} words"
