"""How alike questions and the memories retrieved for them are (paper, section 4.3 and figure 5), from what
`opbench.mechanism.similarity` measured: distributions, means, and whether a threshold could tell when to abstain."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from opbench.analysis.clustered import resampled
from opbench.analysis.intervals import FEWEST_USERS, Averages, Floats, Interval, Question, UserSums, intervals
from opbench.store.rundata import RunData
from opbench.types import LOCOMO_CATEGORIES, OP_SUBTYPES

Which = Literal["top1", "all"]
"""The most similar memory of each question, or all memories that were retrieved."""
Separates = Literal["well", "in part", "hardly"]
IRRELEVANT, BAITING, LOCOMO = "fully-irrelevant", "baiting", "locomo"
CONTROL = "random"
#: All groups of questions, in the order of tables and figures.
GROUPS = (*OP_SUBTYPES, LOCOMO, LOCOMO_CATEGORIES[5])
#: Which questions are told from which. LoCoMo's need memories, the others don't: baiting's are alike and of no use.
PAIRS = ((IRRELEVANT, LOCOMO), (BAITING, LOCOMO), (IRRELEVANT, BAITING))
#: How well a threshold separates two groups, by the least that the share of the first below it exceeds the second's.
SEPARATES: tuple[tuple[float, Separates], ...] = ((0.9, "well"), (0.5, "in part"), (-1.0, "hardly"))
_STEP = 0.01
#: Why a share of 0 or 1 has no interval.
ALIKE = "all users are alike, drawing them anew can't tell how sure it is"


def retrievals(data: RunData, measured: pd.DataFrame) -> pd.DataFrame:
    """A row a memory system and instance of the run, of what `store.similarities.read_similarities` gives.

    memory, control (whether it is the random one), instance, user, benchmark, subtype, group (the OP-Bench subtype, or
    `locomo`; LoCoMo's adversarial questions are `adversarial`), n (memories retrieved), top1 (the highest cosine, NaN
    where nothing was retrieved) and cosines (those that there are).
    """
    columns = ["instance", "ordinal", "user", "benchmark", "subtype"]
    found = measured.merge(data.instances[columns], on="instance", how="inner").sort_values(["memory", "ordinal"])
    found["n"] = [len(each) for each in found["cosines"]]
    found["cosines"] = [[value for value in each if value is not None] for each in found["cosines"]]
    found["top1"] = [max(each, default=math.nan) for each in found["cosines"]]
    found["control"] = found["memory"] == CONTROL
    of_locomo = (found["benchmark"] == LOCOMO) & (found["subtype"] != LOCOMO_CATEGORIES[5])
    found["group"] = found["subtype"].where(~of_locomo, LOCOMO)
    # Real systems first: the control is what they are held against.
    found = found.sort_values("control", kind="stable")
    order = ["memory", "control", "instance", "user", "benchmark", "subtype", "group", "n", "top1", "cosines"]
    return found[order].reset_index(drop=True)


def cosines(found: pd.DataFrame, which: Which = "top1") -> pd.DataFrame:
    """A row a cosine: memory, control, group, subtype, instance, user, cosine. An empty retrieval has none."""
    names = ["memory", "control", "group", "subtype", "instance", "user"]
    if which == "top1":
        long = found[[*names, "top1"]].rename(columns={"top1": "cosine"})
    else:
        long = found[[*names, "cosines"]].rename(columns={"cosines": "cosine"}).explode("cosine")
    return long.dropna(subset="cosine").astype({"cosine": "float64"}).reset_index(drop=True)


def similarity_table(found: pd.DataFrame, which: Which = "top1") -> pd.DataFrame:
    """By memory system and group: how alike question and memories are, −1 to 1.

    memory, control, group, n (questions), n_empty (without any memory), n_cosines, mean, median, sd, low and high (95 %
    interval of the mean, clustered by user; NaN with its `reason`), users.
    """
    rows, questions = [], []
    for memory, control, group, part in _parts(found):
        values = cosines(part, which)
        numbers = values["cosine"].to_numpy()
        rows.append(
            {
                "memory": memory,
                "control": control,
                "group": group,
                "n": len(part),
                "n_empty": int(part["top1"].isna().sum()),
                "n_cosines": len(numbers),
                "mean": float(numbers.mean()) if len(numbers) else math.nan,
                "median": float(np.median(numbers)) if len(numbers) else math.nan,
                "sd": float(numbers.std(ddof=1)) if len(numbers) > 1 else math.nan,
            }
        )
        questions.append(Question(_sums([(values["user"], numbers)]), np.ones(1), _level))
    columns = ["memory", "control", "group", "n", "n_empty", "n_cosines", "mean", "median", "sd"]
    return _with_intervals(rows, questions, columns)


def similarity_differences(found: pd.DataFrame, which: Which = "top1") -> pd.DataFrame:
    """How much less alike fully irrelevant questions and their memories are than others.

    memory, control, group (`fully-irrelevant`), against (`baiting`, `locomo`), difference of the means (negative: less
    alike), low, high, p, users, reason, n, n_against (cosines). Users are drawn with all that they hold.
    """
    rows, questions = [], []
    for memory, control, mine in _systems(found):
        values = {group: cosines(part, which) for group, part in mine.groupby("group")}
        for against in (BAITING, LOCOMO):
            if not len(values.get(IRRELEVANT, ())) or not len(values.get(against, ())):
                continue
            sides = [values[IRRELEVANT], values[against]]
            first, second = (each["cosine"].to_numpy() for each in sides)
            rows.append(
                {
                    "memory": memory,
                    "control": control,
                    "group": IRRELEVANT,
                    "against": against,
                    "difference": float(first.mean() - second.mean()),
                    "n": len(first),
                    "n_against": len(second),
                }
            )
            sums = _sums([(each["user"], each["cosine"].to_numpy()) for each in sides], (IRRELEVANT, against))
            questions.append(Question(sums, np.array([1.0, -1.0]), _level))
    columns = ["memory", "control", "group", "against", "difference", "n", "n_against"]
    return _with_intervals(rows, questions, columns, with_p=True)


def should_abstain(found: pd.DataFrame) -> pd.DataFrame:
    """Fully irrelevant questions for which something was retrieved: no memory is of use there (paper, section 3.2.1).

    memory, control, n (such questions), n_retrieved, share (0 to 1), low, high, users, reason. All or none of them has
    no interval: whichever users are drawn, they are alike, which is no certainty about others.
    """
    rows, questions = [], []
    for memory, control, group, part in _parts(found):
        if group != IRRELEVANT:
            continue
        there: Floats = part["top1"].notna().to_numpy().astype(np.float64)
        row = {"memory": memory, "control": control, "n": len(part), "n_retrieved": int(there.sum())}
        rows.append(row | {"share": float(there.mean())})
        questions.append(Question(_sums([(part["user"], there)]), np.ones(1), _level))
    frame = _with_intervals(rows, questions, ["memory", "control", "n", "n_retrieved", "share"])
    alike = frame["share"].isin([0.0, 1.0]) & frame["low"].notna()
    frame.loc[alike, ["low", "high"]] = math.nan
    frame.loc[alike, "reason"] = ALIKE
    return frame


def abstention_curves(found: pd.DataFrame) -> pd.DataFrame:
    """What a retriever would do that abstains where no memory is as similar as a threshold.

    memory, control, group, threshold (cosine, in steps of 0.01), share of the group's questions for which it would
    abstain (empty retrievals included), n.
    """
    lowest = found["top1"].min()
    start = 0.0 if math.isnan(lowest) else min(0.0, math.floor(lowest / _STEP) * _STEP)
    thresholds = np.round(np.arange(start, 1.0 + _STEP / 2, _STEP), 2)
    parts = []
    for memory, control, group, part in _parts(found):
        tops = np.sort(_tops(part))
        share = np.searchsorted(tops, thresholds, side="left") / len(tops)
        heads = {"memory": memory, "control": control, "group": group}
        parts.append(pd.DataFrame(heads | {"threshold": thresholds, "share": share, "n": len(tops)}))
    columns = ["memory", "control", "group", "threshold", "share", "n"]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)


def separations(found: pd.DataFrame, pairs: Sequence[tuple[str, str]] = PAIRS) -> pd.DataFrame:
    """Whether the most similar memory's cosine tells the questions of one group from those of another.

    memory, control, group, against; auc (chance that a question of `against` has the more similar memory than one of
    `group`, ties half; 0.5: not told apart), low, high, p, users, reason (95 %, drawn by user), n, n_against;
    threshold: the one that tells these very questions apart best; abstains and loses: shares of `group` and `against`
    below the threshold that is best for all other users, so that no question has a say in its own (NaN for a single
    user); separates: how well, by `SEPARATES` of these shares; empty where it can't be said: too few users, or an
    interval that reaches 0.5. An empty retrieval counts as less similar than any.
    """
    rows = []
    for memory, control, mine in _systems(found):
        groups = dict(iter(mine.groupby("group")))
        for group, other in pairs:
            if group not in groups or other not in groups:
                continue
            sides = groups[group], groups[other]
            low, high = (_tops(each) for each in sides)
            told = _auc_interval(*sides)
            abstains, loses = _held_out(*sides)
            # Of the area less 0.5; one that is surely below tells them apart the wrong way round, which is hardly.
            unsure = not (told.low > 0 or told.high < 0)
            rows.append(
                {
                    "memory": memory,
                    "control": control,
                    "group": group,
                    "against": other,
                    "auc": float(_wins(low, high).mean()),
                    "low": float(np.clip(0.5 + told.low, 0.0, 1.0)),
                    "high": float(np.clip(0.5 + told.high, 0.0, 1.0)),
                    "p": told.p,
                    "users": told.n_users,
                    "reason": told.reason,
                    "n": len(low),
                    "n_against": len(high),
                    "threshold": _best_threshold(low, high),
                    "abstains": abstains,
                    "loses": loses,
                    "separates": "" if unsure else next(word for least, word in SEPARATES if abstains - loses >= least),
                }
            )
    columns = ["memory", "control", "group", "against", "auc", "low", "high", "p", "users", "reason", "n", "n_against"]
    return pd.DataFrame(rows, columns=[*columns, "threshold", "abstains", "loses", "separates"])


def _systems(found: pd.DataFrame) -> Iterator[tuple[str, bool, pd.DataFrame]]:
    for memory, part in found.groupby("memory", sort=False):
        yield str(memory), str(memory) == CONTROL, part


def _parts(found: pd.DataFrame) -> Iterator[tuple[str, bool, str, pd.DataFrame]]:
    for memory, control, mine in _systems(found):
        groups = dict(iter(mine.groupby("group")))
        for group in GROUPS:
            if group in groups:
                yield memory, control, group, groups[group]


def _tops(part: pd.DataFrame) -> Floats:
    return part["top1"].fillna(-np.inf).to_numpy(dtype=np.float64)


def _level(averages: Averages) -> tuple[Floats, Averages]:
    """The average itself."""
    return averages[0], [np.ones_like(averages[0])]


def _sums(parts: Sequence[tuple[Any, Floats]], names: tuple[str, ...] = ("similarity",)) -> UserSums:
    """Sums by user of values, each part with the users of its own."""
    users = pd.unique(pd.concat([pd.Series(owner, dtype=object) for owner, _ in parts]))
    places = [pd.Index(users).get_indexer(pd.Index(owner)) for owner, _ in parts]
    size = len(users)
    sums = [np.bincount(at, weights=values, minlength=size) for at, (_, values) in zip(places, parts, strict=True)]
    counts = [np.bincount(at, minlength=size) for at in places]
    return UserSums(
        np.stack(sums, axis=-1)[None].astype(np.float64), np.stack(counts, axis=-1).astype(np.float64), names
    )


def _with_intervals(
    rows: list[dict[str, Any]], questions: Sequence[Question], columns: Sequence[str], with_p: bool = False
) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=list(columns))
    told = intervals(questions)
    for name in ("low", "high", *(("p",) if with_p else ())):
        frame[name] = np.array([getattr(each, name) for each in told], dtype=np.float64)
    frame["users"] = np.array([each.n_users for each in told], dtype=np.int64)
    return frame.assign(reason=[each.reason for each in told])


def _wins(low: Floats, high: Floats) -> Floats:
    """1 where the second is larger, ½ where they are equal (first × second)."""
    more, equal = np.greater(high[None, :], low[:, None]), np.equal(high[None, :], low[:, None])
    return more.astype(np.float64) + 0.5 * equal


def _auc_interval(group: pd.DataFrame, other: pd.DataFrame) -> Interval:
    """Of the area less 0.5. Its error in a draw is that of its linearised placements by user (Obuchowski 1997)."""
    users = pd.Index(pd.unique(pd.concat([group["user"], other["user"]])))
    first, second = (_membership(users.get_indexer(pd.Index(each["user"])), len(users)) for each in (group, other))
    for part, held in ((group, first), (other, second)):
        holding = int((held.sum(axis=1) > 0).sum())
        if holding < FEWEST_USERS:
            few = "1 user" if holding == 1 else f"{holding} users"
            return Interval.missing(
                f"{part['group'].iloc[0]} rests on {few}, an interval needs {FEWEST_USERS}", len(users)
            )
    wins = first @ _wins(_tops(group), _tops(other)) @ second.T  # users × users
    sizes, other_sizes = first.sum(axis=1), second.sum(axis=1)

    def measure(times: Floats) -> tuple[Floats, Floats]:
        m, n = times @ sizes, times @ other_sizes
        m, n = np.where(m > 0, m, np.nan), np.where(n > 0, n, np.nan)
        of_first, of_second = times @ wins.T, times @ wins  # what each user's questions win against those drawn
        auc = (of_first * times).sum(axis=1) / (m * n)
        slope = of_first / (m * n)[:, None] - np.outer(auc / m, sizes)
        slope += of_second / (m * n)[:, None] - np.outer(auc / n, other_sizes)
        size = len(users)
        error = np.sqrt(size / (size - 1) * (times * slope**2).sum(axis=1))
        return (auc - 0.5)[None], error[None]

    return resampled(measure, len(users))[0]


def _membership(owner: npt.NDArray[np.intp], size: int) -> Floats:
    """Users × questions: 1 where the question is the user's."""
    return np.equal(owner[None, :], np.arange(size)[:, None]).astype(np.float64)


def _held_out(group: pd.DataFrame, other: pd.DataFrame) -> tuple[float, float]:
    """Shares of both groups that lie below the threshold which is best for all users but the question's own."""
    below = np.zeros(2)
    for user in pd.unique(pd.concat([group["user"], other["user"]])):
        rest = [part[part["user"] != user] for part in (group, other)]
        if not all(len(part) for part in rest):
            return math.nan, math.nan
        threshold = _best_threshold(*(_tops(part) for part in rest))
        below += [int((_tops(part[part["user"] == user]) < threshold).sum()) for part in (group, other)]
    return float(below[0] / len(group)), float(below[1] / len(other))


def _best_threshold(low: Floats, high: Floats) -> float:
    """The cosine below which abstaining tells both apart best; the lowest of those that do equally well."""
    seen = np.unique(np.concatenate([low, high]))
    seen = seen[np.isfinite(seen)]
    # Below all that were seen, between two, and above all: where it is put between them makes no difference here.
    candidates = np.concatenate([seen[:1], (seen[:-1] + seen[1:]) / 2, [1.0]])
    shares = [np.searchsorted(np.sort(side), candidates, side="left") / len(side) for side in (low, high)]
    return float(candidates[int(np.argmax(shares[0] - shares[1]))])
