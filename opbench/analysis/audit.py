"""Which rule made each published average: AVG.(OP) of table 2 recomputed from the published sub-scores.

The paper names no rule. Recomputing shows that three were used, and for some rows the first speaker of each
conversation only (the public evaluator's default), so published drops compare averages that were made differently.
"""

from __future__ import annotations

from typing import Any, Literal

import pandas as pd

from opbench.analysis import published
from opbench.analysis.aggregate import RULES, Rule
from opbench.study import BASE

Scope = Literal["all", "first"]

#: Instances of the first speaker of each conversation, by subtype: 859 of 1,700 (counted in the public file).
FIRST_SPEAKER_WEIGHTS = {
    "fully-irrelevant": 159,
    "baiting": 50,
    "repetition": 450,
    "fact": 50,
    "value": 50,
    "memory": 100,
}
#: A rule fits a row when it comes this near (points): published figures are rounded to 0.01.
FITS_WITHIN = 0.02

#: Pairs of the 16 published rows with a memory system.
PAIRS = 16 * 15 // 2

#: The averages that are told apart. The task mean is the same for both scopes (sycophancy's proportions are equal),
#: and the category macro doesn't depend on counts at all.
CANDIDATES: dict[str, tuple[Rule, Scope]] = {
    "task-mean": ("task-mean", "all"),
    "category-macro": ("category-macro", "all"),
    "instance": ("instance", "all"),
    "instance, first speakers": ("instance", "first"),
}


def recomputed(rule: Rule, scope: Scope = "all") -> pd.DataFrame:
    """All 20 published rows averaged by one rule: model, memory, op (points), drop (% below BASE of the model)."""
    frame = published.op_scores(rule, None if scope == "all" else FIRST_SPEAKER_WEIGHTS)
    base = frame[frame["memory"] == BASE].set_index("model")["op"]
    reference = frame["model"].map(base)
    frame["drop"] = 100.0 * (reference - frame["op"]) / reference
    return frame[["model", "memory", "op", "drop"]]


def audit() -> pd.DataFrame:
    """One row a published row, in the paper's order.

    Columns: model, memory, published (points); for each rule and scope (`task-mean/all`, `task-mean/first`, …) the
    recomputed average, and its residual (recomputed − published) in the column with ` residual` after it; best (the
    nearest of `CANDIDATES`), residual (of the best), verdict (`fits` within 0.02 points, else `nearest`), also_fits
    (other candidates within 0.02); published_drop (%), and the drop recomputed by each rule over all instances
    (`drop task-mean`, …).
    """
    table = published.op_scores()
    frame = table[["model", "memory"]].copy()
    frame["published"] = table["avg_op"]
    for rule in RULES:
        for scope in ("all", "first"):
            averages = recomputed(rule, "all" if scope == "all" else "first")["op"]
            frame[f"{rule}/{scope}"] = averages
            frame[f"{rule}/{scope} residual"] = averages - frame["published"]
    columns = {name: f"{rule}/{scope} residual" for name, (rule, scope) in CANDIDATES.items()}
    residuals = pd.DataFrame({name: frame[column] for name, column in columns.items()})
    frame["best"] = residuals.abs().idxmin(axis=1)
    frame["residual"] = [float(residuals.loc[row, str(name)]) for row, name in frame["best"].items()]  # type: ignore[arg-type,index]
    within = residuals.abs() <= FITS_WITHIN + 1e-9
    frame["verdict"] = within.any(axis=1).map({True: "fits", False: "nearest"})
    frame["also_fits"] = [
        ", ".join(name for name in CANDIDATES if fits[name] and name != best)
        for fits, best in zip(within.to_dict("records"), frame["best"], strict=True)
    ]
    frame["published_drop"] = table["drop"]
    for rule in RULES:
        frame[f"drop {rule}"] = recomputed(rule)["drop"]
    return frame


def ranking(rule: Rule, scope: Scope = "all") -> pd.DataFrame:
    """The 16 rows with a memory system by their drop below BASE, as one rule makes it; the greatest drop first.

    Columns: model, memory; published_drop and drop (%), published_place and place (1 is the greatest drop; equal drops
    share the better place), moved (places up, negative for down), swaps (rows against which the order is another one).
    """
    frame = recomputed(rule, scope).assign(published_drop=published.op_scores()["drop"])
    frame = frame[frame["memory"] != BASE].drop(columns="op")
    for place, drop in (("published_place", "published_drop"), ("place", "drop")):
        frame[place] = frame[drop].rank(method="min", ascending=False).astype(int)
    frame["moved"] = frame["published_place"] - frame["place"]
    changes = ranking_changes(rule, scope)
    swapped = [name for change in changes for name in (change["first"], change["second"])]
    frame["swaps"] = [swapped.count(f"{row.model} {row.memory}") for row in frame.itertuples()]
    columns = ["model", "memory", "published_drop", "drop", "published_place", "place", "moved", "swaps"]
    return frame.sort_values("drop", ascending=False, kind="stable").reset_index(drop=True)[columns]


def ranking_changes(rule: Rule, scope: Scope = "all") -> list[dict[str, Any]]:
    """Pairs of the 16 rows with a memory system whose order by drop isn't the published one when one rule serves all.

    Each: rule, first and second (`model memory`; the first has the greater published drop), the two published drops
    and the two recomputed ones (%). Pairs that the paper prints as equal are no change.
    """
    table = published.op_scores()
    own = recomputed(rule, scope)["drop"]
    rows = [
        (f"{row['model']} {row['memory']}", float(row["drop"]), float(drop))
        for row, drop in zip(table.to_dict("records"), own, strict=True)
        if row["memory"] != BASE
    ]
    rows.sort(key=lambda row: -row[1])
    return [
        {
            "rule": rule,
            "first": first[0],
            "second": second[0],
            "published": (first[1], second[1]),
            "recomputed": (first[2], second[2]),
        }
        for place, first in enumerate(rows)
        for second in rows[place + 1 :]
        if first[1] > second[1] and first[2] < second[2]
    ]


def changes_table(rule: Rule, scope: Scope = "all") -> pd.DataFrame:
    """`ranking_changes` as a table, the widest apart first: rule, first, second, first_published, second_published,
    first_recomputed, second_recomputed (drops in %), by (percentage points between the recomputed ones)."""
    rows = [
        {
            "rule": rule,
            "first": change["first"],
            "second": change["second"],
            "first_published": change["published"][0],
            "second_published": change["published"][1],
            "first_recomputed": change["recomputed"][0],
            "second_recomputed": change["recomputed"][1],
            "by": change["recomputed"][1] - change["recomputed"][0],
        }
        for change in ranking_changes(rule, scope)
    ]
    columns = ["rule", "first", "second", "first_published", "second_published", "first_recomputed"]
    frame = pd.DataFrame(rows, columns=[*columns, "second_recomputed", "by"])
    return frame.sort_values("by", ascending=False, kind="stable").reset_index(drop=True)


def to_text() -> str:
    """The audit as `opbench audit` prints it: a line a row, then the drops under one rule and what that changes."""
    frame = audit()
    short = {"task-mean/all": "task-mean", "category-macro/all": "cat-macro", "instance/all": "instance"}
    columns = [*short, "instance/first"]
    heads = [*short.values(), "inst(1st)"]
    lines = [
        "Published AVG.(OP) and the residual (recomputed - published, points) of each rule.",
        f"'fits': within {FITS_WITHIN} points. inst(1st): instance over the first speaker of each conversation",
        "(859 of 1,700 instances); the other two rules give the same for first speakers.",
        "",
        f"{'model':<17} {'memory':<6} {'avg.op':>7} " + " ".join(f"{head:>10}" for head in heads) + "  rule",
    ]
    for row in frame.to_dict("records"):
        numbers = " ".join(f"{row[f'{column} residual']:>+10.3f}" for column in columns)
        also = f" (so does {row['also_fits']})" if row["also_fits"] else ""
        verdict = f"{row['verdict']} {row['best']} ({row['residual']:+.3f}){also}"
        lines.append(f"{row['model']:<17} {row['memory']:<6} {row['published']:>7.2f} {numbers}  {verdict}")
    lines += [
        "",
        "Drop below BASE (%): as published, and with one rule for all rows (all 1,700 instances).",
        f"{'model':<17} {'memory':<6} {'published':>10} " + " ".join(f"{rule:>14}" for rule in RULES),
    ]
    for row in frame[frame["memory"] != BASE].to_dict("records"):
        numbers = " ".join(f"{row[f'drop {rule}']:>14.1f}" for rule in RULES)
        lines.append(f"{row['model']:<17} {row['memory']:<6} {row['published_drop']:>10.1f} {numbers}")
    lines += ["", "Pairs of rows whose order by drop changes against the published one:"]
    for rule in RULES:
        lines.append(f"  {rule:<15} {len(ranking_changes(rule)):>3} of {PAIRS}{_examples(rule)}")
    return "\n".join(lines)


def _examples(rule: Rule) -> str:
    """The pair that changes most, as a sentence; empty when none changes."""
    changes = ranking_changes(rule)
    if not changes:
        return ""
    most = max(changes, key=lambda each: each["recomputed"][1] - each["recomputed"][0])
    (was, other), (now, then) = most["published"], most["recomputed"]
    numbers = f"{was:.1f} > {other:.1f} published, {now:.1f} < {then:.1f} recomputed"
    return f"; e.g. {most['first']} against {most['second']}: {numbers}"
