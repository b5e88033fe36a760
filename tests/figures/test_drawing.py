"""Panels stand where they should, and what Plotly doesn't know is refused."""

from __future__ import annotations

import pytest

from opbench.figures.drawing import Drawing


def test_panels_share_the_height_by_their_weights_from_the_top() -> None:
    # 0.8 of the height is left for panels beside two gaps of 0.1: 0.4, 0.2 and 0.2 of it.
    layout = Drawing(rows=3, heights=[2, 1, 1], spacing=0.1).figure("title").layout
    domains = [layout.yaxis.domain, layout.yaxis2.domain, layout.yaxis3.domain]
    assert domains[0] == pytest.approx((0.6, 1.0))
    assert domains[1] == pytest.approx((0.3, 0.5))
    assert domains[2] == pytest.approx((0.0, 0.2))
    assert [layout.xaxis.matches, layout.xaxis3.showticklabels] == [None, None]


def test_panels_with_one_x_axis_are_labelled_at_the_bottom_alone() -> None:
    layout = Drawing(rows=2, shared_x=True).figure("title").layout
    assert [layout.xaxis.matches, layout.xaxis.showticklabels] == ["x2", False]
    assert [layout.xaxis2.matches, layout.xaxis2.showticklabels] == [None, None]


def test_heads_lines_and_words_belong_to_their_panel() -> None:
    drawing = Drawing(["first", "second"], rows=2, spacing=0.2)
    drawing.add("bar", 2, x=["a"], y=[1])
    drawing.level(50.0, {"width": 1}, 2)
    drawing.upright(0.0, {"width": 1})
    drawing.note(2, x="a", y=1, text="n/a")
    drawing.x(2, title="points")
    figure = drawing.figure("title", legend={"y": -0.5})
    assert [(note.text, note.y) for note in figure.layout.annotations[:2]] == [
        ("first", pytest.approx(1.0)),
        ("second", pytest.approx(0.4)),
    ]
    word = figure.layout.annotations[2]
    assert (word.xref, word.yref, word.showarrow) == ("x2", "y2", False)
    level, upright = figure.layout.shapes
    assert (level.y0, level.y1, level.xref, level.yref) == (50.0, 50.0, "x2 domain", "y2")
    assert (upright.x0, upright.x1, upright.xref, upright.yref) == (0.0, 0.0, "x", "y domain")
    assert (figure.data[0].xaxis, figure.data[0].yaxis) == ("x2", "y2")
    assert [figure.layout.xaxis.title.text, figure.layout.xaxis2.title.text] == [None, "points"]
    assert [figure.layout.legend.y, figure.layout.legend.orientation] == [-0.5, "h"]


def test_a_property_that_plotly_does_not_know_is_refused() -> None:
    drawing = Drawing()
    drawing.add("bar", x=[1], y=[1], colour="red")
    with pytest.raises(ValueError, match="colour"):
        drawing.figure("title")
