"""LoCoMo tables and the trade-off of the run in conftest.py, worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from opbench.analysis.differences import Side, pair
from opbench.analysis.locomo import locomo_table
from opbench.analysis.tradeoff import tradeoff
from opbench.protocol import headline_metric
from opbench.store.rundata import RunData
from opbench.study import make_study

Row = Callable[[pd.DataFrame, tuple[str, str, str]], dict[str, Any]]
BASE = ("m", "base", "none")
RAG = ("m", "rag", "none")
REMINDER = ("m", "rag", "reminder")
MARAG = ("m", "rag", "marag")


def test_categories_and_overall(run: RunData, row: Row) -> None:
    rag = row(locomo_table(run), RAG)
    assert rag["multi-hop"] == pytest.approx(30)
    assert rag["single-hop"] == pytest.approx(80)
    assert math.isnan(rag["temporal"])
    # Adversarial questions stand apart: (20 + 40 + 60 + 100) / 4.
    assert rag["overall"] == pytest.approx(55)
    assert rag["adversarial"] == pytest.approx(50)
    assert (rag["n_planned"], rag["n_scored"]) == (4, 4)
    assert (rag["adversarial_n_planned"], rag["adversarial_n_scored"]) == (1, 1)


def test_a_mean_over_some_of_the_categories_says_which_are_not_there(
    run: RunData, row: Row, changed: Callable[..., RunData]
) -> None:
    # The slice has multi-hop, single-hop and adversarial questions, which never count.
    assert set(locomo_table(run)["left_out"]) == {"temporal, open-domain"}
    frame = tradeoff(run, "task-mean").set_index("mitigation")
    assert frame.loc["reminder", "locomo_note"] == "paired, without temporal, open-domain"
    found = pair(Side(run, RAG), Side(run, REMINDER))
    assert found.remarks == ("The LoCoMo mean is over a part of the benchmark: not both plan temporal, open-domain.",)
    without = changed(instances=run.instances[run.instances["benchmark"] == "op"])
    assert set(locomo_table(without)["left_out"]) == {""}, "no mean, and so no partial one"


def test_change_is_paired(run: RunData, row: Row) -> None:
    reminder = row(locomo_table(run), REMINDER)
    # lo-2 failed for the reminder: (10 + 60 + 80) / 3 = 50 against (20 + 60 + 100) / 3 = 60.
    assert reminder["change_points"] == pytest.approx(-10)
    assert reminder["change_relative"] == pytest.approx(-100 / 6)
    assert reminder["n_paired"] == 3
    assert reminder["n_scored"] == 3


def test_nothing_scored_is_missing(run: RunData, row: Row) -> None:
    marag = row(locomo_table(run), MARAG)
    assert math.isnan(marag["overall"])
    assert marag["missing"] == "nothing scored: multi-hop, single-hop, adversarial"
    assert math.isnan(marag["change_points"])
    assert marag["pairing"] == "nothing scored by both"


def test_a_reference_of_zero_has_a_change_in_points_only(
    changed: Callable[..., RunData], run: RunData, row: Row
) -> None:
    scores = run.scores.copy()
    scores.loc[(scores["mitigation"] == "none") & (scores["metric"] == "f1"), "value"] = 0.0
    reminder = row(locomo_table(changed(scores=scores)), REMINDER)
    assert reminder["change_points"] == pytest.approx(50)
    assert math.isnan(reminder["change_relative"])


def test_headline_is_f1_for_the_offline_judge_and_correct_for_an_llm(
    changed: Callable[..., RunData], run: RunData, row: Row
) -> None:
    assert headline_metric(run.study) == "f1"
    assert set(locomo_table(run)["metric_label"]) == {"token F1"}
    judged = changed(
        study=make_study({"models": ["m"], "judge": "gpt-4o-mini"}),
        scores=run.scores.assign(judge="gpt-4o-mini").replace({"metric": {"f1": "correct"}}),
    )
    assert headline_metric(judged.study) == "correct"
    rag = row(locomo_table(judged), RAG)
    assert rag["metric_label"] == "judged correct (gpt-4o-mini)"
    assert rag["overall"] == pytest.approx(55)
    assert math.isnan(row(locomo_table(judged, metric="bleu1"), RAG)["overall"])


def test_tradeoff_joins_both_benchmarks(run: RunData, row: Row) -> None:
    frame = tradeoff(run, "task-mean")
    assert list(frame["mitigation"]) == ["reminder", "marag", "no memory (BASE)"]
    assert list(frame["control"]) == [False, False, True]
    reminder = row(frame, REMINDER)
    assert reminder["op_change"] == pytest.approx(21.25)
    assert reminder["locomo_change"] == pytest.approx(-10)
    assert (reminder["op_n"], reminder["op_n_planned"]) == (9, 13)
    assert (reminder["locomo_n"], reminder["locomo_n_planned"]) == (3, 4)
    assert (reminder["unit"], reminder["source"], reminder["comparable"]) == ("points", "measured", False)
    marag = row(frame, MARAG)
    assert math.isnan(marag["op_change"])
    assert math.isnan(marag["locomo_change"])
    assert marag["op_note"] == "nothing scored by both: baiting"


def test_tradeoff_in_percent(run: RunData, row: Row) -> None:
    reminder = row(tradeoff(run, "task-mean", kind="relative"), REMINDER)
    assert reminder["op_change"] == pytest.approx(100 * 21.25 / 33.75)
    assert reminder["locomo_change"] == pytest.approx(-100 / 6)
    assert reminder["unit"] == "% of the memory system"


def test_tradeoff_of_a_study_without_locomo_says_so(changed: Callable[..., RunData], run: RunData, row: Row) -> None:
    only_op = changed(instances=run.instances[run.instances["benchmark"] == "op"])
    reminder = row(tradeoff(only_op, "task-mean"), REMINDER)
    assert reminder["op_change"] == pytest.approx(21.25)
    assert math.isnan(reminder["locomo_change"])
    assert reminder["locomo_note"] == "the slice has no LoCoMo question"
