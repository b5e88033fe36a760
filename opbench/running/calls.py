"""The call store in front of the model client (design rule 1): the same call is never paid twice.

A call is kept under the hash of all that determines its answer. Two records that need the same call at the same
time share one request. New calls are handed to the records that rest on them and are written with the first of
these that finishes, in one transaction; errors are never kept.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from opbench.errors import ModelError
from opbench.models.streaming import OnAnew, OnText
from opbench.models.waiting import stopwatch
from opbench.running.call_keys import call_key, canonical, chat_body, chat_key
from opbench.running.listening import Flow, Listener
from opbench.running.lookups import Lookups
from opbench.store.database import Store
from opbench.store.writing import CallRow, save_calls
from opbench.types import ChatRequest, ChatResult, Complete

#: How often a blank answer is asked again before it is taken as what the model says.
_BLANK_RETRIES = 2
#: Written calls that are kept at hand.
_AT_HAND = 1024


@dataclass(slots=True)
class Stats:
    """Counts of a worker's calls since it started."""

    made: int = 0
    reused: int = 0
    failed: int = 0
    spent_usd: float = 0.0
    """What the calls that were made cost by list price, answers that were blank included."""
    unpriced: Counter[str] = field(default_factory=Counter)
    """Calls whose cost isn't known, by model: it has no price, or its endpoint tells no token counts."""


class Listen(Protocol):
    """As `Complete`, and tells the text as it comes."""

    def __call__(self, request: ChatRequest, on_text: OnText, on_anew: OnAnew) -> Awaitable[ChatResult]: ...


class CallStore:
    """Answers calls from the store, from a request under way, or by making them."""

    def __init__(
        self,
        store: Store,
        complete: Complete,
        identity: Callable[[str], dict[str, str]],
        cost: Callable[[str, int | None, int | None], float | None],
        concurrency: Callable[[str], int],
        listen: Listen | None = None,
    ) -> None:
        """By model name: `identity` is what determines its answers, `concurrency` how many requests it gets at a time.

        `cost` gives the dollars of (model, tokens in, tokens out). `listen` answers as `complete` does, for those who
        want the text as it comes; without it they get the text in one piece.
        """
        self._store = store
        self._complete = complete
        self._identity = identity
        self._cost = cost
        self._concurrency = concurrency
        self._listen = listen
        self._under_way: dict[str, asyncio.Task[tuple[CallRow, bool]]] = {}
        self._flows: dict[str, Flow] = {}
        self._unwritten: dict[str, CallRow] = {}
        self._written: OrderedDict[str, CallRow] = OrderedDict()
        """The last that were written: what an instance's other configurations ask for a moment later."""
        self._lookups = Lookups(store)
        self._identities: dict[str, tuple[dict[str, str], str]] = {}
        self.stats = Stats()

    async def chat(
        self,
        request: ChatRequest,
        salt: str = "",
        *,
        kind: str = "chat",
        on_text: OnText | None = None,
        on_anew: OnAnew | None = None,
    ) -> tuple[CallRow, bool]:
        """The answer and whether it was reused. `salt` keeps a latency probe's calls apart from all others.

        `on_text` takes the text as it comes; after `on_anew` it begins again, and in the end it is the row's response.
        A stored answer comes in one piece, so does one under way that was begun for somebody who doesn't listen.

        `kind` is what a call that is made now is kept as: `library` for a memory library's, which may be ten times as
        long as a study's own, so that quotes don't take one for the other. Its key is the same.

        Raises:
            ModelError: the call failed for good; kind `empty` is never raised here.
        """
        identity, canonical_identity = self._identified(request.model)
        key = chat_key(canonical_identity, request, salt)

        async def make(flow: Flow) -> CallRow:
            result, cost_usd = await self._ask(request, flow)
            return CallRow(
                key=key,
                kind=kind,
                model=request.model,
                request={"endpoint": identity, **chat_body(request)},
                response=result.text,
                finish_reason=result.finish_reason,
                prompt_tokens=result.prompt_tokens,
                completion_tokens=result.completion_tokens,
                cost_usd=cost_usd,
                duration_ms=result.duration_ms,
                attempts=result.attempts,
                made_at=time.time(),
                concurrency=self._concurrency(request.model),
            )

        return await self._once(key, make, None if on_text is None else Listener(on_text, on_anew))

    def _identified(self, model: str) -> tuple[dict[str, str], str]:
        """A model's identity, and its canonical JSON."""
        known = self._identities.get(model)
        if known is None:
            identity = self._identity(model)
            known = self._identities[model] = identity, canonical(identity)
        return known

    async def _ask(self, request: ChatRequest, flow: Flow) -> tuple[ChatResult, float | None]:
        """The answer, and what it cost with the blank ones before it."""
        attempts = 0
        costs: list[float | None] = []
        for remaining in range(_BLANK_RETRIES, -1, -1):
            flow.anew()
            if flow.listeners and self._listen is not None:
                result = await self._listen(request, flow.text, flow.anew)
            else:
                result = await self._complete(request)
            attempts += result.attempts
            costs.append(self._book(request.model, result))
            # A blank may be a hiccup of the endpoint; said three times, it is the model's answer.
            if result.text.strip() or remaining == 0:
                break
        known = [cost for cost in costs if cost is not None]
        cost_usd = sum(known) if len(known) == len(costs) else None
        return result if result.attempts == attempts else replace(result, attempts=attempts), cost_usd

    def _book(self, model: str, result: ChatResult) -> float | None:
        cost = self._cost(model, result.prompt_tokens, result.completion_tokens)
        if cost is None:
            self.stats.unpriced[model] += 1
        else:
            self.stats.spent_usd += cost
        return cost

    async def retrieve(
        self,
        memory: str,
        identity: dict[str, Any],
        search: Callable[[], Awaitable[list[dict[str, Any]]]],
        salt: str = "",
    ) -> tuple[CallRow, bool]:
        """A retrieval, kept like a call: one serves all post-processors of a memory system."""
        key = call_key("retrieval", {**identity, "salt": salt})

        async def make(flow: Flow) -> CallRow:
            with stopwatch() as watch:
                found = await search()
                taken = watch.elapsed_ms()
            return CallRow(
                key=key,
                kind="retrieval",
                model=memory,
                request=identity,
                response=json.dumps(found, ensure_ascii=False),
                finish_reason=None,
                prompt_tokens=None,
                completion_tokens=None,
                cost_usd=None,
                duration_ms=taken,
                attempts=1,
                made_at=time.time(),
            )

        return await self._once(key, make)

    async def _once(
        self, key: str, make: Callable[[Flow], Awaitable[CallRow]], listener: Listener | None = None
    ) -> tuple[CallRow, bool]:
        if (kept := self._unwritten.get(key) or self._written.get(key)) is not None:
            self.stats.reused += 1
            if listener is not None:
                listener.whole(kept.response)
            return kept, True
        if (task := self._under_way.get(key)) is not None:
            row, _ = await self._wait(key, task, listener)
            self.stats.reused += 1
            return row, True
        self._flows[key] = Flow()
        task = asyncio.ensure_future(self._find_or_make(key, make, self._flows[key]))
        self._under_way[key] = task
        task.add_done_callback(lambda done: self._forget(key))
        row, made = await self._wait(key, task, listener)
        if made:
            self.stats.made += 1
        else:
            self.stats.reused += 1
        return row, not made

    async def _wait(
        self, key: str, task: asyncio.Task[tuple[CallRow, bool]], listener: Listener | None
    ) -> tuple[CallRow, bool]:
        if listener is None:
            return await asyncio.shield(task)
        flow = self._flows[key]
        flow.join(listener)
        try:
            row, made = await asyncio.shield(task)
        finally:
            flow.listeners.remove(listener)
        listener.whole(row.response)
        return row, made

    def _forget(self, key: str) -> None:
        self._under_way.pop(key, None)
        self._flows.pop(key, None)

    async def _find_or_make(
        self, key: str, make: Callable[[Flow], Awaitable[CallRow]], flow: Flow
    ) -> tuple[CallRow, bool]:
        found = await self._lookups.find(key)
        if found is not None:
            return found, False
        try:
            row = await make(flow)
        except ModelError:
            self.stats.failed += 1
            raise
        self._unwritten[key] = row
        return row, True

    async def aclose(self) -> None:
        """Cancel the calls under way, so that their connections close; whoever waits for one is cancelled with it. What
        is finished stays at hand to be kept."""
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def settle(self) -> None:
        """Wait for the calls under way, however they end; what they answered stays at hand to be kept."""
        await asyncio.gather(*self._under_way.values(), return_exceptions=True)

    async def find(self, keys: Sequence[str]) -> dict[str, CallRow]:
        """Those of the calls that are in the store, by key, without their requests.

        Raises:
            StoreError: the store can't be read.
        """
        return await self._lookups.find_all(keys)

    async def save(self, rows: Sequence[CallRow]) -> None:
        """Write calls that belong to no record; those that are there already stay as they are.

        Raises:
            StoreError: the store can't be written.
        """
        if rows:
            await self._store.in_thread(save_calls, self._store, rows)

    async def keep_all(self) -> None:
        """Write all calls that are at hand, whoever asked for them.

        Raises:
            StoreError: the store can't be written; the calls stay at hand.
        """
        await self.keep(list(self._unwritten))

    async def keep(self, keys: Sequence[str]) -> None:
        """Write calls now that no record may ever rest on: a memory library's.

        Raises:
            StoreError: the store can't be written; the calls stay at hand.
        """
        await self.save(self.unwritten(keys))
        self.written(keys)

    def unwritten(self, keys: Sequence[str]) -> list[CallRow]:
        """Those of the calls that must be written with the record that rests on them."""
        return [self._unwritten[key] for key in dict.fromkeys(keys) if key in self._unwritten]

    def written(self, keys: Sequence[str]) -> None:
        """These calls are in the store now."""
        for key in keys:
            if (row := self._unwritten.pop(key, None)) is not None:
                self._written[key] = row
        while len(self._written) > _AT_HAND:
            self._written.popitem(last=False)
