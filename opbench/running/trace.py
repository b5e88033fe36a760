"""What one instance leaves behind on its way through the pipeline: texts, times, tokens, costs, and the calls used."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mitigations.base import Line, Memory
from opbench.store.writing import CallRow, CallUse
from opbench.study import BASE, Configuration


@dataclass(slots=True)
class Ledger:
    """Clock and ledger of one stage. Waiting for calls is taken out and replaced by the calls' own durations."""

    waited: float = 0.0
    calls_ms: float = 0.0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: float | None = 0.0
    uses: list[tuple[str, bool]] = field(default_factory=list)
    started: float = field(default_factory=time.perf_counter)

    async def call(self, pending: Awaitable[tuple[CallRow, bool]]) -> CallRow:
        start = time.perf_counter()
        try:
            row, reused = await pending
        finally:
            self.waited += time.perf_counter() - start
        self.uses.append((row.key, reused))
        self.calls_ms += row.duration_ms
        self.prompt_tokens += row.prompt_tokens or 0
        self.completion_tokens += row.completion_tokens or 0
        if row.kind != "retrieval":
            unknown = self.cost_usd is None or row.cost_usd is None
            self.cost_usd = None if unknown else (self.cost_usd or 0.0) + (row.cost_usd or 0.0)
        return row

    def elapsed_ms(self) -> float:
        own = time.perf_counter() - self.started - self.waited
        return max(0.0, own * 1000) + self.calls_ms

    @property
    def reused(self) -> bool:
        return any(reused for _, reused in self.uses)


@dataclass(slots=True)
class Trace:
    """What happened to one instance, as far as it came."""

    found: list[Memory] = field(default_factory=list)
    """As retrieved, or given."""
    retrieved: list[Memory] = field(default_factory=list)
    """Of these, what isn't left out."""
    context: Sequence[Memory | Line] = ()
    note: str = ""
    preface: str = ""
    """What the post-processor adds to the response's prompt, at its end and before all else."""
    response: str = ""
    finish_reason: str | None = None
    draft: str | None = None
    critique: str | None = None
    state: str | None = None
    state_reason: str | None = None
    counts: dict[str, int] = field(default_factory=dict)
    context_tokens: int | None = None
    """Tokens of the memories in the prompt; by protocol memos."""
    values: dict[str, Any] = field(default_factory=dict)
    """Latencies, reuse marks and tokens: columns of `schema.records`."""
    costs: list[float | None] = field(default_factory=list)
    """Dollars by stage; None where a price is unknown."""
    untold: bool = False
    """Whether an endpoint didn't tell a call's token counts."""
    uses: list[CallUse] = field(default_factory=list)


def memory_json(memory: Memory) -> dict[str, Any]:
    """As it is kept with records and retrievals."""
    return {"text": memory.text, "date": memory.date, "score": memory.score}


def _line_json(line: Memory | Line) -> dict[str, Any]:
    if isinstance(line, Memory):
        return memory_json(line)
    return {"text": line.text, "date": line.date, "sources": line.sources, "altered": line.altered}


def columns(
    configuration: Configuration, trace: Trace, concurrency: int, error: tuple[str, str] | None
) -> dict[str, Any]:
    """The columns of `schema.records` beyond the keys; `error` is (kind, sentence), None for a record that is done."""
    done = error is None
    return {
        "status": "done" if done else "error",
        "error_kind": error[0] if error else None,
        "error": error[1] if error else None,
        "response": trace.response if done else None,
        "finish_reason": trace.finish_reason,
        "draft": trace.draft,
        "critique": trace.critique,
        "retrieved": None if configuration.memory == BASE else [memory_json(memory) for memory in trace.retrieved],
        "context": None if configuration.memory == BASE else [_line_json(line) for line in trace.context],
        "state": trace.state,
        "state_reason": trace.state_reason,
        "counts": _counts(trace) or None,
        "concurrency": concurrency,
        "cost_usd": None if None in trace.costs else sum(cost for cost in trace.costs if cost),
        "finished_at": time.time(),
        **trace.values,
    }


def _counts(trace: Trace) -> dict[str, int]:
    tokens = {} if trace.context_tokens is None else {"context_tokens": trace.context_tokens}
    return trace.counts | tokens
