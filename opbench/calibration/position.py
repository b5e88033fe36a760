"""Whether a LoCoMo judge minds where in an answer the fact stands, and how long the answer is.

Right and wrong answers are made by rule (`traps.py`) and put among sentences that say nothing. Only the place of the
fact differs between the ones of one length, only the length between those that begin with it; every effect is a paired
difference over the same questions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import pandas as pd

from opbench.analysis.intervals import paired_difference
from opbench.calibration.spec import Rated
from opbench.calibration.traps import another_gold, answerable, rated_answer, spread
from opbench.errors import UsageError
from opbench.store.database import Store
from opbench.store.judgings import save_set
from opbench.types import Corpus

#: Say nothing about anybody, and answer no question.
_FILLER = (
    "Let me think about that for a moment.",
    "I go through what comes to mind in turn.",
    "It is always good to look twice.",
    "One thing often leads to another in such talks.",
    "I try to keep to what was said.",
    "Some details stay with one better than others.",
    "That is how I would put it.",
    "There is surely more that could be told.",
)
_SOME = 4
_SHAPES = {
    "bare": (0, 0),
    "first": (0, _SOME),
    "middle": (_SOME // 2, _SOME // 2),
    "last": (_SOME, 0),
    "long": (0, len(_FILLER)),
}
#: Of effects: what is set against what, and what it means for a judge that minds nothing (0).
EFFECTS = {
    "position: fact last": ("last", "first"),
    "position: fact in the middle": ("middle", "first"),
    f"length: {_SOME} sentences more": ("first", "bare"),
    f"length: {len(_FILLER)} sentences more": ("long", "bare"),
}
COLUMNS = (
    "judging",
    "label",
    "effect",
    "answers",
    "n",
    "missing",
    "with_it",
    "without",
    "difference",
    "low",
    "high",
    "p",
    "note",
)


def bias_set(store: Store, corpus: Corpus, maker: str = "", *, limit: int | None = None) -> str:
    """Keep the set of a corpus (of `limit` questions; None: all) and return its id.

    Raises:
        UsageError: the corpus has no LoCoMo question with a gold answer.
    """
    items = list(_items(corpus, limit))
    if not items:
        raise UsageError("there is no LoCoMo question with a gold answer in these data: nothing to make answers of.")
    source = {"kind": "bias", "data": corpus.source, "sha256": dict(corpus.sha256), "limit": limit}
    return save_set(store, f"answers of several shapes ({corpus.source})", source, items, maker)


def bias(pairs: pd.DataFrame) -> pd.DataFrame:
    """One row a judging, effect and kind of answers (right, wrong): `COLUMNS`. `pairs` is `pairs.paired` of the set.

    n: questions that were judged in both shapes, of those that have them; with_it and without: share accepted in
    percent; difference in points with its 95 % interval over questions (bootstrap-t) and p of no difference. A positive
    one of wrong answers means that more of them pass. A judge that gives no verdict has none, and `note` says so.
    """
    rows = []
    for (judging, label), mine in pairs.groupby(["judging", "label"], sort=False):
        for answers in ("right", "wrong"):
            for effect, (with_it, without) in EFFECTS.items():
                shapes = [mine[mine["kind"] == f"{answers} {shape}"].set_index("pair") for shape in (with_it, without)]
                both = shapes[0].merge(shapes[1], left_index=True, right_index=True, suffixes=("", "_other"))
                planned = len(both)
                both = both[both["value"].notna() & both["value_other"].notna()]
                row = [judging, label, effect, answers, len(both), planned - len(both), *[math.nan] * 6, ""]
                if len(both) and not both["metric"].astype(str).str.endswith("correct").all():
                    row[-1] = f"gives {both['metric'].iloc[0]}, no verdict"
                elif len(both):
                    new, old = (100 * both[name].to_numpy(dtype="float64") for name in ("value", "value_other"))
                    interval = paired_difference(new, old, [str(name) for name in both.index])
                    row[6:9] = [new.mean(), old.mean(), (new - old).mean()]
                    row[9:] = [interval.low, interval.high, interval.p, interval.reason.replace("users", "questions")]
                else:
                    row[-1] = "not judged" if planned else "no such answers in the set"
                rows.append(row)
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    return frame.astype(dict.fromkeys(("with_it", "without", "difference", "low", "high", "p"), "float64"))


def _items(corpus: Corpus, limit: int | None) -> Iterator[Rated]:
    questions = answerable(corpus)
    for place, each in spread(questions, limit):
        facts = {"right": each.answer, "wrong": another_gold(questions, place)}
        for answers, fact in facts.items():
            if fact is None:
                continue
            for shape, (before, after) in _SHAPES.items():
                told = [*_FILLER[:before], f"The answer is: {fact.strip().rstrip('.')}."]
                text = " ".join([*told, *_FILLER[before : before + after]])
                yield rated_answer(each, f"{answers} {shape}", text, 1.0 if answers == "right" else 0.0)
