"""A budget: nothing is begun beyond it, what is reused is free, and without prices it is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from opbench.errors import UsageError
from opbench.running.budget import dollars, spent_before
from opbench.running.prepare import prepare
from opbench.running.worker import execute
from opbench.settings import settings
from opbench.store import schema as s
from opbench.store.database import Store, open_store
from opbench.store.reading import run_status
from opbench.study import Study
from tests.running.study import PLANNED, STUDY, reply, use_endpoint
from tests.scripted_endpoint import ScriptedEndpoint

#: Dollars per million tokens: a call costs some ten cents, so that budgets are amounts one can read.
DEAR = {"price_in": 500.0, "price_out": 1000.0}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(f"sqlite:///{tmp_path / 'store.sqlite3'}")


async def run(store: Store, concurrency: int, budget_usd: float | None, **fields: Any) -> str:
    prepared = prepare(Study(**STUDY | {"embedder": "minilm"} | fields))
    try:
        await execute(
            store, prepared, concurrency=concurrency, on_progress=lambda progress: None, budget_usd=budget_usd
        )
    finally:
        await prepared.aclose()
    return prepared.run_id


def paid(store: Store) -> float:
    """What all calls in the store cost."""
    with store.begin() as connection:
        return float(connection.scalar(select(func.sum(s.calls.c.cost_usd))) or 0.0)


def dearest_record(store: Store) -> float:
    """The dollars of the record with the dearest calls, whoever paid them."""
    with store.begin() as connection:
        per_record = (
            select(func.sum(s.calls.c.cost_usd).label("usd"))
            .join(s.record_calls, s.record_calls.c.call_key == s.calls.c.key)
            .group_by(s.record_calls.c.record_id)
            .subquery()
        )
        return float(connection.scalar(select(func.max(per_record.c.usd))) or 0.0)


@pytest.mark.parametrize("concurrency", [1, 4])
async def test_a_run_stops_at_its_budget_and_goes_on_with_a_higher_one(
    store: Store, home: Path, concurrency: int
) -> None:
    with ScriptedEndpoint(reply=reply) as endpoint:
        use_endpoint(home, endpoint, **DEAR)
        run_id = await run(store, concurrency, 2.0)
        status = run_status(store, run_id)
        assert 0 < status.done < PLANNED
        # The money is gone, and no more than what the records in flight took is gone beyond.
        assert 2.0 <= paid(store) <= 2.0 + concurrency * dearest_record(store)
        assert spent_before(store, run_id) == pytest.approx(paid(store))
        assert status.halted is not None
        assert "the budget of $2.00 is reached" in status.halted
        assert dollars(paid(store)) in status.halted

        asked = endpoint.ledger.total
        with pytest.raises(UsageError, match=r"has spent \$2\.\d\d already.*higher budget"):
            await run(store, concurrency, 2.0)
        assert endpoint.ledger.total == asked
        assert run_status(store, run_id).halted == status.halted

        await run(store, concurrency, 4.0)
        further = run_status(store, run_id)
        assert status.done < further.done < PLANNED
        assert 4.0 <= paid(store) <= 4.0 + concurrency * dearest_record(store)

        await run(store, concurrency, None)
        whole = run_status(store, run_id)
        assert (whole.done, whole.halted) == (PLANNED, None)
        assert set(endpoint.ledger.answered.values()) == {1}, "nothing is paid twice"


async def test_calls_of_another_run_are_free(store: Store, home: Path) -> None:
    with ScriptedEndpoint(reply=reply) as endpoint:
        use_endpoint(home, endpoint, **DEAR)
        first = await run(store, 4, None, mitigations=("none",))
        before = paid(store)
        second = await run(store, 4, None, mitigations=("none", "reminder"))
        assert second != first
        assert spent_before(store, first) == pytest.approx(before)
        assert spent_before(store, second) == pytest.approx(paid(store) - before)


async def test_embeddings_count(store: Store, home: Path) -> None:
    with ScriptedEndpoint(reply=reply) as endpoint:
        use_endpoint(home, endpoint, **DEAR)
        run_id = await run(store, 4, None, embedder="scripted", mitigations=("none",))
        texts = [text for body in endpoint.ledger.bodies if "input" in body for text in body["input"]]
        # The endpoint counts words as tokens.
        embedded = sum(len(text.split()) for text in texts) * DEAR["price_in"] / 1e6
        assert embedded > 0
        assert spent_before(store, run_id) == pytest.approx(paid(store) + embedded)


@pytest.mark.parametrize(
    ("prices", "study", "named"),
    [
        ("price_out", {}, r"scripted.*\[models.\"scripted\"\]"),
        ("price_in", {"judge": "offline", "embedder": "scripted"}, r"scripted.*price_in and price_out"),
        ("price_in", {"models": ("smollm2-135m",), "judge": "offline", "embedder": "scripted"}, r"\[embedders."),
    ],
)
async def test_without_a_price_a_budget_is_refused(
    store: Store, home: Path, prices: str, study: dict[str, Any], named: str
) -> None:
    with ScriptedEndpoint(reply=reply) as endpoint:
        use_endpoint(home, endpoint)
        file = home / "models.toml"
        lines = [line for line in file.read_text().splitlines() if not line.startswith(prices)]
        file.write_text("\n".join(lines))
        with pytest.raises(UsageError, match=named) as refused:
            await run(store, 2, 1.0, **study)
        assert str(file) in str(refused.value)
        assert "leave the budget out" in str(refused.value)
        assert endpoint.ledger.total == 0


async def test_an_endpoint_that_counts_no_tokens_stops_a_run_with_a_budget(
    store: Store, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opbench.models.replies._count", lambda value: None)
    with ScriptedEndpoint(reply=reply) as endpoint:
        use_endpoint(home, endpoint)
        run_id = await run(store, 1, 1.0)
        status = run_status(store, run_id)
    assert status.done == 1
    assert "scripted doesn't tell how many tokens" in (status.halted or "")


async def test_the_embedded_model_costs_nothing_and_takes_a_budget(store: Store, home: Path) -> None:
    with pytest.raises(UsageError, match="buys nothing"):
        await run(store, 1, 0.0, models=("smollm2-135m",), judge="offline")


def test_the_command_says_it_in_one_line(home: Path) -> None:
    with ScriptedEndpoint(reply=reply) as endpoint:
        environment = use_endpoint(home, endpoint, **DEAR)
        done = _opbench(environment, "--limit=4", "--budget=1")
        assert done.returncode == 1, "incomplete"
        said = [line for line in done.stderr.splitlines() if "budget" in line]
        assert len(said) == 1
        assert said[0].startswith("Stopped: the budget of $1.00 is reached, $1.")
        again = _opbench(environment, "--limit=4", "--budget=1")
        assert again.returncode == 2
        assert again.stderr.splitlines()[-1].startswith("opbench: run ")


def _opbench(environment: dict[str, str], *flags: str) -> subprocess.CompletedProcess[str]:
    study: Sequence[str] = ("--models=scripted", "--judge=scripted", "--judge-pack=own", "--data=sample")
    return subprocess.run(
        [sys.executable, "-m", "opbench", "run", *study, *flags, "--concurrency=2"],
        env={name: value for name, value in {**os.environ, **environment}.items() if name != "OPBENCH_STORE"},
        capture_output=True,
        text=True,
        cwd=settings().home,
    )
