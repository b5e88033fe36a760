"""Leave-one-out: a column again without each of its memories in turn.

The memories are those that were retrieved or given, numbered in rank order, also where the column leaves some out
already. At `retrieval` the memory is missing before the post-processor, which works again; an exact double of it stays.
At `context` the post-processor's work stays, and of the lines that it passed on those are dropped that rest on this
memory alone; lines that rest on several stay. A method that revises the response works after it: for it both are the
same.

The judge sees the memories and the context of the whole column, so that a change in score comes of the response alone,
and an unchanged response has an unchanged score.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from functools import partial

from mitigations.base import Line, Memory
from mitigations.context import prepare
from opbench.cases.answering import Answering
from opbench.cases.kit import Kit, post_processor
from opbench.cases.outcome import Ablation, At, LeftOut, Outcome
from opbench.cases.spec import CaseSpec, Column
from opbench.errors import ModelErrorKind, OpbenchError, UsageError
from opbench.judges.text import strip_thinking
from opbench.running.pipeline import Pipeline
from opbench.running.trace import Trace
from opbench.running.watching import Watch
from opbench.study import BASE

CONTROL = 0
"""Number of the item that leaves nothing out and is drawn again."""


def check(column: Column, trace: Trace, at: At) -> None:
    """Whether a done column has something that can be left out.

    Raises:
        UsageError: it has not.
    """
    if column.memory == BASE:
        raise UsageError("BASE has no memories: take a column with a memory system.")
    if not trace.retrieved:
        raise UsageError("this column's retrieval is empty: there is no memory to leave out.")
    if at == "context" and "response_ms" not in trace.values:
        raise UsageError(
            f"{column.mitigation} answered by itself, so no context can be left out: leave out at the retrieval."
        )


class Ablating:
    """One leave-one-out; belongs to the event loop's thread but for its making."""

    def __init__(
        self,
        spec: CaseSpec,
        number: int,
        at: At,
        outcome: Outcome,
        trace: Trace,
        on_change: Callable[[Ablation], None],
    ) -> None:
        """`number` of the column, its `outcome` and `trace` with all memories."""
        self._column = spec.columns[number]
        self._at = at
        self._trace = trace
        self._on_change = on_change
        self._answering: dict[int, Answering] = {}
        temperature = spec.temperature if self._column.temperature is None else self._column.temperature
        left = [n for n in range(1, len(trace.found) + 1) if n not in self._column.without]
        numbers = [CONTROL, *left] if temperature > 0 else left
        items = tuple(LeftOut(number=n, text=trace.found[n - 1].text if n else "", outcome=Outcome()) for n in numbers)
        self.ablation = Ablation(column=number, at=at, base=outcome, items=items)

    async def run(self, kit: Kit) -> None:
        """Ask without each; what goes wrong with one is told in its outcome."""
        places = asyncio.Semaphore(kit.at_a_time(self._column.model))
        tasks = [asyncio.ensure_future(self._item(kit, item, places)) for item in self.ablation.items]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def retried(self, model: str, kind: ModelErrorKind, wait_s: float) -> None:
        """An endpoint is asked again after a while."""
        for answering in self._answering.values():
            answering.waits(model, kind, wait_s)

    def failed(self, error: str) -> None:
        """None of it can be asked."""
        self._settle(state="failed", error_kind="usage", error=error)

    def end(self) -> None:
        """Nothing more comes: what isn't over was stopped."""
        self._settle(state="cancelled")
        self._change(over=True)

    async def _item(self, kit: Kit, item: LeftOut, places: asyncio.Semaphore) -> None:
        answering = Answering(
            kit, self._column, time.perf_counter(), lambda outcome: self._set(item.number, outcome=outcome)
        )
        self._answering[item.number] = answering
        await answering.run(partial(self._respond, kit, item.number), places, judged_with=self._trace)
        await self._compare(kit, item.number, answering.outcome)

    async def _respond(self, kit: Kit, number: int, pipeline: Pipeline, trace: Trace, watch: Watch) -> None:
        column, base = self._column, self._trace
        configuration = kit.configuration(column)
        repeat = column.repeat + (number == CONTROL)
        without = {*column.without, number} - {CONTROL}
        if self._at == "retrieval" or post_processor(column).revises:
            await pipeline.respond(
                configuration, kit.instance, trace, watch, given=base.found, without=without, repeat=repeat
            )
            return
        trace.found = base.found
        trace.retrieved = [memory for n, memory in enumerate(base.found, 1) if n not in without]
        trace.context = base.context
        if number != CONTROL:
            kept = [n for n in range(1, len(base.found) + 1) if n not in column.without]
            trace.context = without_memory(base.context, base.retrieved, kept.index(number))
        trace.note, trace.preface = base.note, base.preface
        trace.state, trace.state_reason, trace.counts = base.state, base.state_reason, base.counts
        watch.retrieved(trace.retrieved)
        watch.processed(trace.context, trace.state, trace.state_reason)
        await pipeline.answer(configuration, kit.instance, trace, watch, repeat=repeat)

    async def _compare(self, kit: Kit, number: int, outcome: Outcome) -> None:
        if outcome.state != "done":
            return
        base = self.ablation.base
        known = outcome.score is not None and base.score is not None
        self._set(
            number,
            same=outcome.response == base.response,
            score_change=(outcome.score or 0.0) - (base.score or 0.0) if known else None,
        )
        texts = [strip_thinking(base.response), strip_thinking(outcome.response)]
        if texts[0] == texts[1]:
            self._set(number, similarity=1.0)
        elif all(text.strip() for text in texts):
            # Without the embedder the scores still tell.
            with contextlib.suppress(OpbenchError):
                first, second = await kit.embedder.embed(texts)
                self._set(number, similarity=float(first @ second))

    def _settle(self, **changed: object) -> None:
        for item in self.ablation.items:
            if not item.outcome.over:
                self._set(item.number, outcome=item.outcome.model_copy(update=changed))

    def _set(self, number: int, **changed: object) -> None:
        items = tuple(
            item.model_copy(update=changed) if item.number == number else item for item in self.ablation.items
        )
        self._change(items=items)

    def _change(self, **changed: object) -> None:
        self.ablation = self.ablation.model_copy(update=changed)
        self._on_change(self.ablation)


def without_memory(context: Sequence[Memory | Line], retrieved: Sequence[Memory], rank: int) -> Sequence[Memory | Line]:
    """The context without the lines that rest on one memory alone: that of the 0-based `rank` in `retrieved`.

    Where no post-processor made lines, the line of that rank is dropped. Of exact doubles, which share a number and
    have a line each, one is dropped; where they have one line together, it stays for the other.
    """
    if not any(isinstance(line, Line) for line in context):
        return [line for n, line in enumerate(context) if n != rank]
    numbers = _prepared_numbers(retrieved)
    number = numbers[rank]
    alike = [n for n, each in enumerate(numbers) if each == number and number is not None]
    own = [
        n for n, line in enumerate(context) if isinstance(line, Line) and line.sources and set(line.sources) == {number}
    ]
    if len(alike) > 1:
        own = [own[alike.index(rank)]] if len(own) == len(alike) else []
    return [line for n, line in enumerate(context) if n not in own]


def _prepared_numbers(retrieved: Sequence[Memory]) -> list[int | None]:
    """The number of each memory among the prepared ones; None for one that is blank or a mere heading."""
    numbers = iter(prepare(retrieved).numbers)
    return [next(numbers) if prepare([memory]).original else None for memory in retrieved]
