"""Latency, tokens and cost, worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from opbench.analysis.latency import latency, spending
from opbench.store.rundata import RunData

NAN = float("nan")
KEY = {"model": "m", "memory": "rag", "mitigation": "reminder"}
#: retrieval, post, response (ms), reused flags; the second record's filter had nothing to ask.
RECORDS: list[dict[str, Any]] = [
    {"retrieval_ms": 10.0, "post_ms": 100.0, "response_ms": 1000.0, "retrieval_reused": False},
    {"retrieval_ms": 20.0, "post_ms": NAN, "response_ms": 2000.0, "retrieval_reused": True},
    {"retrieval_ms": 30.0, "post_ms": 300.0, "response_ms": 3000.0, "retrieval_reused": False},
]


@pytest.fixture
def timed(changed: Callable[..., RunData], run: RunData) -> RunData:
    rows = [
        {
            **KEY,
            "instance": f"ff-{place}",
            "status": "done",
            "post_reused": None if math.isnan(record["post_ms"]) else False,
            "response_reused": False,
            "concurrency": [4, 1, 4][place],
            "post_prompt_tokens": NAN if math.isnan(record["post_ms"]) else 40.0,
            "post_completion_tokens": NAN if math.isnan(record["post_ms"]) else 4.0,
            "response_prompt_tokens": 200.0,
            "response_completion_tokens": [10.0, 20.0, 60.0][place],
            "cost_usd": [0.001, NAN, 0.003][place],
            **record,
        }
        for place, record in enumerate(RECORDS)
    ]
    failed = {**rows[0], "instance": "ff-9", "status": "error", "retrieval_ms": 9999.0, "post_ms": 9999.0}
    configurations = pd.DataFrame([KEY, {**KEY, "mitigation": "marag"}])
    return changed(records=pd.DataFrame([*rows, failed]), configurations=configurations)


def stages(frame: pd.DataFrame, mitigation: str = "reminder") -> dict[str, dict[str, Any]]:
    rows = frame[frame["mitigation"] == mitigation].to_dict("records")
    return {str(row["stage"]): {str(name): value for name, value in row.items()} for row in rows}


def test_stages_over_done_records(timed: RunData) -> None:
    found = stages(latency(timed))
    assert list(found) == ["retrieval", "post", "response", "total"]
    retrieval = found["retrieval"]
    assert (retrieval["n"], retrieval["n_reused"]) == (3, 1)
    assert retrieval["mean_ms"] == pytest.approx(20)
    assert retrieval["std_ms"] == pytest.approx(10)  # sample: sqrt((100 + 0 + 100) / 2)
    assert retrieval["median_ms"] == pytest.approx(20)
    assert retrieval["p95_ms"] == pytest.approx(29)
    assert retrieval["concurrency"] == "1, 4"


def test_a_stage_that_did_not_happen_does_not_count(timed: RunData) -> None:
    post = stages(latency(timed))["post"]
    assert post["n"] == 2
    assert post["mean_ms"] == pytest.approx(200)
    assert post["std_ms"] == pytest.approx(math.sqrt(20000))
    assert post["p95_ms"] == pytest.approx(290)
    assert post["prompt_tokens"] == pytest.approx(40)
    assert post["completion_tokens"] == pytest.approx(4)


def test_total_is_the_sum_within_each_record(timed: RunData) -> None:
    total = stages(latency(timed))["total"]
    assert total["n"] == 3
    assert total["n_reused"] == 1
    assert total["mean_ms"] == pytest.approx((1110 + 2020 + 3330) / 3)
    assert total["median_ms"] == pytest.approx(2020)
    assert total["completion_tokens"] == pytest.approx((14 + 20 + 64) / 3)


def test_fresh_only_leaves_reused_calls_out(timed: RunData) -> None:
    found = stages(latency(timed, fresh_only=True))
    assert found["retrieval"]["n"] == 2
    assert found["retrieval"]["n_reused"] == 0
    assert found["response"]["n"] == 3
    assert found["total"]["n"] == 2
    assert found["total"]["mean_ms"] == pytest.approx((1110 + 3330) / 2)


def test_a_configuration_without_records_is_empty_not_zero(timed: RunData) -> None:
    found = stages(latency(timed), "marag")
    assert found["post"]["n"] == 0
    assert math.isnan(found["post"]["mean_ms"])
    assert math.isnan(found["total"]["mean_ms"])


def test_one_record_has_no_spread(timed: RunData, changed: Callable[..., RunData]) -> None:
    post = stages(latency(changed(records=timed.records.iloc[:1], configurations=timed.configurations)))["post"]
    assert post["mean_ms"] == pytest.approx(100)
    assert math.isnan(post["std_ms"])


def test_base_retrieves_and_post_processes_nothing(run: RunData) -> None:
    frame = latency(run)
    base = frame[frame["memory"] == "base"].set_index("stage")
    assert base.loc["retrieval", "n"] == 0
    assert base.loc["post", "n"] == 0
    assert base.loc["response", "n"] == 18
    assert base.loc["total", "mean_ms"] == pytest.approx(1000)


def test_one_benchmark_alone(run: RunData) -> None:
    frame = latency(run, benchmark="locomo")
    base = frame[frame["memory"] == "base"].set_index("stage")
    assert base.loc["response", "n"] == 5


def test_spending(timed: RunData) -> None:
    row = spending(timed).set_index("mitigation").loc["reminder"]
    assert row["n_done"] == 3
    assert row["post_prompt_tokens"] == 80
    assert row["response_prompt_tokens"] == 600
    assert row["response_completion_tokens"] == 90
    assert row["cost_usd"] == pytest.approx(0.004)
    assert row["n_priced"] == 2
    assert row["cost_usd_per_record"] == pytest.approx(0.002)


def test_spending_without_a_price_is_missing_not_free(timed: RunData, changed: Callable[..., RunData]) -> None:
    free = changed(records=timed.records.assign(cost_usd=NAN), configurations=timed.configurations)
    rows = spending(free)
    assert rows["cost_usd"].isna().all()
    assert rows["cost_usd_per_record"].isna().all()
    nothing = spending(timed).set_index("mitigation").loc["marag"]
    assert nothing["n_done"] == 0
    assert pd.isna(nothing["post_prompt_tokens"])


def test_a_run_that_has_not_begun(run: RunData, changed: Callable[..., RunData]) -> None:
    empty = changed(records=run.records.iloc[:0])
    assert (latency(empty)["n"] == 0).all()
    assert (spending(empty)["n_done"] == 0).all()
