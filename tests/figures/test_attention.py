"""Figures and sentences about attention: numbers on logarithmic axes, what is missing, whose text is text."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
import pytest

from opbench.figures import attention as figures
from opbench.figures.attention_answers import CHANCE, attention_answers, left_without, said

NAN = float("nan")


def ratio(
    memory: str, mitigation: str, value: float, low: float = NAN, high: float = NAN, n: int = 12, **more: Any
) -> dict[str, Any]:
    reason = "2 users, an interval needs 5" if math.isnan(low) and not math.isnan(value) else ""
    return {
        "model": "m",
        "memory": memory,
        "mitigation": mitigation,
        "value": value,
        "low": low,
        "high": high,
        "p": NAN,
        "n": n,
        "n_users": 2 if math.isnan(low) else 6,
        "reason": reason,
        "read": 12,
        "failed": NAN,
    } | more


def change(
    kind: str,
    measure: str,
    value: float,
    low: float = NAN,
    high: float = NAN,
    mitigation: str = "none",
    p_holm: float = 0.01,
) -> dict[str, Any]:
    row = ratio("rag", mitigation, value, low, high)
    before = {"memory": ("base", "none"), "random": ("random", "none"), "mitigation": ("rag", "none")}[kind]
    factor = "share" not in measure
    return row | {
        "kind": kind,
        "before_memory": before[0],
        "before_mitigation": before[1],
        "measure": measure,
        "factor": factor,
        "p_holm": p_holm,
        "tests": 6,
    }


CHANGE_COLUMNS = list(change("memory", "ratio", 1.0))
NO_CHANGES = pd.DataFrame(columns=CHANGE_COLUMNS)


def answer(ratios: list[dict[str, Any]], changes: list[dict[str, Any]]) -> str:
    (found,) = attention_answers(pd.DataFrame(ratios), pd.DataFrame(changes, columns=CHANGE_COLUMNS))
    return " ".join(found.sentences)


# Figures -------------------------------------------------------------------------------------------------------------


def test_ratios_by_task_stand_on_a_log_axis_with_a_line_at_one() -> None:
    frame = pd.DataFrame(
        [
            ratio("rag", "none", 2.0, 1.5, 2.6, subtype="fact"),
            ratio("rag", "none", 0.5, 0.4, 0.6, subtype="baiting"),
            ratio("random", "none", 1.0, subtype="fact"),
            ratio("base", "none", NAN, n=0, subtype="fact"),
        ]
    )
    figure = figures.ratio_by_task(frame, "a mark")
    assert figure.layout.xaxis.type == "log"
    assert [trace.name for trace in figure.data] == ["RAG", "random memories"]
    rag, random = figure.data
    assert list(rag.x) == [2.0, 0.5]
    assert list(rag.error_x.array) == pytest.approx([0.6, 0.1])
    assert list(rag.error_x.arrayminus) == pytest.approx([0.5, 0.1])
    assert random.error_x.array[0] is None
    assert list(figure.layout.yaxis.ticktext) == ["Fact-level", "Baiting"]
    (line,) = figure.layout.shapes
    assert line.x0 == line.x1 == 1.0
    assert "95 %: 1.50× to 2.60×" in rag.customdata[0]
    assert "n = 12, 6 users" in rag.customdata[0]
    assert "no interval: 2 users, an interval needs 5" in random.customdata[0]
    low, high = (10**end for end in figure.layout.xaxis.range)
    assert low < 0.4
    assert high > 2.6


def test_layers_are_lines_and_a_band_only_where_every_layer_has_an_interval() -> None:
    frame = pd.DataFrame(
        [ratio("rag", "none", 1.0 + n, 0.9 + n, 1.1 + n, layer=n + 1) for n in range(3)]
        + [ratio("mem0", "none", 0.5, layer=n + 1) for n in range(3)]
    )
    figure = figures.ratio_by_layer(frame)
    lines = [trace for trace in figure.data if trace.mode == "lines+markers"]
    bands = [trace for trace in figure.data if trace.fill == "toself"]
    assert [trace.name for trace in lines] == ["RAG", "Mem0"]
    assert list(lines[0].x) == [1, 2, 3]
    assert list(lines[0].y) == [1.0, 2.0, 3.0]
    assert [trace.legendgroup for trace in bands] == ["RAG"]
    assert list(bands[0].y) == pytest.approx([0.9, 1.9, 2.9, 3.1, 2.1, 1.1])
    assert figure.layout.yaxis.type == "log"


def test_heads_are_coloured_by_doublings_the_same_to_both_sides() -> None:
    frame = pd.DataFrame(
        {"layer": [1, 1, 2, 2], "head": [1, 2, 1, 2], "ratio": [4.0, 0.5, NAN, 1.0], "n": [9, 9, 0, 9]}
    )
    (heat,) = figures.ratio_by_head(frame).data
    assert [list(row) for row in heat.z] == [[2.0, -1.0], [None, 0.0]]
    assert heat.zmin == -heat.zmax
    assert heat.customdata[0][0] == "4.00×<br>n = 9"
    assert heat.customdata[1][0] == "n/a<br>n = 0"
    assert list(heat.colorbar.ticktext)[2] == "1.00×"


def test_shares_are_stacked_and_base_has_no_memory() -> None:
    rows = [
        ratio("base", "none", 0.7, segment="instructions", tokens=30),
        ratio("base", "none", 0.3, segment="query", tokens=10),
        ratio("rag", "none", 0.5, 0.4, 0.6, segment="instructions", tokens=30),
        ratio("rag", "none", 0.4, segment="memory", tokens=80),
        ratio("rag", "none", 0.1, segment="query", tokens=10),
    ]
    figure = figures.segment_shares(pd.DataFrame(rows))
    by_name = {trace.name: trace for trace in figure.data}
    # In the order of the prompt, though BASE, which comes first, has no memory.
    assert [trace.name for trace in figure.data] == ["instructions", "memory", "query"]
    assert list(by_name["memory"].x) == [None, 40.0]
    assert list(by_name["query"].x) == [30.0, 10.0]
    assert list(by_name["query"].y) == ["BASE", "RAG"]
    assert figure.layout.barmode == "stack"
    assert "95 %: 40.0 to 60.0 %" in by_name["instructions"].customdata[1]
    assert "80 tokens on average" in by_name["memory"].customdata[1]
    assert len({trace.marker.color for trace in figure.data}) == 3


def test_only_factors_are_drawn_as_changes() -> None:
    frame = pd.DataFrame(
        [
            change("memory", "query per token", 0.5, 0.4, 0.6),
            change("memory", "query share", -0.2, -0.3, -0.1),
            change("mitigation", "ratio", 1.2, mitigation="few-shot-cot"),
        ]
    )
    figure = figures.change_factors(frame)
    assert list(figure.data[0].x) == [0.5, 1.2]
    assert list(figure.data[0].marker.symbol) == ["circle", "circle-open"]  # without an interval
    assert list(figure.layout.yaxis.ticktext) == [
        "RAG against BASE:<br>attention per query token",
        "RAG + Few-Shot-CoT against RAG:<br>ratio memory to query",
    ]
    assert [said(row) for row in frame.to_dict("records")] == ["0.50×", "−20.0 points", "1.20×"]


def test_names_of_models_are_no_markup() -> None:
    rows = [
        ratio("rag", "none", 2.0, subtype="fact", layer=1, segment="<b>x</b>", tokens=1) | {"model": name}
        for name in ("<script>alert(1)</script>", "other")
    ]
    frame = pd.DataFrame(rows)
    for figure in (figures.ratio_by_task(frame), figures.ratio_by_layer(frame), figures.segment_shares(frame)):
        assert "<script>" not in figure.to_json().replace("\\u003c", "<")
        assert "<b>x" not in figure.to_json().replace("\\u003c", "<")


@pytest.mark.parametrize(
    ("value", "text"),
    [(2.0, "2.00×"), (0.5, "0.50×"), (0.0432, "0.043×"), (0.0956, "0.10×"), (12.34, "12.3×"), (345.6, "346×")],
)
def test_factors_keep_two_digits_that_count(value: float, text: str) -> None:
    assert figures.times(value) == text


def test_a_factor_that_is_missing_is_said_to_be() -> None:
    assert figures.times(NAN) == "n/a"


@pytest.mark.parametrize("values", [(0.99, 1.01), (0.001, 900.0), (2.0, 3.0)])
def test_the_axis_of_ratios_shows_one_and_has_ticks(values: tuple[float, float]) -> None:
    frame = pd.DataFrame([ratio("rag", "none", value, layer=n) for n, value in enumerate(values)])
    axis = figures.ratio_by_layer(frame).layout.yaxis
    assert axis.range[0] < 0 < axis.range[1]
    assert 1.0 in axis.tickvals
    assert 3 <= len(axis.tickvals) <= 24
    assert all(axis.range[0] <= math.log10(tick) <= axis.range[1] for tick in axis.tickvals)


# Sentences -----------------------------------------------------------------------------------------------------------


def test_more_less_and_not_distinguishable_follow_the_interval() -> None:
    assert "gets 2.00× the attention of the query (95 %: 1.50× to 2.60×; n = 12, 6 users): more than the query." in (
        answer([ratio("rag", "none", 2.0, 1.5, 2.6)], [])
    )
    assert ": less than the query." in answer([ratio("rag", "none", 0.5, 0.4, 0.6)], [])
    assert ": not distinguishable from as much." in answer([ratio("rag", "none", 1.1, 0.9, 1.3)], [])


def test_without_an_interval_it_may_be_chance_and_why_is_said() -> None:
    told = answer([ratio("rag", "none", 2.0)], [])
    assert f"(n = 12, 2 users): more than the query, {CHANCE}." in told
    assert "No interval: 2 users, an interval needs 5." in told


def test_a_factor_of_one_without_an_interval_is_no_change() -> None:
    told = answer([ratio("rag", "none", 2.0)], [change("mitigation", "ratio", 1.0, mitigation="reminder")])
    assert "Reminder changes the ratio by a factor of 1.00 (paired n = 12, 2 users): not distinguishable" in told


def test_what_memory_takes_and_what_a_post_processor_does() -> None:
    told = answer(
        [ratio("rag", "none", 2.0, 1.5, 2.6), ratio("rag", "few-shot-cot", 1.6, 1.2, 2.1)],
        [
            change("memory", "query per token", 0.5, 0.4, 0.6),
            change("memory", "query share", -0.2, -0.3, -0.1),
            change("random", "ratio", 1.05, 0.95, 1.2),
            change("mitigation", "ratio", 0.8, 0.7, 0.9, "few-shot-cot"),
        ],
    )
    assert (
        "a query token gets 0.50× what it gets from the same model in BASE (95 %: 0.40× to 0.60×; paired n = 12" in told
    )
    assert "changes by −20.0 points (−30.0 to −10.0)" in told
    assert "The ratio is 1.05× that of random memories" in told
    assert "not distinguishable from any memories in that place" in told
    assert "Few-Shot-CoT changes the ratio by a factor of 0.80 (95 %: 0.70× to 0.90×; paired n = 12, 6 users)" in told
    assert ": lowers it." in told


def test_one_of_several_changes_is_sure_only_after_correction() -> None:
    ratios = [ratio("rag", "none", 2.0, 1.5, 2.6), ratio("rag", "reminder", 1.6, 1.2, 2.1)]
    told = answer(ratios, [change("mitigation", "ratio", 0.8, 0.7, 0.9, "reminder", p_holm=0.12)])
    assert ": lowers it by itself, but not sure among 6 such changes (Holm's p = 0.12)." in told
    told = answer(ratios, [change("random", "ratio", 1.4, 1.2, 1.6, p_holm=0.06)])
    assert "draw more than any would in that place by itself, but not sure among 6 such changes" in told


def test_a_change_of_a_method_that_failed_says_so() -> None:
    told = answer(
        [ratio("rag", "none", 2.0), ratio("rag", "few-shot-cot", 2.0, failed=11)],
        [change("mitigation", "ratio", 1.0, 0.9, 1.1, "few-shot-cot")],
    )
    assert "not distinguishable from no change. It failed, and left the prompt as it was, in 11 of 12 records." in told


def test_random_memories_have_an_answer_only_where_they_are_all_there_is() -> None:
    rag, random = ratio("rag", "none", 2.0), ratio("random", "none", 1.5)
    assert [each.head for each in attention_answers(pd.DataFrame([rag, random]), NO_CHANGES)] == ["RAG · m"]
    assert [each.head for each in attention_answers(pd.DataFrame([random]), NO_CHANGES)] == ["random memories · m"]


def test_base_alone_has_no_answer_and_no_memory_anywhere_is_no_zero() -> None:
    base = ratio("base", "none", NAN, n=0) | {"reason": "no memory in the prompt"}
    assert attention_answers(pd.DataFrame([base]), NO_CHANGES) == []
    empty = base | {"memory": "rag"}
    assert "There is no ratio: no memory in the prompt in any of 12 records." in answer([empty], [])


def test_records_without_memory_are_counted() -> None:
    frame = pd.DataFrame([ratio("base", "none", NAN, n=0), ratio("rag", "none", 2.0), ratio("rag", "marag", 2.0, n=9)])
    assert left_without(frame) == (
        "No ratio, since the prompt has no memory: BASE 12 of 12, RAG + MARAG 3 of 12 records."
    )
    assert left_without(frame.iloc[1:2]) == ""
