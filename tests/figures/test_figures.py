"""Figures say what their frames say: cells, texts, missing ones, marks; and no text is taken for HTML."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import pytest

from opbench.analysis import published
from opbench.analysis.gap import published_gap, with_words
from opbench.figures import theme
from opbench.figures.gap import ORACLE, oracle_gap
from opbench.figures.latency import latency_bars
from opbench.figures.subtypes import op_by_subtype
from opbench.figures.tradeoff import tradeoff_heatmap

NAN = float("nan")


def cell(
    mitigation: str, op: float, locomo: float, memory: str = "rag", model: str = "m", note: str = "paired"
) -> dict[str, Any]:
    return {
        "model": model,
        "memory": memory,
        "mitigation": mitigation,
        "control": False,
        **{f"{benchmark}_{name}": NAN for benchmark in ("op", "locomo") for name in ("low", "high", "p_holm")},
        **{f"{benchmark}_verdict": "" for benchmark in ("op", "locomo")},
        **{f"{benchmark}_interval_note": "" for benchmark in ("op", "locomo")},
        "op_users": 2,
        "locomo_users": 1,
        "op_change": op,
        "op_n": 9,
        "op_n_planned": 13,
        "op_note": note,
        "locomo_change": locomo,
        "locomo_n": 3,
        "locomo_n_planned": 4,
        "locomo_note": note,
        "locomo_metric": "token F1",
        "unit": "points",
    }


def texts(figure: go.Figure) -> list[str]:
    return [str(note.text) for note in figure.layout.annotations]


# Trade-off ---------------------------------------------------------------------------------------------------------


def test_heatmap_has_the_published_numbers_in_both_panels() -> None:
    frame = published.tradeoff()
    figure = tradeoff_heatmap(frame, published.UNIT_NOT_TOLD, mark="published")
    op, locomo = figure.data
    assert list(op.y) == ["RAG", "Mem0", "MemU", "MemOS"]
    assert list(op.x) == ["Reminder", "Self-Critic", "Few-Shot-CoT", "ComoRAG", "MARAG"]
    assert [list(line) for line in op.z] == [
        [3.5, 6.7, 1.5, 1.1, 4.1],
        [17.2, 1.2, 20.0, 3.8, 18.0],
        [12.4, 2.8, 17.3, 3.2, 13.0],
        [10.6, 2.4, 14.6, 2.7, 12.5],
    ]
    assert list(op.text[1]) == ["+17.2", "+1.2", "+20.0", "+3.8", "+18.0"]
    assert list(locomo.z[3]) == [-3.8, 6.2, -8.5, 0.0, -2.9]
    assert list(locomo.text[3]) == ["−3.8", "+6.2", "−8.5", "0.0", "−2.9"]
    assert "published" in figure.layout.title.text
    assert f"OP-Bench change ({published.UNIT_NOT_TOLD})" in texts(figure)
    assert f"LoCoMo change ({published.UNIT_NOT_TOLD})" in texts(figure)


def test_colours_are_centred_on_zero_and_shared() -> None:
    figure = tradeoff_heatmap(pd.DataFrame([cell("reminder", 2.0, -8.5), cell("marag", 20.0, 1.0)]), "points")
    axis = figure.layout.coloraxis
    assert (axis.cmin, axis.cmid, axis.cmax) == (-20.0, 0, 20.0)
    assert [trace.coloraxis for trace in figure.data] == ["coloraxis", "coloraxis"]


def test_a_missing_cell_is_none_and_says_why() -> None:
    rows = [cell("reminder", NAN, 0.0, note="nothing scored by both: baiting"), cell("marag", 1.0, NAN)]
    figure = tradeoff_heatmap(pd.DataFrame(rows), "points")
    op, locomo = figure.data
    assert list(op.z[0]) == [None, 1.0]
    assert list(locomo.z[0]) == [0.0, None]
    assert list(op.text[0]) == ["n/a", "+1.0"]
    assert op.customdata[0][0] == "n/a<br>n = 9 of 13, 2 users<br>nothing scored by both: baiting"
    assert texts(figure).count("n/a") == 2


def test_a_configuration_that_is_not_in_the_study_is_missing() -> None:
    rows = [cell("reminder", 1.0, 2.0), cell("marag", 3.0, 4.0, memory="mem0")]
    op, _ = tradeoff_heatmap(pd.DataFrame(rows), "points").data
    assert [list(line) for line in op.z] == [[1.0, None], [None, 3.0]]
    assert op.customdata[0][1] == "n/a<br>not in the study"


def test_hover_has_number_unit_n_and_metric() -> None:
    op, locomo = tradeoff_heatmap(pd.DataFrame([cell("reminder", 21.25, -10.0)]), "points").data
    assert op.customdata[0][0] == "+21.2 (points)<br>n = 9 of 13, 2 users<br>paired"
    assert locomo.customdata[0][0] == "−10.0 (points)<br>n = 3 of 4, 1 user<br>metric: token F1<br>paired"


def test_several_models_have_rows_of_their_own() -> None:
    rows = [cell("reminder", 1.0, 2.0, model="a"), cell("reminder", 3.0, 4.0, model="b")]
    op, _ = tradeoff_heatmap(pd.DataFrame(rows), "points").data
    assert list(op.y) == ["RAG<br>a", "RAG<br>b"]
    assert [list(line) for line in op.z] == [[1.0], [3.0]]


def test_names_are_text_not_html() -> None:
    rows = [cell("<b>x</b>", 1.0, NAN, memory="<i>", note="<script>"), cell("y", 1.0, 1.0, memory="z", model="<a>")]
    figure = tradeoff_heatmap(pd.DataFrame(rows), "<u>", mark="<sup>")
    whole = figure.to_json()
    assert whole is not None
    for raw in ("<b>x", "<i>", "<script>", "<u>", "<a>"):
        assert raw not in whole.replace("\\u003c", "<").replace("\\u003e", ">")


def test_an_empty_frame_is_a_figure_without_cells() -> None:
    figure = tradeoff_heatmap(published.tradeoff().iloc[:0], "points")
    assert [len(trace.z) for trace in figure.data] == [0, 0]


def test_all_missing_still_draws() -> None:
    figure = tradeoff_heatmap(pd.DataFrame([cell("reminder", NAN, NAN)]), "points")
    assert figure.layout.coloraxis.cmax == 1.0


# Oracle gap --------------------------------------------------------------------------------------------------------


def bar(
    memory: str, mitigation: str, op: float, closed: float = NAN, reason: str = "", model: str = "m"
) -> dict[str, Any]:
    return {
        "model": model,
        "memory": memory,
        "mitigation": mitigation,
        "control": False,
        "op": op,
        "gap_closed": closed,
        "gap_n": 9,
        "gap_reason": reason,
        **dict.fromkeys(("gap_low", "gap_high", "gap_p_holm", "gap_users"), NAN),
        "interval_note": "",
        "source": "measured",
        "n_scored": 10,
        "n_planned": 13,
        "missing": "nothing scored: baiting" if math.isnan(op) else "",
    }


GAP = with_words(
    pd.DataFrame(
        [
            bar("base", "none", 80.0, reason="reference"),
            bar("rag", "none", 38.75, reason="reference"),
            bar("rag", "reminder", 58.75, 0.459),
            bar("rag", "marag", NAN, reason="nothing scored by all three: baiting"),
            bar("mem0", "none", 85.0, reason="reference"),
            bar("mem0", "reminder", 86.0, reason="no gap to close: oracle 80.00, memory system 85.00"),
        ]
    )
)


def test_oracle_gap_bars_and_line() -> None:
    figure = oracle_gap(GAP, mark="recorded")
    by_name = {trace.name: trace for trace in figure.data}
    assert list(by_name["no post-processor"].y) == [38.75, 85.0]
    assert list(by_name["Reminder"].y) == [58.75, 86.0]
    assert list(by_name["MARAG"].y) == [None, None]
    assert list(by_name[ORACLE].y) == [80.0, 80.0]
    (line,) = figure.layout.shapes
    assert (line.y0, line.y1) == (80.0, 80.0)
    assert "recorded" in figure.layout.title.text
    (missing,) = figure.layout.annotations
    assert missing.text == "n/a"
    assert missing.hovertext == "MARAG: nothing scored: baiting"
    # The third of three bars over the first memory system: 0 + 0.8 / 3.
    assert missing.x == pytest.approx(0.8 / 3)


def test_oracle_gap_hover() -> None:
    by_name = {trace.name: trace for trace in oracle_gap(GAP).data}
    assert list(by_name["Reminder"].customdata) == [
        "58.8 points, n = 10 of 13<br>gap closed: 46 %, paired n = 9<br>closes a part of the gap",
        "86.0 points, n = 10 of 13<br>gap closed: n/a, paired n = 9"
        "<br>no gap to close: oracle 80.00, memory system 85.00",
    ]
    assert list(by_name["MARAG"].customdata)[1] == "n/a: not in the study"


def test_without_base_there_is_no_line() -> None:
    figure = oracle_gap(GAP[GAP["memory"] != "base"])
    assert ORACLE not in {trace.name for trace in figure.data}
    assert not figure.layout.shapes


def test_each_model_has_its_own_panel_and_oracle() -> None:
    second = GAP.assign(model="n", op=GAP["op"] - 10)
    figure = oracle_gap(pd.concat([GAP, second], ignore_index=True))
    assert [shape.y0 for shape in figure.layout.shapes] == [80.0, 70.0]
    assert sum(trace.showlegend is not False for trace in figure.data) == 4


def test_published_oracle_gap_draws() -> None:
    gap = published_gap("points")
    gpt = gap[gap["model"] == "gpt-4o-mini"]
    figure = oracle_gap(gpt, mark="published")
    by_name = {trace.name: trace for trace in figure.data}
    assert list(by_name["Few-Shot-CoT"].y) == pytest.approx([57.46, 66.32, 57.76, 56.46])
    assert "n = not told" in by_name["Few-Shot-CoT"].customdata[0]


# Latency -----------------------------------------------------------------------------------------------------------


def test_published_latency_is_stacked_in_seconds() -> None:
    figure = latency_bars(published.latency(), mark="published")
    retrieval, post, response, total = figure.data
    assert list(post.y) == ["Reminder", "Self-Critic", "Few-Shot-CoT", "ComoRAG", "MARAG"]
    assert list(post.x) == pytest.approx([1.16817, 4.12818, 3.20949, 2.34514, 0.96681])
    assert retrieval.x[0] == pytest.approx(0.04411)
    assert list(response.x)[1] == pytest.approx(3.40809)
    assert figure.layout.barmode == "stack"
    assert total.text[0] == "4.44 s"
    assert post.customdata[1] == "mean 4.13 s ± 5.70 s<br>median n/a, p95 n/a<br>n = not told<br>concurrency not told"


def _stage(stage: str, mean: float, n: int) -> dict[str, Any]:
    return {
        "model": "m",
        "memory": "rag",
        "mitigation": "none",
        "stage": stage,
        "n": n,
        "n_reused": 2 if n else 0,
        "mean_ms": mean,
        "std_ms": 5.0,
        "median_ms": mean,
        "p95_ms": 2 * mean,
        "concurrency": "4",
    }


def test_a_stage_that_did_not_happen_has_no_bar() -> None:
    frame = pd.DataFrame(
        [_stage("retrieval", 20.0, 3), _stage("post", NAN, 0), _stage("response", 900.0, 3), _stage("total", 920.0, 3)]
    )
    retrieval, post, _, total = latency_bars(frame).data
    assert list(post.x) == [None]
    assert post.customdata[0] == "didn't happen"
    assert list(retrieval.y) == ["no post-processor"]
    assert (
        retrieval.customdata[0]
        == "mean 20 ms ± 5 ms<br>median 20 ms, p95 40 ms<br>n = 3, 2 of them reused<br>concurrency 4"
    )
    assert list(total.text) == ["920 ms"]


# Subtypes ----------------------------------------------------------------------------------------------------------


def test_subtype_heatmap_has_table_two() -> None:
    table = published.op_scores()
    figure = op_by_subtype(table[table["model"] == "gpt-4o-mini"], mark="published")
    (trace,) = figure.data
    assert list(trace.y) == ["BASE", "RAG", "Mem0", "MemU", "MemOS"]
    assert list(trace.x)[:2] == ["Fully irrelevant", "Baiting"]
    assert list(trace.z[2]) == [48.15, 46.20, 55.98, 44.40, 51.00, 22.20, 46.32]
    assert list(trace.text[2])[-1] == "46.3"


def test_a_missing_subscore_is_none() -> None:
    table = published.op_scores().iloc[:1].assign(baiting=NAN, op=NAN)
    (trace,) = op_by_subtype(table).data
    assert trace.z[0][1] is None
    assert trace.z[0][6] is None
    assert trace.text[0][1] == "n/a"


# Theme -------------------------------------------------------------------------------------------------------------


def test_numbers_have_one_form() -> None:
    assert [theme.change(value) for value in (3.5, -1.1, 0.0, -0.04, NAN)] == ["+3.5", "−1.1", "0.0", "0.0", "n/a"]
    assert [theme.share(value) for value in (0.459, -0.05, -0.001, NAN)] == ["46 %", "−5 %", "0 %", "n/a"]
    assert [theme.milliseconds(value) for value in (44.11, 3226.23, NAN)] == ["44 ms", "3.23 s", "n/a"]
    assert [theme.scored(n, 13) for n in (9, NAN)] == ["9 of 13", "not told"]


def test_marks() -> None:
    assert theme.provenance(published=True) == "published"
    assert theme.provenance(recorded=True, comparable=False) == "recorded · not comparable with the paper"
    assert theme.provenance() == ""


def test_colours_stay_with_their_method() -> None:
    alone, together = theme.palette(["marag"]), theme.palette(["none", "reminder", "marag", "own"])
    assert alone["marag"] == together["marag"]
    assert len(set(together.values())) == 4


@pytest.mark.parametrize(
    "figure",
    [
        tradeoff_heatmap(published.tradeoff(), "points"),
        oracle_gap(GAP),
        latency_bars(published.latency()),
        op_by_subtype(published.op_scores()),
    ],
    ids=["tradeoff", "gap", "latency", "subtypes"],
)
def test_backgrounds_and_fonts_are_left_to_the_page(figure: go.Figure) -> None:
    assert figure.layout.paper_bgcolor == "rgba(0,0,0,0)"
    assert figure.layout.plot_bgcolor == "rgba(0,0,0,0)"
    assert figure.layout.font.color is None
    assert figure.layout.title.font.color is None
    assert figure.layout.margin.l <= 16
    assert figure.layout.margin.r <= 16
