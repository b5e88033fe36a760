"""The grid of a study: each cell its records done of those planned, errors marked, what isn't there empty."""

from __future__ import annotations

import pandas as pd

from opbench.figures.progress import progress_grid


def grid(*rows: tuple[str, str, str, int, int, int]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["model", "memory", "mitigation", "planned", "done", "errors"])


def test_cells_are_the_share_done_and_say_n_of_n() -> None:
    figure = progress_grid(
        grid(
            ("m", "base", "none", 12, 12, 0),
            ("m", "rag", "none", 12, 6, 0),
            ("m", "rag", "reminder", 12, 3, 2),
        )
    )
    (heat,) = figure.data
    assert list(heat.y) == ["BASE", "RAG"]
    assert list(heat.x) == ["no<br>post-processor", "Reminder"]
    assert [list(line) for line in heat.z] == [[1.0, None], [0.5, 0.25]]
    assert (heat.zmin, heat.zmax) == (0, 1)
    assert [list(line) for line in heat.text] == [
        ["12<br>of 12", ""],
        ["6<br>of 12", "3<br>of 12<br>✗ 2"],
    ]
    hover = [list(line) for line in heat.customdata]
    assert "BASE has no memories" in hover[0][1]
    assert "n = 3 of 12 done (25 %)" in hover[1][1]
    assert "7 waiting<br>2 failed" in hover[1][1]


def test_several_models_are_rows_of_their_own() -> None:
    figure = progress_grid(grid(("a", "rag", "none", 2, 1, 0), ("b", "rag", "none", 2, 2, 0)))
    (heat,) = figure.data
    assert list(heat.y) == ["RAG<br><sub>a</sub>", "RAG<br><sub>b</sub>"]
    assert [list(line) for line in heat.z] == [[0.5], [1.0]]


def test_rate_and_kinds_are_in_the_hover_and_no_name_is_html() -> None:
    frame = grid(("<b>m</b>", "rag", "<i>x</i>", 4, 1, 1)).assign(rate=0.5, kinds="1 × <u>auth</u>")
    (heat,) = progress_grid(frame).data
    said = heat.customdata[0][0]
    assert "30.0 records a minute" in said
    assert "1 failed: 1 × &lt;u&gt;auth&lt;/u&gt;" in said
    assert "&lt;b&gt;m&lt;/b&gt;" in said
    assert heat.x[0] == "&lt;i&gt;x&lt;/i&gt;"


def test_nothing_planned_is_no_share() -> None:
    (heat,) = progress_grid(grid(("m", "rag", "none", 0, 0, 0))).data
    assert heat.z[0][0] is None


def test_thousands_in_narrow_columns_are_percent_with_the_counts_in_the_hover() -> None:
    methods = ("none", "reminder", "marag", "comorag")
    (heat,) = progress_grid(grid(*(("m", "rag", name, 3240, 810, 5) for name in methods))).data
    assert list(heat.text[0]) == ["25 %<br>✗ 5"] * 4
    assert "n = 810 of 3,240 done (25 %)" in heat.customdata[0][0]
