"""How often a LoCoMo judge accepts answers that are wrong on purpose, by how they are wrong.

The answers are made by rule from the gold answers of a corpus, so that nobody has to say which are wrong. Every
question also has a right answer, without which a judge that refuses everything would look careful.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

import pandas as pd

from opbench.analysis.generators import wilson
from opbench.calibration.spec import Rated, Response
from opbench.errors import UsageError
from opbench.judges.locomo import token_f1
from opbench.store.database import Store
from opbench.store.judgings import save_set
from opbench.types import Corpus, Instance

RIGHT = "right"
#: How an answer is wrong.
KINDS = {
    RIGHT: "the gold answer in a sentence (should be accepted)",
    "another": "the gold answer of another question of the category",
    "other person": "the gold answer of a question about the other person",
    "near": "the right kind of answer with a date or number that is off by one",
    "part": "the first of several things that the gold answer names",
    "negated": "says that the gold answer isn't the answer",
    "taken back": "names the gold answer and then another one instead",
    "candidates": "names the gold answer among others without choosing",
    "topic": "speaks of what was asked without answering it",
    "vague": "an answer so wide that it always fits",
    "missing": "says that nothing of it is known",
}
#: What people would say: known by construction, and told as such.
BY_RULE = "by construction"
#: Golds that share more than this with another answer aren't told apart by it.
_ALIKE = 0.3
_FEWEST = 5
_MONTHS = (
    "January February March April May June July August September October November December".split()  # noqa: SIM905
)
_NUMBERS = (
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen".split()  # noqa: SIM905
)
_VAGUE = {
    "temporal": "It was at some point during the time that they were in touch.",
    "open-domain": "That depends on many things, and one could well see it in one way or in the other.",
}
COLUMNS = ("judging", "label", "kind", "wrong", "answers", "n", "missing", "accepted", "rate", "low", "high", "note")


def traps_set(store: Store, corpus: Corpus, maker: str = "", *, limit: int | None = None) -> str:
    """Keep the set of a corpus (of `limit` questions; None: all) and return its id.

    Raises:
        UsageError: the corpus has no LoCoMo question with a gold answer.
    """
    items = traps(corpus, limit)
    if not items:
        raise UsageError("there is no LoCoMo question with a gold answer in these data: nothing to make traps of.")
    source = {"kind": "traps", "data": corpus.source, "sha256": dict(corpus.sha256), "limit": limit}
    return save_set(store, f"wrong answers on purpose ({corpus.source})", source, items, maker)


def traps(corpus: Corpus, limit: int | None = None) -> list[Rated]:
    """A right answer to each LoCoMo question (to `limit` of them, evenly spread) and wrong ones of every kind that its
    gold answer allows, in order."""
    questions = answerable(corpus)
    found = []
    for place, each in spread(questions, limit):
        others = _others(questions, place)
        for kind, text in _answers(each, others, corpus):
            found.append(rated_answer(each, kind, text, 1.0 if kind == RIGHT else 0.0))
    return found


def answerable(corpus: Corpus) -> list[Instance]:
    """Questions with a gold answer: categories 1 to 4."""
    return [each for each in corpus.locomo if each.answer and each.subtype != "adversarial"]


def spread(questions: Sequence[Instance], limit: int | None) -> list[tuple[int, Instance]]:
    """So many of the questions (None: all), evenly spread over them, each with its place."""
    n = len(questions) if limit is None else min(limit, len(questions))
    places = [round(step * len(questions) / n) for step in range(n)]
    return [(place, questions[place]) for place in places]


def rated_answer(instance: Instance, kind: str, text: str, truth: float) -> Rated:
    """An answer made by rule, whose score is known."""
    response = Response(
        question=instance.question,
        response=text,
        benchmark="locomo",
        subtype=instance.subtype,
        user=instance.user.id,
        gold=instance.answer or "",
        kind=kind,
        pair=instance.id,
    )
    return Rated(item=f"{kind}|{instance.id}", response=response, human=((BY_RULE, truth),))


def another_gold(questions: Sequence[Instance], place: int) -> str | None:
    """The gold answer of the next question of the same category that has a clearly different one."""
    return next((each.answer for each in _others(questions, place)), None)


def acceptance(pairs: pd.DataFrame) -> pd.DataFrame:
    """One row a judging and kind: `COLUMNS`. `pairs` is `pairs.paired` of a traps set.

    answers: in the set; n: judged, of which `accepted` (with repeats each answer counts by the share of them that
    accept it); rate in percent with Wilson's 95 % interval over answers, each being to another question; NaN with fewer
    than 5, or for a judge that gives no verdict, and `note` says so. A rate of what is `wrong` should be 0.
    """
    rows = []
    for (judging, label), mine in pairs.groupby(["judging", "label"], sort=False):
        for kind in [each for each in KINDS if each in set(mine["kind"])]:
            part = mine[mine["kind"] == kind]
            judged = part[part["value"].notna()]
            verdicts = judged["metric"].astype(str).str.endswith("correct")
            n, accepted = len(judged), float(judged["value"].sum())
            note, rate, low, high = "", math.nan, math.nan, math.nan
            if n and not verdicts.all():
                note = f"gives {judged['metric'].iloc[0]}, no verdict"
            elif n:
                rate = 100 * accepted / n
                if n < _FEWEST:
                    note = f"{n} answers, an interval needs {_FEWEST}"
                else:
                    low, high = (100 * end for end in wilson(accepted / n, n))
            else:
                note = str(part["reason"].iloc[0])
            known = math.nan if math.isnan(rate) else accepted
            head = (judging, label, kind, kind != RIGHT, len(part), n, len(part) - n)
            rows.append((*head, known, rate, low, high, note))
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    return frame.astype(dict.fromkeys(("accepted", "rate", "low", "high"), "float64"))


def _others(questions: Sequence[Instance], place: int) -> list[Instance]:
    """Questions of the same category with clearly different gold answers, the following ones first."""
    mine = questions[place]
    turned = [*questions[place + 1 :], *questions[:place]]
    return [
        each
        for each in turned
        if each.subtype == mine.subtype and token_f1(each.answer or "", mine.answer or "") <= _ALIKE
    ]


def _answers(mine: Instance, others: Sequence[Instance], corpus: Corpus) -> Iterator[tuple[str, str]]:
    gold = (mine.answer or "").strip().rstrip(".")
    golds = list(dict.fromkeys((each.answer or "").strip().rstrip(".") for each in others))
    yield RIGHT, _said(gold)
    if golds:
        yield "another", _said(golds[0])
    if other := _of_other_person(mine, others, corpus):
        yield "other person", _said(other)
    for kind, change in (("near", _off_by_one), ("part", _first_part)):
        if changed := change(gold):
            yield kind, _said(changed)
    yield "negated", f"I am sure of one thing only: it is not “{gold}”."
    if golds:
        yield "taken back", f"First I thought of “{gold}”, but that is wrong. The answer is: {golds[0]}."
    if len(golds) > 1:
        yield "candidates", f"It may be any of these, I can't say which: “{golds[0]}”, “{gold}” or “{golds[1]}”."
    asked = mine.question.strip().rstrip("?")
    yield "topic", f"As to “{asked}”: they came back to this more than once, and it meant a lot to both of them."
    yield "vague", _VAGUE.get(mine.subtype, "It was one of the things that they had told each other of.")
    yield "missing", "There is nothing about that in what I remember of their conversations."


def _said(answer: str) -> str:
    return f"As far as I remember: {answer}."


def _of_other_person(mine: Instance, others: Sequence[Instance], corpus: Corpus) -> str | None:
    """The gold answer of a question that names the other speaker only; None where this one doesn't name just one."""

    def named(instance: Instance) -> set[str]:
        speakers = corpus.conversations[instance.user.conversation].speakers
        return {name for name in speakers if re.search(rf"\b{re.escape(name)}\b", instance.question)}

    own = named(mine)
    if len(own) != 1:
        return None
    fitting = (
        each.answer
        for each in others
        if each.user.conversation == mine.user.conversation and len(named(each)) == 1 and named(each) != own
    )
    found = next(fitting, None)
    return None if found is None else found.strip().rstrip(".")


def _off_by_one(gold: str) -> str | None:
    """With its first date or number changed: the month after, else the number one higher. None without any."""
    month = re.search(rf"\b({'|'.join(_MONTHS)})\b", gold)
    if month:
        after = _MONTHS[(_MONTHS.index(month[1]) + 1) % 12]
        return gold[: month.start()] + after + gold[month.end() :]
    figure = re.search(r"\d[\d,]*", gold)
    if figure:
        raised = int(figure[0].replace(",", "")) + 1
        return gold[: figure.start()] + (f"{raised:,}" if "," in figure[0] else str(raised)) + gold[figure.end() :]
    word = re.search(rf"\b({'|'.join(_NUMBERS[:-1])})\b", gold, re.IGNORECASE)
    if word:
        return gold[: word.start()] + _NUMBERS[_NUMBERS.index(word[1].lower()) + 1] + gold[word.end() :]
    return None


def _first_part(gold: str) -> str | None:
    """The first of the things that the answer names; None where it names one, or gives its reason behind a colon."""
    parts = re.split(r",\s+(?:and\s+|then\s+)?|\s+and\s+", gold)
    return (
        parts[0] if len(parts) > 1 and ":" not in gold and not re.search(r"\d{4}|\b(?:because|since)\b", gold) else None
    )
