"""Which generator writes questions that people accept, and what they cost (paper, table 4)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from opbench.analysis.intervals import FEWEST_USERS, LEVEL
from opbench.store.builds import Candidate, Unit, read_candidates, read_units
from opbench.store.database import Store
from opbench.types import OP_SUBTYPES

ALL = "all"
COLUMNS = [
    *("generator", "subtype", "generated", "dropped", "undecided", "kept", "reviewed", "accepted"),
    *("acceptance", "low", "high", "users", "note"),
    *("calls", "failed", "repaired", "prompt_tokens", "completion_tokens", "cost_usd", "seconds", "usd_per_accepted"),
]


def generators(store: Store, build_id: str, *, by_subtype: bool = True) -> pd.DataFrame:
    """A row a generator (subtype `all`), and one each of its subtypes: `COLUMNS`.

    generated = dropped + undecided + kept + reviewed; kept ones wait for people, reviewed = accepted + rejected.
    acceptance: accepted of reviewed (0 to 1), with a 95 % interval `low` to `high` (`acceptance_interval`); NaN with
    nothing reviewed or fewer than 5 users, and `note` says so. calls: units that were asked; failed ones gave no
    question, repaired ones needed a second call. Tokens, dollars (list prices) and seconds (sum over calls) are of all
    answers, unusable ones too; NaN when a part isn't known. usd_per_accepted: these dollars by accepted question,
    without profiles, topics and checks, which all generators share; NaN as long as candidates wait for filters or
    people, since they are paid for and may be accepted yet.
    """
    candidates = read_candidates(store, build_id)
    units = [unit for unit in read_units(store, build_id, "tasks").values() if unit.role == "generator"]
    rows = []
    for generator in dict.fromkeys([each.generator for each in candidates] + [unit.model for unit in units]):
        mine = [each for each in candidates if each.generator == generator]
        asked = [unit for unit in units if unit.model == generator]
        rows.append(_row(generator, ALL, mine, asked))
        for subtype in OP_SUBTYPES if by_subtype else ():
            of = [each for each in mine if each.subtype == subtype]
            by = [unit for unit in asked if subtype_of(unit) == subtype]
            if of or by:
                rows.append(_row(generator, subtype, of, by))
    return pd.DataFrame(rows, columns=COLUMNS)


def subtype_of(unit: Unit) -> str:
    """The subtype that a generator's unit is for."""
    what = unit.unit.removeprefix(f"{unit.stage}/{unit.user_id}/").partition("/")[0]
    return "repetition" if what == "subtopics" else what


def acceptance_interval(accepted: Sequence[bool], users: Sequence[str]) -> tuple[float, float, str]:
    """Wilson's 95 % interval of a share, over as many questions as users who answer alike leave independent.

    Questions of one user resemble each other: n is divided by the design effect, the variance between users (of the
    share as a ratio of their sums) over that of independent questions, which is at least 1. Fewer than 5 users tell
    nothing about the next one: NaN, and the reason.
    """
    n = len(accepted)
    names = sorted(set(users))
    if not n:
        return math.nan, math.nan, "nothing reviewed yet"
    if len(names) < FEWEST_USERS:
        counted = "1 user" if len(names) == 1 else f"{len(names)} users"
        return math.nan, math.nan, f"{counted}, an interval needs {FEWEST_USERS}"
    share = sum(accepted) / n
    place = {name: number for number, name in enumerate(names)}
    owner = np.array([place[user] for user in users])
    residual = np.bincount(owner, weights=np.array(accepted, dtype=np.float64) - share)
    between = len(names) / (len(names) - 1) * float((residual**2).sum()) / n**2
    independent = share * (1 - share) / n
    effect = max(1.0, between / independent) if independent else 1.0
    low, high = wilson(share, n / effect)
    return low, high, ""


def wilson(share: float, n: float) -> tuple[float, float]:
    """Wilson's score interval (1927) of a share of n, at 95 %."""
    z = float(stats.norm.ppf(0.5 + LEVEL / 2))
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return max(0.0, centre - half), min(1.0, centre + half)


def _row(generator: str, subtype: str, candidates: Sequence[Candidate], units: Sequence[Unit]) -> dict[str, Any]:
    states = [each.state for each in candidates]
    reviewed = [each for each in candidates if each.state in ("accepted", "rejected")]
    taken = [each.state == "accepted" for each in reviewed]
    users = [each.user_id for each in reviewed]
    low, high, note = acceptance_interval(taken, users)
    answered = [unit for unit in units if unit.calls]
    cost = _sum(unit.cost_usd for unit in answered)
    duration = _sum(unit.duration_ms for unit in answered)
    waiting = states.count("candidate") + states.count("kept")
    return {
        "generator": generator,
        "subtype": subtype,
        "generated": len(candidates),
        "dropped": states.count("dropped"),
        "undecided": states.count("candidate"),
        "kept": states.count("kept"),
        "reviewed": len(reviewed),
        "accepted": sum(taken),
        "acceptance": sum(taken) / len(taken) if taken else math.nan,
        "low": low,
        "high": high,
        "users": len(set(users)),
        "note": note,
        "calls": len(units),
        "failed": sum(unit.status == "failed" for unit in units),
        "repaired": sum(unit.repaired for unit in units),
        "prompt_tokens": _sum(unit.prompt_tokens for unit in answered),
        "completion_tokens": _sum(unit.completion_tokens for unit in answered),
        "cost_usd": cost,
        "seconds": duration / 1000,
        "usd_per_accepted": cost / sum(taken) if any(taken) and not waiting else math.nan,
    }


def _sum(values: Iterable[float | None]) -> float:
    """NaN when one isn't known."""
    return float(sum(math.nan if value is None else value for value in values))
