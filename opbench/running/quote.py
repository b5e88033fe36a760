"""What a study will take, before it starts: calls, tokens, money and time (an estimate, and said to be one)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from sqlalchemy import func, select

from mitigations.base import Memory
from opbench.judges import is_rule_judge
from opbench.memories.rag import observations, turns
from opbench.models import cost
from opbench.running.plan import Plan, make_plan
from opbench.running.prepare import Prepared
from opbench.running.response_prompts import response_messages
from opbench.store import schema as s
from opbench.store.database import Store
from opbench.study import BASE, NO_MITIGATION, Configuration
from opbench.types import Instance, Session

#: Characters per token of English text, the rule of thumb that the estimate of prompt lengths rests on.
CHARACTERS_PER_TOKEN = 4.0
#: Answer lengths in tokens, and seconds a call, when the call store knows nothing of the model yet.
_UNKNOWN_ANSWER = 150.0
_UNKNOWN_SECONDS = 3.0
_JUDGE_PROMPT_TOKENS = 600
_JUDGE_ANSWER_TOKENS = 60


@dataclass(frozen=True, slots=True)
class Quote:
    """An estimate for what is still to do. Dollars are None when a price is unknown; seconds at the concurrency."""

    planned: int
    finished: int
    to_do: int
    calls_naive: int
    """Model calls of a driver that shares nothing between records."""
    calls: int
    """Model calls at the most, since plain responses are shared; equal contexts save more."""
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float | None
    seconds: float
    basis: str
    """What the answer lengths and times rest on."""

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


def quote(store: Store, prepared: Prepared, *, concurrency: int) -> Quote:
    """Estimate what is left to do of the study. Makes no call, starts nothing and writes nothing."""
    plan = make_plan(store, prepared.run_id, _configuration_ids(store, prepared), prepared.instances)
    pace = _Pace(store)
    counts: Counter[str] = Counter()
    naive = 0
    tokens_in = tokens_out = 0.0
    seconds: dict[str, float] = defaultdict(float)
    probe = prepared.study.latency_probe
    dollars: float | None = 0.0
    sizes = {memory: _memory_tokens(prepared, memory) for memory in prepared.study.memories if memory != BASE}
    questions = {instance.id: _prompt_tokens(instance) for instance in prepared.instances}

    def add(model: str, calls: int, prompt: float, answer: float) -> None:
        nonlocal tokens_in, tokens_out, dollars
        counts[model] += calls
        tokens_in += calls * prompt
        tokens_out += calls * answer
        seconds[model] += calls * pace.seconds(model)
        price = cost(prepared.registry.model(model), round(calls * prompt), round(calls * answer))
        dollars = None if dollars is None or price is None else dollars + price

    shared = _plain_responses(plan)
    for job in plan.jobs:
        model, memory = job.configuration.model, job.configuration.memory
        method = prepared.mitigations[job.configuration.mitigation]
        judged = _is_judged(prepared, job.instance)
        before = method.calls if job.configuration.mitigation != NO_MITIGATION else 0
        naive += (0 if job.record_id else before + 1) + judged
        if judged:
            add(prepared.study.judge, 1, _JUDGE_PROMPT_TOKENS, _JUDGE_ANSWER_TOKENS)
        if job.record_id:
            continue
        prompt = questions[job.instance.id] + sizes.get(memory, 0.0)
        answer = pace.answer(model)
        plain = job.configuration.mitigation == NO_MITIGATION or method.revises
        # The response without post-processing, and Self-Critic's draft, are one call a memory system and instance.
        response = (model, memory, job.instance.id)
        if probe or not plain or response in shared:
            add(model, 1, prompt, answer)
        if plain:
            shared.discard(response)
        if before:
            add(model, before, prompt * 1.5, answer)
    return Quote(
        plan.planned,
        plan.finished,
        len(plan.jobs),
        naive,
        sum(counts.values()),
        round(tokens_in),
        round(tokens_out),
        None if dollars is None else round(dollars, 4),
        sum(taken / prepared.at_a_time(model, concurrency) for model, taken in seconds.items()),
        pace.basis(counts),
    )


def _configuration_ids(store: Store, prepared: Prepared) -> dict[Configuration, int]:
    """As the run has them in the store; any numbers for a run that isn't there yet, and so has no records."""
    with store.begin() as connection:
        rows = connection.execute(select(s.configurations).where(s.configurations.c.run_id == prepared.run_id)).all()
    known = {Configuration(row.model, row.memory, row.mitigation): row.id for row in rows}
    return known or {each: number for number, each in enumerate(prepared.study.configurations())}


def _plain_responses(plan: Plan) -> set[tuple[str, str, str]]:
    return {(job.configuration.model, job.configuration.memory, job.instance.id) for job in plan.jobs}


def _is_judged(prepared: Prepared, instance: Instance) -> int:
    """Judge calls for one response: repetition and adversarial questions need no model."""
    return int(not is_rule_judge(prepared.study.judge) and instance.subtype not in ("repetition", "adversarial"))


def _prompt_tokens(instance: Instance) -> float:
    messages = response_messages(instance.benchmark, instance.question, [Memory("")])
    return sum(len(message.content) for message in messages) / CHARACTERS_PER_TOKEN


def _memory_tokens(prepared: Prepared, memory: str) -> float:
    """Tokens of k memories of average length; other memory systems are taken to store facts like observations."""
    unit: Callable[[Sequence[Session]], list[Memory]] = turns if memory == "rag" else observations
    lengths = [
        len(text.text) + len(text.date or "") + 6
        for key in prepared.history_sha256
        for text in unit(prepared.corpus.conversations[key].sessions)
    ]
    return prepared.study.k * fmean(lengths) / CHARACTERS_PER_TOKEN if lengths else 0.0


class _Pace:
    """Answer lengths and times of the models as the call store knows them."""

    def __init__(self, store: Store) -> None:
        calls = s.calls.c
        with store.begin() as connection:
            rows = connection.execute(
                select(calls.model, func.avg(calls.completion_tokens), func.avg(calls.duration_ms), func.count())
                .where(calls.kind == "chat")
                .group_by(calls.model)
            ).all()
        self._known = {row[0]: (float(row[1] or _UNKNOWN_ANSWER), float(row[2]) / 1000, row[3]) for row in rows}

    def answer(self, model: str) -> float:
        return self._known[model][0] if model in self._known else _UNKNOWN_ANSWER

    def seconds(self, model: str) -> float:
        return self._known[model][1] if model in self._known else _UNKNOWN_SECONDS

    def basis(self, counts: Counter[str]) -> str:
        known = [f"{self._known[m][2]} earlier calls of {m}" for m in counts if m in self._known]
        unknown = [m for m in counts if m not in self._known]
        parts = [f"from {', '.join(known)}"] if known else []
        if unknown:
            parts.append(
                f"assumed {_UNKNOWN_ANSWER:.0f} tokens and {_UNKNOWN_SECONDS:.0f} s an answer for {', '.join(unknown)}"
            )
        return "; ".join(parts) or "nothing left to do"
