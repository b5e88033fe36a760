"""Figures of agreement, calibration and rankings: what is drawn, what is said of it, and nothing read as markup."""

import math
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import pytest

from opbench.analysis import reviewing
from opbench.analysis.stability import CORRELATION_COLUMNS, ORDER_COLUMNS
from opbench.calibration import ceiling as ceilings
from opbench.calibration import pairs, position, selfconsistency, statistics, traps
from opbench.figures import agreement, calibration, stability

NAN = float("nan")
NASTY = "<b onclick=x>‮judge</b>"


def frame(columns: Any, *rows: dict[str, Any]) -> pd.DataFrame:
    return pd.DataFrame([dict.fromkeys(columns, NAN) | row for row in rows], columns=list(columns))


def words(figure: go.Figure) -> str:
    """All that can be read in it, hover included."""
    return str(figure.to_json()).encode().decode("unicode_escape")


def hovers(figure: go.Figure) -> list[str]:
    return [str(each) for trace in figure.data for each in (trace.customdata if trace.customdata is not None else ())]


def order(*rows: tuple[str, str, str, float, int]) -> pd.DataFrame:
    return frame(
        ORDER_COLUMNS,
        *(
            {"label": label, "rule": rule, "control": label == "random", "model": "m", "memory": memory}
            | {"mitigation": "none", "op": op, "place": place, "n": 20, "users": 6}
            for label, rule, memory, op, place in rows
        ),
    )


def test_lines_lead_through_the_places() -> None:
    table = order(
        ("offline", "task-mean", "base", 90.0, 1),
        ("offline", "task-mean", "rag", 50.0, 2),
        ("random", "task-mean", "base", 40.0, 2),
        ("random", "task-mean", "rag", 60.0, 1),
    )
    figure = stability.places(table, ["base", "rag"])
    base, rag = figure.data
    assert list(base.x) == [1, 2]
    assert list(rag.x) == [2, 1]
    assert base.y[1] == "random (control)<br><sub>task-mean</sub>"
    assert "place 1, 90.0 points<br>n = 20 instances of 6 users" in hovers(figure)[0]
    assert base.line.color != rag.line.color
    assert base.marker.symbol != rag.marker.symbol


def test_a_shared_place_is_said_and_its_dots_lie_beside_each_other() -> None:
    table = order(("offline", "task-mean", "base", 50.0, 1), ("offline", "task-mean", "rag", 50.0, 1))
    figure = stability.places(table, ["base", "rag"])
    assert [list(trace.x) for trace in figure.data] == [[1], [2]]
    assert all("place 1 (shared)" in hover for hover in hovers(figure))


def test_correlations_have_a_panel_of_judges_and_one_of_rules() -> None:
    row: dict[str, Any] = {"tau_low": NAN, "tau_high": NAN, "spearman": 0.7, "spearman_low": NAN, "spearman_high": NAN}
    row |= {"kept": 2, "pairs": 3, "control": False, "note": "2 users, an interval needs 5"}
    table = frame(
        CORRELATION_COLUMNS,
        {"first_label": "offline", "first_rule": "task-mean", "second_label": NASTY, "second_rule": "task-mean"}
        | {"tau": 1 / 3}
        | row,
        {"first_label": "offline", "first_rule": "task-mean", "second_label": "offline", "second_rule": "instance"}
        | {"tau": -0.5}
        | row,
    )
    figure = stability.correlations(table, "offline", "task-mean")
    judges, rules = figure.data
    assert judges.z[0][1] == judges.z[1][0] == pytest.approx(1 / 3)
    assert judges.text[0][1] == "0.33"
    assert rules.text[0][1] == "−0.50"
    assert "n = 2 of 3 pairs in the same order<br>2 users, an interval needs 5" in judges.customdata[0][1]
    assert "<b onclick" not in words(figure)


def test_growth_has_a_band_where_there_is_an_interval() -> None:
    rows = [
        {"made_at": 0.0, "answers": 4, "doubly": 2, "percent": 50.0, "alpha": 0.1},
        {
            "made_at": 60.0,
            "answers": 40,
            "doubly": 20,
            "percent": 80.0,
            "alpha": 0.6,
            "alpha_low": 0.3,
            "alpha_high": 0.8,
        },
    ]
    figure = agreement.agreement_growth(frame(reviewing.GROWTH_COLUMNS, *rows))
    band, alpha, percent = figure.data
    assert list(band.x) == [40, 40]
    assert list(alpha.y) == [0.1, 0.6]
    assert list(percent.y) == [50.0, 80.0]
    assert "alpha 0.60, 0.30 to 0.80 (95 %)<br>80.0 % alike<br>n = 20 items with two answers" in hovers(figure)[1]
    assert agreement.agreement_growth(frame(reviewing.GROWTH_COLUMNS)).data


def test_agreement_by_subtype_is_hollow_without_an_interval() -> None:
    row = {"group": "baiting", "doubly": 3, "score_units": 0, "kappa": 0.4, "alpha": NAN, "score_alpha": NAN}
    figure = agreement.agreement_by(frame(reviewing.AGREEMENT_COLUMNS, row | {"note": "kappa: 3 items"}))
    (kappa,) = figure.data
    assert kappa.marker.color == "rgba(0,0,0,0)"
    assert "0.40, no interval<br>n = 3 items with two answers<br>kappa: 3 items" in hovers(figure)[0]
    assert sum("n/a" in str(note.text) for note in figure.layout.annotations) == 2


def test_pairs_of_reviewers_that_share_nothing_are_empty() -> None:
    rows = [
        {"first": "Ann", "second": "Ben", "n": 4, "percent": 75.0, "kappa": 0.5, "note": ""},
        {"first": "Ann", "second": NASTY, "n": 2, "percent": 50.0, "kappa": NAN, "note": "kappa isn't defined"},
    ]
    figure = agreement.pair_matrix(frame(reviewing.PAIR_COLUMNS, *rows))
    (cells,) = figure.data
    names = list(cells.x)
    ben, other = names.index("Ben"), 2 - names.index("Ann") - names.index("Ben") + 1
    assert cells.text[names.index("Ann")][ben] == "0.50"
    assert cells.customdata[ben][other] == "no item of both"
    assert "<b onclick" not in words(figure)


def judged(**more: Any) -> dict[str, Any]:
    return {
        "judging": "j1",
        "label": NASTY,
        "judge": "m",
        "item": "op/1",
        "subtype": "baiting",
        "people": 0.2,
        "raters": 2,
        "value": 0.6,
        "residual": 0.4,
    } | more


def test_judges_beside_people() -> None:
    row = {"judging": "j1", "label": NASTY, "group": "all", "n": 20, "missing": 3, "clusters": 10, "note": ""}
    row |= {"spearman": 0.5, "spearman_low": 0.1, "spearman_high": 0.8, "pearson": NAN}
    table = frame(statistics.COLUMNS, row)
    figure = calibration.correlations(table)
    assert figure.data[0].x[0] == 0.5
    assert "n = 20 responses to 10 questions, 3 without a score" in hovers(figure)[0]
    assert [note.text for note in figure.layout.annotations] == ["n/a"]
    assert "<b onclick" not in words(figure)
    assert "n/a" in [note.text for note in calibration.errors(table).layout.annotations]


def test_a_dot_a_response_and_equal_ones_moved_apart() -> None:
    table = frame(pairs.COLUMNS, judged(), judged(item="op/2"), judged(item="op/3", value=NAN, residual=NAN))
    figure = calibration.people_and_judge(table)
    dots = figure.data[1]
    assert len(dots.x) == 2
    assert max(abs(x - 0.2) for x in dots.x) <= 0.0121
    assert (dots.x[0], dots.y[0]) != (dots.x[1], dots.y[1])
    assert "people 0.20 (n = 2), judge 0.60, +0.40" in hovers(figure)[0]


def test_residuals_by_subtype_with_their_mean() -> None:
    means = frame(statistics.COLUMNS, {"group": "baiting", "error": 0.4, "n": 1, "note": "1 question"})
    figure = calibration.residuals(frame(pairs.COLUMNS, judged()), means)
    dot, mean = figure.data
    assert list(dot.x) == [0.4]
    assert list(mean.x) == [0.4]
    assert mean.marker.color == "rgba(0,0,0,0)"
    assert "mean +0.40, no interval<br>n = 1<br>1 question" in mean.customdata[0]


def test_traps_bias_repeats_and_ceiling() -> None:
    trap = {
        "label": NASTY,
        "kind": "vague",
        "wrong": True,
        "n": 10,
        "rate": 30.0,
        "low": 10.8,
        "high": 60.3,
        "note": "",
    }
    figure = calibration.acceptance(frame(traps.COLUMNS, trap))
    assert "(wrong on purpose)<br>30.0 % accepted, 10.8 to 60.3 (95 %)<br>n = 10" in hovers(figure)[0]
    shape = {"label": "m", "effect": "position: fact last", "answers": "right", "n": 8, "difference": -12.5, "note": ""}
    figure = calibration.bias(frame(position.COLUMNS, shape | {"with_it": 50.0, "without": 62.5}))
    assert "−12.5 points, no interval<br>62.5 % → 50.0 %<br>n = 8 questions" in hovers(figure)[0]
    again = {"label": "m", "same": 80.0, "same_low": 60.0, "same_high": 90.0, "n": 20, "repeats": 3, "spread": 0.05}
    figure = calibration.consistency(frame(selfconsistency.COLUMNS, again | {"largest": 0.3, "note": ""}))
    assert "80.0 % the same over 3 repeats<br>spread 0.05, largest difference 0.30<br>n = 20" in hovers(figure)[0]
    gold = {"category": "temporal", "questions": 100, "wrong_gold": 8, "debatable": 2, "ceiling": 92.0}
    figure = calibration.ceiling(frame(ceilings.COLUMNS, gold | {"without_debatable": 94.0, "kinds": "wrong date 6"}))
    assert [list(trace.x) for trace in figure.data] == [[92.0], [94.0]]
    assert "92.0 % at most<br>8 wrong of n = 100 questions<br>wrong date 6" in hovers(figure)[0]


def test_numbers_are_written_with_a_minus_and_without_a_negative_nothing() -> None:
    assert agreement.coefficient(-0.253) == "−0.25"
    assert agreement.coefficient(-0.0001) == "0.00"
    assert agreement.coefficient(math.nan) == "n/a"
