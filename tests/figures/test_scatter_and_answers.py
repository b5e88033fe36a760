"""The scatter, the marks of what is not distinguishable, gap closed, and the answers in sentences."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from opbench.analysis import published
from opbench.analysis.gap import published_gap, with_words
from opbench.analysis.prices import with_prices
from opbench.analysis.tradeoff import with_front
from opbench.figures import theme
from opbench.figures.answers import answers, gap_answers
from opbench.figures.gap import gap_closed
from opbench.figures.scatter import CONTROLS, FRONT, WITHOUT, tradeoff_scatter
from opbench.figures.tradeoff import tradeoff_heatmap

NAN = float("nan")
PUBLISHED = with_prices(published.tradeoff(), published.latency())


def row(mitigation: str, op: float, locomo: float, **more: Any) -> dict[str, Any]:
    """A measured row with an interval of ± 3 on OP-Bench and ± 4 on LoCoMo, 20 and 10 users."""
    cells: dict[str, Any] = {"model": "m", "memory": "rag", "mitigation": mitigation, "control": False}
    for benchmark, value, half, users in (("op", op, 3.0, 20), ("locomo", locomo, 4.0, 10)):
        fields = {
            "change": value,
            "points": value,
            "low": value - half,
            "high": value + half,
            "p_holm": 0.0004,
            "verdict": "better" if value > 0 else "worse",
            "users": users,
            "interval_note": "",
            "n": 90,
            "n_planned": 100,
            "note": "paired",
        }
        cells |= {f"{benchmark}_{name}": each for name, each in fields.items()}
    return cells | {"locomo_metric": "token F1", "unit": "points", "source": "measured", "seconds": 1.0} | more


def alike(benchmark: str) -> dict[str, Any]:
    return {f"{benchmark}_verdict": "not distinguishable", f"{benchmark}_p_holm": 0.4}


MEASURED = with_front(
    pd.DataFrame(
        [
            row("few-shot-cot", 20.0, -8.0, seconds=3.2),
            row("marag", 12.0, 1.0, **alike("locomo")),
            row("comorag", 2.0, 0.5, **alike("op")),
            row("abstain", 40.0, -50.0, control=True),
            row("random memories", 15.0, 2.0, control=True),
        ]
    )
)


def test_points_lie_where_the_changes_are_with_their_intervals() -> None:
    by_name = {trace.name: trace for trace in tradeoff_scatter(MEASURED, "points").data}
    marag = by_name["MARAG"]
    assert (marag.x[0], marag.y[0]) == (12.0, 1.0)
    assert (marag.error_x.array[0], marag.error_x.arrayminus[0]) == (3.0, 3.0)
    assert (marag.error_y.array[0], marag.error_y.arrayminus[0]) == (4.0, 4.0)
    assert (by_name[WITHOUT].x[0], by_name[WITHOUT].y[0]) == (0, 0)


def test_the_front_joins_what_nothing_beats_on_both() -> None:
    # comorag (2, 0.5) is below marag (12, 1) on both, and so is going without (0, 0).
    by_name = {trace.name: trace for trace in tradeoff_scatter(MEASURED, "points").data}
    assert list(by_name[FRONT].x) == [12.0, 20.0]
    assert list(by_name[FRONT].y) == [1.0, -8.0]


def test_going_without_is_on_the_front_when_everything_costs_something() -> None:
    frame = with_front(pd.DataFrame([row("few-shot-cot", 20.0, -8.0), row("reminder", -1.0, -1.0)]))
    by_name = {trace.name: trace for trace in tradeoff_scatter(frame, "points").data}
    assert list(by_name[FRONT].x) == [0.0, 20.0]
    assert frame["pareto"].tolist() == [True, False]


def test_controls_are_apart_and_named_as_such() -> None:
    controls = [trace for trace in tradeoff_scatter(MEASURED, "points").data if trace.name == CONTROLS]
    assert [trace.marker.symbol for trace in controls] == ["diamond-open"] * 2
    assert [trace.showlegend for trace in controls] == [True, False]
    assert "control: always abstain" in controls[0].hovertemplate


def test_published_points_have_no_bars_and_a_missing_one_no_place() -> None:
    mem0 = PUBLISHED[PUBLISHED["memory"] == "mem0"]
    figure = tradeoff_scatter(mem0, "as printed", mark="published")
    by_name = {trace.name: trace for trace in figure.data}
    assert (by_name["Few-Shot-CoT"].x[0], by_name["Few-Shot-CoT"].y[0]) == (20.0, 9.9)
    assert by_name["Few-Shot-CoT"].error_x.array is None
    # Mem0: Self-Critic (1.2, 13.1), MARAG (18.0, 10.8), Few-Shot-CoT (20.0, 9.9).
    assert list(by_name[FRONT].x) == [1.2, 18.0, 20.0]
    without = tradeoff_scatter(mem0.assign(op_change=NAN), "as printed")
    assert [trace.name for trace in without.data if trace.name not in (FRONT, WITHOUT)] == []


def test_a_cell_that_is_not_distinguishable_is_marked() -> None:
    op, locomo = tradeoff_heatmap(MEASURED[~MEASURED["control"]], "points").data
    assert list(op.text[0]) == ["+20.0", "+12.0", "+2.0<br>≈ 0"]
    assert list(locomo.text[0]) == ["−8.0", "+1.0<br>≈ 0", "+0.5"]
    assert op.customdata[0][2] == (
        "+2.0 (points)<br>95 %: −1.0 to +5.0<br>not distinguishable, p = 0.40 (Holm)<br>n = 90 of 100, 20 users"
        "<br>paired"
    )
    assert "better, p &lt; 0.001 (Holm)" in op.customdata[0][0]


def test_one_benchmark_alone_has_one_panel() -> None:
    (trace,) = tradeoff_heatmap(MEASURED, "points", benchmarks=("locomo",)).data
    assert list(trace.z[0])[:2] == [-8.0, 1.0]


def test_the_published_answer_for_mem0() -> None:
    answer = {each.head: " ".join(each.sentences) for each in answers(PUBLISHED)}["Mem0 · gpt-4o-mini, as published"]
    assert answer == (
        "On the Pareto front (changes as printed): "
        "Few-Shot-CoT +20.0 OP-Bench, +9.9 LoCoMo, about 3.2 s of post-processing; "
        "MARAG +18.0 OP-Bench, +10.8 LoCoMo, about 1.0 s of post-processing; "
        "Self-Critic +1.2 OP-Bench, +13.1 LoCoMo, about 4.1 s of post-processing. "
        "Not on it, since another (or none) is no worse on both and better on one, or nothing is gained: "
        "Reminder, ComoRAG. "
        "No intervals are published."
    )


def test_a_measured_answer_has_intervals_verdicts_users_and_controls() -> None:
    (answer,) = answers(MEASURED)
    assert answer.head == "RAG · m"
    assert answer.sentences == (
        "By the averages alone, on the Pareto front (changes in points; LoCoMo: token F1): "
        "Few-Shot-CoT +20.0 (+17.0 to +23.0) OP-Bench, −8.0 (−12.0 to −4.0) LoCoMo, about 3.2 s of post-processing; "
        "MARAG +12.0 (+9.0 to +15.0) OP-Bench, +1.0 (−3.0 to +5.0) LoCoMo, about 1.0 s of post-processing.",
        "Not on it, since another (or none) is no worse on both and better on one, or nothing is gained: ComoRAG.",
        "Not distinguishable from no post-processor on OP-Bench (n = 20 users): ComoRAG.",
        "Not distinguishable from no post-processor on LoCoMo (n = 10 users): MARAG.",
        "By the averages no better than the control “random memories”: MARAG, ComoRAG.",
    )


def test_an_answer_without_intervals_says_why_once() -> None:
    why = "2 users, an interval needs 5"
    few: dict[str, Any] = {f"{benchmark}_interval_note": why for benchmark in ("op", "locomo")}
    few |= {f"{benchmark}_{end}": NAN for benchmark in ("op", "locomo") for end in ("low", "high")}
    (answer,) = answers(with_front(pd.DataFrame([row("marag", -1.0, -2.0, **few)])))
    assert answer.sentences == (
        "By the averages alone, on the Pareto front is none: going without is at least as good on both benchmarks.",
        "No interval on OP-Bench and LoCoMo, so the changes may be chance: 2 users, an interval needs 5.",
    )


def test_what_cannot_be_compared_is_named() -> None:
    (answer,) = answers(with_front(pd.DataFrame([row("marag", 3.0, NAN)])))
    assert answer.sentences[0] == "Not to be compared yet on both benchmarks: MARAG."


# Gap closed --------------------------------------------------------------------------------------------------------


def share(mitigation: str, closed: float, reason: str = "", **more: Any) -> dict[str, Any]:
    cells = {"model": "m", "memory": "rag", "mitigation": mitigation, "control": False, "op": 60.0, "missing": ""}
    told = {"gap_closed": closed, "gap_low": closed - 0.1, "gap_high": closed + 0.1, "gap_p_holm": 0.001}
    n = {"n_scored": 10, "n_planned": 13, "gap_n": 9, "gap_users": 20, "interval_note": "", "source": "measured"}
    return cells | told | n | {"gap_reason": reason} | more


GAP = with_words(
    pd.DataFrame(
        [
            share("none", NAN, "reference", memory="base", op=80.0),
            share("none", NAN, "reference", op=50.0),
            share("few-shot-cot", 0.5),
            share("reminder", -0.25),
            share("marag", 0.05, gap_p_holm=0.3),
            share("comorag", NAN, "no gap to close: oracle 80.00, memory system 85.00"),
            share("abstain", 1.2, control=True),
        ]
    )
)


def test_gap_in_words() -> None:
    assert GAP["words"].tolist() == [
        "the oracle",
        "the memory system as it is",
        "closes a part of the gap",
        "widens the gap: worse than no post-processor",
        "not distinguishable from no post-processor",
        "no gap to close: oracle 80.00, memory system 85.00",
        "control: goes beyond the oracle",
    ]


def test_gap_closed_is_drawn_in_percent_with_its_interval_and_words_where_there_is_none() -> None:
    figure = gap_closed(GAP)
    names = dict(zip(figure.layout.yaxis.tickvals, figure.layout.yaxis.ticktext, strict=True))
    by_place = {names[trace.y[0]]: trace for trace in figure.data}
    shot = by_place["Few-Shot-CoT"]
    assert shot.x[0] == 50.0
    assert [shot.error_x.array[0], shot.error_x.arrayminus[0]] == pytest.approx([10.0, 10.0])
    assert by_place["Reminder"].x[0] == -25.0
    assert by_place["ComoRAG"].mode == "text"
    assert by_place["ComoRAG"].text[0] == "no gap to close"
    assert "memory system 85.00" in by_place["ComoRAG"].hovertext[0]
    assert by_place["control: always abstain"].marker.color == theme.GREY


def test_gap_in_sentences() -> None:
    (answer,) = gap_answers(GAP)
    assert answer.sentences == (
        "50.0 points, 30.0 below the oracle's 80.0.",
        "Closes: Few-Shot-CoT 50 % (40 % to 60 %); MARAG 5 % (−5 % to 15 %, not distinguishable from none).",
        "Widens it or leaves it: Reminder −25 % (−35 % to −15 %).",
        "No share for ComoRAG: no gap to close: oracle 80.00, memory system 85.00.",
    )


def test_published_gap_by_subtype_has_table_2s_scores_and_no_shares() -> None:
    frame = published_gap("points", "baiting")
    mem0 = frame[(frame["model"] == "gpt-4o-mini") & (frame["memory"] == "mem0")]
    assert mem0["op"].tolist() == [46.20]
    assert frame["gap_closed"].isna().all()
    average = published_gap("points").set_index(["model", "memory", "mitigation"])
    closed: Any = average.loc[("gpt-4o-mini", "rag", "reminder"), "gap_closed"]
    assert closed == pytest.approx(3.5 / 27.14)
    assert average.loc[("gemini-2.5-flash", "rag", "none"), "words"] == "the memory system as it is"


def test_names_of_methods_are_text_in_the_scatter_too() -> None:
    figure = tradeoff_scatter(with_front(pd.DataFrame([row("<b>x</b>", 1.0, 1.0)])), "points")
    assert not any("<b>x" in str(trace.name) for trace in figure.data)


def test_p_and_spans_have_one_form() -> None:
    assert [theme.chance(p) for p in (0.0002, 0.004, 0.03, NAN)] == ["p < 0.001", "p = 0.004", "p = 0.03", "p n/a"]
    assert theme.span(-0.04, 7.25) == "0.0 to +7.2"
    assert [theme.users(n) for n in (1, 20)] == ["1 user", "20 users"]
