"""What asking a case takes: calls worked out by hand, and dollars where prices are known."""

from __future__ import annotations

from pathlib import Path

import pytest

from opbench.cases.estimate import estimate
from opbench.cases.spec import CaseSpec, Column
from opbench.errors import UsageError
from opbench.models import Registry, load_registry
from opbench.settings import settings
from opbench.store.database import Store, open_store
from tests.cases.made import DRAFT, USER

PAID = """
[models.paid]
base_url = "http://127.0.0.1:9/v1"
price_in = 1.0
price_out = 2.0

[models.unpriced]
base_url = "http://127.0.0.1:9/v1"
"""


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    file = tmp_path / "models.toml"
    file.write_text(PAID, encoding="utf-8")
    monkeypatch.setenv("OPBENCH_MODELS", str(file))
    settings.cache_clear()
    return load_registry()


@pytest.fixture
def store() -> Store:
    return open_store(settings().store_url)


def case(model: str, *further: Column, **more: object) -> CaseSpec:
    columns = (Column(model=model), Column(model=model, memory="rag"), *further)
    return CaseSpec.model_validate(
        {"question": "What should I read?", "user": USER, "data": "sample", "columns": columns, **more}
    )


def test_calls_of_responses_post_processors_and_judge(store: Store, registry: Registry) -> None:
    reminder = Column(model="paid", memory="rag", mitigation="reminder")
    draft = Column(model="paid", memory="rag", mitigation=DRAFT.name, draft=DRAFT)
    # Two plain responses; Reminder's call and response; the draft's call and response.
    takes = estimate(store, registry, spec := case("paid", reminder, draft), spec.columns)
    assert (takes.calls, takes.paid_calls) == (6, 6)
    # Each of the four answers is judged once by a model, and none by rules.
    takes = estimate(store, registry, spec := case("paid", reminder, draft, judge="paid"), spec.columns)
    assert takes.calls == 10
    # Repetition is a score of a user, by an embedder.
    takes = estimate(store, registry, spec := case("paid", judge="paid", subtype="repetition"), spec.columns)
    assert takes.calls == 2


def test_leaving_out_five_memories_is_five_times_the_column(store: Store, registry: Registry) -> None:
    spec = case("paid")
    once = estimate(store, registry, spec, [spec.columns[1]])
    five = estimate(store, registry, spec, [spec.columns[1]], times=5)
    assert (once.calls, five.calls) == (1, 5)
    assert once.cost_usd
    assert five.cost_usd == pytest.approx(5 * once.cost_usd, rel=0.01)


def test_the_embedded_model_costs_nothing_and_nobody_pays_for_its_calls(store: Store, registry: Registry) -> None:
    takes = estimate(store, registry, spec := case("smollm2-135m"), spec.columns)
    assert (takes.calls, takes.paid_calls, takes.cost_usd) == (2, 0, 0.0)
    assert takes.seconds > 0
    assert "assumed" in takes.basis


def test_an_unknown_price_makes_the_cost_unknown(store: Store, registry: Registry) -> None:
    spec = case("unpriced")
    assert estimate(store, registry, spec, spec.columns).cost_usd is None


def test_no_answer_is_taken_to_be_longer_than_it_may_be(store: Store, registry: Registry) -> None:
    spec = case("paid", max_tokens=10)
    assert estimate(store, registry, spec, spec.columns).completion_tokens == 20


def test_given_memories_count_as_long_as_they_are(store: Store, registry: Registry) -> None:
    given = Column.model_validate({"model": "paid", "memory": "rag", "given": [{"text": "x" * 4000}]})
    spec = case("paid", given)
    assert estimate(store, registry, spec, [given]).prompt_tokens > 1000
    assert estimate(store, registry, spec, [spec.columns[0]]).prompt_tokens < 300


def test_an_unknown_user_is_said(store: Store, registry: Registry) -> None:
    spec = case("paid", user="sample-1/Nobody")
    with pytest.raises(UsageError, match="sample-1/Nobody"):
        estimate(store, registry, spec, spec.columns)
