"""What a vLLM server does a second, from the counters that it shows at /metrics."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

#: A sample of the Prometheus text format: name, labels, value, perhaps a time.
_SAMPLE = re.compile(r"^(vllm:\w+)(?:\{.*\})? (\S+)(?: -?\d+)?$", re.M)
_NEEDED = "vllm:prompt_tokens_total"


@dataclass(frozen=True, slots=True)
class Counters:
    """A server's counters at one moment, summed over its engines (data parallel)."""

    at: float
    """Seconds of a monotonic clock."""
    prompt: float
    """Prompt tokens since its start, those found in the prefix cache included."""
    generated: float
    asked: float
    """Prompt tokens that were looked for in the prefix cache."""
    found: float
    """Those of them that were in it."""
    running: int
    waiting: int


@dataclass(frozen=True, slots=True)
class Throughput:
    """Of some seconds between two looks at the counters."""

    prompt_per_s: float
    """Prompt tokens, those found in the prefix cache included."""
    generated_per_s: float
    running: int
    """Requests being answered at the second look."""
    waiting: int
    """Requests in the server's queue at the second look."""
    hits: float | None
    """Part of the prompt tokens that came out of the prefix cache, 0 to 1; None when no prompt was read."""

    @property
    def idle(self) -> bool:
        return not (self.prompt_per_s or self.generated_per_s or self.running or self.waiting)


def read(text: str, at: float) -> Counters | None:
    """The counters in a /metrics answer; None when it is none of vLLM's."""
    sums: dict[str, float] = {}
    for name, value in _SAMPLE.findall(text):
        try:
            sums[name] = sums.get(name, 0.0) + float(value)
        except ValueError:
            return None
    if _NEEDED not in sums:
        return None

    def of(name: str) -> float:
        return sums.get(f"vllm:{name}", 0.0)

    return Counters(
        at,
        prompt=of("prompt_tokens_total"),
        generated=of("generation_tokens_total"),
        asked=of("prefix_cache_queries_total"),
        found=of("prefix_cache_hits_total"),
        running=round(of("num_requests_running")),
        waiting=round(of("num_requests_waiting")),
    )


def between(before: Counters, after: Counters) -> Throughput | None:
    """What was done between two looks; None when no time passed or the server began anew meanwhile."""
    seconds = after.at - before.at
    prompt, generated = after.prompt - before.prompt, after.generated - before.generated
    asked, found = after.asked - before.asked, after.found - before.found
    if seconds <= 0 or min(prompt, generated, asked, found) < 0:
        return None
    return Throughput(
        prompt / seconds, generated / seconds, after.running, after.waiting, found / asked if asked else None
    )


def together(counters: Iterable[Counters]) -> Counters:
    """Several servers' counters as one's; there must be at least one. They count as taken at the last one's moment."""
    each = list(counters)
    return Counters(
        max(c.at for c in each),
        prompt=sum(c.prompt for c in each),
        generated=sum(c.generated for c in each),
        asked=sum(c.asked for c in each),
        found=sum(c.found for c in each),
        running=sum(c.running for c in each),
        waiting=sum(c.waiting for c in each),
    )


_WIDTHS = (8, 7, 12, 10, 7, 7, 11)


def _row(*cells: str) -> str:
    return "  ".join(cell.rjust(width) for cell, width in zip(cells, _WIDTHS, strict=True))


HEADING = _row("time", "server", "prompt tok/s", "new tok/s", "running", "waiting", "prefix hits")


def line(time: str, server: str, seen: Throughput | None) -> str:
    """A line below HEADING; dashes where the server didn't tell."""
    if seen is None:
        return _row(time, server, *["–"] * 5)
    hits = "–" if seen.hits is None else f"{seen.hits:.0%}"
    speeds = f"{seen.prompt_per_s:,.1f}", f"{seen.generated_per_s:,.1f}"
    return _row(time, server, *speeds, f"{seen.running:,}", f"{seen.waiting:,}", hits)
