"""20 % faults of mixed kinds: every record ends done or missing with its true reason, none lost, none double."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from opbench.errors import StoreError
from opbench.store import schema as s
from opbench.store.database import Store, open_store
from opbench.store.reading import run_status
from tests.running.study import PLANNED, outcome, reply, run_here, use_endpoint
from tests.scripted_endpoint import MIXED, REFUSAL, Fault, ScriptedEndpoint, request_hash

SHARE = 0.20
FAULTS: dict[Fault, float] = {kind: SHARE / len(MIXED) for kind in MIXED}
#: What an error says when an endpoint never stops failing in this way.
TRUE_KINDS: dict[str | None, set[str]] = {
    "rate_limit": {"rate_limit"},
    "server": {"server"},
    "malformed": {"bad_reply", "connection"},
    "truncated": {"connection", "bad_reply"},
    "hang": {"timeout"},
    "empty": {"empty"},
}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(f"sqlite:///{tmp_path / 'store.sqlite3'}")


def _stored(store: Store) -> list[Any]:
    with store.begin() as connection:
        return list(connection.execute(select(s.calls).where(s.calls.c.kind == "chat")).all())


def _request(call: Any) -> str:
    """The ledger's name of a stored call's request."""
    request = call.request
    messages = [{"role": m["role"], "content": m["content"]} for m in request["messages"]]
    return request_hash(
        {
            "model": "scripted",
            "messages": messages,
            "temperature": request["temperature"],
            "max_tokens": request["max_tokens"],
        }
    )


async def test_faults_that_heal(store: Store, home: Path) -> None:
    with ScriptedEndpoint(reply=reply, faults=FAULTS, seed=3) as endpoint:
        use_endpoint(home, endpoint, timeout_s=0.5, attempts=8)
        progress, run_id, stats = await run_here(store)
        ledger = endpoint.ledger
    met = {fault for fault, count in ledger.faults.items() if count}
    assert met == set(MIXED), "every kind of fault was met"
    assert ledger.faults.total() / ledger.total == pytest.approx(SHARE, abs=0.06)

    status = run_status(store, run_id)
    assert (progress.done, status.planned) == (PLANNED, PLANNED)
    assert status.done + status.errors == PLANNED
    assert status.errors == 0, status.error_kinds
    ended = outcome(store)
    assert ended["record count"] == PLANNED
    # A reply that no score can be read from is a missing score with that reason, never 0 and never a retry.
    for (_, _, metric), (value, reason, raw) in ended["scores"].items():
        if raw == REFUSAL:
            assert value is None
            assert reason
        elif metric == "score":
            assert value is not None, reason
    assert any(raw == REFUSAL for _, _, raw in ended["scores"].values()), "a refusal reached the judge"

    # The calls add up: each stored call was answered, once unless it was blank, and its attempts are all the requests.
    calls = _stored(store)
    by_request = {_request(call): call for call in calls}
    assert len(by_request) == len(calls), "no answer is stored twice"
    chats = Counter({key: count for key, count in ledger.requests.items() if key in by_request})
    assert chats.total() == sum(call.attempts for call in calls)
    others = set(ledger.requests) - set(by_request)
    embeddings = {request_hash(body) for body in ledger.bodies if "input" in body}
    assert others <= embeddings, "every chat request that was sent is accounted for"
    assert stats.requests == ledger.total
    # An answer that is in the store was given once, but for the blank ones that came before it.
    for name in by_request:
        blanks = sum(endpoint.fault(name, attempt) == "empty" for attempt in range(1, ledger.requests[name] + 1))
        assert ledger.answered[name] == 1 + blanks


async def test_faults_that_stay_are_told_as_what_they_are(store: Store, home: Path) -> None:
    with ScriptedEndpoint(reply=reply, faults=FAULTS, seed=5, persistent=True) as endpoint:
        use_endpoint(home, endpoint, timeout_s=0.3, attempts=3)
        progress, run_id, _ = await run_here(store)
        bodies = {request_hash(body): body for body in endpoint.ledger.bodies}
        faulty = {name: endpoint.fault(name, 1) for name in bodies}
        status = run_status(store, run_id)
        assert progress.done == PLANNED
        assert status.done + status.errors == PLANNED
        assert status.errors > 0
        assert outcome(store)["record count"] == PLANNED

        # The kinds that records name are those of faults that chat requests met, and no other.
        told = {kind for fault in set(faulty.values()) - {None} for kind in TRUE_KINDS.get(fault, set())}
        assert set(status.error_kinds) <= told
        with store.begin() as connection:
            errors = connection.execute(select(s.records).where(s.records.c.status == "error")).all()
            missing = connection.execute(select(s.scores).where(s.scores.c.value.is_(None))).all()
            stored = {_request(call) for call in connection.execute(select(s.calls).where(s.calls.c.kind == "chat"))}
        for record in errors:
            assert record.response is None
            assert "scripted" in record.error
        for score in missing:
            assert score.reason, "a missing score has its reason"
        # Errors are never in the call store; a blank or unparsable answer is an answer.
        for name in stored:
            assert faulty[name] in (None, "empty", "refusal"), bodies[name]


async def test_failed_records_are_done_when_the_endpoint_is_back(store: Store, home: Path) -> None:
    with ScriptedEndpoint(reply=reply, faults={"server": 0.3}, seed=7, persistent=True) as endpoint:
        use_endpoint(home, endpoint, attempts=2)
        _, run_id, _ = await run_here(store)
        first = run_status(store, run_id)
        assert first.errors > 0
        endpoint.faults.clear()
        paid = {call.key for call in _stored(store)}
        answered = endpoint.ledger.answered.copy()
        progress, again, _ = await run_here(store)
        assert again == run_id
        assert progress.to_do < PLANNED, "what was done is not done again"
    status = run_status(store, run_id)
    assert (status.done, status.errors, status.unscored) == (PLANNED, 0, 0)
    for call in _stored(store):
        if call.key in paid:
            assert endpoint.ledger.answered[_request(call)] == answered[_request(call)], "never paid twice"


@pytest.mark.parametrize(
    ("fault", "kind"),
    [("unauthorized", "auth"), ("not_found", "not_found"), ("quota", "quota"), ("too_long", "too_long")],
)
async def test_what_cannot_succeed_is_asked_once(store: Store, home: Path, fault: Fault, kind: str) -> None:
    with ScriptedEndpoint(reply=reply, faults={fault: 1.0}) as endpoint:
        use_endpoint(home, endpoint)
        # Fewer than a run is stopped after.
        _, run_id, _ = await run_here(store, memories=("base",), mitigations=("none",), embedder="minilm", limit=9)
        status = run_status(store, run_id)
        assert status.error_kinds == {kind: 18}
        assert set(endpoint.ledger.requests.values()) == {1}


async def test_a_vanished_store_stops_the_run_with_one_line(home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    store = open_store(f"sqlite:///{folder / 'store.sqlite3'}")
    with ScriptedEndpoint(reply=reply, latency_s=0.02) as endpoint:
        use_endpoint(home, endpoint)
        with store.begin() as connection:
            trigger = "CREATE TRIGGER full BEFORE INSERT ON records BEGIN SELECT RAISE(FAIL, 'full'); END"
            connection.exec_driver_sql(trigger)
        with pytest.raises(StoreError, match="full"):
            await run_here(store)


async def test_no_key_is_stored_or_told(store: Store, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCRIPTED_KEY", "sk-planted-0123456789abcdef")
    with ScriptedEndpoint(reply=reply, faults={"unauthorized": 0.5}, persistent=True) as endpoint:
        use_endpoint(home, endpoint, key_env="SCRIPTED_KEY")
        await run_here(store, embedder="minilm", memories=("base",), mitigations=("none",))
    everything = b"".join(
        file.read_bytes() for file in Path(str(store.engine.url.database)).parent.glob("**/*.sqlite3*")
    )
    assert b"sk-planted" not in everything
    assert b"0123456789abcdef" not in everything
    kinds = {record["error_kind"] for record in outcome(store)["records"].values()}
    assert kinds == {None, "auth"}
