"""What a build will take, told before anything is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from opbench.construction.building import build, start
from opbench.construction.loading import read_source
from opbench.construction.planning import plan
from opbench.construction.spec import BuildSpec
from opbench.models import load_registry
from opbench.settings import settings
from opbench.store.builds import read_units
from opbench.store.database import Store, open_store
from tests.construction.writer import scripted_spec, write
from tests.running.study import use_endpoint
from tests.scripted_endpoint import ScriptedEndpoint


@pytest.fixture
def store(home: Path) -> Store:
    return open_store(settings().store_url)


def test_the_paper_s_counts_make_a_hundred_questions_a_user(store: Store) -> None:
    found = plan(store, BuildSpec(), read_source("sample"), load_registry())
    # Ten topics of three; five, five, five and two of five; five topics of three subtopics of three.
    two = {"fully-irrelevant": 60, "baiting": 10, "fact": 10, "value": 10, "memory": 20, "repetition": 90}
    assert found.candidates == two
    assert sum(found.candidates.values()) == 2 * 100
    units = {line.role: line.units for line in found.lines}
    # A user's units: profile and topics; ten, four kinds, 1, 1, 2, 5 subtopics and 15 of questions.
    assert units == {"extractor": 4, "similarity": 2, "generator": 2 * 38, "checker": 60 + 10 + 20}
    assert found.cost_usd == 0.0, "the embedded model costs nothing"
    assert "assumed" in found.basis


async def test_only_what_is_left_is_told(home: Path, store: Store) -> None:
    with ScriptedEndpoint(reply=write) as endpoint:
        use_endpoint(home, endpoint)
        spec, source, registry = scripted_spec(), read_source("sample"), load_registry()
        before = plan(store, spec, source, registry)
        build_id = start(store, spec, source)
        await build(store, build_id)
        after = plan(store, spec, source, registry, units=read_units(store, build_id))
    assert {line.role for line in after.lines} == {"checker"}
    # Seven of ten general topics turned out to be related.
    assert before.candidates["fully-irrelevant"] == 20
    assert after.candidates["fully-irrelevant"] == 6
    assert before.cost_usd is not None
    prices = (1.0 * before.prompt_tokens + 2.0 * before.completion_tokens) / 1e6
    assert before.cost_usd == pytest.approx(prices)


def test_without_a_price_the_cost_is_not_known(home: Path, store: Store) -> None:
    with ScriptedEndpoint() as endpoint:
        use_endpoint(home, endpoint)
        file = home / "models.toml"
        file.write_text("\n".join(line for line in file.read_text().splitlines() if "price" not in line))
    found = plan(store, scripted_spec(), read_source("sample"), load_registry())
    assert found.cost_usd is None
    assert found.calls > 0
