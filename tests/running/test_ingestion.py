"""The ingestion phase of a run: what it asks, books and tells, and what becomes of it when it is disturbed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from opbench.analysis.ingested import thin_memories
from opbench.commands.run import _ingestion as told_before
from opbench.errors import UsageError
from opbench.memories import registry as memory_registry
from opbench.memories.library import Added
from opbench.memories.manifest import read_manifests, remove
from opbench.memories.registry import LibraryFactory
from opbench.running import engine as engine_module
from opbench.running.budget import spent_before
from opbench.running.engine import Progress
from opbench.running.ingestion_quote import IngestionLine, by_system, ingestion_quote, seconds_at
from opbench.running.prepare import prepare, prepare_memories
from opbench.running.quote import Quote, quote
from opbench.running.worker import execute
from opbench.settings import ROOT, settings
from opbench.store.database import Store, open_store
from opbench.store.reading import run_status
from opbench.store.runs import run_study
from opbench.store.writing import set_request
from opbench.study import Study
from opbench.types import Session
from tests.memories.contract import said
from tests.memories.test_ingesting import FileLibrary, FileStore
from tests.running.study import outcome, reply, use_endpoint
from tests.scripted_endpoint import ScriptedEndpoint

STUDY: dict[str, Any] = {
    "models": ("scripted",),
    "memories": ("base", "files"),
    "mitigations": ("none",),
    "judge": "offline",
    "embedder": "scripted",
    "data": "sample",
    "limit": 6,
}
#: BASE and Files on 6 instances of each benchmark.
PLANNED = 2 * 12
#: Two users of nine sessions, one extraction each.
SESSIONS = 18
USERS = ("sample-1/Corvin", "sample-1/Ottilie")


def extracting(body: dict[str, Any]) -> bool:
    return "messages" in body and str(body["messages"][0]["content"]).startswith("Facts of ")


def answer(body: dict[str, Any]) -> str:
    return json.dumps(said(body)) if extracting(body) else reply(body)


def nothing_to_keep(body: dict[str, Any]) -> str:
    return "[]" if extracting(body) else reply(body)


def extractions(endpoint: ScriptedEndpoint) -> list[dict[str, Any]]:
    return [body for body in endpoint.ledger.bodies if extracting(body)]


@pytest.fixture(autouse=True)
def files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(memory_registry._FACTORIES, "files", LibraryFactory("Files", FileLibrary))


@pytest.fixture
def endpoint(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedEndpoint]:
    with ScriptedEndpoint(reply=answer) as running:
        monkeypatch.setenv("OPBENCH_MODELS", "")
        use_endpoint(home, running)
        yield running


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(f"sqlite:///{tmp_path / 'store.sqlite3'}")
    yield opened
    opened.close()


async def run(store: Store, on_progress: Any = None, *, budget_usd: float | None = None, **fields: Any) -> str:
    """Run the study, or go on with it; its id."""
    prepared = prepare(Study(**STUDY | fields))
    try:
        await execute(
            store,
            prepared,
            concurrency=4,
            on_progress=on_progress or (lambda progress: None),
            budget_usd=budget_usd,
        )
    finally:
        await prepared.aclose()
    return prepared.run_id


def ingestions(store: Store, run_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = run_study(store, run_id)[1]["ingestion"]
    return found


def price(bodies: list[dict[str, Any]], reply: Any) -> float:
    """Dollars of extractions: the endpoint counts words; 1 dollar a million in, 2 out."""
    asked = sum(len(message["content"].split()) for body in bodies for message in body["messages"])
    told = sum(len(reply(body).split()) for body in bodies)
    return (asked + 2 * told) / 1e6


async def test_histories_go_in_before_the_records(store: Store, endpoint: ScriptedEndpoint) -> None:
    seen: list[tuple[int, int]] = []
    run_id = await run(store, lambda p: seen.append((sum(each.done for each in p.ingesting), p.done)))
    status = run_status(store, run_id)
    assert (status.done, status.errors) == (PLANNED, 0)
    assert len(extractions(endpoint)) == SESSIONS
    assert all(records == 0 for sessions, records in seen if sessions < SESSIONS)
    told = [sessions for sessions, records in seen if not records]
    assert told == sorted(told)
    assert len(told) >= SESSIONS, "told after every session"
    assert told[-1] == SESSIONS
    rows = ingestions(store, run_id)
    assert [(row["system"], row["user"], row["state"]) for row in rows] == [
        ("files", user, "complete") for user in USERS
    ]
    for row in rows:
        assert (row["sessions"], row["planned"], row["calls"], row["extractions"]) == (9, 9, 9, 9)
        assert (row["empty"], row["reused"], row["label"], row["note"]) == (0, 0, "Files", "of tests")
        assert row["identity"]["extractor_served"] == "scripted"
        assert len(row["digest"]) == 64
    _, provenance = run_study(store, run_id)
    paid = price(extractions(endpoint), answer)
    assert provenance["executions"][-1]["ingestion_usd"] == pytest.approx(paid)
    assert provenance["memories"]["files"]["extractor_json_schema"] == "False"
    assert thin_memories(provenance, 5) == []


async def test_again_and_in_another_study_nobody_is_asked(store: Store, endpoint: ScriptedEndpoint) -> None:
    first = await run(store)
    asked = endpoint.ledger.total
    assert await run(store) == first
    assert endpoint.ledger.total == asked, "the same study again asks nothing"
    spent = spent_before(store, first)
    other = await run(store, seed=1, limit=2)
    assert other != first
    assert len(extractions(endpoint)) == SESSIONS
    _, provenance = run_study(store, other)
    assert provenance["executions"][-1]["ingestion_usd"] == 0
    held = [[row["memories"] for row in ingestions(store, each)] for each in (first, other)]
    assert held[0] == held[1]
    assert spent_before(store, first) == spent


async def test_what_was_spent_counts_in_later_budgets(store: Store, endpoint: ScriptedEndpoint) -> None:
    run_id = await run(store)
    _, provenance = run_study(store, run_id)
    [execution] = provenance["executions"]
    records = spent_before(store, run_id) - execution["ingestion_usd"] - execution["embeddings_usd"]
    assert execution["ingestion_usd"] > 0
    assert execution["embeddings_usd"] > 0
    assert records > 0
    with pytest.raises(UsageError, match="has spent"):
        await run(store, budget_usd=execution["ingestion_usd"])


async def test_a_budget_ends_it_between_sessions(store: Store, endpoint: ScriptedEndpoint) -> None:
    run_id = await run(store, budget_usd=0.0005)
    status = run_status(store, run_id)
    assert status.done == status.errors == 0
    assert status.halted is not None
    assert status.halted.startswith("Stopped: the budget of $0.0005 is reached")
    rows = ingestions(store, run_id)
    done = sum(row["sessions"] for row in rows)
    assert 0 < done == len(extractions(endpoint)) < SESSIONS
    assert {row["state"] for row in rows} == {"stopped"}
    _, provenance = run_study(store, run_id)
    assert spent_before(store, run_id) == pytest.approx(
        price(extractions(endpoint), answer) + provenance["executions"][0]["embeddings_usd"]
    )
    assert await run(store, budget_usd=1.0) == run_id
    status = run_status(store, run_id)
    assert (status.done, status.halted) == (PLANNED, None)
    assert len(extractions(endpoint)) == SESSIONS, "no session was asked about twice"


async def test_a_wrong_key_of_the_extractor(
    store: Store, home: Path, endpoint: ScriptedEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = home / "models.toml"
    entry = endpoint.registry_toml("extractor", key_env="EXTRACTOR_KEY").partition("[embedders")[0]
    file.write_text(file.read_text() + entry)
    monkeypatch.delenv("EXTRACTOR_KEY", raising=False)
    run_id = await run(store, extractor="extractor")
    status = run_status(store, run_id)
    assert status.error_kinds == {"auth": PLANNED // 2}, "the true kind"
    assert status.done == PLANNED // 2, "BASE needs no memories"
    assert extractions(endpoint) == []
    for row in ingestions(store, run_id):
        assert row["state"] == "failed"
        assert "EXTRACTOR_KEY" in row["error"]
    with store.begin() as connection:
        errors = set(connection.exec_driver_sql("SELECT error FROM records WHERE status = 'error'").scalars())
    assert len(errors) == 1
    assert "Set EXTRACTOR_KEY" in errors.pop()
    monkeypatch.setenv("EXTRACTOR_KEY", "sk-now-it-is-right")
    assert await run(store, extractor="extractor") == run_id
    assert run_status(store, run_id).done == PLANNED
    assert [row["state"] for row in ingestions(store, run_id)] == ["complete", "complete"]


async def test_one_broken_user_is_asked_once_and_the_others_go_on(
    store: Store, endpoint: ScriptedEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []

    class Breaks(FileStore):
        async def add(self, session: Session) -> Added:
            if self.user.speaker == "Corvin" and session.number == 3:
                tried.append(session.number)
                raise RuntimeError("the index is broken")
            return await super().add(session)

    class Library(FileLibrary):
        async def open(self, folder: Path, user: Any, lease: Any) -> FileStore:
            return await asyncio.to_thread(Breaks, folder / "kept.json", user, lease)

    monkeypatch.setitem(memory_registry._FACTORIES, "files", LibraryFactory("Files", Library))
    run_id = await run(store)
    assert tried == [3], "not once a record"
    with store.begin() as connection:
        rows = connection.exec_driver_sql(
            "SELECT r.instance_id, r.status, r.error_kind, r.error, i.benchmark, i.user_id FROM records r "
            "JOIN configurations c ON c.id = r.configuration_id AND c.memory = 'files' "
            "JOIN instances i ON i.instance_id = r.instance_id AND i.run_id = r.run_id"
        ).all()
    assert len(rows) == PLANNED // 2
    for row in rows:
        # LoCoMo searches both speakers.
        needs_corvin = row.benchmark == "locomo" or row.user_id == "sample-1/Corvin"
        assert (row.status == "error") is needs_corvin
        if needs_corvin:
            assert row.error_kind == "memory"
            assert row.error == ("Files failed at session 3 of sample-1/Corvin: RuntimeError: the index is broken")
    assert {row.status for row in rows} == {"done", "error"}
    assert {row["user"]: (row["state"], row["sessions"]) for row in ingestions(store, run_id)} == {
        "sample-1/Corvin": ("failed", 2),
        "sample-1/Ottilie": ("complete", 9),
    }


async def test_a_stop_ends_it_after_the_sessions_in_flight(store: Store, endpoint: ScriptedEndpoint) -> None:
    stopped: list[bool] = []

    def stop(progress: Progress) -> None:
        # Once: a second signal would leave at once.
        if not stopped and sum(each.done for each in progress.ingesting) >= 3:
            stopped.append(True)
            os.kill(os.getpid(), signal.SIGINT)

    run_id = await run(store, stop)
    status = run_status(store, run_id)
    assert status.done == status.errors == 0
    done = sum(row["sessions"] for row in ingestions(store, run_id))
    assert 3 <= done <= 5, "those in flight, one a user, were finished"
    assert len(extractions(endpoint)) == done
    await run(store)
    assert run_status(store, run_id).done == PLANNED
    assert len(extractions(endpoint)) == SESSIONS


async def test_a_page_sees_it_and_can_pause_and_stop_it(
    store: Store, endpoint: ScriptedEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "BEAT_SECONDS", 0.02)
    endpoint.latency_s = 0.03
    run_id = prepare(Study(**STUDY)).run_id
    running = asyncio.create_task(run(store))

    async def told(wanted: Any) -> list[dict[str, Any]]:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and not running.done():
            with store.begin() as connection:
                row = connection.exec_driver_sql("SELECT stats FROM workers").scalar()
            standings = (json.loads(row) if row else {}).get("ingesting")
            if standings and wanted(standings):
                return list(standings)
            await asyncio.sleep(0.01)
        raise AssertionError("never told")

    first = await told(lambda rows: any(row["state"] == "at work" and row["done"] for row in rows))
    assert [(row["system"], row["label"], row["user"], row["planned"]) for row in first] == [
        ("files", "Files", user, 9) for user in USERS
    ]
    set_request(store, run_id, "pause")
    await asyncio.sleep(0.3)
    paused = len(extractions(endpoint))
    await asyncio.sleep(0.3)
    assert len(extractions(endpoint)) == paused < SESSIONS
    set_request(store, run_id, "stop")
    await asyncio.wait_for(running, 30)
    assert run_status(store, run_id).done == 0
    assert sum(row["sessions"] for row in ingestions(store, run_id)) == len(extractions(endpoint))


async def test_a_memory_that_holds_nothing_is_told(store: Store, endpoint: ScriptedEndpoint) -> None:
    endpoint.reply = nothing_to_keep
    run_id = await run(store)
    assert run_status(store, run_id).done == PLANNED
    _, provenance = run_study(store, run_id)
    assert thin_memories(provenance, 5) == [
        "Files holds no memory of 2 of 2 users (sample-1/Corvin, sample-1/Ottilie): 18 of 18 extractions gave nothing. "
        "A record for which nothing is retrieved is that of BASE, and no finding about the memory system."
    ]


async def test_the_quote_before_and_after(store: Store, endpoint: ScriptedEndpoint) -> None:
    prepared = prepare(Study(**STUDY))
    sessions = prepared.corpus.conversations["sample-1"].sessions
    estimates = [FileLibrary().estimate(each, prepared.corpus.users[user]) for user in USERS for each in sessions]
    before = quote(store, prepared, concurrency=4)
    [line] = before.ingestion
    assert (line.users, line.sessions, line.calls, line.measured) == (2, 18, 18, 0)
    assert line.prompt_tokens == sum(each.prompt_tokens for each in estimates)
    dollars = sum(each.prompt_tokens + 2 * each.completion_tokens + each.embedded_tokens for each in estimates) / 1e6
    assert line.cost_usd == pytest.approx(dollars)
    # No call of a library is known: 3 seconds each; two users side by side take half as long.
    assert line.seconds == 18 * 3
    [stage] = [each for each in before.lines if each.stage == "ingestion"]
    assert (stage.model, stage.memory, stage.calls, stage.seconds) == ("scripted", "files", 18, 27.0)
    assert before.calls == sum(each.calls for each in before.lines)
    # BASE's response, and Files' response, to 12 instances each; nobody judges.
    assert before.calls == 18 + 24
    assert "ingestion by rules of thumb for Files" in before.basis
    assert Quote.from_dict(json.loads(json.dumps(before.to_dict()))) == before
    await run(store)
    after = quote(store, prepare(Study(**STUDY)), concurrency=4)
    assert (after.calls, after.ingestion, after.lines) == (0, (), ())


async def test_a_quote_rests_on_what_earlier_sessions_took(store: Store, endpoint: ScriptedEndpoint) -> None:
    pairs = [("files", user) for user in prepare(Study(**STUDY)).corpus.users.values()]
    await run(store, users=("sample-1/Ottilie",), benchmarks=("op",))
    parts = prepare_memories(["files"], extractor="scripted", embedder="scripted", data="sample")
    lines = {line.user: line for line in ingestion_quote(store, parts, pairs)}
    assert (lines["sample-1/Ottilie"].sessions, lines["sample-1/Ottilie"].cost_usd) == (0, 0.0)
    [manifest] = read_manifests(settings().kept)
    line = lines["sample-1/Corvin"]
    # Nine sessions of one user were taken in, nine of the other are left: the same sums.
    assert (line.sessions, line.calls, line.measured) == (9, 9, 9)
    assert line.prompt_tokens == manifest.usage.prompt_tokens
    assert line.embedded_tokens == manifest.usage.embedded_tokens
    assert line.seconds == pytest.approx(manifest.seconds)
    [whole] = by_system(lines.values())
    assert (whole.users, whole.sessions, whole.user) == (1, 9, "")
    assert seconds_at([line, line, line], 2) == pytest.approx(1.5 * line.seconds)
    assert seconds_at([line], 4) == pytest.approx(line.seconds)
    assert seconds_at([], 4) == 0


async def test_the_quote_of_another_embedder_doesn_t_rest_on_the_embedded_one(
    store: Store, endpoint: ScriptedEndpoint
) -> None:
    pairs = [("files", user) for user in prepare(Study(**STUDY)).corpus.users.values()]
    await run(store, users=("sample-1/Ottilie",), benchmarks=("op",))
    [manifest] = read_manifests(settings().kept)
    # As the embedded embedder leaves it: it counts no tokens.
    file = next(manifest.path.glob("checkpoints/*/manifest.json"))
    kept = json.loads(file.read_text())
    kept["identity"] = {key: value for key, value in kept["identity"].items() if not key.startswith("embedder_")}
    kept["identity"] |= {"embedder_kind": "embedded", "embedder_model": "all-MiniLM-L6-v2"}
    for session in kept["sessions"]:
        session["usage"]["embedded_tokens"] = 0
    file.write_text(json.dumps(kept))
    parts = prepare_memories(["files"], extractor="scripted", embedder="scripted", data="sample")
    line = {line.user: line for line in ingestion_quote(store, parts, pairs)}["sample-1/Corvin"]
    assert line.prompt_tokens == manifest.usage.prompt_tokens
    corvin = parts.corpus.users["sample-1/Corvin"]
    sessions = parts.corpus.conversations["sample-1"].sessions
    by_rule = sum(FileLibrary().estimate(each, corvin).embedded_tokens for each in sessions)
    assert line.embedded_tokens == by_rule > 0
    assert line.cost_usd == pytest.approx((line.prompt_tokens + 2 * line.completion_tokens + by_rule) / 1e6)


async def test_times_of_reused_calls_are_those_when_they_were_made(store: Store, endpoint: ScriptedEndpoint) -> None:
    endpoint.latency_s = 0.05
    await run(store, benchmarks=("op",), users=USERS[:1])
    [manifest] = read_manifests(settings().kept)
    assert manifest.usage.reused_ms == 0
    remove(manifest)
    endpoint.latency_s = 0.0
    await run(store, benchmarks=("op",), users=USERS[:1], limit=7)
    [again] = read_manifests(settings().kept)
    assert (again.usage.calls, again.usage.reused) == (9, 9)
    assert again.usage.model_ms == again.usage.reused_ms == pytest.approx(manifest.usage.model_ms)
    # Nine calls of 50 ms, though nobody waited for them this time.
    assert again.seconds >= 9 * 0.05
    assert again.seconds == pytest.approx(sum(each.seconds for each in again.sessions) + again.usage.reused_ms / 1000)


def test_what_a_system_s_own_models_take_is_said_to_be_unknown() -> None:
    line = IngestionLine("mine", "Mine", None, "", 2, 18, 0, 0, 0, 0, 0.0, "", 0.0, 0)
    said = "Mine takes in 18 sessions of 2 users with its own models: what they take isn't known here"
    assert told_before(line).startswith(said)
    assert "$" not in told_before(line)
    assert "$0.0000" in told_before(replace(line, extractor="free"))


def test_a_price_that_is_missing_is_named(store: Store, home: Path, endpoint: ScriptedEndpoint) -> None:
    file = home / "models.toml"
    file.write_text(file.read_text().replace("price_out = 2.0\n", ""))
    parts = prepare_memories(["files"], extractor="scripted", embedder="scripted", data="sample")
    pairs = [("files", user) for user in parts.corpus.users.values()]
    [whole] = by_system(ingestion_quote(store, parts, pairs))
    assert (whole.cost_usd, whole.reason) == (None, "the registry has no price for scripted")
    with pytest.raises(UsageError, match="no budget can be kept with scripted"):
        asyncio.run(run(store, budget_usd=1.0))


def test_which_model_extracts(home: Path, endpoint: ScriptedEndpoint) -> None:
    file = home / "models.toml"
    file.write_text(file.read_text() + endpoint.registry_toml("second", served="other").partition("[embedders")[0])
    both = STUDY | {"models": ("scripted", "second")}
    with pytest.raises(UsageError, match=r"files extract memories.*2: name one with --extractor"):
        prepare(Study(**both))
    assert prepare(Study(**both | {"memories": ("base", "rag")})).extractor is None
    assert prepare(Study(**STUDY)).extractor == "scripted"
    named = prepare(Study(**both | {"extractor": "second"}))
    assert named.extractor == "second"
    assert named.run_id != prepare(Study(**both | {"extractor": "scripted"})).run_id
    alone = prepare(Study(**STUDY)).run_id
    assert prepare(Study(**STUDY | {"extractor": "scripted"})).run_id == alone, "the only model, named or not"
    assert prepare(Study(**STUDY | {"extractor": "second"})).run_id != alone
    none = STUDY | {"memories": ("base", "rag")}
    assert prepare(Study(**none | {"extractor": "second"})).run_id == prepare(Study(**none)).run_id, "nobody extracts"
    with pytest.raises(UsageError, match="No model is named 'third'"):
        prepare(Study(**STUDY | {"extractor": "third"}))
    with pytest.raises(UsageError, match="files extracts its memories with a model, and none is named"):
        prepare_memories(["files"], embedder="scripted", data="sample")


def _start(environment: dict[str, str], store_url: str) -> subprocess.Popen[bytes]:
    flags = [f"--{name}={','.join(value) if isinstance(value, tuple) else value}" for name, value in STUDY.items()]
    plugin = Path(__file__).with_name("files_plugin.py")
    return subprocess.Popen(
        [sys.executable, "-m", "opbench", "run", *flags, f"--plugin={plugin}", "--concurrency=2"],
        env=environment | {"OPBENCH_STORE": store_url},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def test_killed_while_it_ingests_it_ends_as_if_it_wasn_t(home: Path, tmp_path: Path) -> None:
    ends = {}
    for name, kills in (("calm", 0), ("killed", 2)):
        with ScriptedEndpoint(reply=answer, latency_s=0.05) as endpoint:
            folder = tmp_path / name
            environment = use_endpoint(folder, endpoint, base_url=endpoint.url, timeout_s=60)
            url = f"sqlite:///{folder / 'store.sqlite3'}"
            for wanted in range(4, 4 * (kills + 1), 4):
                endpoint.held = lambda wanted=wanted: len(extractions(endpoint)) > wanted
                process = _start(environment, url)
                deadline = time.monotonic() + 60
                while len(extractions(endpoint)) < wanted and process.poll() is None:
                    assert time.monotonic() < deadline
                    time.sleep(0.01)
                process.send_signal(signal.SIGKILL)
                endpoint.held = None
                told, _ = process.communicate()
                found = read_manifests(folder / "memories")
                assert 0 < sum(len(each.sessions) for each in found) < SESSIONS, told.decode()
            process = _start(environment, url)
            told, _ = process.communicate(timeout=120)
            assert process.returncode == 0, told.decode()
            if kills:
                # What was in flight, one session of each of two users, is asked again at most.
                assert len(extractions(endpoint)) <= SESSIONS + kills * 2
            assert b"ingestion: " in told
            found = read_manifests(folder / "memories")
            assert [[entry.number for entry in each.sessions] for each in found] == [list(range(1, 10))] * 2
            assert not list((folder / "memories").glob("*/*/*/*/open/*"))
            stores = [next(each.path.glob("checkpoints/9/store/kept.json")).read_text() for each in found]
            opened = open_store(url)
            ends[name] = outcome(opened) | {"stores": sorted(stores)}
            opened.close()
    for part in ("record count", "scores", "user scores", "stores"):
        assert ends["killed"][part] == ends["calm"][part], part
    # The endpoint's port is part of a call's key.
    assert sorted(ends["killed"]["calls"].values()) == sorted(ends["calm"]["calls"].values())
    for key, record in ends["calm"]["records"].items():
        assert ends["killed"]["records"][key]["response"] == record["response"]
        assert ends["killed"]["records"][key]["retrieved"] == record["retrieved"]
