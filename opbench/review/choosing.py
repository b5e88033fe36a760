"""Which item somebody gets next: pure functions over what is free.

Each person's items keep the proportions of users and subtypes that the review has, whoever comes, goes or is slow: next
is the subtype of which they had the smallest share so far, then the user; of several items one that others have begun,
so that pairs of answers are completed early; then the review's own order. One item in `check_every` is a spot check, at
a place that nobody can foresee but the seed.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from opbench.review.spec import Side


@dataclass(frozen=True, slots=True)
class Place:
    """An item as far as giving it out goes: `taken` places are in somebody's hand or answered."""

    item: str
    ordinal: int
    user: str
    subtype: str
    check: bool
    taken: int
    mine: bool
    """Whether the asker has it in hand, answered it, or adjudicated it."""
    given_back: bool = False
    """Whether the asker had it and it went back: offered again when nothing else is left."""


def first_of(seed: int, item: str, reviewer: str) -> Side:
    """Which response stands as A: random by item and reviewer, and the same whenever it is shown again."""
    return "base" if _number(seed, "order", item, reviewer) % 2 else "memory"


def choose(places: Sequence[Place], per_item: int, check_every: int, seed: int, who: str) -> str:
    """The next item for `who`, whose `places` these are as they see them, or "" when nothing is free."""
    given = [place for place in places if place.mine]
    free = [place for place in places if not place.check and not place.mine and place.taken < per_item]
    if not free:
        return ""
    checks = [place for place in places if place.check and not place.mine]
    if checks and _is_check(len(given), check_every, seed, who):
        return min(checks, key=lambda place: _number(seed, "check", place.item, who)).item
    subtypes = Counter(place.subtype for place in places if not place.check)
    users = Counter(place.user for place in places if not place.check)
    of_subtype = Counter(place.subtype for place in given if not place.check)
    of_user = Counter(place.user for place in given if not place.check)
    return min(
        free,
        key=lambda place: (
            place.given_back,
            (of_subtype[place.subtype] + 1) / subtypes[place.subtype],
            (of_user[place.user] + 1) / users[place.user],
            -place.taken,
            place.ordinal,
        ),
    ).item


def _is_check(nth: int, every: int, seed: int, who: str) -> bool:
    block, place = divmod(nth, every)
    return place == _number(seed, "block", str(block), who) % every


def _number(seed: int, *parts: str) -> int:
    told = "\x1f".join((str(seed), *parts))
    return int.from_bytes(hashlib.sha256(told.encode()).digest()[:8], "big")
