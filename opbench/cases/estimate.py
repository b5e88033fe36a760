"""What asking a case takes, before it is asked: calls, tokens, money and time (an estimate, and said to be one)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean

import mitigations
from opbench.benchmarks import load
from opbench.cases.spec import CaseSpec, Column
from opbench.errors import UsageError
from opbench.judges import is_rule_judge
from opbench.memories.rag import observations, turns
from opbench.models import ModelSpec, Registry, cost
from opbench.running.assumed import (
    CHARACTERS_PER_TOKEN,
    JUDGE_ANSWER_TOKENS,
    JUDGE_PROMPT_TOKENS,
    Pace,
)
from opbench.store.database import Store
from opbench.study import BASE, NO_MITIGATION
from opbench.types import Corpus

#: Characters of a response prompt around question and memories.
_PROMPT_AROUND = 600
#: Subtypes that no model judges one by one.
_NOT_JUDGED = ("repetition", "adversarial")
_OF_TURNS = ("rag", "random")


@dataclass(frozen=True, slots=True)
class Estimate:
    """At the most: what the call store has already costs nothing. Dollars are None where a price is unknown."""

    calls: int
    paid_calls: int
    """Calls of models that aren't embedded: somebody may have to pay for them."""
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float | None
    seconds: float
    basis: str
    """What answer lengths and times rest on."""


def estimate(store: Store, registry: Registry, spec: CaseSpec, columns: Iterable[Column], times: int = 1) -> Estimate:
    """What these columns of the case take, asked `times` over (a leave-one-out asks one as often as it has memories).

    Raises:
        UsageError: a model or the user isn't known.
        DataError: the data can't be read.
    """
    corpus = load("sample" if spec.data == "sample" else None)
    if spec.user not in corpus.users:
        raise UsageError(f"no user '{spec.user[:60]}' in these data")
    pace = Pace(store)
    prompt = (len(spec.question) + _PROMPT_AROUND) / CHARACTERS_PER_TOKEN
    calls: Counter[str] = Counter()
    tokens_in: Counter[str] = Counter()
    tokens_out: dict[str, float] = {}
    for column in columns:
        before, own = _calls(column)
        size = prompt + _memories(corpus, spec, column)
        answer = min(pace.answer(column.model), spec.max_tokens)
        calls[column.model] += times * (before + own)
        tokens_in[column.model] += round(times * (before * 1.5 + own) * size)
        tokens_out[column.model] = tokens_out.get(column.model, 0.0) + times * (before + own) * answer
        if not is_rule_judge(spec.judge) and spec.subtype not in _NOT_JUDGED:
            calls[spec.judge] += times
            tokens_in[spec.judge] += times * JUDGE_PROMPT_TOKENS
            tokens_out[spec.judge] = tokens_out.get(spec.judge, 0.0) + times * JUDGE_ANSWER_TOKENS
    models = {name: registry.model(name) for name in calls}
    costs = [cost(models[name], tokens_in[name], round(tokens_out[name])) for name in calls]
    known = [each for each in costs if each is not None]
    return Estimate(
        calls.total(),
        sum(count for name, count in calls.items() if models[name].kind != "embedded"),
        tokens_in.total(),
        round(sum(tokens_out.values())),
        sum(known) if len(known) == len(costs) else None,
        sum(_seconds(pace, models[name], count) for name, count in calls.items()),
        pace.basis(calls),
    )


def _seconds(pace: Pace, model: ModelSpec, calls: int) -> float:
    at_once = 1 if model.kind == "embedded" else min(model.concurrency, calls)
    return pace.seconds(model.name) * calls / max(1, at_once)


def _calls(column: Column) -> tuple[int, int]:
    """Calls of the post-processor, and of the response unless the post-processor makes it."""
    if column.draft is not None:
        return 1, 1
    if column.memory == BASE or column.mitigation == NO_MITIGATION:
        return 0, 1
    method = mitigations.get(column.mitigation)
    return method.calls, 0 if getattr(method, "response", "kept") == "own" else 1


def _memories(corpus: Corpus, spec: CaseSpec, column: Column) -> float:
    """Tokens of the column's memories; of systems other than RAG, of as many facts like the annotators'."""
    if column.memory == BASE:
        return 0.0
    if column.given is not None:
        return sum(len(each.text) for each in column.given) / CHARACTERS_PER_TOKEN
    history = corpus.conversations[corpus.users[spec.user].conversation].sessions
    units = turns(history) if column.memory in _OF_TURNS else observations(history)
    lengths = [len(unit.text) + len(unit.date or "") + 6 for unit in units]
    return (column.k or spec.k) * fmean(lengths) / CHARACTERS_PER_TOKEN if lengths else 0.0
