"""Trade-off, prices and oracle gap of a run of twelve users, worked out by hand (`tests/pages/wide_run.py`)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from opbench.analysis import published
from opbench.analysis.gap import gap_table
from opbench.analysis.grids import score_grid
from opbench.analysis.intervals import paired_difference
from opbench.analysis.latency import latency, spending
from opbench.analysis.locomo import locomo_table
from opbench.analysis.op import op_table
from opbench.analysis.prices import with_prices
from opbench.analysis.tradeoff import front, tradeoff, verdict
from opbench.store.database import open_store
from opbench.store.reading import read_run
from opbench.store.rundata import RunData
from tests.pages.wide_run import write_wide

NAN = float("nan")


@pytest.fixture
def wide(tmp_path: Path) -> Iterator[RunData]:
    store = open_store(f"sqlite:///{tmp_path / 'store.sqlite3'}")
    yield read_run(store, write_wide(store))
    store.close()


def pick(frame: pd.DataFrame, memory: str, mitigation: str) -> dict[str, Any]:
    (row,) = frame[(frame["memory"] == memory) & (frame["mitigation"] == mitigation)].to_dict("records")
    return {str(name): value for name, value in row.items()}


def test_the_same_change_of_all_users_is_exact(wide: RunData) -> None:
    reminder = pick(tradeoff(wide, "task-mean"), "rag", "reminder")
    assert [reminder[f"op_{name}"] for name in ("change", "low", "high")] == pytest.approx([20.0] * 3)
    assert [reminder[f"locomo_{name}"] for name in ("change", "low", "high")] == pytest.approx([-15.0] * 3)
    # Holm over the four comparisons of post-processors, two of which (on random memories) have p = 1.
    # All 12 users go one way: 2 of 2^12 by chance. LoCoMo's 6: 2 of 64, and four times that isn't below 5 %.
    assert reminder["op_p"] == 1 / 2048
    assert reminder["op_p_holm"] == pytest.approx(4 / 2048)
    assert (reminder["locomo_p"], reminder["locomo_p_holm"]) == (1 / 32, pytest.approx(4 / 32))
    assert (reminder["op_verdict"], reminder["locomo_verdict"]) == ("better", "not distinguishable")
    assert (reminder["op_users"], reminder["locomo_users"]) == (12, 6)
    assert (reminder["op_n"], reminder["locomo_n"]) == (144, 12)


def test_what_goes_up_and_down_by_conversation_is_not_distinguishable(wide: RunData) -> None:
    marag = pick(tradeoff(wide, "instance"), "rag", "marag")
    # Half of the users + 10, half − 10: 0 in the mean, and as far from 0 as any draw.
    assert marag["op_change"] == pytest.approx(0.0)
    assert marag["op_p"] == marag["op_p_holm"] == 1.0
    assert (marag["op_verdict"], marag["locomo_verdict"]) == ("not distinguishable", "not distinguishable")
    assert marag["op_low"] == pytest.approx(-marag["op_high"])
    # Twelve differences of ± 10: a standard error of 10 / √11, and about 2.2 of it (t with 11 degrees: 2.20).
    assert marag["op_high"] == pytest.approx(2.2 * 10 / math.sqrt(11), rel=0.15)


def test_in_percent_interval_and_change_turn_and_the_verdict_stays(wide: RunData) -> None:
    reminder = pick(tradeoff(wide, "task-mean", "relative"), "rag", "reminder")
    assert [reminder[f"op_{name}"] for name in ("change", "low", "high")] == pytest.approx([40.0] * 3)
    assert reminder["op_points"] == pytest.approx(20.0)
    assert reminder["locomo_change"] == pytest.approx(-25.0)
    assert reminder["op_p_holm"] == pytest.approx(4 / 2048)


def test_controls_are_apart_and_include_random_and_no_memories(wide: RunData) -> None:
    frame = tradeoff(wide, "task-mean")
    controls = frame[frame["control"]]
    assert list(zip(controls["memory"], controls["mitigation"], strict=True)) == [
        ("rag", "abstain"),
        ("random", "abstain"),
        ("rag", "random memories"),
        ("rag", "no memory (BASE)"),
    ]
    assert controls["op_change"].tolist() == pytest.approx([45.0, 35.0, 10.0, 40.0])
    assert controls["locomo_change"].tolist() == pytest.approx([-60.0, -30.0, -30.0, -50.0])
    # A family of its own: four controls, all with the least p that 12 users can have.
    assert controls["op_p_holm"].tolist() == pytest.approx([4 / 2048] * 4)


def test_the_interval_of_locomo_is_the_paired_difference_of_its_questions(wide: RunData) -> None:
    grid = score_grid(wide, "locomo", "f1")
    model = grid.keys[0][0]
    column, other = (grid.column((model, "rag", name)) for name in ("marag", "none"))
    assert column is not None
    assert other is not None
    alone = paired_difference(grid.values[:, column], grid.values[:, other], list(grid.instances["user"]))
    marag = pick(tradeoff(wide, "task-mean"), "rag", "marag")
    assert [marag["locomo_low"], marag["locomo_high"], marag["locomo_p"]] == pytest.approx(
        [alone.low, alone.high, alone.p]
    )


def test_changes_are_those_of_the_tables(wide: RunData) -> None:
    frame = tradeoff(wide, "category-macro")
    op, locomo = op_table(wide, "category-macro"), locomo_table(wide)
    for row in frame[~frame["control"]].to_dict("records"):
        of_op = pick(op, row["memory"], row["mitigation"])
        of_locomo = pick(locomo, row["memory"], row["mitigation"])
        assert row["op_change"] == pytest.approx(of_op["op_change_points"])
        assert row["locomo_change"] == pytest.approx(of_locomo["change_points"])


def test_a_few_users_have_changes_and_no_verdict(run: RunData) -> None:
    frame = tradeoff(run, "task-mean")
    reminder = pick(frame, "rag", "reminder")
    assert reminder["op_change"] == pytest.approx(21.25)
    assert math.isnan(reminder["op_low"])
    assert reminder["op_verdict"] == "can't be told"
    assert reminder["op_interval_note"] == "2 users, an interval needs 5"
    assert pick(frame, "rag", "marag")["op_verdict"] == ""


def test_scores_of_first_speakers_only_have_half_the_users(wide: RunData) -> None:
    reminder = pick(tradeoff(wide, "task-mean", first_only=True), "rag", "reminder")
    assert (reminder["op_users"], reminder["op_n"]) == (6, 72)


def test_verdicts() -> None:
    assert [verdict(3.0, 0.05), verdict(-3.0, 0.01), verdict(3.0, 0.051)] == ["better", "worse", "not distinguishable"]
    assert [verdict(NAN, NAN), verdict(3.0, NAN)] == ["", "can't be told"]


def test_front_by_hand() -> None:
    scores = np.array([[20.0, 9.9], [18.0, 10.8], [17.2, 2.5], [20.0, 9.0], [1.2, 13.1], [NAN, 99.0]])
    assert front(scores).tolist() == [True, True, False, False, True, False]


# Prices ------------------------------------------------------------------------------------------------------------


def test_what_a_point_costs(wide: RunData) -> None:
    frame = with_prices(tradeoff(wide, "task-mean"), latency(wide), spending(wide))
    reminder, marag, abstain = (pick(frame, "rag", name) for name in ("reminder", "marag", "abstain"))
    # 15 LoCoMo points, 0.4 s and $0.002 a question for 20 points on OP-Bench.
    assert reminder["locomo_per_op"] == pytest.approx(0.75)
    assert (reminder["seconds"], reminder["seconds_per_op"]) == (pytest.approx(0.4), pytest.approx(0.02))
    assert (reminder["usd_per_1000"], reminder["usd_per_op"]) == (pytest.approx(2.0), pytest.approx(0.1))
    assert reminder["price_note"] == "the LoCoMo change isn't distinguishable from none"
    # Abstaining asks nobody; random memories are no post-processor and have no time of it.
    assert abstain["seconds"] == 0.0
    assert math.isnan(pick(frame, "rag", "random memories")["seconds"])
    assert math.isnan(marag["locomo_per_op"])
    assert marag["price_note"] == "OP-Bench isn't improved: no price"
    assert (reminder["pareto"], marag["pareto"]) == (True, False)


def test_no_price_where_nothing_is_gained() -> None:
    frame = published.tradeoff()
    frame["op_points"] = [-1.0, 0.0, *frame["op_points"].iloc[2:]]
    priced = with_prices(frame, published.latency())
    assert priced["price_note"].tolist()[:3] == ["OP-Bench isn't improved: no price"] * 2 + [""]
    assert priced[["locomo_per_op", "seconds_per_op", "usd_per_op"]].iloc[:2].isna().all(axis=None)


def test_a_gain_that_may_be_nothing_has_no_price() -> None:
    frame = published.tradeoff()
    verdicts = ["not distinguishable", "can't be told", "better", "better"]
    frame["op_points"] = 2.0
    frame["locomo_points"] = -1.0
    frame["op_verdict"] = [*verdicts, *frame["op_verdict"].iloc[4:]]
    frame["locomo_verdict"] = ["worse", "worse", "not distinguishable", "worse", *frame["locomo_verdict"].iloc[4:]]
    priced = with_prices(frame, published.latency()).iloc[:4]
    assert priced["locomo_per_op"].tolist() == pytest.approx([NAN, 0.5, 0.5, 0.5], nan_ok=True)
    assert priced["seconds_per_op"].isna().tolist() == [True, False, False, False]
    assert priced["price_note"].tolist() == [
        "the gain isn't distinguishable from none: no price",
        "whether the gain is more than chance can't be told",
        "the LoCoMo change isn't distinguishable from none",
        "",
    ]


def test_published_prices_by_hand() -> None:
    shot = pick(with_prices(published.tradeoff(), published.latency()), "mem0", "few-shot-cot")
    assert shot["seconds"] == pytest.approx(3.20949)
    assert shot["seconds_per_op"] == pytest.approx(3.20949 / 20)
    # LoCoMo gains 9.9: nothing is lost.
    assert shot["locomo_per_op"] == pytest.approx(-9.9 / 20)
    assert math.isnan(shot["usd_per_op"])
    assert (shot["pareto"], shot["op_verdict"], shot["op_interval_note"]) == (True, "", "no intervals are published")


# Oracle gap --------------------------------------------------------------------------------------------------------


def test_gap_closed_by_half_is_exact(wide: RunData) -> None:
    frame = gap_table(wide, "task-mean")
    reminder = pick(frame, "rag", "reminder")
    # RAG 50, oracle 90, reminder 70, for each user.
    assert [reminder[f"gap_{name}"] for name in ("closed", "low", "high")] == pytest.approx([0.5] * 3)
    assert reminder["gap_p_holm"] == pytest.approx(4 / 2048)
    assert (reminder["gap_users"], reminder["gap_n"], reminder["words"]) == (12, 144, "closes a part of the gap")
    assert pick(frame, "rag", "marag")["words"] == "not distinguishable from no post-processor"
    assert pick(frame, "rag", "abstain")["words"] == "control: goes beyond the oracle"
    assert pick(frame, "base", "none")["words"] == "the oracle"


def test_gap_of_one_subtype(wide: RunData) -> None:
    rows = wide.scores["instance"].str.contains("/baiting/") & (wide.scores["mitigation"] == "reminder")
    scores = wide.scores.assign(value=wide.scores["value"].mask(rows & (wide.scores["memory"] == "rag"), 0.3))
    frame = gap_table(dataclasses.replace(wide, scores=scores), "task-mean", subtype="baiting")
    reminder = pick(frame, "rag", "reminder")
    # Baiting alone: from 50 to 30, the oracle at 90.
    assert reminder["op"] == pytest.approx(30.0)
    assert reminder["gap_closed"] == pytest.approx(-0.5)
    assert (reminder["n_planned"], reminder["n_scored"], reminder["gap_n"]) == (24, 24, 24)
    assert reminder["words"] == "widens the gap: worse than no post-processor"


def test_no_gap_to_close_is_said(wide: RunData) -> None:
    scores = wide.scores.assign(value=wide.scores["value"].mask(wide.scores["memory"] == "base", 0.1))
    users = wide.user_scores.assign(value=wide.user_scores["value"].mask(wide.user_scores["memory"] == "base", 0.1))
    reminder = pick(
        gap_table(dataclasses.replace(wide, scores=scores, user_scores=users), "instance"), "rag", "reminder"
    )
    assert math.isnan(reminder["gap_closed"])
    assert math.isnan(reminder["gap_low"])
    assert reminder["words"] == "no gap to close: oracle 10.00, memory system 50.00"


def test_a_gap_that_is_not_distinguishable_from_none_has_a_share_and_no_interval(wide: RunData) -> None:
    # BASE is 40 points above RAG for one half of the conversations and 38 below it for the other: 1 in the mean.
    odd = wide.scores["instance"].str.contains(r"conv-[135]", regex=True)
    value = wide.scores["value"].mask(wide.scores["memory"] == "base", np.where(odd, 0.9, 0.12))
    odd_users = wide.user_scores["user"].str.contains(r"conv-[135]", regex=True)
    of_users = wide.user_scores["value"].mask(wide.user_scores["memory"] == "base", np.where(odd_users, 0.9, 0.12))
    changed = dataclasses.replace(
        wide, scores=wide.scores.assign(value=value), user_scores=wide.user_scores.assign(value=of_users)
    )
    reminder = pick(gap_table(changed, "task-mean"), "rag", "reminder")
    assert reminder["gap_closed"] == pytest.approx(20.0)
    assert math.isnan(reminder["gap_low"])
    assert reminder["interval_note"] == "the gap itself isn't distinguishable from none"
    assert reminder["words"] == (
        "goes beyond the oracle (by the averages: the gap itself isn't distinguishable from none)"
    )


def test_a_subtype_that_the_slice_has_none_of_is_said(run: RunData) -> None:
    smaller = dataclasses.replace(run, instances=run.instances[run.instances["subtype"] != "baiting"])
    frame = gap_table(smaller, "instance", subtype="baiting")
    assert set(frame["missing"]) == {"the slice has no baiting instance"}
    assert frame["op"].isna().all()
