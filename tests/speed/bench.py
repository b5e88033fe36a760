"""`make bench`: what the driver makes of the scripted server, beside plain aiohttp, in ratios.

    python -m tests.speed.bench [--check | --write-baseline] [PART …]

Numbers are medians of repeats; the floor and the engine take turns in the same minute, the server in a process of its
own, no process bound to a processor. `--check` compares with `baseline.json` and fails, with a line for each, when a
ratio has fallen by a third.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.speed import anchors, rate_limit, studies
from tests.speed.dry_run import NAIVE_RECORDS
from tests.speed.ratios import BASELINE, Ratio, fallen, machine, read_baseline, write_baseline
from tests.speed.server import ROOT, Server, running

REPEATS = 5
FEW_REPEATS = 3
#: Samples of two calls each: about a second's worth.
FLOOR_SAMPLES, ANCHOR_SAMPLES = 4_000, 300
LATENCY_S = 0.2
LATENCY_LIMIT = 800
WORKERS = 2
#: The models of the study that workers share: a member starts up for seconds, and its work must take longer.
WORKERS_MODELS = tuple(f"scripted-{number}" for number in range(2))
WORKERS_REPEATS = 2
MOST_MB = 300.0


@dataclass(frozen=True, slots=True)
class _Aim:
    """Something that is to take no longer than so many seconds."""

    name: str
    seconds: float
    most: float

    @property
    def line(self) -> str:
        met = "met" if self.seconds < self.most else "MISSED"
        return f"{self.name} {self.seconds:.2f} s  aim {self.most:.0f} s: {met}"


class Bench:
    """Measures part by part; what is said meanwhile goes to standard output."""

    def __init__(self) -> None:
        self.ratios: list[Ratio] = []
        self._floor: float | None = None

    def engine(self) -> None:
        """One process on a server without latency, beside the floor and the anchors."""
        with _warm() as (home, server):
            floors, engines, floor_us, engine_us = [], [], [], []
            for _ in range(REPEATS):
                made = anchors.samples(FLOOR_SAMPLES)
                began = time.process_time()
                floors.append(asyncio.run(anchors.plain_aiohttp(server.url, made)))
                floor_us.append((time.process_time() - began) * 1e6 / (2 * FLOOR_SAMPLES))
                measured = studies.measure(home, server, studies.study())
                engines.append(measured.rate)
                engine_us.append(measured.processor_s * 1e6 / measured.calls)
            few = anchors.samples(ANCHOR_SAMPLES)
            others: dict[str, list[float]] = {}
            for _ in range(FEW_REPEATS):
                others.setdefault("AsyncOpenAI", []).append(asyncio.run(anchors.sdk(server.url, few)))
                others.setdefault("openai[aiohttp], raw", []).append(
                    asyncio.run(anchors.sdk_raw_aiohttp(server.url, few))
                )
                others.setdefault("OpenAI, 16 threads", []).append(anchors.sdk_threads(server.url, few))
        self._floor, engine = _row("plain aiohttp, the floor", floors), _row("engine", engines)
        print(
            f"  processor time a call: {statistics.median(floor_us):.0f} µs of plain aiohttp, "
            f"{statistics.median(engine_us):.0f} µs of the engine, its threads included"
        )
        for name, rates in others.items():
            _row(name, rates, self._floor)
        self._add("engine/floor", engine / self._floor, f"{engine:.0f} of {self._floor:.0f} calls/s", 0.30)

    def workers(self) -> None:
        """`opbench run` with one process and with two, on as many processors as there are."""
        with _warm(WORKERS_MODELS) as (home, server):
            one, several = [], []
            for _ in range(WORKERS_REPEATS):
                what = studies.study(models=WORKERS_MODELS)
                one.append(studies.measure_command(home, server, what, 1))
                several.append(studies.measure_command(home, server, what, WORKERS))
        alone, together = _row("opbench run", one), _row(f"opbench run --workers {WORKERS}", several)
        of = f"{together:.0f} to {alone:.0f} calls/s; the server is busy too, on {os.cpu_count()} processors in all"
        self._add(f"{WORKERS} workers/1", together / alone, of)

    def latency(self) -> None:
        """A server that takes 200 ms, 64 connections: 320 requests a second at the most."""
        ceiling = anchors.CONNECTIONS / LATENCY_S
        with _warm() as (home, server):
            what = studies.study(limit=LATENCY_LIMIT)
            engines = [studies.measure(home, server, what, LATENCY_S).rate for _ in range(2)]
        engine = _row("engine at 200 ms, 64 connections", engines)
        self._add("latency/ceiling", engine / ceiling, f"{engine:.0f} of {ceiling:.0f} calls/s")

    def resume(self) -> None:
        """A finished study of 100,440 records, and the same with 1,000 missing."""
        took = _program("resuming")
        print(f"  {took['records']:,} records: planned in {took['plan_s']:.2f} s")
        for aim in (
            _Aim("finished study, nothing to do", took["finished_s"], 2),
            _Aim(f"{took['missing']:,} missing, first call", took["first_call_s"], 3),
        ):
            print(f"  {aim.line}")
        print(f"  {took['missing']:,} missing, done in {took['resumed_s']:.1f} s")
        self._per_floor("finished records/floor", took["records"], took["finished_s"])

    def memory(self) -> None:
        """A process that plans 602,640 records."""
        took = _program("memory")
        print(
            f"  {took['planned']:,} planned: {took['before_mb']:.0f} MB before, {took['planned_mb']:.0f} MB at the "
            f"first record, {took['early_mb']:.0f} MB after 500, {took['late_mb']:.0f} MB after 2,500"
        )
        peak = took["peak_mb"]
        self._add("300 MB/peak", MOST_MB / peak, f"{peak:.0f} MB at the most", 1.0)

    def dry_run(self) -> None:
        """The paper's full grid by dry run."""
        told = _program("dry_run")
        print(f"  {NAIVE_RECORDS:,} records, {told['planned']:,} of ours, told in {told['seconds']:.1f} s")
        print(f"  calls: {told['calls_naive']:,} of a driver that shares nothing, at most {told['calls']:,} of ours")
        for why, calls in told["saved"].items():
            print(f"    {calls:,} fewer: {why}")
        print(f"  searches of memories: {told['retrievals_naive']:,}, of ours {told['retrievals']:,}")
        self._add("calls saved", 1 - told["calls"] / told["calls_naive"], "of a driver's that shares nothing")
        self._per_floor("dry-run records/floor", NAIVE_RECORDS, told["seconds"])

    def limits(self) -> None:
        """Simulated providers of 500 requests and 100,000 tokens a minute."""
        kept = []
        for each in rate_limit.measure():
            print(f"  {each.name:58} {100 * each.share:5.1f} % of the limit, {100 * each.refused:4.2f} % refused")
            kept.append(each)
        self._add("kept of rate limits", min(each.share for each in kept), "the least of these", 0.95)
        refused = max(each.refused for each in kept)
        self._add("not refused", 1 - refused, "the least of these", 0.99)

    def _add(self, name: str, value: float, of: str, aim: float | None = None) -> None:
        self.ratios.append(Ratio(name, value, of, aim))

    def _per_floor(self, name: str, records: int, seconds: float) -> None:
        """Records a second over the floor's requests a second: what a machine's speed doesn't change."""
        if self._floor is None:
            with running() as server:
                rates = [
                    asyncio.run(anchors.plain_aiohttp(server.url, anchors.samples(FLOOR_SAMPLES)))
                    for _ in range(FEW_REPEATS)
                ]
            self._floor = _row("plain aiohttp, the floor", rates)
        of = f"{records / seconds:,.0f} records/s of {self._floor:.0f} requests/s"
        self._add(name, records / seconds / self._floor, of)


@contextmanager
def _warm(models: tuple[str, ...] = ()) -> Iterator[tuple[studies.Home, Server]]:
    """A server, and a home in which all retrievals are made; `models` beside those that every home has."""
    with (
        tempfile.TemporaryDirectory() as folder,
        running() as server,
        studies.at_home(Path(folder), server.url) as home,
    ):
        home.use(server.url, models)
        home.warm_up()
        yield home, server


def _row(name: str, rates: list[float], floor: float | None = None) -> float:
    """The median, printed with all of them."""
    median = statistics.median(rates)
    ratio = "" if floor is None else f"  {median / floor:.3f} of the floor"
    print(f"  {name:34} {median:7.0f} /s   (of {', '.join(f'{rate:.0f}' for rate in rates)}){ratio}")
    return median


def _program(name: str) -> dict[str, Any]:
    """What a part says that is a program of its own."""
    done = subprocess.run(
        [sys.executable, "-m", f"tests.speed.{name}"], capture_output=True, text=True, cwd=ROOT, check=False
    )
    if done.returncode:
        raise AssertionError(f"tests.speed.{name} failed:\n{done.stderr[-3000:]}")
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


PARTS: dict[str, Callable[[Bench], None]] = {
    "engine": Bench.engine,
    "workers": Bench.workers,
    "latency": Bench.latency,
    "resume": Bench.resume,
    "memory": Bench.memory,
    "dry-run": Bench.dry_run,
    "limits": Bench.limits,
}


def main() -> int:
    """Exit code 1 when a ratio has fallen."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; default: all")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--check", action="store_true", help="fail when a ratio has fallen by a third")
    what.add_argument("--write-baseline", action="store_true", help=f"keep the ratios in {BASELINE.name}")
    given = parser.parse_args()
    if unknown := [name for name in given.parts if name not in PARTS]:
        parser.error(f"no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    told = machine()
    print(
        f"{told['processor']}, {told['processors']} processors, load {os.getloadavg()[0]:.1f}, Python {told['python']}"
    )
    bench = Bench()
    for name in given.parts or PARTS:
        start = time.perf_counter()
        print(f"{name}: {(PARTS[name].__doc__ or '').splitlines()[0]}")
        PARTS[name](bench)
        print(f"  ({time.perf_counter() - start:.0f} s)", flush=True)
    print()
    for ratio in bench.ratios:
        print(ratio.line)
    if given.write_baseline:
        write_baseline(bench.ratios)
    if given.check:
        lines = fallen(bench.ratios, read_baseline(), whole=not given.parts)
        for line in lines:
            print(f"FALLEN {line}", file=sys.stderr)
        return 1 if lines else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
