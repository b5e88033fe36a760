"""One instance through the three stages: retrieve → post-process → respond, then the judge.

Each stage's latency is the time of its own code plus, for every call, the time that the call took when it was made
(design rules 1 and 5). Self-Critic's draft is the response stage, its second call the post-processing stage.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Collection, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from mitigations.base import Memory, PostProcessor, Processed, Reply, Search
from opbench.errors import MemoryFault, ModelError, StoreError, UsageError
from opbench.judges.base import Evidence, Judge
from opbench.models.failures import scrub
from opbench.protocol import by_memos, judged_metric
from opbench.running.calls import CallStore
from opbench.running.response_prompts import answer_messages, answer_system, answer_temperature, memory_blocks
from opbench.running.retrieval import Retrieval
from opbench.running.speaking import Speech
from opbench.running.trace import Ledger, Trace, columns, memory_json
from opbench.running.watching import Stage, Watch
from opbench.store.writing import CallRow, CallUse, FinishedRecord
from opbench.study import BASE, NO_MITIGATION, Configuration, Study
from opbench.types import ChatRequest, ChatResult, Corpus, Instance, Message, Score

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Tools:
    """What the pipeline works with; made once a run by `opbench.running.worker`."""

    study: Study
    corpus: Corpus
    calls: CallStore
    retrieval: Retrieval
    mitigations: dict[str, PostProcessor]
    judge: Judge
    concurrency: int
    run_id: str


class Pipeline:
    """Runs instances. Safe for many at once: it keeps nothing between them but the call store."""

    def __init__(self, tools: Tools) -> None:
        self.tools = tools

    async def record(self, configuration_id: int, configuration: Configuration, instance: Instance) -> FinishedRecord:
        """The finished record: done with its scores, or an error with its true reason."""
        trace = Trace()
        scores: list[Score] = []
        error: tuple[str, str] | None = None
        try:
            await self.respond(configuration, instance, trace)
        except ModelError as failure:
            error = (failure.kind, str(failure))
        except MemoryFault as failure:
            error = ("memory", str(failure))
        except (StoreError, asyncio.CancelledError):
            raise
        except Exception as fault:
            # A plugin's fault is this record's error, not the end of the run; what it had asked for is kept.
            log.exception("%s on %s", configuration.label, instance.id)
            error = ("internal", scrub(f"{type(fault).__name__}: {fault}", None)[:500])
        if error is None:
            scores, judged = await self.judge(instance, trace.response, trace)
            trace.uses += judged
        keys = [use.key for use in trace.uses]
        return FinishedRecord(
            configuration_id=configuration_id,
            instance_id=instance.id,
            values=columns(configuration, trace, self.tools.concurrency, error),
            calls=self.tools.calls.unwritten(keys),
            uses=trace.uses,
            judge=self.tools.judge.name,
            scores=scores,
        )

    async def respond(
        self,
        configuration: Configuration,
        instance: Instance,
        trace: Trace,
        watch: Watch | None = None,
        *,
        given: Sequence[Memory] | None = None,
        without: Collection[int] = (),
        repeat: int = 0,
    ) -> None:
        """Fill the trace up to the response. `watch` looks on, and has the calls streamed.

        `given` memories stand in the place of a retrieval. `without` are 1-based numbers of memories, in rank order,
        that are left out before the post-processor; should it search by itself, it doesn't find them either. `repeat`
        is the number of the response's draw, where the temperature isn't 0.

        Raises:
            ModelError: a call failed for good, or the model answered nothing.
            MemoryFault: the memory system failed.
            UsageError: there is no memory of a number in `without`.
        """
        salt = self._salt(configuration, instance)
        method = self.tools.mitigations[configuration.mitigation]
        async with AsyncExitStack() as stack:
            if configuration.memory != BASE:
                _begin(watch, "retrieval")
                if given is not None:
                    trace.found = list(given)
                else:
                    # Ingestion is no part of the retrieval latency, nor is opening: they happen once a user, whatever
                    # is asked.
                    await stack.enter_async_context(self.tools.retrieval.ready(configuration.memory, instance))
                    trace.found = await self._retrieve(configuration.memory, instance, trace, salt)
                trace.retrieved = _left(trace.found, without)
                if watch is not None:
                    watch.retrieved(trace.retrieved)
            trace.context = trace.retrieved
            if configuration.mitigation != NO_MITIGATION and not method.revises:
                search = self._search(configuration.memory, instance, trace, given is None)
                processed = await self._post_process(method, configuration, instance, trace, salt, search, watch)
                if processed.answer is not None and processed.state != "failed":
                    _answer(method, processed.answer, trace)
                    return
                trace.note, trace.preface = processed.response_note, processed.response_preface
            elif configuration.memory != BASE and watch is not None:
                watch.processed(trace.context, None, None)
        await self.answer(configuration, instance, trace, watch, repeat=repeat)

    async def answer(
        self,
        configuration: Configuration,
        instance: Instance,
        trace: Trace,
        watch: Watch | None = None,
        *,
        repeat: int = 0,
    ) -> None:
        """The response to what the trace holds: `context`, `note` and `preface`; then its revision, if the method does
        that.

        Raises:
            ModelError: a call failed for good, or the model answered nothing.
        """
        stage = Ledger()
        study = self.tools.study
        salt = self._salt(configuration, instance)
        messages = answer_messages(study, configuration.memory, instance, trace.context, trace.note, trace.preface)
        if by_memos(study, instance.benchmark):
            # Its libraries take a second to load, which a study by the other protocol shouldn't wait for.
            from opbench.judges.memos_metrics import context_tokens

            trace.context_tokens = context_tokens(memory_blocks(instance, trace.context))
        temperature = answer_temperature(study, instance)
        row = await self._chat(
            stage,
            trace,
            "response",
            configuration.model,
            messages,
            salt,
            temperature=temperature,
            repeat=repeat if temperature > 0 else 0,
            speech=_begin(watch, "response"),
        )
        trace.values |= {
            "response_ms": stage.elapsed_ms(),
            "response_reused": stage.reused,
            "response_prompt_tokens": row.prompt_tokens,
            "response_completion_tokens": row.completion_tokens,
            "concurrency": row.concurrency,
        }
        trace.costs.append(stage.cost_usd)
        trace.response, trace.finish_reason = row.response, row.finish_reason
        if not row.response.strip():
            raise ModelError(
                f"{configuration.model} answered nothing (finish reason {row.finish_reason or 'not told'}).",
                kind="empty",
                model=configuration.model,
            )
        method = self.tools.mitigations[configuration.mitigation]
        if method.revises:
            await self._revise(method, configuration, instance, trace, salt, watch)

    def _salt(self, configuration: Configuration, instance: Instance) -> str:
        probe = f"{self.tools.run_id}/{configuration.label}/{instance.id}"
        return probe if self.tools.study.latency_probe else ""

    async def _retrieve(self, name: str, instance: Instance, trace: Trace, salt: str) -> list[Memory]:
        retrieval, k = self.tools.retrieval, self.tools.study.k
        identity = retrieval.identity(name, instance, instance.question, k)
        stage = Ledger()

        async def search() -> list[dict[str, Any]]:
            return [memory_json(found) for found in await retrieval.search(name, instance, instance.question, k)]

        row = await stage.call(self.tools.calls.retrieve(name, identity, search, salt))
        trace.uses.append(CallUse(row.key, "retrieval", stage.reused))
        trace.values |= {"retrieval_ms": row.duration_ms, "retrieval_reused": stage.reused}
        return [Memory(**found) for found in json.loads(row.response)]

    def _search(self, name: str, instance: Instance, trace: Trace, ready: bool) -> Search:
        """The memory system for a method that searches by itself, `ready` or to be made so; where there is none, the
        given memories are all there is. What is left out of the retrieval isn't found."""
        retrieval = self.tools.retrieval
        left_out = {(m.text, m.date) for m in trace.found} - {(m.text, m.date) for m in trace.retrieved}

        async def search(query: str, k: int = 5) -> list[Memory]:
            if not retrieval.knows(name):
                return trace.retrieved[:k]
            async with AsyncExitStack() as stack:
                if not ready:
                    await stack.enter_async_context(retrieval.ready(name, instance))
                found = await retrieval.search(name, instance, query, k)
            return [memory for memory in found if (memory.text, memory.date) not in left_out]

        return search

    async def _post_process(
        self,
        method: PostProcessor,
        configuration: Configuration,
        instance: Instance,
        trace: Trace,
        salt: str,
        search: Search,
        watch: Watch | None,
    ) -> Processed:
        stage = Ledger()
        ask = _Asking(self, stage, trace, configuration.model, salt, _begin(watch, "post"))
        processed = await method.process(instance.question, trace.retrieved, ask, search)
        trace.state, trace.state_reason = processed.state, processed.reason
        trace.counts = dict(processed.counts)
        # A method that failed must look like no method: the very context, and so the very call, of `none`.
        trace.context = trace.retrieved if processed.state == "failed" else processed.lines
        self._book_post(stage, trace, processed.called)
        if watch is not None:
            watch.processed(trace.context, trace.state, trace.state_reason)
        return processed

    async def _revise(
        self,
        method: PostProcessor,
        configuration: Configuration,
        instance: Instance,
        trace: Trace,
        salt: str,
        watch: Watch | None,
    ) -> None:
        stage = Ledger()
        ask = _Asking(self, stage, trace, configuration.model, salt, _begin(watch, "post"))
        revised = await method.revise(
            instance.question,
            trace.retrieved,
            trace.response,
            ask,
            system=answer_system(self.tools.study, configuration.memory, instance),
        )
        trace.draft, trace.response, trace.critique = trace.response, revised.text, revised.critique
        trace.state, trace.state_reason = revised.state, revised.reason
        trace.counts = dict(revised.counts)
        self._book_post(stage, trace, revised.called)

    def _book_post(self, stage: Ledger, trace: Trace, called: bool) -> None:
        # A plugin may forget to say that it asked; its calls count all the same.
        if called or stage.uses:
            trace.values |= {
                "post_ms": stage.elapsed_ms(),
                "post_reused": stage.reused,
                "post_prompt_tokens": stage.prompt_tokens,
                "post_completion_tokens": stage.completion_tokens,
            }
            trace.costs.append(stage.cost_usd)

    async def _chat(
        self,
        stage: Ledger,
        trace: Trace,
        name: str,
        model: str,
        messages: Sequence[Message],
        salt: str,
        *,
        max_tokens: int | None = None,
        temperature: float | None = None,
        repeat: int = 0,
        speech: Speech | None = None,
    ) -> CallRow:
        study = self.tools.study
        request = ChatRequest(
            model=model,
            messages=tuple(messages),
            temperature=study.temperature if temperature is None else temperature,
            max_tokens=study.max_tokens if max_tokens is None else max_tokens,
            repeat=repeat,
        )
        if speech is None:
            row = await stage.call(self.tools.calls.chat(request, salt))
        else:
            voice = speech.voice()
            try:
                pending = self.tools.calls.chat(request, salt, on_text=voice.text, on_anew=voice.anew)
                row = await stage.call(pending)
            finally:
                voice.end()
        trace.uses.append(CallUse(row.key, name, stage.uses[-1][1]))
        trace.untold = trace.untold or row.prompt_tokens is None or row.completion_tokens is None
        return row

    async def judge(self, instance: Instance, response: str, trace: Trace) -> tuple[list[Score], list[CallUse]]:
        """The judge's scores of a response and the calls they rest on; a judge that fails gives a missing score."""
        uses: list[CallUse] = []

        async def complete(request: ChatRequest) -> ChatResult:
            row, reused = await self.tools.calls.chat(request)
            uses.append(CallUse(row.key, "judge", reused))
            return ChatResult(
                row.response, row.finish_reason, row.prompt_tokens, row.completion_tokens, row.duration_ms, row.attempts
            )

        profile = self.tools.corpus.profiles.get(instance.user.id)
        evidence = Evidence(
            instance=instance,
            response=response,
            profile=profile.profile if profile else "",
            # Also what is left out: whether a response uses it is judged all the same.
            memories=tuple(memory.text for memory in trace.found or trace.retrieved),
            context=tuple(line.text for line in trace.context),
            finish_reason=trace.finish_reason,
            own_facts=profile.observations if profile else (),
        )
        try:
            return await self.tools.judge.score(evidence, complete), uses
        except ModelError as failure:
            reason, passing = f"judge: {failure.kind}: {failure}", True
        except (StoreError, asyncio.CancelledError):
            raise
        except Exception as fault:
            log.exception("judge %s on %s", self.tools.judge.name, instance.id)
            reason, passing = scrub(f"judge: internal: {type(fault).__name__}: {fault}", None)[:500], False
        metric = judged_metric(self.tools.study) if instance.benchmark == "locomo" else "score"
        return [Score(metric, None, reason, details={"transport": 1.0} if passing else {})], uses


def _begin(watch: Watch | None, stage: Stage) -> Speech | None:
    if watch is None:
        return None
    watch.begun(stage)
    return Speech(watch, stage)


def _left(found: Sequence[Memory], without: Collection[int]) -> list[Memory]:
    """What is left of the memories without those of the given numbers."""
    for number in without:
        if not 1 <= number <= len(found):
            raise UsageError(f"there is no memory {number} to leave out: there are {len(found)}.")
    return [memory for number, memory in enumerate(found, 1) if number not in without]


def _answer(method: PostProcessor, answer: str, trace: Trace) -> None:
    """The method's own answer is the response: its stage doesn't happen, so it has no time, and no token is spent."""
    if not answer.strip():
        raise ModelError(f"the post-processor {method.name} answered nothing.", kind="empty")
    trace.values |= {"response_prompt_tokens": 0, "response_completion_tokens": 0, "concurrency": None}
    trace.response = answer


class _Asking:
    """The `ask` of a post-processor: through the call store, booked on the post-processing stage."""

    def __init__(
        self, pipeline: Pipeline, stage: Ledger, trace: Trace, model: str, salt: str, speech: Speech | None
    ) -> None:
        self._pipeline, self._stage, self._trace, self._model, self._salt = pipeline, stage, trace, model, salt
        self._speech = speech

    async def __call__(
        self, messages: Sequence[tuple[str, str]], *, max_tokens: int = 512, temperature: float = 0.0
    ) -> Reply:
        row = await self._pipeline._chat(
            self._stage,
            self._trace,
            "post",
            self._model,
            [Message(role, content) for role, content in messages],  # type: ignore[arg-type]
            self._salt,
            max_tokens=max_tokens,
            temperature=temperature,
            speech=self._speech,
        )
        return Reply(row.response, row.finish_reason, row.prompt_tokens, row.completion_tokens, row.duration_ms)
