"""What the records that a run has so far took, as a basis for what the rest of it will take."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, fields
from statistics import fmean

import pandas as pd

from opbench.study import Configuration

#: What a quote gives a range for.
AMOUNTS = ("prompt_tokens", "completion_tokens", "cost_usd", "seconds")
_KIND = ["model", "memory", "mitigation", "benchmark"]
_CONFIDENCE = 0.95

Stratum = tuple[Configuration, str]
"""A configuration on a benchmark: records of one are alike."""


@dataclass(frozen=True, slots=True)
class Use:
    """A stage's calls in a record, on average."""

    calls: float
    """Calls a record; of the judge, calls a judged record."""
    new: float
    """Share (0 to 1) of them that no other record of the run makes: the rest is answered from the call store."""
    tokens_in: float
    """Tokens a call, as are `tokens_out`."""
    tokens_out: float
    seconds: float
    """Seconds a call."""


class Measured:
    """The calls of a run's records (`store.spending.measured_calls`) by configuration, benchmark and stage."""

    def __init__(
        self, uses: pd.DataFrame, price: Callable[[str, float, float], float | None], at_a_time: Callable[[str], int]
    ) -> None:
        """`price`: dollars of (model, tokens in, tokens out), None when unknown; `at_a_time`: requests to a model."""
        self.records = int(uses["record"].nunique())
        called = uses[uses["key"].notna()]
        # In the order of the configurations: what several need is new where it is needed first, as in the plan.
        called = called.assign(new=~called["key"].duplicated())
        self._n: dict[Hashable, int] = uses.groupby(_KIND)["record"].nunique().to_dict()
        self._stages: dict[tuple[str, ...], Use] = {}
        for parts, rows in called.groupby([*_KIND, "stage"]):
            *kind, stage = name = tuple(map(str, parts))
            over = rows["record"].nunique() if stage == "judge" else self._n[tuple(kind)]
            means = rows[["tokens_in", "tokens_out", "seconds"]].mean().fillna(0.0)
            self._stages[name] = Use(len(rows) / over, float(rows["new"].mean()), *(float(each) for each in means))
        self._amounts = _by_record(uses, called, price, at_a_time)

    def knows(self, configuration: Configuration, benchmark: str) -> bool:
        return _name(configuration, benchmark) in self._n

    def stage(self, configuration: Configuration, benchmark: str, stage: str) -> Use | None:
        """A stage of a configuration that is known; None when none of its records came to it.

        Judging is told by other configurations' records where this one's were of subtypes that no model judges.
        """
        found = self._stages.get((*_name(configuration, benchmark), stage))
        if found is None and stage == "judge":
            others = [use for name, use in self._stages.items() if name[3:] == (benchmark, stage)]
            return _mean(others) if others else None
        return found

    def ranges(
        self, left: Mapping[Stratum, int], totals: Mapping[Stratum, Mapping[str, float]]
    ) -> dict[str, tuple[float, float]]:
        """In which range the rest's amounts lie with 95 % confidence, if its records are like those measured.

        `left` counts the records to do, `totals` holds their estimated amounts. A stratum's spread is that of its
        records' amounts (of all strata's where it has one only), with Student's t; strata are taken to err in the
        same direction, since they share their instances. Empty when a stratum wasn't measured or none was twice.
        """
        sizes = {stratum: self._n.get(_name(*stratum), 0) for stratum in left}
        freedom = sum(n - 1 for n in self._n.values())
        if not left or freedom < 1 or not all(sizes.values()):
            return {}
        # SciPy takes most of a second to load, which a command that quotes nothing shouldn't wait for.
        from scipy import stats

        quantile = float(stats.t.ppf((1 + _CONFIDENCE) / 2, freedom))
        found = {}
        for amount in AMOUNTS:
            if any(math.isnan(totals[stratum][amount]) for stratum in left):
                continue
            spread = self._relative_spread(amount)
            half = quantile * sum(
                totals[stratum][amount] * spread[_name(*stratum)] * math.sqrt(1 / sizes[stratum] + 1 / n)
                for stratum, n in left.items()
            )
            total = sum(totals[stratum][amount] for stratum in left)
            found[amount] = (max(0.0, total - half), total + half)
        return found

    def _relative_spread(self, amount: str) -> dict[tuple[str, ...], float]:
        """Standard deviation over mean of a record's amount, by stratum."""
        groups = self._amounts.groupby(_KIND)[amount]
        mean, n = groups.mean(), groups.count()
        relative = (groups.std() / mean.where(mean > 0)).where(n > 1)
        weights = (n - 1).where(relative.notna(), 0)
        pooled = math.sqrt(float((weights * relative.fillna(0.0) ** 2).sum()) / max(1, int(weights.sum())))
        return dict(relative.fillna(pooled))


def _mean(uses: list[Use]) -> Use:
    return Use(*(fmean(getattr(use, each.name) for use in uses) for each in fields(Use)))


def _name(configuration: Configuration, benchmark: str) -> tuple[str, str, str, str]:
    return configuration.model, configuration.memory, configuration.mitigation, benchmark


def _by_record(
    uses: pd.DataFrame,
    called: pd.DataFrame,
    price: Callable[[str, float, float], float | None],
    at_a_time: Callable[[str], int],
) -> pd.DataFrame:
    """What each record takes with all of its calls, shared or not: its kind and `AMOUNTS`."""
    dollars = [
        price(asked, tokens_in, tokens_out)
        for asked, tokens_in, tokens_out in called[["asked", "tokens_in", "tokens_out"]]
        .fillna({"tokens_in": 0.0, "tokens_out": 0.0})
        .itertuples(index=False)
    ]
    amounts = pd.DataFrame(
        {
            "record": called["record"],
            "prompt_tokens": called["tokens_in"],
            "completion_tokens": called["tokens_out"],
            "cost_usd": pd.Series(dollars, index=called.index, dtype="float64"),
            "seconds": called["seconds"] / called["asked"].map(at_a_time) if len(called) else called["seconds"],
        }
    )
    records = uses.drop_duplicates("record").set_index("record")[_KIND]
    return records.join(amounts.groupby("record").sum()).fillna(dict.fromkeys(AMOUNTS, 0.0))
