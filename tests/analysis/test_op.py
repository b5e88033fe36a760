"""OP tables of the run in conftest.py, every number worked out by hand."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from opbench.analysis.op import SUBSCORE_COLUMNS, op_subscores, op_table
from opbench.analysis.tradeoff import tradeoff
from opbench.errors import UsageError
from opbench.store.rundata import RunData

Row = Callable[[pd.DataFrame, tuple[str, str, str]], dict[str, Any]]
BASE = ("m", "base", "none")
RAG = ("m", "rag", "none")
REMINDER = ("m", "rag", "reminder")
MARAG = ("m", "rag", "marag")


def subscores(row: dict[str, Any]) -> list[float]:
    return [row[column] for column in SUBSCORE_COLUMNS.values()]


def test_subscores_are_points_over_what_is_scored(run: RunData, row: Row) -> None:
    table = op_table(run, "task-mean")
    assert subscores(row(table, BASE)) == pytest.approx([100, 90, 70, 80, 60, 50])
    assert subscores(row(table, RAG)) == pytest.approx([60, 20, 50, 40, 20, 20])
    assert subscores(row(table, REMINDER)) == pytest.approx([70, 75, 50, 60, 20, 40])


def test_counts_say_what_is_missing(run: RunData, row: Row) -> None:
    table = op_table(run, "task-mean")
    assert [row(table, key)["n_planned"] for key in (BASE, RAG, REMINDER)] == [13, 13, 13]
    # RAG: one baiting score is missing. Reminder: ff-B failed, and user B's repetition (2 responses) has no value.
    assert [row(table, key)["n_scored"] for key in (BASE, RAG, REMINDER)] == [13, 12, 10]


@pytest.mark.parametrize(
    ("rule", "average"),
    [("task-mean", 80.0), ("instance", 970 / 13), ("category-macro", (95 + 70 + 190 / 3) / 3)],
)
def test_the_average_follows_the_rule(run: RunData, row: Row, rule: Any, average: float) -> None:
    base = row(op_table(run, rule), BASE)
    assert base["op"] == pytest.approx(average)
    assert base["rule"] == rule


def test_change_is_over_instances_that_both_have(run: RunData, row: Row) -> None:
    reminder = row(op_table(run, "task-mean"), REMINDER)
    # Shared: ff-A (70, 50), ba-A (60, 20), user A's repetition (50, 40), all of sycophancy (40, 25).
    assert reminder["op_change_points"] == pytest.approx(55 - 33.75)
    assert reminder["op_change_relative"] == pytest.approx(100 * 21.25 / 33.75)
    assert reminder["n_paired"] == 1 + 1 + 3 + 1 + 1 + 2
    assert reminder["pairing"] == "paired"
    # The difference of the unpaired averages would be another number.
    assert reminder["op"] - 38.75 == pytest.approx(20.0)


def test_gap_closed_is_over_instances_that_all_three_have(run: RunData, row: Row) -> None:
    reminder = row(op_table(run, "task-mean"), REMINDER)
    # BASE over the same: 100, 100, 60, 60 -> 80.
    assert reminder["gap_closed"] == pytest.approx((55 - 33.75) / (80 - 33.75))
    assert reminder["gap_n"] == 9
    assert reminder["gap_reason"] == ""


def test_drop_below_base_is_paired_too(run: RunData, row: Row) -> None:
    rag = row(op_table(run, "task-mean"), RAG)
    # ba-B isn't scored for RAG, so BASE's baiting is 100 here: (100 + 100 + 70 + 60) / 4 = 82.5 against 38.75.
    assert rag["drop_relative"] == pytest.approx(100 * (82.5 - 38.75) / 82.5)
    assert rag["drop_n"] == 12


def test_a_row_without_any_baiting_score_has_no_average(run: RunData, row: Row) -> None:
    marag = row(op_table(run, "task-mean"), MARAG)
    assert math.isnan(marag["op"])
    assert math.isnan(marag["baiting"])
    assert marag["missing"] == "nothing scored: baiting"
    assert math.isnan(marag["op_change_points"])
    assert marag["pairing"] == "nothing scored by both: baiting"
    assert math.isnan(marag["gap_closed"])
    assert marag["gap_reason"] == "nothing scored by all three: baiting"


def test_reference_rows_have_no_change(run: RunData, row: Row) -> None:
    table = op_table(run, "task-mean")
    for key in (BASE, RAG):
        assert math.isnan(row(table, key)["op_change_points"])
        assert row(table, key)["pairing"] == "reference"


def test_no_shared_instance_is_missing_not_zero(changed: Callable[..., RunData], run: RunData, row: Row) -> None:
    ours = (run.scores["mitigation"] == "reminder") & (run.scores["instance"] == "ba-A")
    table = op_table(changed(scores=run.scores[~ours]), "task-mean")
    reminder = row(table, REMINDER)
    assert not math.isnan(reminder["op"])  # it has ba-B, which RAG hasn't
    assert math.isnan(reminder["op_change_points"])
    assert reminder["pairing"] == "nothing scored by both: baiting"


def test_first_speakers_only(run: RunData, row: Row) -> None:
    table = op_table(run, "task-mean", first_only=True)
    base = row(table, BASE)
    # User A: ff 100, baiting 100, repetition 60, fact 80, memory 40; no value-level instance.
    assert base["n_planned"] == 7
    assert base["op"] == pytest.approx((100 + 100 + 60 + 60) / 4)
    assert base["partial"]
    assert base["left_out"] == "value"
    assert math.isnan(base["value_level"])


def test_a_slice_without_a_subtype_is_partial(changed: Callable[..., RunData], run: RunData, row: Row) -> None:
    smaller = changed(instances=run.instances[run.instances["subtype"] != "repetition"])
    base = row(op_table(smaller, "task-mean"), BASE)
    assert base["partial"]
    assert base["left_out"] == "repetition"
    assert base["n_planned"] == 8
    assert base["op"] == pytest.approx((100 + 90 + 60) / 3)
    assert not row(op_table(run, "task-mean"), BASE)["partial"]


def test_without_base_there_is_no_gap(changed: Callable[..., RunData], run: RunData, row: Row) -> None:
    rest = run.configurations[run.configurations["memory"] != "base"]
    reminder = row(op_table(changed(configurations=rest), "task-mean"), REMINDER)
    assert math.isnan(reminder["gap_closed"])
    assert reminder["gap_reason"] == "no oracle: BASE of m isn't in the study"
    assert reminder["op_change_points"] == pytest.approx(21.25)


def test_without_the_plain_memory_system_there_is_no_change(
    changed: Callable[..., RunData], run: RunData, row: Row
) -> None:
    plain = (run.configurations["memory"] == "rag") & (run.configurations["mitigation"] == "none")
    reminder = row(op_table(changed(configurations=run.configurations[~plain]), "task-mean"), REMINDER)
    assert math.isnan(reminder["op_change_points"])
    assert reminder["pairing"] == "not in the study: m · rag · none"
    assert reminder["gap_reason"] == "rag without post-processor isn't in the study"


def test_a_memory_system_above_the_oracle_has_no_gap_to_close(
    changed: Callable[..., RunData], run: RunData, row: Row
) -> None:
    scores, users = run.scores.copy(), run.user_scores.copy()
    scores.loc[scores["memory"] == "base", "value"] = 0.0
    users.loc[users["memory"] == "base", "value"] = 0.0
    reminder = row(op_table(changed(scores=scores, user_scores=users), "task-mean"), REMINDER)
    assert math.isnan(reminder["gap_closed"])
    assert reminder["gap_reason"] == "no gap to close: oracle 0.00, memory system 33.75"


def test_a_method_that_makes_it_worse_closes_a_negative_share(
    changed: Callable[..., RunData], run: RunData, row: Row
) -> None:
    scores, users = run.scores.copy(), run.user_scores.copy()
    scores.loc[scores["mitigation"] == "reminder", "value"] = 0.0
    users.loc[(users["mitigation"] == "reminder") & (users["user"] == "A"), "value"] = 0.0
    reminder = row(op_table(changed(scores=scores, user_scores=users), "task-mean"), REMINDER)
    # Shared as before (ff-A, ba-A, user A): 0 against 33.75, oracle 80.
    assert reminder["gap_closed"] == pytest.approx(-33.75 / (80 - 33.75))
    assert reminder["op_change_relative"] == pytest.approx(-100.0)


def test_subscores_long_frame(run: RunData) -> None:
    frame = op_subscores(run)
    assert len(frame) == 4 * 6
    counts = ["n_planned", "n_scored", "users_planned", "users_scored"]
    found = {
        (row["mitigation"], row["subtype"]): row for row in frame[frame["memory"] == "rag"].to_dict(orient="records")
    }
    baiting, repetition = found["none", "baiting"], found["reminder", "repetition"]
    assert [baiting[name] for name in counts] == [2, 1, 2, 1]
    assert baiting["mean"] == pytest.approx(20)
    assert [repetition[name] for name in counts] == [5, 3, 2, 1]
    assert repetition["mean"] == pytest.approx(50)
    assert found["none", "memory"]["category"] == "sycophancy"


# Repetition between rows whose responses differ --------------------------------------------------------------------


def _with_missing_response(run: RunData) -> dict[str, pd.DataFrame]:
    """The reminder's third repetition response of user A failed, its first two are alike (repetition 0)."""
    records, users = run.records.copy(), run.user_scores.copy()
    gone = (records["mitigation"] == "reminder") & (records["instance"] == "re-A3")
    records.loc[gone, "status"] = "error"
    records.loc[gone, "response_ms"] = np.nan
    of_a = (users["mitigation"] == "reminder") & (users["user"] == "A")
    users.loc[of_a, "value"] = 0.0
    users.loc[of_a, "n"] = 2
    plain_a = (users["memory"] == "rag") & (users["mitigation"] == "none") & (users["user"] == "A")
    users.loc[plain_a, "value"] = 2 / 3
    return {"records": records, "user_scores": users}


def test_unequal_responses_are_told_when_there_are_no_embeddings(
    changed: Callable[..., RunData], run: RunData, row: Row
) -> None:
    reminder = row(op_table(changed(**_with_missing_response(run)), "task-mean"), REMINDER)
    assert reminder["pairing"] == "paired, but repetition of 1 user rests on different responses"
    # (70 + 60 + 0 + 40) / 4 against (50 + 20 + 66.67 + 25) / 4
    assert reminder["op_change_points"] == pytest.approx((170 - (95 + 200 / 3)) / 4)


def test_unequal_responses_are_computed_anew_from_embeddings(
    changed: Callable[..., RunData], run: RunData, row: Row
) -> None:
    east, north = np.array([1, 0], dtype=np.float32), np.array([0, 1], dtype=np.float32)
    # RAG's pairs of A have cosines 0, 0 and 1: repetition 1 − 1/3; over the first two responses alone it is 1.
    vectors = {
        (*RAG, "re-A1"): east,
        (*RAG, "re-A2"): north,
        (*RAG, "re-A3"): north,
        (*REMINDER, "re-A1"): east,
        (*REMINDER, "re-A2"): east,
        (*RAG, "re-B1"): east,
        (*RAG, "re-B2"): north,
        (*REMINDER, "re-B1"): east,
    }
    table = op_table(changed(**_with_missing_response(run), vectors=vectors), "task-mean")
    reminder = row(table, REMINDER)
    assert reminder["pairing"] == "paired"
    assert reminder["op_change_points"] == pytest.approx(((70 + 60 + 0 + 40) - (50 + 20 + 100 + 25)) / 4)
    assert reminder["n_paired"] == 1 + 1 + 2 + 1 + 1 + 2
    # The rows' own sub-scores stay as they were judged.
    assert row(table, RAG)["repetition"] == pytest.approx((200 / 3 + 60) / 2)


@pytest.mark.parametrize("vectors", [None, {}])
def test_a_value_that_rests_on_other_responses_than_are_known_is_told(
    changed: Callable[..., RunData], run: RunData, row: Row, vectors: dict[Any, Any] | None
) -> None:
    users = run.user_scores.copy()
    users.loc[(users["mitigation"] == "marag") & (users["user"] == "B"), "n"] = 1
    scores = run.scores.copy()
    scores.loc[(scores["mitigation"] == "marag") & (scores["instance"] == "ba-A"), "value"] = 0.9
    marag = row(op_table(changed(user_scores=users, scores=scores, vectors=vectors), "task-mean"), MARAG)
    assert marag["pairing"] == "paired, but repetition of 1 user rests on different responses"
    # Nothing is dropped: (90 · 4) / 4 against (60 + 20 + 50 + 25) / 4.
    assert marag["op_change_points"] == pytest.approx(90 - 38.75)


# Judges ------------------------------------------------------------------------------------------------------------


def test_several_judges_need_a_name(changed: Callable[..., RunData], run: RunData, row: Row) -> None:
    others = [run.scores.assign(judge=name, value=0.5) for name in ("x", "y")]
    with pytest.raises(UsageError, match=r"several judges \(x, y\)"):
        op_table(changed(scores=pd.concat(others)), "task-mean")
    both = changed(scores=pd.concat([run.scores, others[0]]))
    assert row(op_table(both, "task-mean"), BASE)["fully_irrelevant"] == pytest.approx(100)
    named = row(op_table(both, "task-mean", judge="x"), BASE)
    assert named["fully_irrelevant"] == pytest.approx(50)
    assert named["judge"] == "x"


def test_a_run_without_scores_is_all_missing(changed: Callable[..., RunData], run: RunData) -> None:
    table = op_table(changed(scores=run.scores.iloc[:0], user_scores=run.user_scores.iloc[:0]), "instance")
    assert len(table) == 4
    assert table["op"].isna().all()
    assert (table["n_scored"] == 0).all()


# Size --------------------------------------------------------------------------------------------------------------


def test_129600_records_take_less_than_a_second(run: RunData, changed: Callable[..., RunData]) -> None:
    """The full study: 40 configurations with post-processor and without, on 1,700 + 1,540 instances."""
    rng = np.random.default_rng(0)
    subtypes = np.repeat(
        ["fully-irrelevant", "baiting", "repetition", "fact", "value", "memory"], (318, 100, 882, 100, 100, 200)
    )
    users = np.array([f"u{number % 20}" for number in range(1700)])
    instances = pd.DataFrame(
        {
            "instance": [f"op/{number}" for number in range(1700)] + [f"locomo/{number}" for number in range(1540)],
            "ordinal": range(3240),
            "benchmark": ["op"] * 1700 + ["locomo"] * 1540,
            "user": [*users, *["u0"] * 1540],
            "first_speaker": [number % 2 == 0 for number in range(3240)],
            "subtype": [*subtypes, *["multi-hop"] * 1540],
        }
    )
    keys = [("m", "base", "none")] + [
        ("m", f"s{system}", mitigation) for system in range(13) for mitigation in ("none", "reminder", "marag")
    ]
    configurations = pd.DataFrame(keys, columns=["model", "memory", "mitigation"])
    grid = configurations.merge(instances[["instance"]], how="cross")
    assert len(grid) == 129_600
    scores = grid.assign(judge="offline", metric="score", value=rng.random(len(grid)), reason=None)
    by_user = configurations.merge(pd.DataFrame({"user": sorted(set(users))}), how="cross")
    user_scores = by_user.assign(judge="minilm", metric="repetition", value=0.5, n=44, reason=None)
    data = changed(
        instances=instances,
        configurations=configurations,
        records=grid.assign(status="done"),
        scores=scores,
        user_scores=user_scores,
    )
    start = time.process_time()
    table = op_table(data, "task-mean")
    assert time.process_time() - start < 1.0
    assert table["op"].notna().all()


def test_the_trade_off_names_what_the_slice_has_none_of(changed: Callable[..., RunData], run: RunData) -> None:
    smaller = changed(instances=run.instances[run.instances["subtype"] != "repetition"])
    assert set(tradeoff(smaller, "task-mean")["left_out"]) == {"repetition"}
    assert set(tradeoff(run, "task-mean")["left_out"]) == {""}
