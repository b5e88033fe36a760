"""Shards are one worker's at a time, and who lost them can't write."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pytest
from sqlalchemy import select

from opbench.errors import LeaseLost, UsageError
from opbench.store import leases
from opbench.store import schema as s
from opbench.store.claims import claim, new_worker, orphans
from opbench.store.database import Store
from opbench.store.writing import beat, create_run
from opbench.study import Study


@pytest.fixture
def team(store: Store) -> tuple[str, str, str]:
    """Ids of a leader and of two members of the run `run`."""
    create_run(store, "run", Study(models=("m",)), "digest", {}, [])
    leader = new_worker("run", 4)
    claim(store, "run", leader)
    rows = [new_worker("run", 2, leader["id"]) for _ in range(2)]
    for row in rows:
        leases.join(store, row)
    return leader["id"], rows[0]["id"], rows[1]["id"]


def take(store: Store, worker: str, leader: str, wanted: Sequence[int]) -> leases.Leased:
    def choose(held: Collection[int]) -> list[int]:
        return [shard for shard in wanted if shard not in held]

    with store.begin() as connection:
        return leases.lease(connection, "run", worker, leader, choose)


def test_a_shard_is_one_workers(store: Store, team: tuple[str, str, str]) -> None:
    leader, first, second = team
    leases.begin(store, "run", leader, [0])
    assert take(store, first, leader, [0, 1, 2]) == leases.Leased([1, 2], 0)
    assert take(store, second, leader, [1, 2, 3]) == leases.Leased([3], 2)
    with store.begin() as connection:
        leases.set_done(connection, "run", first, leader, [1])
    assert leases.undone(store, "run", leader, 4) == 2, "2 and 3"
    assert take(store, second, leader, [1, 2]) == leases.Leased([], 1), "what is done is nobody's again"
    leases.give_back(store, "run", first)
    assert take(store, second, leader, [1, 2]) == leases.Leased([2], 0)
    leases.end(store, "run", leader)
    with store.begin() as connection:
        assert not connection.execute(select(s.leases)).all()


def test_another_may_be_faster_between_looking_and_taking(store: Store, team: tuple[str, str, str]) -> None:
    leader, first, second = team
    with store.begin() as connection:
        leases.lease(connection, "run", first, leader, lambda held: [5])
    with store.begin() as connection:
        assert leases.lease(connection, "run", second, leader, lambda held: [5, 6]) == leases.Leased([6], 1)


def test_who_was_given_up_cant_write_and_isnt_told_to_go_on(store: Store, team: tuple[str, str, str]) -> None:
    leader, first, second = team
    take(store, first, leader, [0])
    leases.take_away(store, "run", first)
    with pytest.raises(LeaseLost, match="given to another"), store.begin() as connection:
        leases.hold(connection, first)
    assert beat(store, new_worker("run", 2, leader) | {"id": first}) == "stop"
    assert {row.id for row in leases.members(store, leader)} == {second}, "its heartbeat doesn't bring it back"
    assert take(store, second, leader, [0]).shards == [0]
    with store.begin() as connection:
        leases.hold(connection, second)


def test_a_leader_that_wakes_when_another_leads_frees_nothing_of_its(store: Store, team: tuple[str, str, str]) -> None:
    for each in team:
        leases.take_away(store, "run", each)
    another = new_worker("run", 4)
    claim(store, "run", another)
    member = new_worker("run", 2, another["id"])
    leases.join(store, member)
    take(store, member["id"], another["id"], [3])
    with pytest.raises(LeaseLost):
        leases.end(store, "run", team[0])
    assert take(store, "nobody", another["id"], [3]).shards == [], "it is still held"


def test_nobody_joins_a_leader_that_is_gone(store: Store, team: tuple[str, str, str]) -> None:
    leases.take_away(store, "run", team[0])
    with pytest.raises(UsageError, match="isn't at work any more"):
        leases.join(store, new_worker("run", 2, team[0]))


def test_members_without_a_leader_keep_the_next_one_waiting(store: Store, team: tuple[str, str, str]) -> None:
    assert orphans(store, "run") == [], "they are led"
    leases.take_away(store, "run", team[0])
    assert len(orphans(store, "run")) == 2
    with pytest.raises(UsageError, match="is being worked on"):
        claim(store, "run", new_worker("run", 4))
    for member in team[1:]:
        leases.take_away(store, "run", member)
    assert orphans(store, "run") == []


def test_the_next_leader_frees_all_leases(store: Store, team: tuple[str, str, str]) -> None:
    leader, first, second = team
    take(store, first, leader, [0, 1])
    for each in team[:2]:
        with store.begin() as connection:
            connection.execute(s.workers.delete().where(s.workers.c.id == each))
    with store.begin() as connection:
        connection.execute(s.workers.delete().where(s.workers.c.id == second))
    claim(store, "run", new_worker("run", 4))
    with store.begin() as connection:
        assert not connection.execute(select(s.leases)).all()
