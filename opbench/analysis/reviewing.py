"""A review as it goes: how far reviewers agree, by subtype and by reviewer, spot checks, and time (paper, A.3).

All functions take `answers`, a row a reviewer's standing answer to an item (the newest; those taken back aren't there):
item, reviewer (name), role (reviewer or senior), user, subtype, verdict (base, memory, neither, both), base_score and
memory_score (0 to 1, NaN when not given), seconds (NaN when not told), flagged (bool), made_at (Unix seconds), known
(a spot check's verdict, else None).

Agreement is of reviewers about items that aren't spot checks: seniors decide after them, and spot checks are chosen to
be clear, so either would make it better than it is.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from opbench.analysis.reliability import Coefficient, alpha, kappa, percent, proportion, score_alpha
from opbench.review.spec import VERDICTS
from opbench.types import OP_SUBTYPES

AGREEMENT_COLUMNS = [
    "group",
    "items",
    "doubly",
    "answers",
    "percent",
    "percent_low",
    "percent_high",
    "kappa",
    "kappa_low",
    "kappa_high",
    "pairs",
    "alpha",
    "alpha_low",
    "alpha_high",
    "score_alpha",
    "score_alpha_low",
    "score_alpha_high",
    "score_units",
    "note",
]
REVIEWER_COLUMNS = [
    "reviewer",
    "role",
    "answers",
    "shared",
    "agree",
    "agree_low",
    "agree_high",
    "kappa",
    "flagged",
    "spot_n",
    "spot_right",
    "spot_low",
    "spot_high",
    "timed",
    "seconds_median",
    "seconds_p95",
    "note",
]
PAIR_COLUMNS = ["first", "second", "n", "percent", "kappa", "kappa_low", "kappa_high", "note"]
GROWTH_COLUMNS = ["made_at", "answers", "doubly", "percent", "alpha", "alpha_low", "alpha_high"]
TIME_COLUMNS = ["subtype", "answers", "timed", "median", "mean", "p95"]
ALL = "all"


def compared(answers: pd.DataFrame) -> pd.DataFrame:
    """The answers that agreement is of: reviewers' own, about items that aren't spot checks."""
    return answers[(answers["role"] == "reviewer") & answers["known"].isna() & answers["verdict"].notna()]


def agreement(answers: pd.DataFrame, by: str | None = None) -> pd.DataFrame:
    """One row "all", or one a subtype or user (`by`). Columns: `AGREEMENT_COLUMNS`.

    items (answered by anybody), doubly (by two or more), answers; percent (0 to 100), kappa and alpha of verdicts,
    score_alpha of the scores that were given to both responses, each with its 95 % interval by item; pairs of
    reviewers that share an item (kappa may leave some out, which `note` says); score_units
    (responses with two scores); note (why numbers are missing).
    """
    mine = compared(answers)
    if by is None:
        return pd.DataFrame([_agreement_row(ALL, mine)], columns=AGREEMENT_COLUMNS)
    groups = list(dict.fromkeys(mine[by]))
    order = {name: at for at, name in enumerate(OP_SUBTYPES)}
    groups.sort(key=lambda name: (order.get(name, len(order)), str(name)))
    rows = [_agreement_row(str(name), mine[mine[by] == name]) for name in groups]
    return pd.DataFrame(rows, columns=AGREEMENT_COLUMNS)


def _agreement_row(group: str, answers: pd.DataFrame) -> dict[str, Any]:
    sizes = answers.groupby("item")["reviewer"].nunique()
    several = answers[answers["item"].isin(sizes[sizes > 1].index)]
    met = {pair for _, item in several.groupby("item") for pair in combinations(sorted(set(item["reviewer"])), 2)}
    found = {"percent": percent(several), "kappa": kappa(several), "alpha": alpha(several)}
    found["score_alpha"] = score_alpha(_scores(several))
    row: dict[str, Any] = {
        "group": group,
        "items": len(sizes),
        "doubly": int((sizes > 1).sum()),
        "answers": len(answers),
        "pairs": len(met),
        "score_units": found["score_alpha"].n,
    }
    for name, told in found.items():
        row |= {name: told.value, f"{name}_low": told.low, f"{name}_high": told.high}
    row["note"] = _notes(found)
    return row


def _notes(found: dict[str, Coefficient]) -> str:
    """Reasons, each once with the names of what it is about."""
    reasons: dict[str, list[str]] = {}
    for name, told in found.items():
        if told.reason:
            reasons.setdefault(told.reason, []).append(_NAMES[name])
    return "; ".join(f"{', '.join(names)}: {reason}" for reason, names in reasons.items())


_NAMES = {"percent": "percent", "kappa": "kappa", "alpha": "alpha", "score_alpha": "alpha of scores"}


def _scores(answers: pd.DataFrame) -> pd.DataFrame:
    """A row a score: item, unit (base or memory), reviewer, value."""
    long = answers.melt(["item", "reviewer"], ["base_score", "memory_score"], "unit", "value")
    return long.assign(value=long["value"].astype(np.float64))


def pair_table(answers: pd.DataFrame) -> pd.DataFrame:
    """One row a pair of reviewers that share items: n (items of both), percent, Cohen's kappa with its interval."""
    mine = compared(answers)
    rows: list[dict[str, Any]] = []
    for first, second in combinations(sorted(set(mine["reviewer"])), 2):
        both = mine[mine["reviewer"].isin((first, second))]
        shared = both.groupby("item")["reviewer"].nunique()
        both = both[both["item"].isin(shared[shared == 2].index)]
        if both.empty:
            continue
        told = kappa(both)
        rows.append(
            {
                "first": first,
                "second": second,
                "n": both["item"].nunique(),
                "percent": percent(both).value,
                "kappa": told.value,
                "kappa_low": told.low,
                "kappa_high": told.high,
                "note": told.reason,
            }
        )
    return pd.DataFrame(rows, columns=PAIR_COLUMNS)


def reviewer_table(answers: pd.DataFrame) -> pd.DataFrame:
    """One row a reviewer, seniors too. Columns: `REVIEWER_COLUMNS`.

    answers (spot checks left out), shared (items that another reviewer has answered too), agree (percent of pairs with
    others on these, its interval by item), kappa (mean over pairs with others), flagged; spot_n spot checks answered
    and spot_right percent of them as known, with Wilson's interval; timed answers, and the median and 95th percentile
    of their seconds.
    """
    mine = compared(answers)
    rows: list[dict[str, Any]] = []
    for (name, role), own in answers.groupby(["reviewer", "role"], sort=True):
        spots = own[own["known"].notna()]
        right = proportion(int((spots["verdict"] == spots["known"]).sum()), len(spots))
        agree, told = _with_others(mine, str(name)) if role == "reviewer" else (_NOT_COMPARED, _NOT_COMPARED)
        seconds = own["seconds"].dropna().to_numpy(np.float64)
        rows.append(
            {
                "reviewer": name,
                "role": role,
                "answers": len(own) - len(spots),
                "shared": agree.n,
                "agree": agree.value,
                "agree_low": agree.low,
                "agree_high": agree.high,
                "kappa": told.value,
                "flagged": int(own["flagged"].astype(bool).sum()),
                "spot_n": len(spots),
                "spot_right": right.value,
                "spot_low": right.low,
                "spot_high": right.high,
                "timed": len(seconds),
                "seconds_median": float(np.median(seconds)) if len(seconds) else np.nan,
                "seconds_p95": float(np.percentile(seconds, 95)) if len(seconds) else np.nan,
                "note": "; ".join(dict.fromkeys(each for each in (agree.reason, told.reason) if each)),
            }
        )
    return pd.DataFrame(rows, columns=REVIEWER_COLUMNS)


_NOT_COMPARED = Coefficient.missing("decides after the reviewers")


def _with_others(answers: pd.DataFrame, name: str) -> tuple[Coefficient, Coefficient]:
    """Percent and kappa of one reviewer with all others."""
    own = answers[answers["reviewer"] == name].set_index("item")["verdict"]
    others = answers[(answers["reviewer"] != name) & answers["item"].isin(own.index)]
    if others.empty:
        none = Coefficient.missing("nobody else has answered their items yet")
        return none, none
    same = others.assign(same=others["verdict"] == others["item"].map(own)).groupby("item")["same"]
    shares = same.mean()
    both = answers[answers["item"].isin(shares.index)]
    pairs = [(name, str(other)) for other in sorted(set(others["reviewer"]))]
    if (same.size() == 1).all():
        return proportion(int(shares.sum()), len(shares)), kappa(both, pairs)
    value = Coefficient(100.0 * float(shares.mean()), np.nan, np.nan, len(shares), "items have more than two answers")
    return value, kappa(both, pairs)


def growth(answers: pd.DataFrame, steps: int = 24) -> pd.DataFrame:
    """Agreement as answers came in, at no more than `steps` moments spread evenly over the answers. Columns:
    `GROWTH_COLUMNS`; rows before an item has two answers are left out. An answer that was changed stands where it was
    changed."""
    mine = compared(answers).sort_values("made_at", kind="stable")
    rows: list[dict[str, Any]] = []
    for count in np.unique(np.linspace(1, len(mine), steps).round().astype(int)) if len(mine) else []:
        so_far = mine.head(int(count))
        sizes = so_far.groupby("item")["reviewer"].nunique()
        if not (sizes > 1).any():
            continue
        told = alpha(so_far)
        rows.append(
            {
                "made_at": float(so_far["made_at"].iloc[-1]),
                "answers": int(count),
                "doubly": int((sizes > 1).sum()),
                "percent": percent(so_far).value,
                "alpha": told.value,
                "alpha_low": told.low,
                "alpha_high": told.high,
            }
        )
    return pd.DataFrame(rows, columns=GROWTH_COLUMNS)


def verdict_table(answers: pd.DataFrame) -> pd.DataFrame:
    """Answers by subtype (rows, OP-Bench's order) and verdict (columns), and `answers` in all; spot checks left out."""
    mine = compared(answers)
    counts = pd.crosstab(mine["subtype"], mine["verdict"]).reindex(columns=list(VERDICTS), fill_value=0)
    counts = counts.reindex([name for name in OP_SUBTYPES if name in counts.index])
    return counts.assign(answers=counts.sum(axis=1)).reset_index().rename_axis(columns=None)


def times(answers: pd.DataFrame) -> pd.DataFrame:
    """Seconds an answer by subtype, and over all (paper: about a minute): answers (to spot checks too), timed, median,
    mean, p95."""
    mine = answers[(answers["role"] == "reviewer") & answers["verdict"].notna()]
    groups = [(name, mine[mine["subtype"] == name]) for name in OP_SUBTYPES]
    rows = []
    for name, own in [*((name, own) for name, own in groups if len(own)), *([(ALL, mine)] if len(mine) else [])]:
        seconds = own["seconds"].dropna().to_numpy(np.float64)
        told = [np.median(seconds), seconds.mean(), np.percentile(seconds, 95)] if len(seconds) else [np.nan] * 3
        rows.append([name, len(own), len(seconds), *map(float, told)])
    return pd.DataFrame(rows, columns=TIME_COLUMNS)
