"""A view as one HTML file: what it holds, what it leaves out, and what it can never do."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from datetime import UTC, datetime
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import pytest

from opbench.sharing.html import MOST_ROWS, holds_texts, view_html
from opbench.sharing.sheet import Chart, Column, Data, Sheet, Text, Words

MADE = datetime(2026, 5, 4, 3, 2, tzinfo=UTC)
LINK = "http://127.0.0.1:8501/trade-off?run=abc&rule=instance"
NASTY = "</script><script>alert(1)</script> <img src=x onerror=alert(2)> \u2028 & \u202etxt.exe"


def sheet(*blocks: Any, **more: Any) -> Sheet:
    return Sheet("trade-off", "Does it help?", **more, blocks=list(blocks))


def numbers(texts: tuple[str, ...] = ()) -> Data:
    frame = pd.DataFrame(
        {"memory": ["RAG", "Mem0"], "change": [1.26, float("nan")], "question": ["Secret one?", "Secret two?"]}
    )
    columns = {"memory": Column("memory"), "change": Column("OP-Bench", "%+.1f"), "question": Column("question")}
    return Data("changes", frame, columns, frame.assign(exact=[0.1 + 0.2, 1e-17]), texts)


def embedded(html: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.S)
    assert found
    data: dict[str, Any] = json.loads(found[1])
    return data


def scripts(html: str) -> list[str]:
    return re.findall(r"<script>(.*?)</script>", html, re.S)


def test_title_marks_link_and_time_are_in_it() -> None:
    html = view_html(sheet(numbers(), marks=["run abc", "rule: instance", "run abc"]), link=LINK, made=MADE)
    assert "<h1>Does it help?</h1>" in html
    assert html.count("<li>run abc</li>") == 1
    assert "Exported 2026-05-04 03:02 UTC" in html
    assert 'href="http://127.0.0.1:8501/trade-off?run=abc&amp;rule=instance"' in html


def test_cells_are_as_on_the_page_and_the_data_is_exact() -> None:
    html = view_html(sheet(numbers()))
    assert ">+1.3<" in html
    assert ">n/a<" in html
    (table,) = embedded(html)["tables"]
    assert table["columns"] == ["memory", "change", "question", "exact"]
    assert table["rows"][0] == ["RAG", 1.26, "Secret one?", 0.30000000000000004]
    assert table["rows"][1] == ["Mem0", None, "Secret two?", 1e-17]


def test_texts_are_left_out_unless_asked_for_and_that_is_said() -> None:
    view = sheet(numbers(("question",)), Words("The response", "Private words."))
    assert holds_texts(view)
    without = view_html(view)
    assert "Secret" not in without
    assert "Private words" not in without
    assert "question (changes), The response" in without
    assert embedded(without)["tables"][0]["columns"] == ["memory", "change", "exact"]
    assert embedded(without)["with_texts"] is False
    whole = view_html(view, with_texts=True)
    assert "Secret one?" in whole
    assert "Private words." in whole
    assert 'id="left-out"' not in whole
    assert "may not be passed on freely" in whole


def test_a_view_without_texts_says_nothing_of_them() -> None:
    html = view_html(sheet(numbers()))
    assert not holds_texts(sheet(numbers()))
    assert 'id="left-out"' not in html
    assert "may not be passed on freely" not in html


def test_text_never_becomes_html_or_ends_a_script() -> None:
    frame = pd.DataFrame({"said": [NASTY]})
    figure = go.Figure(go.Bar(x=[NASTY], y=[1]), {"title": {"text": NASTY}})
    view = Sheet(
        "p",
        NASTY,
        [NASTY],
        [
            Text(NASTY, heading=True),
            Text(NASTY),
            Words(NASTY, NASTY),
            Chart("c", figure, NASTY),
            Data(NASTY, frame, {"said": Column(NASTY, help=NASTY)}, frame),
        ],
        {NASTY: NASTY, "all": {NASTY: NASTY}},
    )
    html = view_html(view, link="javascript:alert(1)", with_texts=True)
    assert "<script>alert" not in html
    assert "<img" not in html.split('id="data"')[0]
    assert "javascript:" not in html.split('id="data"')[0]
    # Two scripts of its own, the data, and nothing else that a browser would run.
    assert len(scripts(html)) == 2
    assert embedded(html)["charts"][0]["figure"]["data"][0]["x"] == [NASTY]
    assert "\u2028" not in html
    # What reorders the text around it is written out, as on the page.
    assert "⟨RLO⟩txt.exe" in html


def test_the_policy_allows_its_own_scripts_and_no_request() -> None:
    html = view_html(sheet(Chart("c", go.Figure(go.Bar(x=[1], y=[2])), "A bar")))
    found = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', html)
    assert found
    rules = dict(part.strip().split(" ", 1) for part in found[1].replace("&#39;", "'").split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["img-src"] == "data: blob:"
    assert "connect-src" not in rules
    digests = [base64.b64encode(hashlib.sha256(each.encode()).digest()).decode() for each in scripts(html)]
    assert rules["script-src"].split() == [f"'sha256-{digest}'" for digest in digests]
    for tag in re.findall(r"<(?:link|img|iframe|script|source|object)\b[^>]*>", html.split('id="data"')[0]):
        assert "src=" not in tag
        assert "href=" not in tag


def test_plotly_is_there_once_with_figures_and_not_without() -> None:
    bar = go.Figure(go.Bar(x=[1], y=[2]))
    two = view_html(sheet(Chart("a", bar, "A bar"), Chart("b", bar, "Another")))
    assert two.count("plotly.js v") == 1
    assert two.count('data-picture="png"') == two.count('data-picture="svg"') == 2
    assert embedded(two)["charts"][0]["figure"]["config"]["displaylogo"] is False
    assert "plotly.js v" not in view_html(sheet(numbers()))


def test_of_a_long_table_the_first_rows_are_drawn_and_all_are_in_the_data() -> None:
    frame = pd.DataFrame({"n": range(MOST_ROWS + 7)})
    html = view_html(sheet(Data("long", frame, {"n": Column("n", "%d")}, frame)))
    assert html.count("<tr>") == MOST_ROWS + 1
    assert f"The first {MOST_ROWS} of {MOST_ROWS + 7} rows" in html
    assert len(embedded(html)["tables"][0]["rows"]) == MOST_ROWS + 7


def test_provenance_is_told_flat_and_whole() -> None:
    html = view_html(sheet(provenance={"judge": "offline", "all": {"data": {"a.json": "0f" * 32}}}))
    assert '<th scope="row">judge</th><td class="long">offline</td>' in html
    assert "0f" * 32 in html
    assert embedded(html)["provenance"]["all"] == {"data": {"a.json": "0f" * 32}}


@pytest.mark.parametrize(
    ("value", "form", "shown"),
    [
        (0.125, "%.1f", "0.1"),
        (-1.06, "%+.1f", "-1.1"),
        (38.6, "%.0f %%", "39 %"),
        (1234.6, "%.0f ms", "1235 ms"),
        (3.0, "%d", "3"),
        (0.256, "percent", "25.60%"),
        (None, "%.1f", "n/a"),
        (float("nan"), None, "n/a"),
        (True, None, "yes"),
        (["a", 2], None, "a, 2"),
    ],
)
def test_a_cell_is_shown_as_its_column_says(value: object, form: str | None, shown: str) -> None:
    from opbench.sharing.tables import cell

    assert cell(value, form) == shown
