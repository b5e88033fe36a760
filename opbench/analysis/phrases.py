"""Phrases of paired responses counted by user, with where they may come from: the memories or the question."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from opbench.analysis.grids import KEY, Key
from opbench.analysis.intervals import Floats
from opbench.analysis.tokens import ngrams
from opbench.study import BASE


@dataclass(frozen=True)
class _Response:
    user: int
    text: str
    memories: str
    question: str


@dataclass(frozen=True)
class Sides:
    users: int
    with_: list[_Response]
    without: list[_Response]
    both_saw: bool
    """Whether the second side saw memories too, its own; of BASE, which sees none, they are the first side's."""


@dataclass(frozen=True)
class Counts:
    """Of one phrase length. Arrays are users × words unless they say otherwise; 0 is with memory, 1 without."""

    order: int
    words: list[str]
    counts: tuple[Floats, Floats]
    totals: tuple[Floats, Floats]
    """By user, of all words."""
    responses: tuple[Floats, Floats]
    """By word."""
    in_memories: tuple[Floats, Floats]
    """Occurrences by word, like the two after it."""
    in_question: tuple[Floats, Floats]
    in_either: tuple[Floats, Floats]
    both_saw: bool
    """As `Sides.both_saw`."""

    @property
    def pooled(self) -> Floats:
        total: Floats = (self.counts[0] + self.counts[1]).sum(axis=0)
        return total


def of_configuration(texts: pd.DataFrame, key: Key) -> pd.DataFrame:
    return texts[(texts[KEY] == list(key)).all(axis=1)]


def paired(texts: pd.DataFrame, key: Key, against: Key) -> Sides:
    with_, without = (of_configuration(texts, each).set_index("instance") for each in (key, against))
    both = [name for name in with_.index if name in without.index]
    with_, without = with_.loc[both], without.loc[both]
    owner, users = pd.factorize(with_["user"])
    both_saw = against[1] != BASE

    def responses(side: pd.DataFrame, seeing: pd.DataFrame) -> list[_Response]:
        memories = ["\n".join(_texts(each)) for each in seeing["retrieved"]]
        rows = zip(owner, side["response"], memories, side["question"], strict=True)
        return [_Response(int(user), text, seen, question or "") for user, text, seen, question in rows]

    return Sides(len(users), responses(with_, with_), responses(without, without if both_saw else with_), both_saw)


def _texts(retrieved: Iterable[Mapping[str, Any]] | None) -> list[str]:
    return [str(each["text"]) for each in retrieved or ()]


def counted(sides: Sides, order: int) -> Counts:
    at: dict[str, int] = {}
    both = [_entries(side, order, at) for side in (sides.with_, sides.without)]
    size = len(at)

    def by_word(entries: _Entries, weights: npt.NDArray[Any]) -> Floats:
        return np.bincount(entries.word, weights=weights, minlength=size).astype(np.float64)

    def pair(weights: Sequence[npt.NDArray[Any]]) -> tuple[Floats, Floats]:
        return by_word(both[0], weights[0]), by_word(both[1], weights[1])

    def by_user(entries: _Entries) -> Floats:
        places = entries.user * size + entries.word
        flat = np.bincount(places, weights=entries.count, minlength=sides.users * size)
        return flat.reshape(sides.users, size).astype(np.float64)

    counts = by_user(both[0]), by_user(both[1])
    return Counts(
        order,
        list(at),
        counts,
        (counts[0].sum(axis=1), counts[1].sum(axis=1)),
        pair([np.ones(len(each.word)) for each in both]),
        pair([each.count * each.in_memories for each in both]),
        pair([each.count * each.in_question for each in both]),
        pair([each.count * (each.in_memories | each.in_question) for each in both]),
        sides.both_saw,
    )


@dataclass(frozen=True)
class _Entries:
    """A place for each phrase of each response."""

    user: npt.NDArray[np.int64]
    word: npt.NDArray[np.int64]
    count: npt.NDArray[np.int64]
    in_memories: npt.NDArray[np.int64]
    in_question: npt.NDArray[np.int64]


def _entries(responses: Sequence[_Response], order: int, at: dict[str, int]) -> _Entries:
    rows: list[tuple[int, int, int, int, int]] = []
    for each in responses:
        memories, question = ngrams(each.memories, order), ngrams(each.question, order)
        for word, count in ngrams(each.text, order).items():
            place = at.setdefault(word, len(at))
            rows.append((each.user, place, count, int(word in memories), int(word in question)))
    return _Entries(*np.array(rows, dtype=np.int64).reshape(-1, 5).T)
