"""Acceptance and cost by generator (paper, table 4), worked out by hand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from opbench.analysis.generators import acceptance_interval, generators, subtype_of, wilson
from opbench.construction.spec import BuildSpec
from opbench.store.builds import save_unit
from opbench.store.database import Store, open_store
from tests.construction.built import CORVIN, OTTILIE, add, candidate, made_build, unit_named


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(f"sqlite:///{tmp_path / 'store.sqlite3'}")


def test_wilsons_interval_is_the_textbooks() -> None:
    # Newcombe (1998), table I, method 3: 81 of 263, 15 of 148, 0 of 20, 1 of 29.
    for hits, n, low, high in [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ]:
        assert wilson(hits / n, n) == pytest.approx((low, high), abs=5e-5)


def test_questions_of_users_who_answer_alike_are_worth_fewer() -> None:
    users = [f"u{n}" for n in range(10) for _ in range(20)]
    alternating = [n % 2 == 0 for n in range(200)]
    # Every user has 10 of 20 accepted: no variance between users, the questions count as independent.
    assert acceptance_interval(alternating, users)[:2] == pytest.approx(wilson(0.5, 200))
    # Five users have all of theirs accepted, five none. Residuals' sums are ±10 a user: 10/9 · 10 · 100 / 200² is
    # 1/36, against 1/800 of independent questions: an effect of 200/9, so 200 questions are worth 9.
    by_user = [n < 100 for n in range(200)]
    assert acceptance_interval(by_user, users)[:2] == pytest.approx(wilson(0.5, 9))


def test_too_few_users_give_no_interval() -> None:
    low, high, note = acceptance_interval([True] * 40, [f"u{n % 4}" for n in range(40)])
    assert math.isnan(low)
    assert math.isnan(high)
    assert note == "4 users, an interval needs 5"
    assert acceptance_interval([], [])[2] == "nothing reviewed yet"


def test_the_subtype_of_a_unit_comes_after_its_user() -> None:
    assert subtype_of(unit_named(f"tasks/{OTTILIE}/subtopics/2/scripted/1", OTTILIE)) == "repetition"
    assert subtype_of(unit_named(f"tasks/{OTTILIE}/fact/openai/gpt/1", OTTILIE)) == "fact"


def test_counts_costs_and_acceptance_of_each_generator(store: Store) -> None:
    build_id = made_build(store, BuildSpec())
    states = ["accepted", "accepted", "rejected", "kept", "dropped"]
    add(
        store,
        build_id,
        *(candidate(n, f"Fact {n}?", "fact", state=state, generator="dear") for n, state in enumerate(states)),
        candidate(9, "A value?", "value", CORVIN, state="candidate", generator="cheap"),
    )

    def spent(generator: str, what: str, cost: float | None, **further: Any) -> None:
        name = f"tasks/{OTTILIE}/{what}/{generator}/1"
        numbers: dict[str, Any] = {"prompt_tokens": 100, "completion_tokens": 50, "duration_ms": 1500.0}
        numbers["cost_usd"] = cost
        save_unit(store, build_id, unit_named(name, OTTILIE, model=generator, calls=("k",), **numbers, **further))

    spent("dear", "fact", 0.03)
    spent("dear", "subtopics/1", 0.01, repaired=True)
    spent("dear", "value", 0.02, status="failed", reason="the answer isn't JSON")
    spent("cheap", "value", None)
    table = generators(store, build_id)
    rows: dict[tuple[str, str], Any] = {(row["generator"], row["subtype"]): row for _, row in table.iterrows()}
    dear = rows["dear", "all"]
    assert (dear.generated, dear.dropped, dear.undecided, dear.kept, dear.reviewed, dear.accepted) == (5, 1, 0, 1, 3, 2)
    assert dear.acceptance == pytest.approx(2 / 3)
    assert (dear.users, dear.note) == (1, "1 user, an interval needs 5")
    # The failed unit is paid for too.
    assert (dear.calls, dear.failed, dear.repaired) == (3, 1, 1)
    assert dear.cost_usd == pytest.approx(0.06)
    # One is kept and may be accepted yet, for the same money.
    assert math.isnan(dear.usd_per_accepted)
    assert (dear.prompt_tokens, dear.completion_tokens, dear.seconds) == (300, 150, 4.5)
    assert rows["dear", "repetition"].cost_usd == pytest.approx(0.01)
    assert rows["dear", "repetition"].generated == 0
    cheap = rows["cheap", "all"]
    assert math.isnan(cheap.cost_usd)
    assert math.isnan(cheap.acceptance)
    assert (cheap.undecided, cheap.note) == (1, "nothing reviewed yet")
    assert set(generators(store, build_id, by_subtype=False)["subtype"]) == {"all"}


def test_an_accepted_question_has_its_price_once_all_are_decided(store: Store) -> None:
    build_id = made_build(store, BuildSpec())
    states = ["accepted", "accepted", "rejected", "dropped"]
    add(store, build_id, *(candidate(n, f"Fact {n}?", "fact", state=state) for n, state in enumerate(states)))
    numbers: dict[str, Any] = {"prompt_tokens": 1, "completion_tokens": 1, "duration_ms": 1.0, "calls": ("k",)}
    model = candidate(0, "Fact?", "fact").generator
    for what, cost in (("fact", 0.05), ("value", 0.01)):
        name = f"tasks/{OTTILIE}/{what}/{model}/1"
        save_unit(store, build_id, unit_named(name, OTTILIE, model=model, cost_usd=cost, **numbers))
    (row,) = generators(store, build_id, by_subtype=False).to_dict("records")
    # 0.06 dollars, of which the rejected, the dropped and the unit without a question are paid too, for two.
    assert row["usd_per_accepted"] == pytest.approx(0.03)
