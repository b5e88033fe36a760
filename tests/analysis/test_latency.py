"""Latency, tokens and cost, worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from opbench.analysis.latency import PERCENTILES, STAGES, alike, beside, latency, retrieval_note, spending, spread
from opbench.store.rundata import RunData
from opbench.study import Configuration, make_study

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
    assert (spread(empty)["n"] == 0).all()


def test_tokens_and_cost_of_a_query(timed: RunData) -> None:
    row = spending(timed).set_index("mitigation").loc["reminder"]
    # Two of three records asked the filter, with 40 tokens in and 4 out each: 80 / 3 a query.
    assert row["post_prompt_per_query"] == pytest.approx(80 / 3)
    assert row["post_completion_per_query"] == pytest.approx(8 / 3)
    assert row["response_prompt_per_query"] == pytest.approx(200)
    assert row["response_completion_per_query"] == pytest.approx(30)
    # 0.001 and 0.003 dollars for two records: 2 dollars for 1,000.
    assert row["cost_usd_per_1000"] == pytest.approx(2.0)


def test_tokens_that_an_endpoint_doesnt_tell_are_left_out_of_the_mean(
    timed: RunData, changed: Callable[..., RunData]
) -> None:
    records = timed.records.copy()
    records.loc[0, "response_prompt_tokens"] = NAN
    told = changed(records=records, configurations=timed.configurations)
    row = spending(told).set_index("mitigation").loc["reminder"]
    assert (row["n_done"], row["n_counted"]) == (3, 2)
    assert row["response_prompt_per_query"] == pytest.approx(200)


def test_an_answer_without_the_model_has_no_response_time_and_spends_nothing(
    timed: RunData, changed: Callable[..., RunData]
) -> None:
    """As the control `abstain` records it: the stage didn't happen, tokens and cost are truly zero."""
    records = timed.records.assign(
        response_ms=NAN,
        response_reused=None,
        post_ms=NAN,
        post_reused=None,
        response_prompt_tokens=0,
        response_completion_tokens=0,
        cost_usd=0.0,
    )
    run = changed(records=records, configurations=timed.configurations)
    found = stages(latency(run))
    assert (found["response"]["n"], found["total"]["n"]) == (0, 3)
    assert math.isnan(found["response"]["mean_ms"])
    assert found["total"]["mean_ms"] == pytest.approx(20)
    row = spending(run).set_index("mitigation").loc["reminder"]
    assert (row["response_prompt_per_query"], row["cost_usd_per_1000"], row["n_priced"]) == (0, 0, 3)


def test_percentiles_of_a_stage(timed: RunData) -> None:
    rows = spread(timed)
    retrieval = rows[(rows["mitigation"] == "reminder") & (rows["stage"] == "retrieval")].iloc[0]
    # 10, 20, 30 ms: the q-th percentile is 10 + 20 q / 100.
    for each in PERCENTILES:
        assert retrieval[f"p{each}_ms"] == pytest.approx(10 + 0.2 * each)
    assert (retrieval["n"], retrieval["n_reused"], retrieval["mean_ms"]) == (3, 1, pytest.approx(20))
    assert retrieval["concurrency"] == "1, 4"


def test_the_spread_agrees_with_the_table(run: RunData) -> None:
    for fresh_only in (False, True):
        for benchmark in (None, "op", "locomo"):
            table, wide = latency(run, fresh_only, benchmark), spread(run, fresh_only, benchmark)
            pd.testing.assert_series_equal(wide["p50_ms"], table["median_ms"], check_names=False)
            pd.testing.assert_series_equal(wide["p95_ms"], table["p95_ms"], check_names=False)
            shared = ["model", "memory", "mitigation", "stage", "n", "n_reused", "mean_ms", "concurrency"]
            pd.testing.assert_frame_equal(wide[shared], table[shared])


def test_categories_change_nothing(run: RunData, changed: Callable[..., RunData]) -> None:
    """Frames may hold names as categories, also such that never occur."""
    names = {name: run.records[name].astype("category").cat.add_categories("unused") for name in ("model", "memory")}
    categorical = changed(records=run.records.assign(**names))
    for table in (latency, spread, spending):
        pd.testing.assert_frame_equal(table(categorical), table(run))


PROBED = {"models": ["m"], "memories": ["base", "rag"], "mitigations": ["none", "reminder"]}


def test_a_probe_stands_beside_what_both_have(timed: RunData) -> None:
    table = latency(timed)
    probe = table.assign(mean_ms=table["mean_ms"] / 10, concurrency="1")
    shared = [Configuration("m", "rag", "reminder")]
    both = beside(table, probe, shared)
    assert both["source"].tolist() == ["this run"] * 4 + ["probe"] * 4
    assert both["stage"].tolist() == [*STAGES, "total"] * 2
    assert set(both["mitigation"]) == {"reminder"}
    assert both["mean_ms"].tolist()[::4] == pytest.approx([20, 2])
    without = table[table["mitigation"] == "marag"]
    assert beside(without, probe, shared).empty, "what isn't looked at isn't shown of the probe either"


def test_a_probe_is_alike_when_it_asks_in_the_same_way() -> None:
    study = make_study(PROBED)
    assert alike(study, make_study(PROBED | {"memories": ["rag"], "latency_probe": True, "limit": 3})) == [
        Configuration("m", "rag", "none"),
        Configuration("m", "rag", "reminder"),
    ]
    for other in ({"max_tokens": 20}, {"k": 3}, {"temperature": 1.0}, {"embedder": "e"}, {"models": ["n"]}):
        assert alike(study, make_study(PROBED | other)) == []


def test_what_a_retrieval_s_time_holds_is_said_with_its_load(changed: Callable[..., RunData], run: RunData) -> None:
    said = retrieval_note(changed(provenance={"executions": [{"concurrency": 4}, {"concurrency": 8}, {}]}))
    assert said is not None
    assert said.endswith("It was taken with up to 8 records at work at a time.")
    untold = retrieval_note(changed(provenance={}))
    assert untold is not None
    assert untold.endswith("opening a store aren't in it.")
    only_base = run.configurations[run.configurations["memory"] == "base"]
    assert retrieval_note(changed(configurations=only_base)) is None


def test_a_probe_by_the_other_protocol_is_no_probe_of_the_run() -> None:
    fields = {"models": ["m"], "memories": ["rag"]}
    assert alike(make_study(fields), make_study(fields | {"latency_probe": True}))
    assert alike(make_study(fields), make_study(fields | {"latency_probe": True, "protocol": "memos"})) == []
