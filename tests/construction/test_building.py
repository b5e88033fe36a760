"""Stages 1 and 2 against a scripted model: what is asked, what comes of it, and that nothing is paid twice."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from opbench.construction.building import build, start
from opbench.construction.loading import Source, read_bytes, read_source
from opbench.construction.people import read_people
from opbench.construction.progress import Progress, read_progress
from opbench.construction.spec import BuildSpec
from opbench.errors import UsageError
from opbench.models import load_registry
from opbench.settings import settings
from opbench.store import schema as s
from opbench.store.builds import (
    claim_build,
    load_build,
    new_worker,
    read_candidates,
    read_units,
    request,
)
from opbench.store.database import Store, open_store
from tests.construction.writer import FEW, UNRELATED, changed, schema_of, scripted_spec, write
from tests.running.study import use_endpoint
from tests.scripted_endpoint import ScriptedEndpoint

OTTILIE, CORVIN = "sample-1/Ottilie", "sample-1/Corvin"
#: Of one user by FEW: profile, topics; similarity, three general topics, two kinds of baiting, fact, value, two grains
#: of memory-level, subtopics and one topic's subtopic.
UNITS = 2 + 1 + 3 + 2 + 1 + 1 + 2 + 1 + 1
CANDIDATES = {"fully-irrelevant": 3, "baiting": 2, "fact": 1, "value": 1, "memory": 2, "repetition": 2}


@pytest.fixture
def store(home: Path) -> Store:
    return open_store(settings().store_url)


async def built(store: Store, spec: BuildSpec, source: Source | None = None, **further: Any) -> tuple[str, Progress]:
    build_id = start(store, spec, source or read_source("sample"))
    return build_id, await build(store, build_id, **further)


async def held(endpoint: ScriptedEndpoint) -> None:
    """Until a build is in the middle of its work, where the endpoint holds it."""
    for _ in range(3000):
        if endpoint.ledger.total > 10:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("the build asked for nothing")


def calls_in(store: Store) -> int:
    with store.begin() as connection:
        return int(connection.execute(select(func.count()).select_from(s.calls)).scalar_one())


async def test_all_six_subtypes_come_of_the_sample(home: Path, store: Store) -> None:
    with ScriptedEndpoint(reply=write) as endpoint:
        use_endpoint(home, endpoint)
        build_id, progress = await built(store, scripted_spec())
        assert endpoint.ledger.total == 2 * UNITS
    assert (progress.done, progress.failed, progress.planned) == (2 * UNITS, 0, 2 * UNITS)
    assert (progress.halted, progress.worker, progress.repaired) == (None, None, 0)
    made = read_candidates(store, build_id)
    for user in (OTTILIE, CORVIN):
        assert Counter(each.subtype for each in made if each.user_id == user) == CANDIDATES
    assert all(each.state == "candidate" and each.generator == "scripted" for each in made)
    assert progress.candidates == {"candidate": 22}
    assert [each.ordinal for each in made] == sorted({each.ordinal for each in made}), "in order, none twice"
    of = {subtype: [each for each in made if each.subtype == subtype] for subtype in CANDIDATES}
    assert {each.topic for each in of["fully-irrelevant"]} == set(UNRELATED)
    assert {each.kind for each in of["memory"]} == {"fine-grained", "coarse-grained"}
    assert all(each.topic and each.subtopic for each in of["repetition"])
    assert all("A normal answer:" in str(each.explanation) for each in of["baiting"])
    facts = {each.text: each for person in read_people(store, build_id).values() for each in person.facts}
    for each in of["memory"]:
        assert each.falsifies in facts
        assert each.evidence == facts[each.falsifies].evidence, "and the turns that it rests on"
        assert f"On record: {each.falsifies}" in str(each.explanation)
    units = read_units(store, build_id)
    assert {each.unit for each in made} <= units.keys()
    # 1 USD a million tokens in, 2 out: tokens of all units at the registry's prices.
    prompt = sum(unit.prompt_tokens or 0 for unit in units.values())
    completion = sum(unit.completion_tokens or 0 for unit in units.values())
    assert prompt > 0
    assert progress.spent.cost_usd == pytest.approx((prompt + 2 * completion) / 1e6)
    assert calls_in(store) == 2 * UNITS


async def test_baiting_kinds_change_from_user_to_user(home: Path, store: Store) -> None:
    with ScriptedEndpoint(reply=write) as endpoint:
        use_endpoint(home, endpoint)
        counts = FEW.model_copy(update={"baiting": 5})
        build_id, _ = await built(store, scripted_spec(counts=counts, subtypes=("baiting",)))
    kinds = {
        user: Counter(each.kind for each in read_candidates(store, build_id, users=[user]))
        for user in (OTTILIE, CORVIN)
    }
    # Five over four kinds: one of them twice, for the second user another one.
    assert kinds[OTTILIE].most_common(1) == [("subject_confusion", 2)]
    assert kinds[CORVIN].most_common(1) == [("interest_confusion", 2)]
    assert all(len(each) == 4 and each.total() == 5 for each in kinds.values())


async def test_order_and_ids_don_t_depend_on_how_the_work_went(home: Path, store: Store) -> None:
    with ScriptedEndpoint(reply=write) as endpoint:
        use_endpoint(home, endpoint)
        spec = scripted_spec(rounds=2)
        first, _ = await built(store, spec, concurrency=1)
        asked = endpoint.ledger.total
        again, _ = await built(store, spec, concurrency=1)
        assert endpoint.ledger.total == asked, "what another build has asked isn't asked again"
    fresh = open_store(f"sqlite:///{home}/fresh.sqlite3")
    with ScriptedEndpoint(reply=write, latency_s=0.01) as endpoint:
        use_endpoint(home, endpoint)
        other, _ = await built(fresh, spec, concurrency=16)
    made = read_candidates(store, first)
    assert len(made) == 44
    assert made == read_candidates(store, again) == read_candidates(fresh, other)


async def test_a_later_round_is_told_what_there_is(home: Path, store: Store) -> None:
    with ScriptedEndpoint(reply=write) as endpoint:
        use_endpoint(home, endpoint)
        spec = scripted_spec(rounds=2, users=(OTTILIE,), subtypes=("fact", "memory"))
        build_id, progress = await built(store, spec)
        bodies = endpoint.ledger.bodies
    assert progress.planned == progress.done == 2 + 2 * 3, "no similarity without fully irrelevant questions"
    made = read_candidates(store, build_id)
    first, second = (each for each in made if each.subtype == "fact")
    of_second = [body for body in bodies if first.question in body["messages"][-1]["content"]]
    assert len(of_second) == 1
    assert first.question != second.question
    # Fine and coarse ones of two rounds falsify four different observations.
    assert len({each.falsifies for each in made if each.subtype == "memory"}) == 4


async def test_every_generator_writes_everything_and_leads_in_turn(home: Path, store: Store) -> None:
    with ScriptedEndpoint(reply=write) as endpoint:
        use_endpoint(home, endpoint)
        file = home / "models.toml"
        file.write_text(endpoint.registry_toml() + endpoint.registry_toml("other", price_in=10.0))
        spec = scripted_spec(generators=("scripted", "other"), subtypes=("fact", "memory"))
        build_id, _ = await built(store, spec)
    made = read_candidates(store, build_id)
    facts = [(each.user_id, each.generator) for each in made if each.subtype == "fact"]
    assert facts == [(OTTILIE, "scripted"), (OTTILIE, "other"), (CORVIN, "other"), (CORVIN, "scripted")]
    falsified: dict[str, set[str | None]] = {}
    for each in made:
        if each.subtype == "memory":
            falsified.setdefault(each.generator, set()).add(each.falsifies)
    assert falsified["scripted"] == falsified["other"], "so that generators can be compared"


async def test_what_the_file_lacks_is_made_first(home: Path, store: Store) -> None:
    [whole] = read_source("sample").raw
    bare = {"sample_id": "sample-1", "conversation": whole["conversation"]}
    source = read_bytes(json.dumps([bare]).encode(), "bare.json")
    spec = scripted_spec(users=(OTTILIE,), subtypes=("memory",))
    with ScriptedEndpoint(reply=write) as endpoint:
        use_endpoint(home, endpoint)
        build_id, progress = await built(store, spec, source)
        bodies = endpoint.ledger.bodies
    # Nine sessions: a summary and observations of each, profile and topics; two grains.
    assert progress.stages["profiles"].done == 9 + 9 + 2
    assert progress.stages["tasks"].done == 2
    units = read_units(store, build_id, "profiles")
    summary = units["profiles/sample-1/summary/1"].output["summary"]
    profile = next(body for body in bodies if schema_of(body)["properties"].keys() == {"profile"})  # type: ignore[index]
    assert summary in profile["messages"][-1]["content"]
    turns = {turn.id for session in source.conversations["sample-1"].sessions for turn in session.turns}
    made = read_candidates(store, build_id)
    assert len(made) == 2
    assert all(each.evidence and set(each.evidence) <= turns for each in made)


async def test_a_bad_item_goes_alone_and_a_bad_answer_is_repaired_once(home: Path, store: Store) -> None:
    def spoil(body: dict[str, Any], answer: dict[str, Any]) -> Any:
        repair = len(body["messages"]) > 2
        match [name for name in answer if name in ("items", "subtopics")]:
            case ["subtopics"]:
                return answer if repair else "Gladly!"
            case ["items"] if "explanation" in answer["items"][0]:
                answer["items"][0]["explanation"] = ""
                answer["items"].append({"explanation": "Nothing."})
        return answer

    counts = FEW.model_copy(update={"fact": 3})
    spec = scripted_spec(counts=counts, users=(OTTILIE,), subtypes=("fact", "value", "repetition"))
    with ScriptedEndpoint(reply=changed(spoil)) as endpoint:
        use_endpoint(home, endpoint)
        build_id, progress = await built(store, spec)
    made = {
        subtype: read_candidates(store, build_id, subtypes=[subtype]) for subtype in ("fact", "value", "repetition")
    }
    assert [each.state for each in made["fact"]] == ["dropped", "candidate", "candidate"]
    dropped = made["fact"][0]
    assert (dropped.decided_by, dropped.reason) == ("format", '"explanation" is empty')
    units = read_units(store, build_id)
    assert units[dropped.unit].output["without_question"] == 1
    # The only value-level one is bad, so that the answer was: repaired, and bad again.
    assert made["value"] == []
    value = units[f"tasks/{OTTILIE}/value/scripted/1"]
    assert (value.status, value.reason, value.repaired, len(value.calls)) == (
        "failed",
        '"explanation" is empty',
        True,
        2,
    )
    assert len(made["repetition"]) == 2
    assert units[f"tasks/{OTTILIE}/subtopics/1/scripted/1"].repaired
    assert (progress.failed, progress.repaired) == (1, 2)
    assert progress.failures == {'"explanation" is empty': 1}
    # A start alone does nothing for it, so none is promised.
    assert str(progress.halted) == (
        "1 units failed. 1 gave no usable answer: ask again where answers were unusable (--again)."
    )
    asked = calls_in(store)
    # The same start again asks nothing: the answer would be the same. On demand it is asked under another seed.
    with ScriptedEndpoint(reply=write) as endpoint:
        use_endpoint(home, endpoint)
        await build(store, build_id)
        assert endpoint.ledger.total == 0
        progress = await build(store, build_id, again=True)
        assert [body["seed"] for body in endpoint.ledger.bodies] == [1_000_000]
    assert (progress.failed, progress.halted) == (0, None)
    assert calls_in(store) == asked + 1
    assert len(read_candidates(store, build_id, subtypes=["value"])) == 1


async def test_what_failed_in_transport_is_done_by_the_next_start(home: Path, store: Store) -> None:
    spec = scripted_spec()
    with ScriptedEndpoint(reply=write, faults={"unauthorized": 0.3}, persistent=True, seed=3) as endpoint:
        use_endpoint(home, endpoint)
        build_id, progress = await built(store, spec)
        paid = endpoint.ledger.answered.total()
        assert endpoint.ledger.faults["unauthorized"] > 0
    assert progress.failed > 0
    assert progress.done == paid
    assert "does again what failed in transport" in str(progress.halted)
    with ScriptedEndpoint(reply=write) as endpoint:
        use_endpoint(home, endpoint)
        progress = await build(store, build_id)
        assert endpoint.ledger.total == 2 * UNITS - paid, "only what is missing"
    assert (progress.done, progress.failed, progress.halted) == (2 * UNITS, 0, None)


async def test_faults_of_every_kind_cost_nothing_but_time(home: Path, store: Store) -> None:
    calm = open_store(f"sqlite:///{home}/calm.sqlite3")
    with ScriptedEndpoint(reply=write) as endpoint:
        use_endpoint(home, endpoint)
        first, _ = await built(calm, scripted_spec())
    faults: dict[Any, float] = {"rate_limit": 0.1, "server": 0.1, "malformed": 0.05, "reset": 0.05}
    with ScriptedEndpoint(reply=write, faults=faults, seed=5) as endpoint:
        use_endpoint(home, endpoint)
        second, progress = await built(store, scripted_spec())
        assert sum(endpoint.ledger.faults.values()) > 0
        assert endpoint.ledger.answered.total() == 2 * UNITS
    assert progress.failed == 0
    assert read_candidates(store, second) == read_candidates(calm, first)


async def test_a_model_that_answers_nobody_stops_the_build(home: Path, store: Store) -> None:
    with ScriptedEndpoint(reply=write, faults={"unauthorized": 1.0}) as endpoint:
        use_endpoint(home, endpoint)
        [whole] = read_source("sample").raw
        bare = [{"sample_id": f"c{n}", "conversation": whole["conversation"]} for n in range(20)]
        source = read_bytes(json.dumps(bare).encode(), "many.json")
        build_id = start(store, scripted_spec(), source)
        progress = await build(store, build_id, concurrency=1)
        assert endpoint.ledger.total == 20, "and not every session of every conversation"
    assert "20 calls failed in a row" in str(progress.halted)
    assert load_build(store, build_id).halted == progress.halted


async def test_a_stop_that_is_asked_for_finishes_what_is_in_hand(home: Path, store: Store) -> None:
    with ScriptedEndpoint(reply=write) as endpoint:
        use_endpoint(home, endpoint)
        endpoint.held = lambda: endpoint.ledger.total > 10
        build_id = start(store, scripted_spec(), read_source("sample"))
        working = asyncio.create_task(build(store, build_id, concurrency=4))
        await held(endpoint)
        during = read_progress(store, build_id)
        assert during.working
        with pytest.raises(UsageError, match="being worked on by process"):
            await build(store, build_id)
        request(store, build_id, "stop")
        await asyncio.sleep(1.5)
        endpoint.held = None
        progress = await working
        assert endpoint.ledger.answered.total() == progress.done < 2 * UNITS
        assert "on request" in str(progress.halted)
        progress = await build(store, build_id)
        assert endpoint.ledger.total == endpoint.ledger.answered.total() == 2 * UNITS
    assert (progress.done, progress.halted, progress.request) == (2 * UNITS, None, "go")


async def test_a_build_that_another_start_took_writes_nothing_more(home: Path, store: Store) -> None:
    with ScriptedEndpoint(reply=write) as endpoint:
        use_endpoint(home, endpoint)
        endpoint.held = lambda: endpoint.ledger.total > 10
        build_id = start(store, scripted_spec(), read_source("sample"))
        working = asyncio.create_task(build(store, build_id, concurrency=4))
        await held(endpoint)
        with store.begin() as connection:
            connection.execute(s.builds.update().values(worker=None))
        claim_build(store, build_id, other := new_worker())
        # Not before: a unit that was answered already may be on its way into the store.
        units = len(read_units(store, build_id))
        endpoint.held = None
        with pytest.raises(Exception, match="another start took it"):
            await working
        answered = endpoint.ledger.answered.total()
    assert len(read_units(store, build_id)) == units
    assert calls_in(store) == answered, "but what was paid for is kept"
    with store.begin() as connection:
        assert connection.execute(select(s.builds.c.worker)).scalar_one() == other


async def test_no_observation_no_false_memory(home: Path, store: Store) -> None:
    [whole] = read_source("sample").raw
    only_corvin = {
        session: {name: facts for name, facts in people.items() if name == "Corvin"}
        for session, people in whole["observation"].items()
    }
    source = read_bytes(json.dumps([whole | {"observation": only_corvin}]).encode(), "half.json")
    with ScriptedEndpoint(reply=write) as endpoint:
        use_endpoint(home, endpoint)
        build_id, progress = await built(store, scripted_spec(subtypes=("memory",)), source)
    assert progress.failures == {"there is no observation about Ottilie that could be made false": 2}
    assert {each.user_id for each in read_candidates(store, build_id)} == {CORVIN}


async def test_fewer_topics_than_asked_for_are_taken_as_they_are(home: Path, store: Store) -> None:
    def fewer(body: dict[str, Any], answer: dict[str, Any]) -> Any:
        return {"topics": answer["topics"][:1] * 3} if "topics" in answer else answer

    counts = FEW.model_copy(update={"topics": 3})
    with ScriptedEndpoint(reply=changed(fewer)) as endpoint:
        use_endpoint(home, endpoint)
        spec = scripted_spec(counts=counts, users=(OTTILIE,), subtypes=("repetition",))
        build_id, progress = await built(store, spec)
    assert (progress.done, progress.planned, progress.halted) == (4, 4, None)
    assert len(read_candidates(store, build_id)) == 2


def test_what_can_t_be_built_is_said_before_anything_is_asked(home: Path, store: Store) -> None:
    with ScriptedEndpoint() as endpoint:
        use_endpoint(home, endpoint)
    source = read_source("sample")
    with pytest.raises(UsageError, match="no user 'sample-1/Nobody'"):
        start(store, scripted_spec(users=("sample-1/Nobody",)), source)
    with pytest.raises(UsageError, match="nowhere"):
        start(store, scripted_spec(generators=("scripted", "nowhere")), source)
    with pytest.raises(UsageError, match="nowhere"):
        start(store, scripted_spec(embedder="nowhere"), source)
    assert load_registry().model("scripted").kind == "endpoint"
