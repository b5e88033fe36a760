"""What goes wrong, one scenario each. A scenario ends when the study is complete, or when only that is missing which
the provider refuses for ever; then its books are closed."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import select

from opbench.store import schema as s
from tests.soak.ledger import Line
from tests.soak.places import SmallDisk, may_mount, postgres
from tests.soak.process import Starter
from tests.soak.provider import HEALING, Plan
from tests.soak.world import RECORDS_A_MODEL, World


@dataclass(frozen=True, slots=True)
class Given:
    """What a scenario is run with."""

    folder: Path
    starter: Starter
    seed: int
    models: int


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario of `models` models, 340 records each."""

    name: str
    models: int
    run: Callable[[Given], Line]

    @property
    def planned(self) -> int:
        return self.models * RECORDS_A_MODEL


def mixed(given: Given) -> Line:
    """Every kind of fault that heals, and a worker that is killed at random moments."""
    moments = random.Random(given.seed)
    with _world("mixed", given, faults=HEALING, latency_s=0.004) as world:
        for kill in range(3):
            process = world.start()
            world.wait_for_requests(process, 0.2 * (kill + 1) + moments.uniform(0, 0.1))
            world.kill(process)
        world.resume()
        return world.audit()


def storms(given: Given) -> Line:
    """429 for everybody, three times, and an endpoint that is dead for long and comes back."""
    expected = given.models * RECORDS_A_MODEL * 2
    storms = [(expected * share // 10, 1.5) for share in (2, 4, 6)]
    dead = (expected * 4 // 5, 4.0)
    with _world("storms, dead endpoint", given, storms=storms, dead=dead, retry_after_s=0.3) as world:
        world.resume()
        return world.audit()


def refused(given: Given) -> Line:
    """What is refused for ever is missing with its true reason, however often it is asked for; and a worker that is
    asked to end finishes what it has in hands."""
    forever = {"filter_answer": 0.01, "filter_400": 0.01, "too_long": 0.01, "empty_choices": 0.005, "half": 0.005}
    with _world("refused for ever", given, forever=forever, latency_s=0.004) as world:
        process = world.start()
        world.wait_for_requests(process, 0.4)
        process.signal(signal.SIGTERM)
        assert process.wait(30) == 1, process.said()
        assert "finishing what is in flight" in process.said()
        world.resume()
        return world.audit()


def clock(given: Given) -> Line:
    """The wall clock is set: an hour on, two back, ten days on; Retry-After and heartbeats live through it."""
    jumps = ((1.0, 3600.0), (2.0, -7200.0), (3.0, 864_000.0))
    with _world("clock jumps", given, faults={"rate_limit": 0.03, "unavailable": 0.02}, latency_s=0.004) as world:
        process = world.start(jumps=jumps)
        code = process.wait()
        assert code == 0, process.said()
        world.resume()
        return world.audit()


def disk(given: Given) -> Line:
    """The disk is full in the middle: a small file system as root, a limit on a file's size else."""
    if not may_mount():
        return limited(given)
    full = SmallDisk(given.folder / "disk", given.models * 1_100_000)
    try:
        with _world("full disk", given, home=full.folder) as world:
            process = world.start()
            world.store_gone(process, "full disk", "full")
            again = world.start()
            assert again.wait() == 1, again.said()
            assert again.last_line.startswith("opbench: "), again.said()
            world.broke(again, "full disk")
            full.grow(given.models * 40_000_000)
            world.resume()
            return world.audit()
    finally:
        full.close()


def limited(given: Given) -> Line:
    """No file may grow beyond a limit: what a quota does."""
    with _world("quota", given) as world:
        process = world.start(file_limit=given.models * 700_000)
        world.store_gone(process, "quota")
        world.resume()
        return world.audit()


def locked(given: Given) -> Line:
    """Somebody else writes to the SQLite file for seconds: the run waits, and nothing ends."""
    with _world("locked store", given, latency_s=0.004) as world:
        process = world.start()
        for share in (0.2, 0.5):
            world.wait_for_requests(process, share)
            other = sqlite3.connect(world.store_file, isolation_level=None, timeout=30)
            other.execute("BEGIN IMMEDIATE")
            time.sleep(3.0)
            other.execute("ROLLBACK")
            other.close()
        assert process.wait() == 0, process.said()
        world.resume()
        return world.audit()


def killed_while_locked(given: Given) -> Line:
    """A worker is killed while it can't write: it had no more in hands than the instances that it worked on."""
    with _world("killed while locked", given) as world:
        process = world.start()
        world.wait_for_requests(process, 0.3)
        other = sqlite3.connect(world.store_file, isolation_level=None, timeout=30)
        other.execute("BEGIN IMMEDIATE")
        time.sleep(3.0)
        world.kill(process, "SIGKILL of a worker that waits")
        other.execute("ROLLBACK")
        other.close()
        world.resume()
        return world.audit()


def moved(given: Given) -> Line:
    """The store's files are moved away while it is written, and come back."""
    with _world("vanished store", given, latency_s=0.004) as world:
        process = world.start()
        world.wait_for_requests(process, 0.4)
        away = world.home / "away"
        away.mkdir()
        files = sorted(world.home.glob("store.sqlite3*"))
        for file in files:
            file.rename(away / file.name)
        world.store_gone(process, "vanished store")
        for file in files:
            (away / file.name).replace(file)
        world.resume()
        return world.audit()


def database_restarted(given: Given) -> Line:
    """PostgreSQL is restarted, crashes, and is away for a while: the run waits for it."""
    with postgres() as server, _world("PostgreSQL restarted", given, store_url=server.url, latency_s=0.004) as world:
        process = world.start()
        for share, how, seconds in ((0.2, "fast", 0.0), (0.4, "immediate", 0.0), (0.6, "fast", 3.0)):
            world.wait_for_requests(process, share)
            server.stop(how)
            time.sleep(seconds)
            server.start()
        assert process.wait() == 0, process.said()
        world.resume()
        return world.audit()


def twice(given: Given) -> Line:
    """The same study is started twice at once, and a third time while it is worked on."""
    with _world("two starts at once", given, latency_s=0.03) as world:
        both = [world.start(), world.start()]
        while all(each.running for each in both):
            time.sleep(0.02)
        working = next(each for each in both if each.running)
        refused = next(each for each in both if not each.running)
        third = world.start()
        for each in (refused, third):
            assert each.wait() == 2, each.said()
            assert "is being worked on by process" in each.last_line, each.said()
        assert working.wait() == 0, working.said()
        world.resume()
        return world.audit()


def team(given: Given) -> Line:
    """Of three workers one is killed, then another, then their leader; the others go on, or end in order."""
    with _world("SIGKILL in a team", given, latency_s=0.004) as world:
        process = world.start("--workers=3")
        for share in (0.2, 0.4):
            world.wait_for_requests(process, share)
            os.kill(_members(world)[0], signal.SIGKILL)
            world.broke(process, "SIGKILL of a member", -(-process.concurrency // 3))
        world.wait_for_requests(process, 0.6)
        left = _members(world)
        process.signal(signal.SIGKILL)
        process.wait()
        until = time.monotonic() + 60
        while any(Path(f"/proc/{pid}").exists() for pid in left):
            assert time.monotonic() < until, "members go on without a leader"
            time.sleep(0.1)
        # Its members finished and wrote what they had in hands.
        world.broke(process, "SIGKILL of the leader", 0)
        world.resume()
        return world.audit()


def _members(world: World) -> list[int]:
    """Process ids of those that do a part of the run."""
    store = world.open()
    try:
        with store.begin() as connection:
            return list(connection.scalars(select(s.workers.c.pid).where(s.workers.c.leader.is_not(None))))
    finally:
        store.close()


@contextmanager
def _world(
    name: str, given: Given, *, home: Path | None = None, store_url: str | None = None, **plan: Any
) -> Iterator[World]:
    whole = Plan(seed=given.seed, **plan)
    with World(name, given.folder, given.starter, whole, models=given.models, home=home, store_url=store_url) as world:
        yield world


SCENARIOS = (
    Scenario("mixed", 30, mixed),
    Scenario("storms", 6, storms),
    Scenario("refused", 5, refused),
    Scenario("clock", 5, clock),
    Scenario("disk", 3, disk),
    Scenario("limited", 2, limited),
    Scenario("locked", 3, locked),
    Scenario("killed-while-locked", 3, killed_while_locked),
    Scenario("moved", 3, moved),
    Scenario("database", 4, database_restarted),
    Scenario("twice", 2, twice),
    Scenario("team", 5, team),
)
