"""The desk: one thread a process, bounded, and the embedded model behind it."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

import opbench.cases.desk as module
from opbench.cases.desk import Desk
from opbench.cases.spec import CaseSpec, Column
from opbench.errors import UsageError
from opbench.models import embedded
from opbench.store.database import Store
from tests.cases.asking import QUESTION, USER, serving, soon, spec


def test_all_cases_share_one_daemon_thread(desk: Desk, store: Store, home: Path) -> None:
    before = threading.active_count()
    with serving(home):
        sessions = [desk.open(store, spec(question=f"Number {n}?")) for n in range(3)]
        assert all(session.wait(20) for session in sessions)
    mine = [thread for thread in threading.enumerate() if thread.name == "opbench-cases"]
    assert len(mine) == 1
    assert mine[0].daemon
    assert threading.active_count() > before
    assert len({session.id for session in sessions}) == 3


def test_a_session_is_found_by_its_id(desk: Desk, store: Store, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_KEPT", 2)
    with serving(home):
        sessions = []
        for n in range(4):
            sessions.append(desk.open(store, spec(question=f"Number {n}?")))
            assert sessions[-1].wait(20)
    assert desk.session(sessions[-1].id) is sessions[-1]
    assert desk.session(sessions[0].id) is None
    assert desk.session("nobody's") is None


def test_only_so_many_are_at_work_at_once(
    desk: Desk, store: Store, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_AT_WORK", 2)
    with serving(home, latency_s=30) as endpoint:
        sessions = [desk.open(store, spec(question=f"Number {n}?")) for n in range(2)]
        with pytest.raises(UsageError, match="2 cases are being asked"):
            desk.open(store, spec())
        assert soon(lambda: endpoint.ledger.total == 2)
        sessions[0].cancel()
        assert sessions[0].wait(5)
        third = desk.open(store, spec())
        assert not sessions[1].wait(0.05)
        desk.close()
        assert [session.outcomes()[0].state for session in (*sessions, third)] == ["cancelled"] * 3


def test_a_closed_desk_asks_nothing(desk: Desk, store: Store, home: Path) -> None:
    with serving(home):
        session = desk.open(store, spec({}))
        assert session.wait(20)
        desk.close()
        with pytest.raises(UsageError, match="ask it again"):
            session.leave_one_out(1)
        assert not session.busy
        with pytest.raises(UsageError, match="the desk is closed"):
            desk.open(store, spec())


def test_cancelled_before_it_began(desk: Desk, store: Store, home: Path) -> None:
    with serving(home):
        session = desk.open(store, spec({}))
        session.cancel()
        assert session.wait(10)
    assert {outcome.state for outcome in session.outcomes()} <= {"cancelled", "done"}
    assert session.over
    assert session.error is None


def embedded_case(question: str = QUESTION) -> CaseSpec:
    return CaseSpec(
        question=question,
        user=USER,
        data="sample",
        columns=(Column(model=embedded.NAME), Column(model=embedded.NAME, memory="rag")),
        max_tokens=1000,
    )


def test_the_embedded_model_streams_and_stops_when_it_is_cancelled(desk: Desk, store: Store, home: Path) -> None:
    session = desk.open(store, embedded_case("Tell me a very long story about the sea, with many chapters."))
    lengths: set[int] = set()

    def grown() -> bool:
        lengths.add(len(session.outcomes()[0].response))
        return len(lengths) > 10

    assert soon(grown, 60), session.outcomes()
    # One column after the other.
    assert session.outcomes()[1].state == "waiting"
    session.cancel()
    assert session.wait(20)
    assert [outcome.state for outcome in session.outcomes()] == ["cancelled", "cancelled"]
    # The desk holds the server for the next case, and it generates no more.
    address = embedded.EmbeddedServer().ensure()
    assert soon(lambda: busy_share(address.pid) < 0.2, 20)


def busy_share(pid: int) -> float:
    """Share of a core that a process takes, over a fifth of a second."""
    import time

    def ticks() -> int:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    before = ticks()
    time.sleep(0.2)
    return (ticks() - before) / os.sysconf("SC_CLK_TCK") / 0.2
