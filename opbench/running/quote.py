"""What a study will take, before it starts: calls, tokens, money and time (an estimate, and said to be one)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from typing import Any

from sqlalchemy import select

from mitigations.base import PostProcessor
from opbench.judges import judge_calls
from opbench.models import cost
from opbench.protocol import by_memos
from opbench.running.assumed import JUDGE_ANSWER_TOKENS, JUDGE_PROMPT_TOKENS, Pace, memory_tokens, prompt_tokens
from opbench.running.ingestion_quote import IngestionLine, basis, by_system, ingestion_quote, seconds_at
from opbench.running.measured import AMOUNTS, Measured, Stratum, Use
from opbench.running.plan import Plan, make_plan
from opbench.running.prepare import Prepared
from opbench.running.worker import make_ingestion
from opbench.store import schema as s
from opbench.store.database import Store
from opbench.store.reading import run_study
from opbench.store.spending import measured_calls
from opbench.study import BASE, NO_MITIGATION, Configuration
from opbench.types import Instance


@dataclass(slots=True)
class Line:
    """A stage of a configuration, over the records to do. `cost_usd` is None when a price is unknown."""

    model: str
    memory: str
    mitigation: str
    stage: str
    """ingestion (of no post-processor), post, response or judge"""
    calls_naive: float = 0.0
    calls: float = 0.0
    prompt_tokens: float = 0.0
    completion_tokens: float = 0.0
    cost_usd: float | None = 0.0
    seconds: float = 0.0
    measured: bool = True
    """Whether it rests on records of this very run."""


@dataclass(frozen=True, slots=True)
class Quote:
    """An estimate for what is still to do. Dollars are None when a price is unknown; seconds at the concurrency."""

    planned: int
    finished: int
    to_do: int
    calls_naive: int
    """Model calls of a driver that shares nothing between records."""
    calls: int
    """Model calls at the most, since plain responses are shared; equal contexts and earlier studies save more."""
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float | None
    seconds: float
    basis: str
    """What the answer lengths and times rest on."""
    ingestion: tuple[IngestionLine, ...] = ()
    """By memory system: sessions to take in before the first record; its calls and costs are in the sums above."""
    measured: int = 0
    """Records of this run that it rests on."""
    ranges: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Ranges at 95 % confidence of prompt_tokens, completion_tokens, cost_usd and seconds, where measured."""
    lines: tuple[Line, ...] = ()
    """By configuration and stage."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Quote:
        """A quote from what `to_dict` gave, also by way of JSON."""
        known = {each.name: values[each.name] for each in fields(cls)}
        ranges = {name: (low, high) for name, (low, high) in known["ranges"].items()}
        lines = tuple(Line(**line) for line in known["lines"])
        ingestion = tuple(IngestionLine(**line) for line in known["ingestion"])
        return cls(**known | {"ranges": ranges, "lines": lines, "ingestion": ingestion})


def quote(store: Store, prepared: Prepared, *, concurrency: int) -> Quote:
    """Estimate what is left to do of the study. Makes no call, starts nothing and writes nothing.

    It rests on the calls of the run's own records where there are some (a pilot), else on averages of the models'
    earlier calls and on rules of thumb.
    """
    plan = make_plan(store, prepared.run_id, _configuration_ids(store, prepared), prepared.instances)
    uses = measured_calls(store, prepared.run_id)
    price = _price_of(prepared)
    measured = Measured(uses, price, lambda model: prepared.at_a_time(model, concurrency))
    estimate = _Estimate(prepared, plan, measured, Pace(store), price, concurrency)
    needed = make_ingestion(prepared, plan, concurrency).pairs
    estimate.add_ingestion([line for line in ingestion_quote(store, prepared, needed) if line.sessions])
    return estimate.quote(_origin(store, prepared.run_id, measured.records))


class _Estimate:
    """Adds up the jobs of a plan."""

    def __init__(
        self,
        prepared: Prepared,
        plan: Plan,
        measured: Measured,
        pace: Pace,
        price: Callable[[str, float, float], float | None],
        concurrency: int,
    ) -> None:
        self._prepared = prepared
        self._plan = plan
        self._measured = measured
        self._pace = pace
        self._price = price
        self._concurrency = concurrency
        self._lines: dict[tuple[str, str, str, str], Line] = {}
        self._totals: dict[Stratum, Counter[str]] = {}
        self._left: Counter[Stratum] = Counter()
        self._assumed: Counter[str] = Counter()
        self._ingestion: list[IngestionLine] = []
        self._sizes = {memory: memory_tokens(prepared, memory) for memory in prepared.study.memories if memory != BASE}
        self._questions = {instance.id: prompt_tokens(prepared.study, instance) for instance in prepared.instances}
        self._shared = {self._plain(job.configuration, job.instance) for job in plan.jobs}
        for job in plan.jobs:
            stratum = job.configuration, job.instance.benchmark
            self._left[stratum] += 1
            self._totals.setdefault(stratum, Counter(dict.fromkeys(AMOUNTS, 0.0)))
            if job.record_id is None:
                self._add_responses(job.configuration, job.instance)
            self._add_judging(job.configuration, job.instance)

    def add_ingestion(self, lines: Sequence[IngestionLine]) -> None:
        """What memory systems have to take in first; a line a system and user."""
        self._ingestion = by_system(lines)
        for each in self._ingestion:
            mine = [line for line in lines if line.system == each.system]
            at_once = min(len(mine), self._concurrency)
            if each.extractor is not None:
                at_once = min(at_once, self._prepared.at_a_time(each.extractor, self._concurrency))
            key = (each.extractor or "", each.system, "", "ingestion")
            self._lines[key] = Line(
                *key,
                calls_naive=each.calls,
                calls=each.calls,
                prompt_tokens=each.prompt_tokens,
                completion_tokens=each.completion_tokens,
                cost_usd=each.cost_usd,
                seconds=seconds_at(mine, at_once),
                measured=bool(each.measured),
            )

    def _ranges(self) -> dict[str, tuple[float, float]]:
        """Of the records as measured; what ingestion takes is the same at both ends."""
        found = self._measured.ranges(self._left, self._totals)
        lines = [line for line in self._lines.values() if line.stage == "ingestion"]
        added = {name: [getattr(line, name) for line in lines] for name in found}
        return {
            name: (low + sum(added[name]), high + sum(added[name]))
            for name, (low, high) in found.items()
            if None not in added[name]
        }

    def quote(self, origin: str) -> Quote:
        lines = tuple(self._lines.values())
        known = [line.cost_usd for line in lines if line.cost_usd is not None]
        return Quote(
            self._plan.planned,
            self._plan.finished,
            len(self._plan.jobs),
            round(sum(line.calls_naive for line in lines)),
            round(sum(line.calls for line in lines)),
            round(sum(line.prompt_tokens for line in lines)),
            round(sum(line.completion_tokens for line in lines)),
            round(sum(known), 4) if len(known) == len(lines) else None,
            sum(line.seconds for line in lines),
            self._basis(origin),
            tuple(self._ingestion),
            self._measured.records,
            self._ranges(),
            lines,
        )

    def _add_responses(self, configuration: Configuration, instance: Instance) -> None:
        method = self._prepared.mitigations[configuration.mitigation]
        before = method.calls if configuration.mitigation != NO_MITIGATION else 0
        prompt = self._questions[instance.id] + self._size(configuration, instance)
        post = self._use(configuration, instance, "post", before, prompt * 1.5, self._pace.answer(configuration.model))
        self._add(configuration, instance, "post", configuration.model, post, post.calls, post.calls * post.new)
        made_of = _response_to(method)
        if made_of == "nothing":
            prompt = self._questions[instance.id]
        asked = 0 if made_of == "own" else 1
        response = self._use(configuration, instance, "response", asked, prompt, self._pace.answer(configuration.model))
        new = response.calls * response.new
        shared = configuration.mitigation == NO_MITIGATION or method.revises or made_of == "nothing"
        if shared and not self._prepared.study.latency_probe:
            # The response without post-processing, and Self-Critic's draft, are one call a memory system and instance;
            # that to an emptied memory is BASE's.
            plain = self._plain(configuration, instance)
            new = response.calls * float(plain in self._shared)
            self._shared.discard(plain)
        self._add(configuration, instance, "response", configuration.model, response, response.calls, new)

    def _size(self, configuration: Configuration, instance: Instance) -> float:
        """Tokens of what is retrieved: by protocol memos k memories of each speaker."""
        both = by_memos(self._prepared.study, instance.benchmark) and configuration.memory in self._prepared.ingesting
        return self._sizes.get(configuration.memory, 0.0) * (2 if both else 1)

    def _plain(self, configuration: Configuration, instance: Instance) -> tuple[str, str, str]:
        """What tells apart the responses without post-processing: model, memory system, instance."""
        emptied = _response_to(self._prepared.mitigations[configuration.mitigation]) == "nothing"
        return configuration.model, BASE if emptied else configuration.memory, instance.id

    def _add_judging(self, configuration: Configuration, instance: Instance) -> None:
        study = self._prepared.study
        calls = judge_calls(study, instance)
        if not calls:
            return
        use = self._use(configuration, instance, "judge", calls, JUDGE_PROMPT_TOKENS, JUDGE_ANSWER_TOKENS)
        self._add(configuration, instance, "judge", study.judge, use, use.calls, use.calls * use.new)

    def _use(
        self, configuration: Configuration, instance: Instance, stage: str, calls: float, prompt: float, answer: float
    ) -> Use:
        """The stage as measured; else so many calls, all of them new, with the given tokens."""
        asked = self._prepared.study.judge if stage == "judge" else configuration.model
        if self._measured.knows(configuration, instance.benchmark):
            found = self._measured.stage(configuration, instance.benchmark, stage)
            if found is not None:
                return found
            if stage != "judge":
                return Use(0.0, 0.0, 0.0, 0.0, 0.0)
        if calls:
            self._assumed[asked] += 1
        return Use(calls, 1.0, prompt, answer, self._pace.seconds(asked))

    def _add(
        self,
        configuration: Configuration,
        instance: Instance,
        stage: str,
        asked: str,
        use: Use,
        naive: float,
        new: float,
    ) -> None:
        if not naive:
            return
        stratum = configuration, instance.benchmark
        key = (configuration.model, configuration.memory, configuration.mitigation, stage)
        line = self._lines.setdefault(key, Line(*key))
        line.measured &= self._measured.knows(*stratum)
        amounts = {
            "prompt_tokens": new * use.tokens_in,
            "completion_tokens": new * use.tokens_out,
            "seconds": new * use.seconds / self._prepared.at_a_time(asked, self._concurrency),
        }
        price = self._price(asked, amounts["prompt_tokens"], amounts["completion_tokens"])
        line.calls_naive += naive
        line.calls += new
        line.prompt_tokens += amounts["prompt_tokens"]
        line.completion_tokens += amounts["completion_tokens"]
        line.seconds += amounts["seconds"]
        line.cost_usd = None if price is None or line.cost_usd is None else line.cost_usd + price
        self._totals[stratum].update(amounts | {"cost_usd": float("nan") if price is None else price})

    def _basis(self, origin: str) -> str:
        if not self._plan.jobs:
            return "nothing left to do"
        parts = [origin] if origin else []
        if self._assumed or not parts:
            parts.append(self._pace.basis(self._assumed))
        if self._ingestion:
            parts.append(basis(self._ingestion))
        return "; ".join(parts)


def _response_to(method: PostProcessor) -> str:
    """`mitigations.method.ResponseTo`; a plugin needn't tell it."""
    return str(getattr(method, "response", "kept"))


def _price_of(prepared: Prepared) -> Callable[[str, float, float], float | None]:
    """Dollars of (model, tokens in, tokens out), also for parts of tokens; None when a price is unknown."""
    million = 1_000_000

    @cache
    def a_token(name: str) -> tuple[float, float] | None:
        spec = prepared.registry.model(name)
        taken, given = cost(spec, million, 0), cost(spec, 0, million)
        return None if taken is None or given is None else (taken / million, given / million)

    def price(name: str, tokens_in: float, tokens_out: float) -> float | None:
        prices = a_token(name)
        return None if prices is None else prices[0] * tokens_in + prices[1] * tokens_out

    return price


def _origin(store: Store, run_id: str, records: int) -> str:
    """Whose records a quote rests on."""
    if not records:
        return ""
    _, provenance = run_study(store, run_id)
    executions = provenance.get("executions", [])
    piloted = executions and all(each.get("pilot_records") for each in executions)
    return f"from a pilot of {records:,} records" if piloted else f"from {records:,} records of this run"


def _configuration_ids(store: Store, prepared: Prepared) -> dict[Configuration, int]:
    """As the run has them in the store; any numbers for a run that isn't there yet, and so has no records."""
    with store.begin() as connection:
        rows = connection.execute(select(s.configurations).where(s.configurations.c.run_id == prepared.run_id)).all()
    known = {Configuration(row.model, row.memory, row.mitigation): row.id for row in rows}
    return known or {each: number for number, each in enumerate(prepared.study.configurations())}
