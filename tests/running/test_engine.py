"""The engine and where its jobs come from: what it writes, when it tells so, and what becomes of work taken away."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import Connection, select

from opbench.errors import LeaseLost, StoreError
from opbench.running import engine
from opbench.running.engine import Engine, Progress
from opbench.running.jobs import Job
from opbench.store import schema as s
from opbench.store.claims import new_worker
from opbench.store.database import Store, open_store
from opbench.store.writing import FinishedRecord, save_records
from opbench.study import Configuration
from opbench.types import Instance
from tests.running.test_pipeline import Bench, Model

PLAIN = Configuration("m", "base", "none")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(f"sqlite:///{tmp_path / 's.sqlite3'}")


class Shards:
    """Gives jobs shard by shard, and notes what it is told; `lost` is the shard that somebody takes away."""

    def __init__(self, store: Store, shards: Sequence[Sequence[Job]], lost: int | None = None) -> None:
        self._store = store
        self._shards = list(shards)
        self._lost = {job.instance.id for job in shards[lost]} if lost is not None else set()
        self.to_do = self.planned = sum(len(shard) for shard in shards)
        self.finished = 0
        self.taken = 0
        self.told: list[str] = []
        self.closed = False
        self.free = asyncio.Event()
        self.free.set()

    async def take(self) -> Sequence[Job]:
        await self.free.wait()
        self.taken += 1
        return self._shards.pop(0) if self._shards else ()

    def held(self, connection: Connection, jobs: Sequence[Job]) -> None:
        assert connection.in_transaction()
        if self._lost & {job.instance.id for job in jobs}:
            raise LeaseLost("another worker has taken this shard.")

    async def committed(self, jobs: Sequence[Job]) -> None:
        with self._store.begin() as connection:
            kept = set(connection.scalars(select(s.records.c.instance_id)))
        assert {job.instance.id for job in jobs} <= kept, "told before it is written"
        self.told += [job.instance.id for job in jobs]

    async def aclose(self) -> None:
        self.closed = True


async def embed(texts: Sequence[str]) -> np.ndarray:
    return np.tile(np.array([[0.6, 0.8]], dtype=np.float32), (len(texts), 1))


def engine_of(bench: Bench, **fields: Any) -> Engine:
    return Engine(
        bench.store,
        "r",
        bench.pipeline,
        embedder="e",
        embed=embed,
        on_progress=lambda progress: None,
        stats=dict,
        worker=new_worker("r", 4),
        **fields,
    )


def jobs_of(bench: Bench, instances: Sequence[Instance]) -> list[Job]:
    return [Job(bench.ids[PLAIN], PLAIN, instance) for instance in instances]


def kept(store: Store) -> dict[str, list[Any]]:
    with store.begin() as connection:
        return {
            "records": sorted(connection.scalars(select(s.records.c.instance_id))),
            "calls": sorted(connection.scalars(select(s.calls.c.key))),
            "users": sorted(connection.scalars(select(s.user_scores.c.user_id))),
            "workers": sorted(connection.scalars(select(s.workers.c.id))),
        }


async def test_jobs_come_in_shards_and_are_told_once_they_are_written(store: Store) -> None:
    bench = Bench(store, model := Model())
    instances = bench.corpus.op[:9]
    jobs = jobs_of(bench, instances)
    source = Shards(store, [jobs[:2], jobs[2:3], jobs[3:]])
    progress = await engine_of(bench).run(source)
    assert (progress.planned, progress.to_do, progress.done, progress.errors) == (9, 9, 9, 0)
    wanted = sorted(instance.id for instance in instances)
    assert sorted(source.told) == kept(store)["records"] == wanted
    assert source.closed
    assert source.taken == 4, "three shards, and that there are no more"
    assert len(model.requests) == len({instance.question for instance in instances}), "equal calls are made once"


async def test_a_member_of_a_team_gives_users_no_score(store: Store) -> None:
    bench = Bench(store, Model())
    jobs = jobs_of(bench, [each for each in bench.corpus.op if each.subtype == "repetition"])
    users = sorted({job.instance.user.id for job in jobs})
    assert users
    await engine_of(bench, scores_users=False).run(Shards(store, [jobs]))
    assert kept(store)["users"] == []
    with store.begin() as connection:
        assert len(connection.execute(select(s.embeddings)).all()) == len(jobs), "but the vectors are there"
    await engine_of(bench).run(Shards(store, []))
    assert kept(store)["users"] == users


async def test_what_others_have_taken_is_not_written_but_its_calls_are_kept(store: Store) -> None:
    bench = Bench(store, Model())
    jobs = jobs_of(bench, bench.corpus.op[:4])
    source = Shards(store, [jobs], lost=0)
    with pytest.raises(LeaseLost, match="taken this shard"):
        await engine_of(bench).run(source)
    left = kept(store)
    assert left["records"] == []
    assert len(left["calls"]) == len({job.instance.question for job in jobs}), "they were paid for"
    assert source.told == []
    assert source.closed


async def test_a_stop_is_heard_while_all_shards_are_with_others(store: Store) -> None:
    bench = Bench(store, Model())
    source = Shards(store, [jobs_of(bench, bench.corpus.op[:4])])
    source.free.clear()
    engine = engine_of(bench)
    running = asyncio.create_task(engine.run(source))
    await asyncio.sleep(0.05)
    assert not running.done()
    engine.stop()
    progress = await asyncio.wait_for(running, 10)
    assert progress.done == 0
    assert source.closed
    assert kept(store)["workers"] == []


async def test_nothing_is_taken_up_after_the_reason_to_halt(store: Store) -> None:
    bench = Bench(store, model := Model())
    source = Shards(store, [[job] for job in jobs_of(bench, bench.corpus.op[:40])])
    engine = engine_of(bench, reason_to_halt=lambda: "No money." if model.requests else None)
    progress = await engine.run(source)
    assert engine.halted == "No money."
    assert 1 <= progress.done <= 4, "what was in flight"
    assert len(kept(store)["records"]) == progress.done


async def test_a_source_that_fails_ends_the_run(store: Store) -> None:
    class Broken(Shards):
        async def take(self) -> Sequence[Job]:
            raise StoreError("store: gone.")

    bench = Bench(store, Model())
    source = Broken(store, [jobs_of(bench, bench.corpus.op[:4])])
    with pytest.raises(StoreError, match="gone"):
        await engine_of(bench).run(source)
    assert source.closed


async def test_a_judge_is_asked_again_in_the_same_transaction_as_the_lease(store: Store) -> None:
    bench = Bench(store, Model())
    job = jobs_of(bench, bench.corpus.op[:1])[0]
    await engine_of(bench).run(Shards(store, [[job]]))
    with store.begin() as connection:
        record_id = connection.scalar(select(s.records.c.id))
        connection.execute(s.scores.update().values(value=None, reason="judge: timeout", retriable=True))
    again = Job(job.configuration_id, job.configuration, job.instance, record_id)
    with pytest.raises(LeaseLost):
        await engine_of(bench).run(Shards(store, [[again]], lost=0))
    with store.begin() as connection:
        assert connection.execute(select(s.scores.c.value, s.scores.c.reason)).one() == (None, "judge: timeout")
    source = Shards(store, [[again]])
    progress: Progress = await engine_of(bench).run(source)
    assert (progress.done, source.told) == (1, [job.instance.id])
    with store.begin() as connection:
        # "An answer." has ten letters; the judge gives a hundredth for each.
        assert connection.execute(select(s.scores.c.value, s.scores.c.reason)).one() == (0.1, None)


def writings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many records each transaction held, in their order."""
    found: list[int] = []

    def counted(store: Store, run_id: str, records: Sequence[FinishedRecord], held: Any = None) -> None:
        found.append(len(records))
        save_records(store, run_id, records, held)

    monkeypatch.setattr(engine, "save_records", counted)
    return found


async def test_records_that_finish_together_are_written_together(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_GATHERS_S", 60.0)
    bench = Bench(store, Model())
    jobs, found = jobs_of(bench, bench.corpus.op[:9]), writings(monkeypatch)
    progress = await engine_of(bench, concurrency=8).run(Shards(store, [jobs]))
    assert progress.done == sum(found) == 9
    assert found[0] >= 4, "half of those that may be under way press; the last ones don't wait for more"


async def test_a_record_waits_for_no_other_where_one_is_made_at_a_time(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_GATHERS_S", 60.0)
    bench = Bench(store, Model())
    found = writings(monkeypatch)
    await engine_of(bench, concurrency=1).run(Shards(store, [jobs_of(bench, bench.corpus.op[:4])]))
    assert sum(found) == 4
    assert max(found) <= 2, "one that is written, and one that waits"


class OneByOne(Shards):
    """The next shard comes when the one before it is written."""

    async def take(self) -> Sequence[Job]:
        shard = await super().take()
        self.free.clear()
        return shard

    async def committed(self, jobs: Sequence[Job]) -> None:
        await super().committed(jobs)
        self.free.set()


async def test_a_lone_record_is_written_soon(store: Store) -> None:
    bench = Bench(store, Model())
    source = OneByOne(store, [[job] for job in jobs_of(bench, bench.corpus.op[:3])])
    async with asyncio.timeout(20):
        await engine_of(bench, concurrency=8).run(source)
    assert len(source.told) == 3
