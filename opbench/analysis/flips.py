"""Which pairs of configurations change their order between views (`stability.py`), and in a sentence what it means."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from opbench.analysis import intervals
from opbench.analysis.grids import Floats, Key
from opbench.analysis.intervals import LEVEL, Interval, Question, UserSums, holm
from opbench.analysis.stability import View, Views, signs_of
from opbench.study import NO_MITIGATION

FLIP_COLUMNS = [
    "label",
    "rule",
    "control",
    "better",
    "worse",
    "before",
    "before_low",
    "before_high",
    "before_p_holm",
    "before_note",
    "told_apart",
    "after",
    "after_low",
    "after_high",
    "after_p_holm",
    "reversed",
]
_AT_A_TIME = 200
#: A judge that gives so many responses one score judges hardly any of them.
_NEARLY_ALL = 0.9


def flip_table(found: Views) -> pd.DataFrame:
    """One row a view and pair of configurations that it orders the other way round than the reference. Columns:
    `FLIP_COLUMNS`.

    better and worse (of the reference; configurations by `names_of`); before and after are
    better − worse in points, in the reference and in the view, each with its 95 % interval over users drawn anew and p
    of no difference, with Holm's correction over all pairs of the reference, and over the flipped pairs of the view;
    told_apart (the reference tells them apart: p ≤ 0.05; NaN when that can't be said, `before_note` says why); reversed
    (so does the view, the other way round). Largest difference before first.
    """
    pairs = list(combinations(range(len(found.keys)), 2))
    names = names_of(found.keys)
    signs = signs_of(found.values)
    before = _differences(found, found.reference, pairs)
    adjusted = holm([each.p for each in before])
    rows: list[dict[str, Any]] = []
    for at, view in enumerate(found.views):
        flipped = np.flatnonzero(signs[at] * signs[found.reference] < 0)
        after = _differences(found, at, [pairs[pair] for pair in flipped])
        for pair, then, p in zip(flipped, after, holm([each.p for each in after]), strict=True):
            turn = signs[found.reference][pair]
            first, second = pairs[pair] if turn > 0 else pairs[pair][::-1]
            told, told_then = _told(adjusted[pair]), _told(float(p))
            rows.append(
                {
                    "label": view.label,
                    "rule": view.rule,
                    "control": view.control,
                    "better": names[first],
                    "worse": names[second],
                    "before": float(found.values[found.reference][first] - found.values[found.reference][second]),
                    "after": float(found.values[at][first] - found.values[at][second]),
                    **_ends("before", before[pair], turn),
                    **_ends("after", then, turn),
                    "before_p_holm": adjusted[pair],
                    "after_p_holm": float(p),
                    "before_note": before[pair].reason,
                    "told_apart": told,
                    "reversed": np.nan if np.isnan(told) or np.isnan(told_then) else told * told_then,
                }
            )
    frame = pd.DataFrame(rows, columns=FLIP_COLUMNS)
    return frame.sort_values("before", ascending=False, kind="stable").reset_index(drop=True)


def told_apart(found: Views) -> tuple[int, int]:
    """How many pairs the reference tells apart (p ≤ 0.05 by Holm), of how many that have a p."""
    pairs = list(combinations(range(len(found.keys)), 2))
    p = holm([each.p for each in _differences(found, found.reference, pairs)])
    return int((p <= 1.0 - LEVEL).sum()), int((~np.isnan(p)).sum())


def names_of(keys: Sequence[Key]) -> list[str]:
    """Configurations in words, e.g. `rag · reminder`; with the model where there are several."""
    several = len({model for model, _, _ in keys}) > 1
    return [
        " · ".join([*([model] if several else []), memory, *([method] if method != NO_MITIGATION else [])])
        for model, memory, method in keys
    ]


def _differences(found: Views, view: int, pairs: list[tuple[int, int]]) -> list[Interval]:
    """Of first − second of each pair in the view."""
    sums = found.sums[found.views[view].label]
    factors = found.factors[found.views[view].rule]
    asked = [
        Question(UserSums(sums.sums[[first, second]], sums.counts, sums.parts), factors, intervals.change)
        for first, second in pairs
    ]
    told: list[Interval] = []
    for start in range(0, len(asked), _AT_A_TIME):
        told += intervals.intervals(asked[start : start + _AT_A_TIME])
    return told


def _ends(name: str, told: Interval, turn: float) -> dict[str, float]:
    low, high = (told.low, told.high) if turn > 0 else (-told.high, -told.low)
    return {f"{name}_low": low, f"{name}_high": high}


def _told(p: float) -> float:
    """1 when they are told apart, 0 when not, NaN when there is no p."""
    return np.nan if np.isnan(p) else float(p <= 1.0 - LEVEL)


def meaning(found: Views, flips: pd.DataFrame, correlations: pd.DataFrame) -> str:
    """What the views come to, in sentences: how much of the order they keep, what changes it, and whether that touches
    anything that had been found. Controls are told by themselves."""
    reference = found.views[found.reference]
    real = [view for view in found.views if not view.control]
    judges = len({view.label for view in real})
    pairs = len(found.keys) * (len(found.keys) - 1) // 2
    rules = _count(len(found.factors), "averaging rule")
    choices = f"{_count(judges, 'judge or prompt', 'judges or prompts')} by {rules}"
    sentences = [
        f"{_count(len(found.keys), 'configuration')} in {_count(len(real), 'view')} ({choices}), "
        f"over the same {_count(found.n, 'instance')} of {_count(found.users, 'user')}, set against {reference.name}."
    ]
    if len(real) < 2:
        return f"{sentences[0]} There is nothing to compare it with: judge the run again with another judge or prompt."
    mine = flips[~flips["control"].astype(bool)]
    sentences.append(_correlation(found, correlations))
    flipped = {frozenset(pair) for pair in mine[["better", "worse"]].itertuples(index=False, name=None)}
    tied = _tied(found, real)
    if not flipped:
        survives = "" if tied else ": the ranking survives every choice here"
        sentences.append(f"None of {_count(pairs, 'pair')} changes its order{survives}.")
        sentences.append(_apart(found))
    else:
        sentences.append(_flipped(mine, reference.label, reference.rule, len(flipped), pairs))
        sentences.append(_findings(found, mine))
    if tied:
        sentences.append(f"{_count(tied, 'pair')} {'is' if tied == 1 else 'are'} equal in one view and not in another.")
    sentences += [*_hardly_judging(found), *_first_place(found)]
    return " ".join(each for each in sentences if each)


def _tied(found: Views, real: Sequence[View]) -> int:
    """How many pairs are equal in one view and not in another, among views that aren't controls."""
    signs = signs_of(found.values[[found.views.index(view) for view in real]])
    equal = signs == 0
    return int((equal.any(axis=0) & ~equal.all(axis=0)).sum())


def _apart(found: Views) -> str:
    """How much of an order that every view keeps is more than chance."""
    if found.no_interval:
        return (
            f"Whether any of them can be told apart can't be said ({found.no_interval}): the same responses keep their "
            "order, others may come in another one."
        )
    apart, of = told_apart(found)
    return f"The reference tells {apart} of {_count(of, 'pair')} apart (95 %, Holm)."


def _correlation(found: Views, correlations: pd.DataFrame) -> str:
    """The range of tau against the reference over real views."""
    reference = found.views[found.reference]
    rows = against(correlations, reference.label, reference.rule)
    rows = rows[~rows["control"].astype(bool)].dropna(subset=["tau"]).sort_values("tau", kind="stable")
    if rows.empty:
        return ""
    low, high = rows.iloc[0], rows.iloc[-1]
    if len(rows) == 1:
        return f"Kendall's tau is {_signed(low['tau'])}{_between(low)}."
    return (
        f"Kendall's tau is from {_signed(low['tau'])}{_between(low)} ({low['label']} · {low['rule']}) "
        f"to {_signed(high['tau'])} ({high['label']} · {high['rule']})."
    )


def against(correlations: pd.DataFrame, label: str, rule: str) -> pd.DataFrame:
    """The rows of `correlation_table` with this view, the other one of them as `label` and `rule`."""
    first = (correlations["first_label"] == label) & (correlations["first_rule"] == rule)
    second = (correlations["second_label"] == label) & (correlations["second_rule"] == rule)
    one = correlations[first].assign(label=lambda rows: rows["second_label"], rule=lambda rows: rows["second_rule"])
    other = correlations[second].assign(label=lambda rows: rows["first_label"], rule=lambda rows: rows["first_rule"])
    return pd.concat([one, other]).sort_index()


def _flipped(flips: pd.DataFrame, label: str, rule: str, n: int, pairs: int) -> str:
    def distinct(rows: pd.DataFrame) -> int:
        return len({frozenset(pair) for pair in rows[["better", "worse"]].itertuples(index=False, name=None)})

    by_rule = distinct(flips[flips["label"] == label])
    by_judge = distinct(flips[flips["rule"] == rule])
    changes = "changes" if n == 1 else "change"
    return (
        f"{n} of {_count(pairs, 'pair')} {changes} the order in at least one view: {by_rule} by the averaging rule "
        f"alone, {by_judge} by the judge or prompt alone."
    )


def _findings(found: Views, flips: pd.DataFrame) -> str:
    known = flips.dropna(subset=["told_apart"])
    if known.empty:
        why = flips["before_note"].iloc[0] or found.no_interval
        return (
            f"Whether any of them had been told apart before can't be said ({why}): take the order for what one judge "
            "says of these few responses, not for a ranking of the configurations."
        )
    apart, of = told_apart(found)
    touched = known[known["told_apart"] == 1.0]
    pairs = {frozenset(pair) for pair in touched[["better", "worse"]].itertuples(index=False, name=None)}
    found_before = f"the reference tells {apart} of {_count(of, 'pair')} apart (95 %, Holm)"
    if not pairs:
        return (
            f"None of those had been told apart: {found_before}, and none of these turns in any view; what changes "
            "couldn't be told apart before."
        )
    turned = touched[touched["reversed"] == 1.0]
    opposite = {frozenset(pair) for pair in turned[["better", "worse"]].itertuples(index=False, name=None)}
    also = f", {len(opposite)} of them the other way round with as much certainty" if opposite else ""
    return (
        f"{len(pairs)} of those had been told apart ({found_before}){also}: such a finding holds for a judge, a prompt "
        "and a rule, which have to be named with it."
    )


def _hardly_judging(found: Views) -> list[str]:
    labels = list(dict.fromkeys(view.label for view in found.views if not view.control))
    alike = [
        f"{label} gives every response the score that {found.views[found.reference].label} gives: if it is the same "
        "judge with the same prompts, it is no second opinion."
        for label in labels
        if label in found.alike
    ]
    return alike + [
        f"{label} gives {100 * found.same[label]:.0f} % of the responses one and the same score: its order rests on "
        "the few others, and on repetition."
        for label in labels
        if found.same[label] >= _NEARLY_ALL
    ]


def _first_place(found: Views) -> list[str]:
    real = [at for at, view in enumerate(found.views) if not view.control]
    values: Floats = found.values[real].round(9)
    best = values == values.max(axis=1, keepdims=True)
    counts = best.sum(axis=0)
    top = int(counts.argmax())
    told = [f"{names_of(found.keys)[top]} is first in {counts[top]} of {_count(len(real), 'view')}."]
    if gone := [f"{name} ({why})" for name, why in found.left_out.items()]:
        told.append(f"Left out: {'; '.join(gone)}.")
    return told


def _between(row: pd.Series) -> str:
    low, high = row["tau_low"], row["tau_high"]
    return "" if np.isnan(low) else f" [{_signed(low)}; {_signed(high)}]"


def _signed(value: float) -> str:
    return f"{value:.2f}".replace("-", "−")


def _count(n: int, one: str, many: str = "") -> str:
    return f"{n:,} {one if n == 1 else many or one + 's'}"
