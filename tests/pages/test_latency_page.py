"""Latency and cost: times by stage, spread, tokens, cost, and a probe beside a run."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pandas as pd
import pytest
import sqlalchemy
from streamlit.testing.v1 import AppTest
from typer.testing import CliRunner

from opbench.benchmarks import load, select
from opbench.cli import app as cli
from opbench.store import schema as s
from opbench.store.database import Store
from opbench.store.writing import FinishedRecord, create_run, save_records
from opbench.study import Study, make_study
from tests.pages.conftest import Open
from tests.pages.made_run import MADE, write_run
from tests.pages.test_results_pages import words

#: As made_run's study asks, so that it may stand beside it.
PROBE = {
    "name": "alone",
    "models": ["smollm2-135m"],
    "memories": ["rag"],
    "mitigations": ["none", "reminder"],
    "limit": 2,
    "data": "sample",
    "latency_probe": True,
}


def write_times(store: Store, run_id: str, study: Study, price: float | None, factor: float = 1.0) -> None:
    """The i-th record (from 0) of a configuration takes 100 (i + 1) × factor ms to respond and costs `price`."""
    instances = select(load("sample"), study.benchmarks, limit=study.limit)
    provenance = {"comparable": False, "data_source": "sample", "data": {"sample": "0" * 64}, "git_commit": "0" * 40}
    ids = create_run(store, run_id, study, run_id, provenance, instances)
    values: dict[str, Any] = {
        "status": "done",
        "response": "A reply.",
        "concurrency": 1 if study.latency_probe else 8,
        "response_reused": False,
        "response_prompt_tokens": 100,
        "response_completion_tokens": 10,
        "cost_usd": price,
        "finished_at": 2.0,
    }
    records = [
        FinishedRecord(number, instance.id, values | {"response_ms": 100.0 * factor * (place + 1)})
        for number in ids.values()
        for place, instance in enumerate(instances)
    ]
    save_records(store, run_id, records)


def tables(app: AppTest, column: str) -> list[pd.DataFrame]:
    return [element.value for element in app.dataframe if column in element.value]


def row(frame: pd.DataFrame, memory: str, mitigation: str) -> Any:
    found = frame[(frame["memory"] == memory) & (frame["mitigation"] == mitigation)]
    assert len(found) == 1
    return found.iloc[0]


def from_command(*arguments: str) -> dict[tuple[str, ...], dict[str, Any]]:
    """Rows of `opbench table --json` by configuration (and stage)."""
    done = CliRunner().invoke(cli, ["table", MADE, *arguments, "--json"])
    assert done.exit_code == 0, done.output
    keys = ("model", "memory", "mitigation", "stage")
    return {tuple(each[key] for key in keys if key in each): each for each in json.loads(done.stdout)["rows"]}


def test_the_first_line_is_the_question(visit: Open) -> None:
    assert visit("latency").title[0].value == "How much longer does the user wait, and what does it cost?"


def test_the_published_view_says_what_it_cannot_show(visit: Open) -> None:
    app = visit("latency")
    said = words(app).replace("\\", "")
    assert "Tokens and cost weren't published" in said
    # Table 11: 970 ms, 1168, 2345, 3209 and 4128.
    assert (
        "Post-processing adds, on average: MARAG 1.0 s; Reminder 1.2 s; ComoRAG 2.3 s; Few-Shot-CoT 3.2 s; "
        "Self-Critic 4.1 s." in said
    )
    assert len(tables(app, "mean_ms")) == 1


def test_tokens_and_percentiles_of_a_run(visit: Open, store: Store) -> None:
    # made_run: 200 in and 40 out for a filter, 300 in and 60 out for a response, 24 records a configuration.
    write_run(store)
    app = visit("latency", run=MADE)
    tokens, _ = tables(app, "post_prompt_per_query")  # and the one of costs, which rests on them
    reminder = row(tokens, "RAG", "Reminder")
    assert (reminder["post_prompt_per_query"], reminder["response_completion_per_query"]) == (200, 60)
    assert (reminder["post_prompt_tokens"], reminder["n_done"]) == (4800, 24)
    assert pd.isna(row(tokens, "BASE", "no post-processor")["post_prompt_per_query"])
    (spread,) = tables(app, "p50_ms")
    assert row(spread, "RAG", "Reminder")["p50_ms"] == 1420.0
    assert row(spread, "BASE", "no post-processor")["p100_ms"] == 1000.0


def test_numbers_are_those_of_the_command(visit: Open, store: Store) -> None:
    write_run(store, failed=1, left=2)
    app = visit("latency", run=MADE)
    latency, *_ = tables(app, "mean_ms")
    told = from_command("--of", "latency")
    assert len(latency) == len(told) == 16
    for shown, known in zip(latency.to_dict("records"), told.values(), strict=True):
        for column in ("mean_ms", "std_ms", "median_ms", "p95_ms", "n", "n_reused"):
            expected = float("nan") if known[column] is None else known[column]
            assert shown[column] == pytest.approx(expected, nan_ok=True)
    (cost,) = tables(app, "priced")
    for shown, known in zip(cost.to_dict("records"), from_command("--of", "cost").values(), strict=True):
        assert (shown["cost_usd"], shown["n_done"]) == (known["cost_usd"], known["n_done"])


def test_a_stage_and_a_shape_are_chosen_in_the_link(visit: Open, store: Store) -> None:
    write_run(store)
    app = visit("latency", run=MADE, stage="post-processing", shape="ready by then")
    (spread,) = tables(app, "p50_ms")
    assert row(spread, "RAG", "MARAG")["p50_ms"] == 400.0
    assert pd.isna(row(spread, "RAG", "no post-processor")["p50_ms"])
    assert "95 of 100 queries" in words(app)
    wrong = visit("latency", run=MADE, stage="lunch", shape="cake")
    assert {"stage=lunch", "shape=cake"} <= {part.rstrip(",") for part in _notices(wrong).split()}
    assert row(tables(wrong, "p50_ms")[0], "RAG", "MARAG")["p50_ms"] == 1420.0


def _notices(app: AppTest) -> str:
    return " ".join(str(element.value) for element in app.warning).replace("\\", "")


def test_one_memory_system_alone(visit: Open, store: Store) -> None:
    write_run(store)
    app = visit("latency", run=MADE)
    app.selectbox(key="memory").set_value("rag").run()
    assert app.query_params["memory"] == "RAG"
    for column in ("median_ms", "p50_ms", "post_prompt_per_query", "priced"):
        assert set(tables(app, column)[0]["memory"]) == {"RAG"}


def test_a_model_of_price_zero_costs_nothing(visit: Open, store: Store) -> None:
    write_run(store)
    assert "Nothing was spent" in words(visit("latency", run=MADE))


def test_what_ingestion_cost_is_told_where_queries_cost_nothing(visit: Open, store: Store) -> None:
    write_run(store)
    with store.begin() as connection:
        known = connection.execute(sqlalchemy.select(s.runs.c.provenance).where(s.runs.c.id == MADE)).scalar_one()
        executions = [{"ingestion_usd": 1.5, "embeddings_usd": 0.25}, {"ingestion_usd": 0.75}]
        connection.execute(
            sqlalchemy.update(s.runs).where(s.runs.c.id == MADE).values(provenance=known | {"executions": executions})
        )
    said = words(visit("latency", run=MADE)).replace("\\", "")
    assert "Nothing was spent" not in said
    assert "Paid besides for taking histories in (ingestion), which is in no row above: $2.25." in said
    assert "Paid besides for embeddings, which is in no row above: $0.25." in said


def test_a_known_price_is_told_for_a_thousand_queries(visit: Open, store: Store) -> None:
    write_times(store, "priced", make_study(PROBE | {"latency_probe": False}), price=0.002)
    app = visit("latency", run="priced")
    (cost,) = tables(app, "priced")
    plain = row(cost, "RAG", "no post-processor")
    assert plain["cost_usd_per_1000"] == pytest.approx(2.0)
    assert (plain["cost_usd"], plain["priced"]) == (pytest.approx(0.008), "4 of 4")
    assert "Nothing was spent" not in words(app)


def test_an_unknown_price_is_said_and_is_not_free(visit: Open, store: Store) -> None:
    write_times(store, "unpriced", make_study(PROBE | {"latency_probe": False}), price=None)
    app = visit("latency", run="unpriced")
    assert pd.isna(row(tables(app, "priced")[0], "RAG", "Reminder")["cost_usd_per_1000"])
    said = words(app).replace("\\", "")
    assert "unknown is not free" in said
    assert "smollm2-135m" in said
    assert "Nothing was spent" not in said


def test_a_probe_stands_beside_the_run_and_can_be_left_out(visit: Open, store: Store) -> None:
    write_run(store)
    write_times(store, "probe0run", make_study(PROBE), price=0.0)
    app = visit("latency", run=MADE)
    (both,) = tables(app, "source")
    assert set(both["mitigation"]) == {"no post-processor", "Reminder"}, "BASE and MARAG aren't in the probe"
    mine, theirs = (both[(both["source"] == source) & (both["stage"] == "total")] for source in ("this run", "probe"))
    assert row(mine, "RAG", "Reminder")["mean_ms"] == 1420.0
    # Two OP-Bench instances and two LoCoMo questions: 100, 200, 300, 400 ms.
    assert row(theirs, "RAG", "Reminder")["mean_ms"] == 250.0
    assert (row(mine, "RAG", "Reminder")["concurrency"], row(theirs, "RAG", "Reminder")["concurrency"]) == ("4", "1")
    said = words(app).replace("\\", "")
    assert "concurrency 4, 24 instances planned" in said
    assert "run probe0run, one request at a time, nothing reused, 4 instances planned" in said
    app.selectbox(key="memory").set_value("base").run()
    assert tables(app, "source") == []
    assert "has none of the configurations" in words(app).replace("\\", "")
    assert tables(visit("latency", run=MADE, probe="none"), "source") == []


def test_the_link_names_the_probe(visit: Open, store: Store) -> None:
    write_run(store)
    write_times(store, "probe0run", make_study(PROBE), price=0.0)
    write_times(store, "probe1run", make_study(PROBE | {"limit": 1, "name": "newer"}), price=0.0, factor=10.0)
    newest = tables(visit("latency", run=MADE), "source")[0]
    older = tables(visit("latency", run=MADE, probe="alone · probe0run"), "source")[0]

    def mean(both: pd.DataFrame) -> float:
        return float(row(both[(both["source"] == "probe") & (both["stage"] == "total")], "RAG", "Reminder")["mean_ms"])

    assert mean(newest) == 1500.0  # 1,000 and 2,000 ms
    assert mean(older) == 250.0
    assert "probe=nowhere" in _notices(visit("latency", run=MADE, probe="nowhere"))


def test_a_probe_that_asks_otherwise_is_not_offered(visit: Open, store: Store) -> None:
    write_run(store)
    write_times(store, "other0run", make_study(PROBE | {"max_tokens": 20}), price=0.0)
    assert tables(visit("latency", run=MADE), "source") == []


def test_a_probe_alone_says_what_it_is(visit: Open, store: Store) -> None:
    write_times(store, "probe0run", make_study(PROBE), price=0.0)
    app = visit("latency", run="probe0run")
    assert "latency probe" in words(app)
    assert tables(app, "source") == []


def test_a_run_that_has_not_begun_says_so(visit: Open, store: Store) -> None:
    study = make_study(PROBE)
    create_run(store, "empty0run", study, "h", {"data": {}}, select(load("sample"), ("op",), limit=2))
    app = visit("latency", run="empty0run", stage="lunch")
    assert "No record with a time" in words(app)
    assert len(tables(app, "mean_ms")) == 1, "the published one"
    assert "stage=lunch" in _notices(app)


def test_a_response_without_a_model_call_is_shown_as_none(visit: Open, store: Store) -> None:
    """`abstain` answers itself: its response stage didn't happen."""
    study = make_study(PROBE | {"mitigations": ["none", "abstain"], "latency_probe": False})
    write_times(store, "control0", study, price=0.0)
    instances = select(load("sample"), study.benchmarks, limit=study.limit)
    ids = create_run(store, "control0", study, "control0", {}, instances)
    number = next(number for configuration, number in ids.items() if configuration.mitigation == "abstain")
    values = {"status": "done", "response": "No.", "retrieval_ms": 5.0, "retrieval_reused": True, "concurrency": 8}
    values |= {"response_prompt_tokens": 0, "response_completion_tokens": 0, "cost_usd": 0.0, "finished_at": 3.0}
    blank = FinishedRecord(number, "", values)
    save_records(store, "control0", [dataclasses.replace(blank, instance_id=each.id) for each in instances])
    measured = tables(visit("latency", run="control0"), "median_ms")[0]
    abstain: Any = measured[measured["mitigation"] == "always abstain"].set_index("stage")
    assert abstain.loc["model response", "n"] == 0
    assert pd.isna(abstain.loc["model response", "mean_ms"])
    assert abstain.loc["total", "mean_ms"] == 5.0
