"""Twenty thousand records under faults of all kinds: none lost, none paid twice, and what is missing tells why."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.soak.ledger import Line, table
from tests.soak.process import Starter
from tests.soak.provider import HEALING
from tests.soak.scenarios import SCENARIOS, Given, Scenario

SEED = 20260


@pytest.fixture(scope="module")
def starter() -> Iterator[Starter]:
    starter = Starter()
    yield starter
    starter.close()


@pytest.fixture(scope="module")
def ledger(request: pytest.FixtureRequest) -> Iterator[list[Line]]:
    """The lines of all scenarios, printed together at the end."""
    lines: list[Line] = []
    yield lines
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        print(f"\n\nfaults by the thousand, seed {SEED}\n{table(lines)}\n")


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: each.name)
def test_nothing_is_lost_or_paid_twice(
    scenario: Scenario, starter: Starter, ledger: list[Line], tmp_path: Path
) -> None:
    line = scenario.run(Given(tmp_path, starter, SEED, scenario.models))
    ledger.append(line)
    assert line.wrong == []
    assert (line.lost, line.double) == (0, 0), table([line])
    assert line.planned == scenario.planned
    assert (
        line.done + sum(n for why, n in line.missing.items() if not why.startswith(("judge", "vector"))) == line.planned
    )
    if scenario.name == "mixed":
        assert set(HEALING) <= set(line.faults), "every kind of fault was met"


def test_they_are_twenty_thousand_records() -> None:
    assert sum(scenario.planned for scenario in SCENARIOS) >= 20_000
