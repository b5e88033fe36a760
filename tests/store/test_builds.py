"""Builds in the store: one process at a time, units whole or not at all."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest
from sqlalchemy import select

from opbench.construction.spec import BuildSpec
from opbench.errors import LeaseLost, StoreError, UsageError
from opbench.store import schema as s
from opbench.store.builds import (
    Candidate,
    Ruling,
    Unit,
    add_provenance,
    beat,
    claim_build,
    count_candidates,
    create_build,
    delete_build,
    find_build,
    list_builds,
    load_build,
    new_worker,
    read_candidates,
    read_units,
    release_build,
    rename_build,
    request,
    save_unit,
    set_states,
)
from opbench.store.database import Store, open_store
from opbench.store.writing import CallRow

UNIT = Unit("tasks/c/u/fact/m/1", "tasks", "c/u", "done", None, {"questions": ["A?"]}, "generator", "m", "0" * 64)
CALL = CallRow("k1", "chat", "m", {}, "{}", "stop", 3, 4, 0.5, 10.0, 1, 1.0)


def question(number: int, **further: object) -> Candidate:
    plain = Candidate(
        *(f"id{number}", number, UNIT.unit, "c/u", "fact", None, None, None, f"Q{number}?", None, None, ("D1:2",)),
        generator="m",
        prompt_sha256="0" * 64,
    )
    return replace(plain, **further)  # type: ignore[arg-type]


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    opened = open_store(store_url)
    yield opened
    opened.close()


def calls(store: Store) -> list[str]:
    with store.begin() as connection:
        return list(connection.scalars(select(s.calls.c.key)))


def test_a_unit_is_written_with_its_candidates_and_calls_and_replaced_whole(store: Store) -> None:
    build_id = create_build(store, BuildSpec(name="One"), {})
    save_unit(store, build_id, replace(UNIT, calls=("k1",), made_at=5.0), [question(2), question(1)], [CALL])
    assert read_units(store, build_id) == {UNIT.unit: replace(UNIT, calls=("k1",), made_at=5.0)}
    assert read_candidates(store, build_id) == [question(1), question(2)]
    assert calls(store) == ["k1"]
    save_unit(store, build_id, replace(UNIT, status="failed", reason="no", made_at=6.0), [question(3)])
    assert [each.id for each in read_candidates(store, build_id)] == ["id3"]
    assert read_units(store, build_id)[UNIT.unit].reason == "no"
    with pytest.raises(StoreError):
        save_unit(
            store, build_id, replace(UNIT, unit="tasks/other"), [question(4), question(3)], [replace(CALL, key="k2")]
        )
    assert "tasks/other" not in read_units(store, build_id), "all or nothing"
    assert calls(store) == ["k1"]


def test_of_many_that_start_at_once_one_gets_the_build(store: Store) -> None:
    build_id = create_build(store, BuildSpec(), {})
    outcomes: list[str] = []

    def start() -> None:
        try:
            claim_build(store, build_id, new_worker())
            outcomes.append("ours")
        except UsageError as error:
            outcomes.append(str(error).partition("process")[0])

    threads = [threading.Thread(target=start) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == [f"build {build_id} is being worked on by "] * 5 + ["ours"]


def test_a_dead_worker_s_build_is_taken_over_and_it_writes_nothing_more(store: Store) -> None:
    build_id = create_build(store, BuildSpec(), {})
    first, second = new_worker(), new_worker()
    claim_build(store, build_id, first)
    assert load_build(store, build_id).working
    request(store, build_id, "stop")
    assert beat(store, build_id, first) == "stop"
    with store.begin() as connection:
        connection.execute(s.builds.update().values(heartbeat_at=s.builds.c.heartbeat_at - 61))
    assert not load_build(store, build_id).working, "silent for more than a minute"
    claim_build(store, build_id, second)
    assert load_build(store, build_id).request == "go"
    for write in (
        lambda: beat(store, build_id, first),
        lambda: save_unit(store, build_id, UNIT, [question(1)], [CALL], worker=first),
        lambda: set_states(store, build_id, [Ruling("id1", "kept")], worker=first),
    ):
        with pytest.raises(LeaseLost, match="another start took it"):
            write()
    assert read_units(store, build_id) == {}
    assert calls(store) == ["k1"], "what was paid for is kept"
    release_build(store, build_id, first, "by the first")
    assert load_build(store, build_id).working, "only the own claim is given back"
    release_build(store, build_id, second, "by the second")
    assert load_build(store, build_id).halted == "by the second"
    assert not load_build(store, build_id).working


def test_a_stop_that_is_asked_for_while_a_process_starts_counts(store: Store) -> None:
    build_id = create_build(store, BuildSpec(), {})
    request(store, build_id, "stop")
    worker = new_worker()
    claim_build(store, build_id, worker, keep_request=True)
    assert beat(store, build_id, worker) == "stop"


def test_rulings_change_states_and_can_be_taken_back(store: Store) -> None:
    build_id = create_build(store, BuildSpec(), {})
    save_unit(store, build_id, UNIT, [question(1), question(2)])
    told = Ruling("id2", "dropped", "near-duplicate", "like id1", {"of": "id1", "cosine": 0.9})
    assert set_states(store, build_id, [Ruling("id1", "kept"), told, Ruling("gone", "kept")]) == 2
    one, two = read_candidates(store, build_id)
    assert (one.state, one.decided_by) == ("kept", None)
    assert (two.state, two.decided_by, two.reason, two.details) == (
        *("dropped", "near-duplicate", "like id1"),
        {"of": "id1", "cosine": 0.9},
    )
    assert count_candidates(store, build_id) == [
        ("m", "fact", "dropped", "near-duplicate", 1),
        ("m", "fact", "kept", None, 1),
    ]
    assert read_candidates(store, build_id, states=["kept"]) == [one]
    set_states(store, build_id, [Ruling("id2", "candidate")])
    assert read_candidates(store, build_id, ids=["id2"]) == [question(2)]


def test_names_are_found_changed_and_deleted(store: Store) -> None:
    with pytest.raises(UsageError, match="no build in this store"):
        find_build(store)
    one = create_build(store, BuildSpec(name=" The  first "), {"a": 1})
    two = create_build(store, BuildSpec(), {}, maker="Ada")
    assert load_build(store, one).name == "The first"
    assert load_build(store, two).name == two, "without a name its id"
    assert find_build(store, "The first") == find_build(store, one) == find_build(store, one[:9]) == one
    assert find_build(store) == two
    rename_build(store, two, "The first")
    with pytest.raises(UsageError, match="fits 2 builds"):
        find_build(store, "The first")
    for name, said in (("", "empty"), ("x" * 121, "121")):
        with pytest.raises(UsageError, match=said):
            rename_build(store, one, name)
    add_provenance(store, one, {"b": 2})
    assert load_build(store, one).provenance == {"a": 1, "b": 2}
    save_unit(store, one, UNIT, [question(1)])
    claim_build(store, one, worker := new_worker())
    with pytest.raises(UsageError, match="Stop it first"):
        delete_build(store, one)
    release_build(store, one, worker)
    delete_build(store, one)
    assert [(each.id, each.maker) for each in list_builds(store)] == [(two, "Ada")]
    assert read_candidates(store, one) == []
    for gone in (
        lambda: load_build(store, one),
        lambda: rename_build(store, one, "x"),
        lambda: request(store, one, "go"),
    ):
        with pytest.raises(UsageError, match="no build"):
            gone()


def test_a_damaged_build_hides_no_other(store: Store) -> None:
    one = create_build(store, BuildSpec(), {})
    two = create_build(store, BuildSpec(), {})
    save_unit(store, one, UNIT, [question(1)])
    with store.begin() as connection:
        connection.execute(s.builds.update().where(s.builds.c.id == one).values(spec={"rounds": 0}))
    with pytest.raises(StoreError, match=f"build {one}.*rounds"):
        load_build(store, one)
    found = {each.id: each for each in list_builds(store)}
    assert found[one].build is None
    assert "rounds" in found[one].damage
    assert found[one].counts == {"candidate": 1}
    assert found[two].build is not None
