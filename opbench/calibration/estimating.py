"""What a judging would take, before it is begun: which of its calls are there already, and what the others cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import func, select

from opbench.calibration.choosing import Chosen, choose_all
from opbench.calibration.judging import asked_of
from opbench.calibration.material import Material, of_run, of_set
from opbench.calibration.spec import JudgeChoice
from opbench.models import Registry, cost, load_registry
from opbench.running.assumed import CHARACTERS_PER_TOKEN, JUDGE_ANSWER_TOKENS
from opbench.running.call_keys import canonical, chat_key
from opbench.store import schema as s
from opbench.store.database import Store
from opbench.store.judgings import find_set, settled, starting
from opbench.store.rundata import Key
from opbench.types import ChatRequest, ChatResult

#: Keys that are looked up at a time.
_AT_A_TIME = 500


@dataclass(frozen=True, slots=True)
class Estimate:
    """What one judge would take. Calls that are in the store already cost nothing."""

    label: str
    judgements: int
    """Still to make."""
    kept: int
    """Made before."""
    calls: int
    """To make; those of the judgements that are in the call store aren't among them."""
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float | None
    """None when the model's price isn't known."""
    seconds: float | None
    """With as many requests at a time as the registry gives the model; None when nothing is known of its pace."""
    note: str
    """What the numbers rest on."""


async def estimate_set(store: Store, set_id: str, choices: Sequence[JudgeChoice]) -> list[Estimate]:
    """What judging a set would take, by judge. Asks no model.

    Raises:
        UsageError, DataError, StoreError: as `judging.judge_set`.
    """
    return await _estimate(store, of_set(store, find_set(store, set_id).id), {"set_id": set_id}, choices)


async def estimate_rescore(
    store: Store,
    run_id: str,
    choices: Sequence[JudgeChoice],
    *,
    configurations: Sequence[Key] = (),
    subtypes: Sequence[str] = (),
) -> list[Estimate]:
    """What judging a run's responses anew would take, by judge. Asks no model.

    Raises:
        UsageError, DataError, StoreError: as `judging.rescore`.
    """
    material = of_run(store, run_id, configurations=configurations, subtypes=subtypes)
    return await _estimate(store, material, {"run_id": run_id}, choices)


async def _estimate(
    store: Store, material: Material, of: dict[str, str], choices: Sequence[JudgeChoice]
) -> list[Estimate]:
    registry = load_registry()
    return [
        await _of_judge(store, registry, material, of, chosen)
        for chosen in choose_all(list(choices), registry, material.protocol)
    ]


async def _of_judge(
    store: Store, registry: Registry, material: Material, of: dict[str, str], chosen: Chosen
) -> Estimate:
    known = settled(store, starting(of.get("set_id"), of.get("run_id"), chosen.provenance))
    tasks = [(item, repeat) for repeat in range(chosen.choice.repeats) for item in material.items]
    left = [(item, repeat) for item, repeat in tasks if known.get((item.item, repeat)) != item.sha256]
    if chosen.model is None:
        note = "by rule, asks no model"
        return Estimate(chosen.label, len(left), len(tasks) - len(left), 0, 0, 0, 0.0, None, note)
    identity = canonical(registry.model(chosen.model).identity())
    requests: dict[str, ChatRequest] = {}

    async def complete(request: ChatRequest) -> ChatResult:
        requests[chat_key(identity, request, "")] = request
        return ChatResult("", None, None, None, 0.0)

    for item, repeat in left:
        await chosen.judge(repeat).score(item.evidence, asked_of(chosen, repeat, complete))
    there = _there(store, list(requests))
    new = [request for key, request in requests.items() if key not in there]
    answer, seconds, basis = _pace(store, chosen.model)
    tokens_in = round(sum(len(m.content) for request in new for m in request.messages) / CHARACTERS_PER_TOKEN)
    tokens_out = round(answer * len(new))
    spec = registry.model(chosen.model)
    at_once = max(1, min(spec.concurrency, len(new)))
    return Estimate(
        chosen.label,
        len(left),
        len(tasks) - len(left),
        len(new),
        tokens_in,
        tokens_out,
        cost(spec, tokens_in, tokens_out),
        None if seconds is None else seconds * len(new) / at_once,
        basis,
    )


def _there(store: Store, keys: Sequence[str]) -> set[str]:
    """Those of the calls that are in the store."""
    found: set[str] = set()
    with store.begin() as connection:
        for start in range(0, len(keys), _AT_A_TIME):
            part = list(keys[start : start + _AT_A_TIME])
            found |= set(connection.scalars(select(s.calls.c.key).where(s.calls.c.key.in_(part))))
    return found


def _pace(store: Store, model: str) -> tuple[float, float | None, str]:
    """Tokens of an answer, seconds of a call and what they rest on: this judge's earlier judgements, else a guess."""
    j, g = s.judgings.c, s.judgements.c
    query = (
        select(func.avg(g.completion_tokens), func.avg(g.duration_ms), func.count())
        .join(s.judgings, j.id == g.judging_id)
        .where(j.judge == model, g.completion_tokens > 0)
    )
    with store.begin() as connection:
        tokens, duration, n = connection.execute(query).one()
    if not n:
        return float(JUDGE_ANSWER_TOKENS), None, f"assumed {JUDGE_ANSWER_TOKENS} tokens an answer"
    return float(tokens), float(duration) / 1000, f"as {n:,} earlier judgements of {model}"
