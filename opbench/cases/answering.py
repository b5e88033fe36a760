"""One column answered and judged, from its first stage to its outcome."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any

from mitigations.base import Line, Memory
from opbench.cases.kit import Kit
from opbench.cases.outcome import Found, Judged, Outcome, Shown
from opbench.cases.spec import Column
from opbench.errors import MemoryFault, ModelError, ModelErrorKind, OpbenchError, StoreError, UsageError
from opbench.running.pipeline import Pipeline
from opbench.running.trace import Trace
from opbench.running.watching import Stage, Watch
from opbench.store.writing import CallUse
from opbench.study import BASE
from opbench.types import Score

log = logging.getLogger(__name__)
OnOutcome = Callable[[Outcome], None]
Respond = Callable[[Pipeline, Trace, Watch], Awaitable[None]]
"""Fills the trace up to the response."""

NOT_ALONE = "repetition is scored over all of a user's responses; one response alone has no score"
_STAGES = ("retrieval", "post", "response")
#: A blank answer has its tokens, and what an endpoint refuses to do it doesn't charge for.
_COUNTED = ("empty", "auth", "not_found", "quota", "rate_limit", "bad_request", "too_long")
_LONGEST = 500


class Answering:
    """A column at work. `outcome` is how far it is; every change is told to `on_outcome`, in the loop's thread."""

    def __init__(self, kit: Kit, column: Column, started: float, on_outcome: OnOutcome) -> None:
        """`started`: when the case was asked, by `time.perf_counter`."""
        self._kit = kit
        self._column = column
        self._instance = kit.instance
        self._started = started
        self._on_outcome = on_outcome
        self.outcome = Outcome()
        self.trace = Trace()
        self.uses: list[CallUse] = []
        """Calls that the judge's scores rest on."""

    async def run(
        self, respond: Respond, place: AbstractAsyncContextManager[Any], judged_with: Trace | None = None
    ) -> None:
        """Answer and judge; whatever goes wrong is told in the outcome. `place` is held until the response is there.
        `judged_with` is whose memories and context the judge sees; None: its own.

        Raises:
            CancelledError: it is cancelled; the outcome says so.
        """
        try:
            async with place:
                self._tell(state="response" if self._column.memory == BASE else "retrieval")
                # In a thread: a memory library may take seconds to import.
                pipeline = Pipeline(await asyncio.to_thread(self._kit.tools, self._column))
                await respond(pipeline, self.trace, self)
            self._tell(state="judge", **self._said())
            await self._judge(pipeline, judged_with)
        except asyncio.CancelledError:
            self._end(state="cancelled", **self._kept() | self._untold())
            raise
        except ModelError as failure:
            untold = self._untold() if failure.attempts and failure.kind not in _COUNTED else {}
            self._end(state="failed", error_kind=failure.kind, error=str(failure), **self._kept() | untold)
        except MemoryFault as failure:
            self._end(state="failed", error_kind="memory", error=str(failure), **self._kept())
        except StoreError as failure:
            self._end(state="failed", error_kind="store", error=str(failure), **self._kept())
        except UsageError as failure:
            self._end(state="failed", error_kind="usage", error=str(failure), **self._kept())
        except Exception as fault:
            # A plugin's fault is this column's error, not the end of the case.
            log.exception("%s", self._instance.id)
            said = str(fault) if isinstance(fault, OpbenchError) else f"{type(fault).__name__}: {fault}"[:_LONGEST]
            self._end(state="failed", error_kind="internal", error=said, **self._kept())
        else:
            self._end(state="done", at_once=all(use.reused for use in (*self.trace.uses, *self.uses)))

    async def _judge(self, pipeline: Pipeline, judged_with: Trace | None) -> None:
        if self._instance.subtype == "repetition":
            self._tell(scores=(Judged(metric="score", value=None, reason=NOT_ALONE),))
            return
        evidence = self.trace
        if judged_with is not None:
            evidence = replace(judged_with, finish_reason=self.trace.finish_reason)
        scores, self.uses = await pipeline.judge(self._instance, self.trace.response, evidence)
        self._tell(scores=tuple(_judged(score) for score in scores))

    def waits(self, model: str, kind: ModelErrorKind, wait_s: float) -> None:
        """A model is asked again after a while."""
        asked = self._kit.spec.judge if self.outcome.state == "judge" else self._column.model
        if model == asked and self.outcome.state in ("post", "response", "judge"):
            self._tell(retrying=f"{kind}: again in {wait_s:.0f} s")

    # --- Watch -----------------------------------------------------------------------------------------------------

    def begun(self, stage: Stage) -> None:
        self._tell(state=stage, retrying=None)

    def retrieved(self, memories: Sequence[Memory]) -> None:
        self._tell(retrieved=_found(memories))

    def processed(self, context: Sequence[Memory | Line], state: str | None, reason: str | None) -> None:
        self._tell(context=_shown(context), post_state=state, post_reason=reason, retrying=None)

    def text(self, stage: Stage, piece: str) -> None:
        changed: dict[str, Any] = {"retrying": None}
        if self.outcome.first_text_ms is None:
            changed["first_text_ms"] = self._since()
        field = _FIELDS[stage]
        self._tell(**changed, **{field: getattr(self.outcome, field) + piece})

    def anew(self, stage: Stage) -> None:
        self._tell(**{_FIELDS[stage]: ""})

    # --- the outcome -----------------------------------------------------------------------------------------------

    def _kept(self) -> dict[str, Any]:
        """What is known of a column that didn't come to its end; what was heard of the response stays."""
        heard = self.outcome.response
        return {**self._said(), "response": self.trace.response or heard}

    def _untold(self) -> dict[str, Any]:
        """Tokens and cost, where a call ended without an answer: an endpoint may charge for what it had written."""
        if self.outcome.state not in ("post", "response"):
            return {}
        return dict.fromkeys(("prompt_tokens", "completion_tokens", "cost_usd"))

    def _said(self) -> dict[str, Any]:
        trace, values = self.trace, self.trace.values
        known = [stage for stage in _STAGES if f"{stage}_ms" in values]
        tokens = {
            kind: None if trace.untold else sum(values.get(f"{stage}_{kind}") or 0 for stage in ("post", "response"))
            for kind in ("prompt_tokens", "completion_tokens")
        }
        return {
            "retrieved": self.outcome.retrieved,
            "post_state": trace.state,
            "post_reason": trace.state_reason,
            "counts": dict(trace.counts),
            "response": trace.response,
            "draft": trace.draft,
            "critique": trace.critique,
            "finish_reason": trace.finish_reason,
            "milliseconds": {stage: float(values[f"{stage}_ms"]) for stage in known},
            "reused": {stage: bool(values[f"{stage}_reused"]) for stage in known},
            "cost_usd": None if None in trace.costs else sum((cost for cost in trace.costs if cost), 0.0),
            **tokens,
        }

    def _end(self, **changed: Any) -> None:
        self._tell(**changed, retrying=None, total_ms=self._since())

    def _since(self) -> float:
        return (time.perf_counter() - self._started) * 1000

    def _tell(self, **changed: Any) -> None:
        self.outcome = self.outcome.model_copy(update=changed)
        self._on_outcome(self.outcome)


_FIELDS: dict[Stage, str] = {"post": "post_text", "response": "response"}


def _judged(score: Score) -> Judged:
    return Judged(metric=score.metric, value=score.value, reason=score.reason)


def _found(memories: Sequence[Memory]) -> tuple[Found, ...]:
    return tuple(Found(text=memory.text, date=memory.date, score=memory.score) for memory in memories)


def _shown(context: Sequence[Memory | Line]) -> tuple[Shown, ...]:
    return tuple(
        Shown(text=line.text, date=line.date, sources=line.sources, altered=line.altered)
        if isinstance(line, Line)
        else Shown(text=line.text, date=line.date)
        for line in context
    )
