"""The bars of a leave-one-out: a bar a memory in both panels, nothing where nothing is known, no text of a memory."""

from __future__ import annotations

import json

from opbench.cases.outcome import Ablation, LeftOut, Outcome
from opbench.cases.telling import ablation_table
from opbench.figures import theme
from opbench.figures.cases import ablation_bars
from tests.cases.made import ABLATION, BOAT, BREAD, RAG, left_out


def test_a_bar_a_memory_in_both_panels() -> None:
    figure = ablation_bars(ablation_table(ABLATION), "scores not comparable with the paper")
    score, response = figure.data
    assert list(score.y) == list(response.y) == ["memory 1", "memory 2"]
    assert list(score.x) == [0.75, -0.25]
    assert list(score.text) == ["+0.75", "−0.25"]
    assert [round(value, 9) for value in response.x] == [0.5, 0.1]
    # To blame and not to blame differ in colour too.
    assert score.marker.color[0] != score.marker.color[1]
    assert "score" in figure.layout.xaxis.title.text
    assert "cosine" in figure.layout.xaxis2.title.text
    assert figure.layout.xaxis.range[0] < -0.25
    assert figure.layout.xaxis.range[1] > 0.75
    assert "not comparable" in figure.layout.title.text


def test_what_is_not_known_has_no_bar_and_says_so() -> None:
    failed = LeftOut(number=2, text=BOAT, outcome=Outcome(state="failed", error="<b>gone</b>"))
    figure = ablation_bars(
        ablation_table(Ablation(column=1, base=RAG, items=(left_out(1, BREAD, 1.0, 0.5), failed), over=True))
    )
    assert list(figure.data[0].x) == [0.75, None]
    assert list(figure.data[1].x) == [0.5, None]
    missing = [note for note in figure.layout.annotations if note.text == theme.MISSING]
    assert [note.y for note in missing] == ["memory 2", "memory 2"]
    assert "&lt;b&gt;gone" in figure.data[0].customdata[1]


def test_the_control_is_grey_and_hatched() -> None:
    control = left_out(0, "", 0.25, 0.9)
    figure = ablation_bars(ablation_table(ABLATION.model_copy(update={"items": (*ABLATION.items, control)})))
    assert figure.data[0].marker.color[2] == theme.GREY
    assert list(figure.data[0].marker.pattern.shape) == ["", "", "/"]


def test_a_figure_holds_no_sentence_of_a_memory_or_a_response() -> None:
    whole = json.dumps(ablation_bars(ablation_table(ABLATION)).to_dict(), default=list)
    assert "sourdough" not in whole
    assert "boat" not in whole.lower()
    assert "Without 1" not in whole
