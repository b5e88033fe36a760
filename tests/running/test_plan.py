"""What is left to do, told from the records alone, and in which order."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from sqlalchemy import insert

from opbench.running.plan import DONE, Jobs, make_plan, plan_of
from opbench.running.shards import CHUNK, cut
from opbench.store import schema as s
from opbench.store.database import Store
from opbench.store.writing import create_run
from opbench.study import Configuration, Study
from opbench.types import Instance, User

ANA, BEN = User("c", "Ana", "Ben", True), User("c", "Ben", "Ana", False)


def instances(count: int, user: User = ANA, first: int = 0) -> list[Instance]:
    return [Instance(f"op/{user.speaker}/{n}", "op", user, "fact", f"{n}?") for n in range(first, first + count)]


def test_few_instances_are_a_shard_each() -> None:
    assert cut(instances(5)) == [[0], [1], [2], [3], [4]]


def test_instances_with_one_question_are_in_one_shard() -> None:
    asked = [*instances(2), *instances(2, BEN, first=1)]  # Ana: 0? 1?; Ben: 1? 2?
    assert cut(asked) == [[0], [1, 2], [3]]


def test_many_instances_are_cut_user_by_user() -> None:
    asked = [*instances(900), *instances(900, BEN, first=900)]
    shards = cut(asked)
    assert sorted(index for shard in shards for index in shard) == list(range(1800))
    assert max(map(len, shards)) == CHUNK
    assert all(len({asked[index].user.id for index in shard}) == 1 for shard in shards)
    assert len(shards) == 2 * 113, "900 = 112 × 8 + 4 of each user"


def test_jobs_come_by_model_shard_configuration_and_instance() -> None:
    grid = {Configuration(model, "rag", name): n for n, (model, name) in enumerate((m, x) for m in "ab" for x in "pq")}
    asked = instances(128)  # shards of two
    jobs = Jobs(grid, asked, np.zeros((4, 128), dtype=np.uint8))
    assert len(jobs) == 4 * 128
    places = [(job.configuration_id, int(job.instance.id.rpartition("/")[2])) for job in jobs]
    assert places[:6] == [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (0, 3)]
    assert {number for number, _ in places[:256]} == {0, 1}, "the first model first"
    assert [job.configuration_id for job in jobs[2:4]] == [1, 1]
    assert jobs[-1].configuration_id == 3


@pytest.fixture
def kept(store: Store) -> tuple[dict[Configuration, int], list[Instance]]:
    """A run with two configurations and four instances, of which the second configuration has done some."""
    study = Study(models=("m",), memories=("base", "rag"))
    asked = instances(4)
    ids = create_run(store, "run", study, "digest", {}, asked)
    rag = ids[Configuration("m", "rag", "none")]
    rows: list[dict[str, Any]] = [
        {"instance_id": asked[0].id, "status": "done", "error_kind": None},
        {"instance_id": asked[1].id, "status": "error", "error_kind": "timeout"},
        {"instance_id": asked[2].id, "status": "done", "error_kind": None},
    ]
    with store.begin() as connection:
        for number, row in enumerate(rows, 1):
            values = {"id": number, "run_id": "run", "configuration_id": rag, "finished_at": time.time(), **row}
            connection.execute(insert(s.records).values(**values))
        judged = {"judge": "j", "metric": "score"}
        connection.execute(insert(s.scores).values(record_id=1, value=0.5, retriable=False, **judged))
        connection.execute(insert(s.scores).values(record_id=3, value=None, retriable=True, **judged))
    return {each: ids[each] for each in study.configurations()}, asked


@pytest.mark.parametrize("part", [False, True])
def test_missing_failed_and_unjudged_are_to_do(
    store: Store, kept: tuple[dict[Configuration, int], list[Instance]], part: bool
) -> None:
    ids, asked = kept
    if part:
        with store.begin() as connection:
            plan = plan_of(connection, "run", ids, asked, part=True)
    else:
        plan = make_plan(store, "run", ids, asked)
    assert (plan.planned, plan.finished, plan.failed, len(plan.jobs)) == (8, 1, 2, 7)
    rag = ids[Configuration("m", "rag", "none")]
    of_rag = {job.instance.id: job.record_id for job in plan.jobs if job.configuration_id == rag}
    assert of_rag == {asked[1].id: None, asked[2].id: 3, asked[3].id: None}
    assert [(name, each.id) for name, each in plan.jobs.unanswered()] == [
        *(("base", each.id) for each in asked),
        ("rag", asked[1].id),
        ("rag", asked[3].id),
    ]


def test_a_part_is_planned_from_its_own_records(
    store: Store, kept: tuple[dict[Configuration, int], list[Instance]]
) -> None:
    ids, asked = kept
    with store.begin() as connection:
        plan = plan_of(connection, "run", ids, asked[:1], part=True)
    assert [job.configuration.memory for job in plan.jobs] == ["base"]
    assert plan.jobs.states.tolist() == [[0], [DONE]]
