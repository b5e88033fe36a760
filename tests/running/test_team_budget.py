"""How a team's budget is shared out, and what is said when it is spent. Dollars worked out by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from opbench.running import team as module
from opbench.running.crew import Part
from opbench.running.team import Team
from opbench.store import leases


class _Member:
    def __init__(self, part: Part) -> None:
        self.part = part

    def ended(self) -> str | None:
        return None

    def stop(self) -> None:
        pass

    def kill(self) -> None:
        pass


class _Crew:
    size = 2

    def start(self, part: Part) -> _Member:
        return _Member(part)

    def close(self) -> None:
        pass


class _Store:
    """None: what is asked of it is told by the test."""

    async def in_thread(self, work: Any, *args: Any) -> Any:
        return work(*args)


@pytest.fixture
def team(monkeypatch: pytest.MonkeyPatch) -> Team:
    """Two members at work, each with half a dollar of one."""
    jobs = SimpleNamespace(instances=[], states=np.zeros((1, 0), dtype=np.uint8))
    monkeypatch.setattr(leases, "take_away", lambda *args: None)
    monkeypatch.setattr(leases, "undone", lambda *args: 1)
    made = Team(
        _Store(),  # type: ignore[arg-type]
        "run",
        SimpleNamespace(jobs=jobs),  # type: ignore[arg-type]
        _Crew(),
        leader="leader",
        concurrency=2,
        embedder="minilm",
        budget_usd=1.0,
        spent=lambda: 0.0,
        on_news=lambda line: None,
    )
    for seat in made._seats:
        made._start(seat, made._share(2 - seat.number))
    assert [seat.share_usd for seat in made._seats] == [0.5, 0.5]
    return made


def tells(team: Team, number: int, usd: float, **stats: Any) -> None:
    team._seats[number].row = SimpleNamespace(id=f"member {number}", stats={"spent_usd": usd, "done": 1, **stats})


def keeps(monkeypatch: pytest.MonkeyPatch, usd: float) -> None:
    """The records tell that so much was spent."""
    monkeypatch.setattr(module, "spent_before", lambda store, run_id: usd)


async def test_what_a_killed_member_told_nobody_is_never_shared_out_again(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The first spent 0.30 and told 0.10; the second 0.05, of its 0.50.
    tells(team, 0, 0.10)
    tells(team, 1, 0.05)
    keeps(monkeypatch, 0.35)
    await team._over(team._seats[0], "worker 1 was killed by signal 9.")
    assert team._seats[0].share_usd == pytest.approx(1.0 - 0.30 - 0.50)
    # The second's half is spent, its successor at the first seat has 0.05 of its 0.20: 0.15 are left, and are its.
    tells(team, 0, 0.05)
    tells(team, 1, 0.50, halted="Stopped: the budget of $0.5000 is reached, $0.5000 are spent.")
    keeps(monkeypatch, 0.30 + 0.50 + 0.05)
    await team._over(team._seats[1], "")
    assert team._seats[1].member is None


async def test_embeddings_that_members_told_hide_nothing_of_what_was_killed(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 0.10 told, 0.04 of it for embeddings, which the store learns at the end; calls took 0.26.
    tells(team, 0, 0.10, embeddings_usd=0.04)
    keeps(monkeypatch, 0.26)
    await team._over(team._seats[0], "worker 1 was killed by signal 9.")
    assert team._seats[0].share_usd == pytest.approx(1.0 - (0.26 + 0.04) - 0.50)


async def test_the_budget_that_is_told_is_the_runs_and_no_members_share(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, spent in ((0, 0.50), (1, 0.47)):
        tells(team, number, spent, halted="Stopped: the budget of $0.5000 is reached, $0.5000 are spent.")
    keeps(monkeypatch, 0.97)
    for seat in team._seats:
        team._past.add(seat.stats)
        seat.member, team._share_is_spent = None, True
    assert team._why() == (
        "Stopped: the budget of $1.00 is all but reached, $0.9700 are spent, and the rest is too little for another "
        "worker. To go on, give a higher one."
    )
    team._past.add({"spent_usd": 0.06})
    assert team._why() == ("Stopped: the budget of $1.00 is reached, $1.03 are spent. To go on, give a higher one.")


async def test_a_model_without_token_counts_is_told_with_the_runs_budget(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    tells(team, 0, 0.0, halted="Stopped: m doesn't tell, so the budget of $0.5000 can't be kept.", unpriced="m")
    keeps(monkeypatch, 0.0)
    await team._over(team._seats[0], "")
    assert team._seats[0].member is None
    assert team._why() == (
        "Stopped: m doesn't tell how many tokens a call took, so the budget of $1.00 can't be kept. "
        "Leave the budget out, or use another model."
    )
