"""The job that puts responses before judges: of a set with people's scores, or of a run that was judged otherwise.

Every call goes through the call store, and each judgement is written with its calls in one transaction: a job that is
killed loses what it had in hand, and the same job started again asks for what is missing. At temperature 0 the first
repeat is the very call that a run with this judge makes, so neither pays for the other's.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from pydantic import SecretStr

from opbench.calibration.choosing import Chosen, choose_all
from opbench.calibration.material import Item, Material, of_run, of_set
from opbench.calibration.spec import JudgeChoice
from opbench.errors import ModelError, StoreError, UsageError
from opbench.judges.base import Judge
from opbench.judges.llm import failed_call
from opbench.memories.locking import FileLock
from opbench.models import ModelClient, load_registry
from opbench.models.endpoint import who
from opbench.models.failures import scrub
from opbench.running.calls import CallStore
from opbench.running.prepare import call_store
from opbench.settings import settings
from opbench.store.database import Store
from opbench.store.judgings import JudgementRow, find_set, save_judgements, settled, start_judging
from opbench.store.rundata import Key
from opbench.store.writing import CallRow
from opbench.types import ChatRequest, ChatResult, Complete, Score

log = logging.getLogger(__name__)
Number = TypeVar("Number", int, float)

#: Judgements by rule that are written together.
_BATCH = 500
#: Which of a judge's numbers is its judgement, the first that it gives.
_METRICS = {"op": ("score",), "locomo": ("memos_correct", "correct", "memos_f1", "f1")}


@dataclass(slots=True)
class Outcome:
    """What a job has done with one judge. `done` + `kept` + what is left = `planned` judgements."""

    judging: str
    label: str
    planned: int
    kept: int = 0
    """Judgements that were there before."""
    done: int = 0
    missing: int = 0
    """Of those that were made now, the ones without a value."""
    retriable: int = 0
    """Of these, the ones whose call failed: the next start asks again."""
    halted: str = ""
    """Why it ended before all were done."""
    left_out: dict[str, int] = field(default_factory=dict)
    """Responses that no judge scores, by reason."""

    @property
    def complete(self) -> bool:
        """Whether nothing is left to ask."""
        return self.done + self.kept == self.planned and not self.retriable


Told = Callable[[Outcome, float], None]
"""Is told how far a judge is, and in how many seconds it will be ready as far as can be told."""


async def judge_set(
    store: Store,
    set_id: str,
    choices: Sequence[JudgeChoice],
    *,
    keys: Mapping[str, SecretStr] | None = None,
    on_progress: Told | None = None,
    stopping: Callable[[], bool] | None = None,
) -> list[Outcome]:
    """Have the judges score a set's responses, each as often as its choice says; one outcome a judge.

    `keys` are session keys by environment variable. `stopping` is asked before each judgement whether to end.

    Raises:
        UsageError: there is no such set, judge or pack, or another process of this home is at the same judging.
        DataError: a prompt is damaged.
        StoreError: the store can't be read or written.
    """
    material = of_set(store, find_set(store, set_id).id)
    return await _judge(store, material, {"set_id": set_id}, choices, keys, on_progress, stopping)


async def rescore(
    store: Store,
    run_id: str,
    choices: Sequence[JudgeChoice],
    *,
    configurations: Sequence[Key] = (),
    subtypes: Sequence[str] = (),
    keys: Mapping[str, SecretStr] | None = None,
    on_progress: Told | None = None,
    stopping: Callable[[], bool] | None = None,
) -> list[Outcome]:
    """Have other judges score a run's responses, which aren't made again; the run's own scores stay as they are.

    Arguments as of `judge_set`; `configurations` and `subtypes` empty: all.

    Raises:
        UsageError, DataError: as `material.of_run`; there is no such judge or pack.
        StoreError: the store can't be read or written.
    """
    material = of_run(store, run_id, configurations=configurations, subtypes=subtypes)
    return await _judge(store, material, {"run_id": run_id}, choices, keys, on_progress, stopping)


async def _judge(
    store: Store,
    material: Material,
    of: Mapping[str, str],
    choices: Sequence[JudgeChoice],
    keys: Mapping[str, SecretStr] | None,
    on_progress: Told | None,
    stopping: Callable[[], bool] | None,
) -> list[Outcome]:
    registry = load_registry()
    chosen = choose_all(list(choices), registry, material.protocol)
    async with ModelClient(registry, keys=dict(keys or {})) as client:
        calls = call_store(store, registry, client, lambda name: registry.model(name).concurrency)
        outcomes = []
        for each in chosen:
            judging = start_judging(
                store,
                **of,
                judge=each.choice.judge,
                label=each.label,
                provenance=each.provenance,
                repeats=each.choice.repeats,
            )
            lock = FileLock(settings().home / "locks" / f"judging-{judging}.lock")
            if not lock.acquire():
                raise UsageError(
                    f"another process is at {each.label} over the same responses: both would pay for the same calls. "
                    "Wait for it, or stop it first."
                )
            at_a_time = 1 if each.model is None else registry.model(each.model).concurrency
            asked = "" if each.model is None else who(registry.model(each.model))
            job = _Job(store, calls, client, asked, each, material, judging, on_progress, stopping)
            try:
                outcomes.append(await job.run(at_a_time))
            finally:
                lock.release()
            if outcomes[-1].halted == _ASKED:
                break
        return outcomes


_ASKED = "stopped as asked"


class _Job:
    """One judge over all of the material."""

    def __init__(
        self,
        store: Store,
        calls: CallStore,
        client: ModelClient,
        asked: str,
        chosen: Chosen,
        material: Material,
        judging: str,
        on_progress: Told | None,
        stopping: Callable[[], bool] | None,
    ) -> None:
        self._store = store
        self._calls = calls
        self._client = client
        self._asked = asked
        self._chosen = chosen
        self._judging = judging
        self._told = on_progress
        self._stopping = stopping
        self._buffer: list[JudgementRow] = []
        repeats = chosen.choice.repeats
        known = settled(store, judging)
        tasks = [(item, repeat) for repeat in range(repeats) for item in material.items]
        self._tasks = [(item, repeat) for item, repeat in tasks if known.get((item.item, repeat)) != item.sha256]
        self._outcome = Outcome(
            judging, chosen.label, len(tasks), len(tasks) - len(self._tasks), left_out=dict(material.left_out)
        )
        self._begun = time.monotonic()

    async def run(self, at_a_time: int) -> Outcome:
        waiting = iter(self._tasks)
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(at_a_time, len(self._tasks))):
                    group.create_task(self._work(waiting))
        except BaseExceptionGroup as several:
            raise several.exceptions[0] from None
        finally:
            self._flush()
        return self._outcome

    async def _work(self, waiting: Iterator[tuple[Item, int]]) -> None:
        for item, repeat in waiting:
            if self._stopping is not None and self._stopping():
                self._outcome.halted = _ASKED
            elif reason := self._client.stats.in_vain.reasons().get(self._asked):
                self._outcome.halted = f"{reason} What is left waits for the next start."
            if self._outcome.halted:
                return
            row, used = await self._one(item, repeat)
            await self._keep(row, used)
            self._count(row)

    async def _one(self, item: Item, repeat: int) -> tuple[JudgementRow, list[str]]:
        used: list[tuple[CallRow, bool]] = []

        async def complete(request: ChatRequest) -> ChatResult:
            row, reused = await self._calls.chat(request)
            used.append((row, reused))
            return ChatResult(
                row.response, row.finish_reason, row.prompt_tokens, row.completion_tokens, row.duration_ms, row.attempts
            )

        judge = self._chosen.judge(repeat)
        begun = time.perf_counter()
        score = await _score(judge, item, asked_of(self._chosen, repeat, complete))
        taken = (time.perf_counter() - begun) * 1000
        by_rule = self._chosen.model is None and not used
        rows = [row for row, _ in used]
        return (
            JudgementRow(
                item=item.item,
                repeat=repeat,
                response_sha256=item.sha256,
                metric=score.metric,
                value=score.value,
                reason=score.reason,
                raw=score.raw,
                retriable="transport" in score.details,
                prompt_tokens=_sum([row.prompt_tokens for row in rows]),
                completion_tokens=_sum([row.completion_tokens for row in rows]),
                cost_usd=_sum([row.cost_usd for row in rows]),
                duration_ms=taken if by_rule else _sum([row.duration_ms for row in rows]),
                reused=bool(used) and all(reused for _, reused in used),
                made_at=time.time(),
            ),
            [row.key for row in rows],
        )

    async def _keep(self, row: JudgementRow, used: list[str]) -> None:
        self._buffer.append(row)
        if not used and len(self._buffer) < _BATCH:
            # Others that ask models get their turn.
            await asyncio.sleep(0)
            return
        rows, self._buffer = self._buffer, []
        unwritten = self._calls.unwritten(used)
        await self._store.in_thread(save_judgements, self._store, self._judging, rows, unwritten)
        self._calls.written(used)

    def _flush(self) -> None:
        rows, self._buffer = self._buffer, []
        if rows:
            self._store.patiently(save_judgements, self._store, self._judging, rows)

    def _count(self, row: JudgementRow) -> None:
        outcome = self._outcome
        outcome.done += 1
        outcome.missing += row.value is None
        outcome.retriable += row.retriable
        if self._told is not None:
            left = len(self._tasks) - outcome.done
            self._told(outcome, (time.monotonic() - self._begun) / outcome.done * left)


#: More than a judge asks about one response (LoCoMo's protocol memos: three times).
_APART = 100


def asked_of(chosen: Chosen, repeat: int, complete: Complete) -> Complete:
    """`complete` for a judge's repeat: at the choice's temperature, and with numbers of its own."""

    def asked(request: ChatRequest) -> Awaitable[ChatResult]:
        temperature = chosen.choice.temperature or request.temperature
        return complete(replace(request, temperature=temperature, repeat=request.repeat + _APART * repeat))

    return asked


async def _score(judge: Judge, item: Item, complete: Complete) -> Score:
    wanted = _METRICS[item.evidence.instance.benchmark]
    try:
        scores = await judge.score(item.evidence, complete)
    except ModelError as failure:
        return failed_call(wanted[0], failure)
    except (StoreError, asyncio.CancelledError):
        raise
    except Exception as fault:
        # A plugin's fault is this judgement's, not the end of all.
        log.exception("judge %s on %s", judge.name, item.item)
        return Score(wanted[0], None, scrub(f"judge: internal: {type(fault).__name__}: {fault}", None)[:500])
    by_metric = {score.metric: score for score in scores}
    found = next((by_metric[metric] for metric in wanted if metric in by_metric), None)
    return found or Score(wanted[0], None, "the judge gave no score")


def _sum(values: Sequence[Number | None]) -> Number | None:
    """None where a part isn't known; 0 of nothing."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
