"""Figures of the overview, audit and data pages: what they draw is what the tables say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from opbench.analysis import audit, overview
from opbench.figures import theme
from opbench.figures.counts import counts_by_subtype, counts_by_user
from opbench.figures.overview import op_by_memory
from opbench.figures.radar import radar
from opbench.figures.ranking import drop_ranking, moved


@pytest.fixture
def printed() -> pd.DataFrame:
    return overview.published_study("printed", "task-mean")


def texts(figure: Any) -> list[str]:
    return [text for trace in figure.data if trace.type == "scatter" for text in trace.text]


def test_a_panel_a_model_with_score_and_drop(printed: pd.DataFrame) -> None:
    figure = op_by_memory(printed, "published")
    bars = [trace for trace in figure.data if trace.type == "bar"]
    assert len(bars) == 4
    assert list(bars[0].x) == [83.10, 55.96, 46.32, 40.46, 41.86]
    assert texts(figure)[:2] == ["83.1", "56.0  −32.7 %"]
    assert "n = not told" in bars[0].customdata[1]
    assert "against BASE: −32.7 %" in bars[0].customdata[1]
    # A line at BASE of each model.
    assert [shape.x0 for shape in figure.layout.shapes] == [83.10, 70.55, 72.91, 73.80]
    assert "published" in figure.layout.title.text


def test_a_missing_average_is_said_and_is_no_zero(printed: pd.DataFrame) -> None:
    frame = printed[printed["model"] == "gpt-4o-mini"].copy()
    frame.loc[frame["memory"] == "mem0", ["op", "drop"]] = np.nan
    frame.loc[frame["memory"] == "mem0", "missing"] = "nothing scored: fact"
    figure = op_by_memory(frame)
    assert texts(figure)[2] == "n/a"
    assert "nothing scored: fact" in figure.data[0].customdata[2]


def test_names_of_models_are_text(printed: pd.DataFrame) -> None:
    figure = op_by_memory(printed.assign(model="<b>m</b>"))
    assert figure.layout.annotations[0].text == "<b>&lt;b&gt;m&lt;/b&gt;</b>"


def test_the_radar_goes_round_from_0_to_100(printed: pd.DataFrame) -> None:
    figure = radar(overview.radar_table(printed, "gpt-4o-mini", []), "published")
    assert tuple(figure.layout.polar.radialaxis.range) == (0, 100)
    assert list(figure.data[0].r) == [99.94, 99.60, 71.92, 81.00, 83.40, 68.45, 99.94]
    assert figure.data[0].theta[0] == figure.data[0].theta[-1] == "Fully<br>irrelevant"
    assert [trace.name for trace in figure.data] == ["BASE", "RAG", "Mem0", "MemU", "MemOS"]
    # Told apart without colour.
    assert len({trace.line.dash for trace in figure.data}) == 5
    assert len({trace.marker.symbol for trace in figure.data}) == 5


def test_a_system_looks_the_same_whatever_stands_beside_it(printed: pd.DataFrame) -> None:
    whole = radar(overview.radar_table(printed, "gpt-4o-mini", []))
    alone = radar(overview.radar_table(printed, "gpt-4o-mini", ["memos"]))
    assert alone.data[0].line.color == whole.data[4].line.color
    assert alone.data[0].line.dash == whole.data[4].line.dash


def test_a_subtype_without_a_score_leaves_the_radar_open(printed: pd.DataFrame) -> None:
    table = overview.radar_table(printed, "gpt-4o-mini", ["base"])
    table.loc[2, "base"] = np.nan
    line = radar(table).data[0]
    assert line.r[2] is None
    assert line.customdata[2] == "n/a"
    assert line.connectgaps is False


def test_the_ranking_is_in_the_rules_order() -> None:
    frame = audit.ranking("task-mean")
    figure = drop_ranking(frame, "task-mean", "published")
    printed, recomputed = figure.data[1], figure.data[2]
    assert (printed.name, recomputed.name) == ("as printed", "recomputed: task-mean")
    assert list(recomputed.x) == sorted(recomputed.x, reverse=True)
    assert figure.layout.yaxis.autorange == "reversed"
    place = list(recomputed.y).index("gemini-2.5-flash<br>RAG")
    assert printed.x[place] == 26.2
    assert figure.layout.annotations[place].text == "▲ 3"
    assert "place 16" in printed.customdata[place]
    assert "place 13" in printed.customdata[place]
    low, high = figure.layout.xaxis.range
    assert low <= min(*printed.x, *recomputed.x)
    assert max(*printed.x, *recomputed.x) <= high


@pytest.mark.parametrize(("places", "text"), [(2, "▲ 2"), (-1, "▼ 1"), (0, "same")])
def test_moves_are_written(places: int, text: str) -> None:
    assert moved(places) == text


def test_counts_name_the_published_one_when_it_differs() -> None:
    frame = pd.DataFrame(
        [
            {"benchmark": "op", "category": "irrelevance", "subtype": "baiting", "count": 99, "published": 100.0},
            {"benchmark": "op", "category": "sycophancy", "subtype": "fact", "count": 100, "published": 100.0},
            {
                "benchmark": "locomo",
                "category": "category 4",
                "subtype": "single-hop",
                "count": 1841,
                "published": np.nan,
            },
        ]
    )
    figure = counts_by_subtype(frame)
    assert list(figure.data[0].text) == ["99 (published: 100)", "100"]
    assert list(figure.data[0].y) == ["Baiting", "Fact-level"]
    assert list(figure.data[1].text) == ["1,841"]


def test_counts_by_user_write_every_number() -> None:
    frame = pd.DataFrame({"user": ["a/<i>x</i>", "b/y"], "baiting": [5, 0], "fact": [7, 1]})
    (heatmap,) = counts_by_user(frame).data
    assert [list(row) for row in heatmap.text] == [["5", "7"], ["0", "1"]]
    assert heatmap.y[0] == "a/&lt;i&gt;x&lt;/i&gt;"
    assert heatmap.zmin == 0
    assert heatmap.colorscale[0][1] == theme.SEQUENTIAL[0][1]
