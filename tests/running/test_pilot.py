"""A pilot: records of the study itself, evenly spread, and a quote that rests on what they took."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from opbench.running.measured import Measured
from opbench.running.plan import DONE, MISSING, Jobs, Plan, pilot
from opbench.running.prepare import prepare
from opbench.running.quote import Quote, quote
from opbench.running.worker import execute
from opbench.settings import settings
from opbench.store.database import open_store
from opbench.store.reading import run_status
from opbench.study import Configuration, Study
from opbench.types import Instance, User
from tests.running.study import PLANNED, STUDY, reply, run_here, use_endpoint
from tests.scripted_endpoint import ScriptedEndpoint

USER = User("c", "Ana", "Ben", True)
INSTANCES = [Instance(f"{name}/{n}", name, USER, "fact", f"{name} {n}?") for name in ("op", "locomo") for n in range(5)]
CONFIGURATIONS = [Configuration("m", "rag", name) for name in ("none", "reminder", "marag")]


def made_plan(states: np.ndarray | None = None) -> Plan:
    if states is None:
        states = np.full((len(CONFIGURATIONS), len(INSTANCES)), MISSING, dtype=np.uint8)
    jobs = Jobs({each: number for number, each in enumerate(CONFIGURATIONS)}, INSTANCES, states)
    return Plan(jobs, states.size, states.size - len(jobs), 0)


@pytest.mark.parametrize(
    ("records", "by_configuration", "by_benchmark"),
    [
        (2, [1, 1], {"op": 1, "locomo": 1}),
        (3, [1, 1, 1], {"op": 2, "locomo": 1}),
        (6, [2, 2, 2], {"op": 3, "locomo": 3}),
        (12, [4, 4, 4], {"op": 6, "locomo": 6}),
        (99, [10, 10, 10], {"op": 15, "locomo": 15}),
    ],
)
def test_a_pilot_is_spread(records: int, by_configuration: list[int], by_benchmark: dict[str, int]) -> None:
    chosen = pilot(made_plan(), INSTANCES, records).jobs
    assert sorted(Counter(job.configuration_id for job in chosen).values()) == by_configuration
    assert Counter(job.instance.benchmark for job in chosen) == by_benchmark


def test_all_configurations_of_a_pilot_get_the_same_instances() -> None:
    chosen = pilot(made_plan(), INSTANCES, 12).jobs
    assert {job.instance.id for job in chosen} == {"op/0", "op/1", "locomo/0", "locomo/1"}
    assert [job.configuration_id for job in chosen[:3]] == [0, 1, 2], "in the plan's order: what is shared comes first"


def test_a_pilot_takes_what_is_left() -> None:
    left = [
        [MISSING if number == 1 and instance.benchmark == "locomo" else DONE for instance in INSTANCES]
        for number in range(len(CONFIGURATIONS))
    ]
    chosen = pilot(made_plan(np.array(left, dtype=np.uint8)), INSTANCES, 3).jobs
    assert [job.instance.id for job in chosen] == ["locomo/0", "locomo/1", "locomo/2"]


async def test_a_pilots_records_are_the_runs_own(home: Path) -> None:
    store = open_store(settings().store_url)
    with ScriptedEndpoint(reply=reply) as endpoint:
        use_endpoint(home, endpoint)
        prepared = prepare(Study(**STUDY))
        progress = await execute(store, prepared, concurrency=4, on_progress=lambda progress: None, pilot_records=16)
        await prepared.aclose()
        status = run_status(store, prepared.run_id)
        assert (progress.done, status.done) == (16, 16)
        assert status.halted == "The pilot of 16 records is done; the rest of the study waits."
        assert status.by_configuration["done"].tolist() == [4, 4, 4, 4]

        rest, run_id, _ = await run_here(store)
        assert run_id == prepared.run_id
        assert rest.to_do == PLANNED - 16
        assert run_status(store, run_id).complete
        assert run_status(store, run_id).halted is None
        chats = [body for body in endpoint.ledger.bodies if "messages" in body]
        assert len({json.dumps(body, sort_keys=True) for body in chats}) == len(chats), "nothing is asked twice"


async def test_after_a_pilot_the_quote_rests_on_it(home: Path) -> None:
    store = open_store(settings().store_url)
    with ScriptedEndpoint(reply=reply) as endpoint:
        use_endpoint(home, endpoint)
        prepared = prepare(Study(**STUDY))
        await execute(store, prepared, concurrency=4, on_progress=lambda progress: None, pilot_records=16)
        found = quote(store, prepared, concurrency=4)
        assert found.basis == "from a pilot of 16 records"
        assert (found.measured, found.finished, found.to_do) == (16, 16, PLANNED - 16)
        assert all(line.measured for line in found.lines)
        assert {line.stage for line in found.lines if line.mitigation == "none"} == {"response", "judge"}
        assert found.calls <= found.calls_naive
        assert found.calls + sum(each.calls for each in found.saved) == found.calls_naive, "as people add it up"
        for name in ("prompt_tokens", "completion_tokens", "cost_usd", "seconds"):
            low, high = found.ranges[name]
            assert 0 <= low <= getattr(found, name) <= high
        assert Quote.from_dict(json.loads(json.dumps(found.to_dict()))) == found

        before = _tokens(endpoint)
        await execute(store, prepared, concurrency=4, on_progress=lambda progress: None)
        await prepared.aclose()
        taken = _tokens(endpoint) - before
    # The endpoint answers every configuration alike, so the quote must have come near; the range must hold.
    low, high = found.ranges["prompt_tokens"]
    assert low <= taken <= high
    assert found.prompt_tokens == pytest.approx(taken, rel=0.25)
    after = quote(store, prepared, concurrency=4)
    assert (after.to_do, after.calls, after.ranges) == (0, 0, {})


def _tokens(endpoint: ScriptedEndpoint) -> int:
    from tests.scripted_endpoint import _chat

    return sum(_chat(body, "")["usage"]["prompt_tokens"] for body in endpoint.ledger.bodies if "messages" in body)


# What records measured ---------------------------------------------------------------------------------------------


def uses(*rows: tuple[int, str, str, str, float]) -> pd.DataFrame:
    """Rows of `store.spending.measured_calls`: record, post-processor, stage, key, tokens in; the rest is alike."""
    return pd.DataFrame(
        [
            {
                "record": record,
                "model": "m",
                "memory": "rag",
                "mitigation": mitigation,
                "benchmark": "op",
                "instance": f"op/{record}",
                "stage": stage,
                "key": key,
                "asked": "m",
                "tokens_in": tokens,
                "tokens_out": 10.0,
                "usd": None,
                "seconds": 2.0,
            }
            for record, mitigation, stage, key, tokens in rows
        ]
    )


def measured(frame: pd.DataFrame) -> Measured:
    return Measured(frame, lambda model, tokens_in, tokens_out: tokens_in / 1000, lambda model: 2)


NONE, REMINDER = CONFIGURATIONS[0], CONFIGURATIONS[1]


def test_a_stage_is_the_mean_of_its_calls() -> None:
    found = measured(
        uses(
            (1, "none", "response", "a", 100.0),
            (2, "none", "response", "b", 200.0),
            (3, "reminder", "post", "c", 300.0),
            (3, "reminder", "post", "d", 100.0),
            # The filter failed: its response is the plain one, which is there already.
            (3, "reminder", "response", "a", 100.0),
        )
    )
    assert found.records == 3
    plain = found.stage(NONE, "op", "response")
    assert plain is not None
    assert (plain.calls, plain.new, plain.tokens_in, plain.tokens_out, plain.seconds) == (1, 1, 150, 10, 2)
    post, response = found.stage(REMINDER, "op", "post"), found.stage(REMINDER, "op", "response")
    assert post is not None
    assert response is not None
    assert (post.calls, post.new, post.tokens_in) == (2, 1, 200)
    assert (response.calls, response.new) == (1, 0)
    assert found.stage(NONE, "op", "post") is None
    assert found.knows(NONE, "op")
    assert not found.knows(NONE, "locomo")


def test_a_range_is_students_t_over_the_records() -> None:
    found = measured(uses(*((n, "none", "response", str(n), tokens) for n, tokens in enumerate((100.0, 110.0, 120.0)))))
    stratum = NONE, "op"
    ranges = found.ranges(
        {stratum: 6}, {stratum: {"prompt_tokens": 660.0, "completion_tokens": 60.0, "cost_usd": 0.66, "seconds": 6.0}}
    )
    # Mean 110, standard deviation 10, t(97.5 %, 2 degrees of freedom) = 4.3027:
    # 660 ± 4.3027 × 660 × 10/110 × √(1/3 + 1/6) = 660 ± 182.55
    assert ranges["prompt_tokens"] == pytest.approx((477.45, 842.55), abs=0.01)
    assert ranges["cost_usd"] == pytest.approx((0.47745, 0.84255), abs=1e-5)
    assert ranges["completion_tokens"] == (60.0, 60.0)


@pytest.mark.parametrize(
    ("rows", "left"),
    [
        ([(1, "none", "response", "a", 100.0)], {(NONE, "op"): 5}),
        (
            [(1, "none", "response", "a", 100.0), (2, "none", "response", "b", 90.0)],
            {(NONE, "op"): 5, (REMINDER, "op"): 5},
        ),
    ],
    ids=["one record tells no spread", "a configuration was never measured"],
)
def test_there_is_no_range_without_ground(rows: list[Any], left: dict[Any, int]) -> None:
    totals = {
        stratum: dict.fromkeys(("prompt_tokens", "completion_tokens", "cost_usd", "seconds"), 1.0) for stratum in left
    }
    assert measured(uses(*rows)).ranges(left, totals) == {}


def test_an_unknown_price_leaves_the_cost_without_a_range() -> None:
    found = measured(uses(*((n, "none", "response", str(n), 100.0 + n) for n in range(3))))
    totals = {(NONE, "op"): {"prompt_tokens": 1.0, "completion_tokens": 1.0, "cost_usd": float("nan"), "seconds": 1.0}}
    assert set(found.ranges({(NONE, "op"): 2}, totals)) == {"prompt_tokens", "completion_tokens", "seconds"}
