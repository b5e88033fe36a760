"""Figures of ingestions: means by hand, units on the axes, n in the hover, text of files as text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opbench.analysis import ingestions
from opbench.figures.ingestion import MEASURES, memories_by_session, session_means
from opbench.gateway.lease import Usage
from tests.analysis.test_ingestions import FIRST, MEM0, MEMU, SECOND

NASTY = "<script>alert(1)</script>"


def test_a_bar_is_the_mean_of_all_sessions_and_a_ring_a_users_own() -> None:
    ben = replace(MEM0, user="sample-1/Ben", digest="4" * 64, sessions=(FIRST,))
    figure = session_means(ingestions.by_session([MEM0, ben]), "memories")
    bar, rings = figure.data
    # 3 and 0 of Ana, 3 of Ben.
    assert list(bar.x) == [2.0]
    assert list(bar.y) == ["Mem0"]
    assert bar.customdata[0] == "2.0<br>n = 3 sessions of 2 users"
    assert list(rings.x) == [1.5, 3.0]
    assert "sample-1/Ben" in rings.customdata[1]
    assert "n = 1 session" in rings.customdata[1]
    assert figure.layout.xaxis.title.text == "memories a session, mean"


@pytest.mark.parametrize(("measure", "mean"), [("calls", 1.0), ("tokens", 8115.0), ("time", 1.5), ("cost", 0.015)])
def test_each_measure_has_its_unit(measure: str, mean: float) -> None:
    figure = session_means(ingestions.by_session([MEM0]), measure)
    assert list(figure.data[0].x) == [mean]
    assert figure.layout.xaxis.title.text == MEASURES[measure].axis
    assert MEASURES[measure].written(mean) in [note.text.strip("\u2002") for note in figure.layout.annotations]


def test_an_unknown_price_has_no_bar_and_says_so() -> None:
    unpriced = replace(MEM0, sessions=(replace(FIRST, usage=Usage(calls=1, cost_usd=None)),))
    figure = session_means(ingestions.by_session([unpriced]), "cost")
    assert list(figure.data[0].x) == [None]
    assert figure.layout.annotations[0].text.strip("\u2002") == "n/a"


def test_memories_grow_and_a_session_that_gave_none_is_a_ring() -> None:
    third = replace(SECOND, number=3, added=replace(SECOND.added, memories=2, empty=0), total=5)
    figure = memories_by_session(ingestions.by_session([replace(MEM0, sessions=(FIRST, SECOND, third))]))
    (line,) = figure.data
    assert list(line.x) == [1, 2, 3]
    assert list(line.y) == [3, 3, 5]
    assert list(line.marker.symbol) == ["circle", "circle-open", "circle"]
    assert "1 of 1 extractions gave none" in line.customdata[1]
    assert "session 2, 9 May 2023" in line.customdata[1]
    assert (figure.layout.xaxis.title.text, figure.layout.yaxis.title.text) == (
        "session of the conversation",
        "memories kept, in all",
    )


def test_two_systems_are_two_lines_and_names_are_text() -> None:
    other = replace(MEMU, label=NASTY, sessions=(replace(FIRST, day=NASTY),))
    frame = ingestions.by_session([MEM0, other])
    for figure in (memories_by_session(frame), session_means(frame, "memories")):
        assert NASTY not in figure.to_json().replace("\\u003c", "<")
    assert [line.name for line in memories_by_session(frame).data] == ["Mem0", "&lt;script&gt;alert(1)&lt;/script&gt;"]
