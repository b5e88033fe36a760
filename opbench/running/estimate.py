"""Adding up what a plan's jobs take: calls, tokens, dollars and seconds, by configuration and stage."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from opbench.judges import judge_calls
from opbench.protocol import by_memos
from opbench.running.assumed import JUDGE_ANSWER_TOKENS, JUDGE_PROMPT_TOKENS, Pace, memory_tokens, prompt_tokens
from opbench.running.ingestion_quote import IngestionLine, by_system, seconds_at
from opbench.running.measured import AMOUNTS, Measured, Stratum, Use
from opbench.running.plan import DONE, UNJUDGED, Plan
from opbench.running.prepare import Prepared
from opbench.running.sharing import CAUSES, Calls, Cause, Mask, Sharing, response_to
from opbench.study import BASE, NO_MITIGATION

Price = Callable[[str, float, float], float | None]
"""Dollars of (model, tokens in, tokens out), also for parts of tokens; None when a price is unknown."""


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
class _Needed:
    """The calls of a stage of a stratum: how many a driver makes that shares nothing, which are new, and why others
    aren't."""

    naive: float
    new: float
    prompt_tokens: float
    completion_tokens: float
    seconds: float
    saved: Mapping[Cause, float]


class Estimate:
    """Adds up the jobs of a plan. The work doesn't grow with the records: an array operation is one of a configuration
    and benchmark."""

    def __init__(
        self, prepared: Prepared, plan: Plan, measured: Measured, pace: Pace, price: Price, concurrency: int
    ) -> None:
        self.lines: dict[tuple[str, str, str, str], Line] = {}
        self.totals: dict[Stratum, Counter[str]] = {}
        self.left: Counter[Stratum] = Counter()
        self.assumed: Counter[str] = Counter()
        """Models whose calls rest on no record of this run."""
        self.saved: dict[Cause, float] = dict.fromkeys(CAUSES, 0.0)
        self.pace = pace
        self.retrievals_naive = 0
        self.retrievals = 0
        self._prepared = prepared
        self._measured = measured
        self._price = price
        self._concurrency = concurrency
        study, instances = prepared.study, prepared.instances
        self._at_a_time = cache(lambda model: prepared.at_a_time(model, concurrency))
        self._sizes = {memory: memory_tokens(prepared, memory) for memory in study.memories if memory != BASE}
        self._questions = np.array([prompt_tokens(study, instance) for instance in instances])
        # Once a subtype: a judge is looked for among all installed packages.
        kinds = {(instance.benchmark, instance.subtype): instance for instance in instances}
        calls = {kind: judge_calls(study, instance) for kind, instance in kinds.items()}
        self._judge_calls = np.array([calls[instance.benchmark, instance.subtype] for instance in instances])
        self._sharing = Sharing(prepared, plan.jobs)
        benchmarks = np.array([instance.benchmark for instance in instances])
        for configuration, row in zip(plan.jobs.configuration_ids, plan.jobs.states, strict=True):
            for benchmark in study.benchmarks:
                mine = benchmarks == benchmark
                self._add_stratum((configuration, benchmark), mine & (row < UNJUDGED), mine & (row != DONE))

    def add_ingestion(self, lines: Sequence[IngestionLine]) -> list[IngestionLine]:
        """What memory systems have to take in first, given by system and user; by system."""
        systems = by_system(lines)
        for each in systems:
            mine = [line for line in lines if line.system == each.system]
            at_once = min(len(mine), self._concurrency)
            if each.extractor is not None:
                at_once = min(at_once, self._at_a_time(each.extractor))
            key = (each.extractor or "", each.system, "", "ingestion")
            self.lines[key] = Line(
                *key,
                calls_naive=each.calls,
                calls=each.calls,
                prompt_tokens=each.prompt_tokens,
                completion_tokens=each.completion_tokens,
                cost_usd=each.cost_usd,
                seconds=seconds_at(mine, at_once),
                measured=bool(each.measured),
            )
        return systems

    def ranges(self) -> dict[str, tuple[float, float]]:
        """Of the records as measured; what ingestion takes is the same at both ends."""
        found = self._measured.ranges(self.left, self.totals)
        lines = [line for line in self.lines.values() if line.stage == "ingestion"]
        added = {name: [getattr(line, name) for line in lines] for name in found}
        return {
            name: (low + sum(added[name]), high + sum(added[name]))
            for name, (low, high) in found.items()
            if None not in added[name]
        }

    def _add_stratum(self, stratum: Stratum, missing: Mask, unfinished: Mask) -> None:
        """`missing`: records to be made, `unfinished`: those to be judged."""
        if not unfinished.any():
            return
        configuration, _ = stratum
        self.left[stratum] = int(unfinished.sum())
        self.totals[stratum] = Counter(dict.fromkeys(AMOUNTS, 0.0))
        if configuration.memory != BASE:
            found = self._sharing.retrievals(configuration, missing)
            self.retrievals_naive += int(missing.sum())
            self.retrievals += len(found.new)
        asked = unfinished & (self._judge_calls > 0)
        response, judging = self._response(stratum, missing), self._judging(stratum, asked)
        self._add(stratum, "post", configuration.model, self._post(stratum, missing))
        self._add(stratum, "response", configuration.model, response)
        self._add(stratum, "judge", self._prepared.study.judge, judging)
        if configuration.memory == BASE:
            # A driver that shares nothing does BASE again under every other post-processor. That these have nothing
            # to process, and so ask nothing, it is taken to know.
            copies = len(self._prepared.study.mitigations) - 1
            judged = judging.naive * int((asked & missing).sum()) / max(1, int(asked.sum()))
            self.saved["base"] += copies * (response.naive + judged)

    def _post(self, stratum: Stratum, missing: Mask) -> _Needed:
        configuration, _ = stratum
        method = self._prepared.mitigations[configuration.mitigation]
        calls = method.calls if configuration.mitigation != NO_MITIGATION else 0
        needed = self._sharing.post(configuration, missing)
        prompts = (self._questions + self._size(stratum)) * 1.5
        answer = self.pace.answer(configuration.model)
        return self._needed(stratum, "post", missing, np.where(missing, calls, 0), needed, prompts, answer)

    def _response(self, stratum: Stratum, missing: Mask) -> _Needed:
        configuration, _ = stratum
        made_of = response_to(self._prepared.mitigations[configuration.mitigation])
        needed = self._sharing.responses(configuration, missing)
        prompts = self._questions + (0.0 if made_of == "nothing" else self._size(stratum))
        answer = self.pace.answer(configuration.model)
        calls = np.where(missing, 0 if made_of == "own" else 1, 0)
        return self._needed(stratum, "response", missing, calls, needed, prompts, answer)

    def _judging(self, stratum: Stratum, judged: Mask) -> _Needed:
        configuration, _ = stratum
        needed = self._sharing.judging(configuration, judged)
        prompts = np.full(len(judged), float(JUDGE_PROMPT_TOKENS))
        calls = np.where(judged, self._judge_calls, 0)
        return self._needed(stratum, "judge", judged, calls, needed, prompts, float(JUDGE_ANSWER_TOKENS))

    def _needed(
        self,
        stratum: Stratum,
        stage: str,
        wanted: Mask,
        calls: NDArray[np.int_],
        needed: Calls,
        prompts: NDArray[np.float64],
        answer: float,
    ) -> _Needed:
        """A stage as measured, else with so many calls of each instance, and prompts and answers of so many tokens."""
        configuration, _ = stratum
        repeated: Cause = "judged" if stage == "judge" else "equal"
        plain = stage == "response" and self._sharing.plain(configuration)
        elsewhere: Cause = "plain" if plain else repeated
        use = self._use(stratum, stage)
        if use is None:
            asked = self._prepared.study.judge if stage == "judge" else configuration.model
            naive, new = float(calls.sum()), float(calls[needed.new].sum())
            if naive:
                self.assumed[asked] += 1
            each = naive / max(1, int(wanted.sum()))
            taken = float((calls * prompts)[needed.new].sum())
            saved = _saved((repeated, each * needed.equal), (elsewhere, naive - new - each * needed.equal))
            return _Needed(naive, new, taken, new * answer, new * self.pace.seconds(asked), saved)
        naive = use.calls * int(wanted.sum())
        if plain and not self._prepared.study.latency_probe:
            # Told better by the plan than by a pilot, in which every record may have been the first to ask.
            new = use.calls * len(needed.new)
            saved = _saved((repeated, use.calls * needed.equal), (elsewhere, use.calls * needed.shared))
        else:
            new = naive * use.new
            saved = _saved((repeated, naive - new))
        return _Needed(naive, new, new * use.tokens_in, new * use.tokens_out, new * use.seconds, saved)

    def _use(self, stratum: Stratum, stage: str) -> Use | None:
        """The stage as measured; None when no record tells of it."""
        if not self._measured.knows(*stratum):
            return None
        found = self._measured.stage(*stratum, stage)
        # Records that never came to this stage tell that it takes nothing; of judging they tell nothing.
        return Use(0.0, 0.0, 0.0, 0.0, 0.0) if found is None and stage != "judge" else found

    def _size(self, stratum: Stratum) -> float:
        """Tokens of what is retrieved: by protocol memos k memories of each speaker."""
        configuration, benchmark = stratum
        both = by_memos(self._prepared.study, benchmark) and configuration.memory in self._prepared.ingesting
        return self._sizes.get(configuration.memory, 0.0) * (2 if both else 1)

    def _add(self, stratum: Stratum, stage: str, asked: str, needed: _Needed) -> None:
        if not needed.naive:
            return
        configuration, _ = stratum
        for cause, calls in needed.saved.items():
            self.saved[cause] += calls
        key = (configuration.model, configuration.memory, configuration.mitigation, stage)
        line = self.lines.setdefault(key, Line(*key))
        line.measured &= self._measured.knows(*stratum)
        seconds = needed.seconds / self._at_a_time(asked)
        price = self._price(asked, needed.prompt_tokens, needed.completion_tokens)
        line.calls_naive += needed.naive
        line.calls += needed.new
        line.prompt_tokens += needed.prompt_tokens
        line.completion_tokens += needed.completion_tokens
        line.seconds += seconds
        line.cost_usd = None if price is None or line.cost_usd is None else line.cost_usd + price
        amounts = (needed.prompt_tokens, needed.completion_tokens, math.nan if price is None else price, seconds)
        self.totals[stratum].update(dict(zip(AMOUNTS, amounts, strict=True)))


def _saved(*parts: tuple[Cause, float]) -> dict[Cause, float]:
    found: dict[Cause, float] = {}
    for cause, calls in parts:
        found[cause] = found.get(cause, 0.0) + calls
    return found
