"""Distributions of times, tokens and cost as figures."""

from __future__ import annotations

from typing import Any

import pandas as pd
import plotly.graph_objects as go
import pytest

from opbench.analysis.latency import PERCENTILES
from opbench.figures.distributions import spread_boxes, spread_curves
from opbench.figures.latency import latency_bars
from opbench.figures.spending import cost_bars, dollars, token_bars

NAN = float("nan")


def spread_row(mitigation: str, n: int = 10, factor: float = 1.0, stage: str = "total") -> dict[str, Any]:
    """The q-th percentile is (q + 1) × factor × 100 ms."""
    times = {f"p{each}_ms": (each + 1) * factor * 100.0 if n else NAN for each in PERCENTILES}
    known = {"n": n, "n_reused": 1 if n else 0, "concurrency": "4" if n else ""}
    return {
        "model": "m",
        "memory": "rag",
        "mitigation": mitigation,
        "stage": stage,
        "mean_ms": 6000.0 if n else NAN,
        **times,
        **known,
    }


SPREAD = pd.DataFrame([spread_row("none"), spread_row("reminder", factor=2.0), spread_row("abstain", n=0)])


def test_boxes_are_drawn_from_percentiles_in_seconds() -> None:
    box, _, mean, longest = spread_boxes(SPREAD, "total").data
    assert list(box.y) == ["no post-processor", "Reminder"]
    assert [list(box[side]) for side in ("lowerfence", "q1", "median", "q3", "upperfence")] == [
        pytest.approx(values) for values in ([0.6, 1.2], [2.6, 5.2], [5.1, 10.2], [7.6, 15.2], [9.6, 19.2])
    ]
    assert list(mean.x) == [6.0, 6.0]
    assert list(longest.x) == pytest.approx([10.1, 20.2])
    assert longest.customdata[0] == (
        "median 5.10 s, mean 6.00 s<br>half of them 2.60 s to 7.60 s<br>90 of 100 600 ms to 9.60 s<br>longest 10.10 s"
        "<br>n = 10, 1 of them reused<br>concurrency 4"
    )


def test_what_did_not_happen_is_said_and_has_no_box() -> None:
    figure = spread_boxes(SPREAD, "total")
    assert [(note.y, note.text) for note in figure.layout.annotations] == [("always abstain", "didn't happen")]
    assert list(figure.layout.yaxis.categoryarray) == ["always abstain", "Reminder", "no post-processor"]


@pytest.mark.parametrize("draw", [spread_boxes, spread_curves])
def test_a_long_tail_has_a_logarithmic_axis_that_says_so(draw: Any) -> None:
    long = draw(SPREAD, "total").layout.xaxis
    assert (long.type, long.title.text) == ("log", "seconds, logarithmic")
    assert {0.5, 1, 2, 5, 10} <= set(long.tickvals)
    short = SPREAD.copy()
    for each in PERCENTILES:
        short[f"p{each}_ms"] += 10_000.0  # 10.1 to 30.2 s
    axis = draw(short, "total").layout.xaxis
    assert (axis.type, axis.title.text) == (None, "seconds")


def test_a_time_of_zero_has_no_logarithm() -> None:
    zero = SPREAD.assign(p0_ms=0.0, p1_ms=0.0, p5_ms=0.0)
    assert spread_boxes(zero, "total").layout.xaxis.type is None


def test_curves_hold_the_percentiles_and_no_record() -> None:
    figure = spread_curves(SPREAD, "total")
    assert [trace.name for trace in figure.data] == ["no post-processor", "Reminder"]
    plain, reminder = figure.data
    assert list(reminder.y) == list(PERCENTILES)
    assert reminder.x[list(PERCENTILES).index(95)] == pytest.approx(19.2)
    assert plain.line.color != reminder.line.color


def test_one_stage_alone() -> None:
    frame = pd.concat([SPREAD, pd.DataFrame([spread_row("none", stage="post")])])
    assert list(spread_boxes(frame, "post").data[0].y) == ["no post-processor"]


def test_a_probe_has_bars_of_its_own() -> None:
    rows = [
        {
            "model": "m",
            "memory": "rag",
            "mitigation": "none",
            "stage": "response",
            "source": source,
            "mean_ms": mean,
            "std_ms": 1.0,
            "median_ms": mean,
            "p95_ms": mean,
            "n": 3,
            "n_reused": 0,
            "concurrency": concurrency,
        }
        for source, mean, concurrency in (("this run", 900.0, "8"), ("probe", 300.0, "1"))
    ]
    _, _, response, _ = latency_bars(pd.DataFrame(rows)).data
    assert list(response.y) == ["this run", "probe"]
    assert list(response.x) == [0.9, 0.3]
    assert "concurrency 8" in response.customdata[0]


def spent(mitigation: str, post: float, response: float, per_1000: float, priced: int = 4) -> dict[str, Any]:
    tokens = {
        "post_prompt": post,
        "post_completion": post / 10,
        "response_prompt": response,
        "response_completion": response / 10,
    }
    return {
        "model": "m",
        "memory": "rag",
        "mitigation": mitigation,
        "n_done": 4,
        "n_counted": 4,
        "n_priced": priced,
        **{f"{name}_per_query": value for name, value in tokens.items()},
        **{f"{name}_tokens": 4 * value for name, value in tokens.items()},
        "cost_usd": per_1000 * 0.004,
        "cost_usd_per_1000": per_1000,
    }


SPENT = pd.DataFrame([spent("none", NAN, 300.0, 1.5), spent("reminder", 200.0, 100.0, NAN, priced=0)])


def test_tokens_by_stage() -> None:
    post_in, post_out, response_in, response_out, ends = token_bars(SPENT).data
    assert list(post_in.x) == [None, 200.0]
    assert list(post_out.x) == [None, 20.0]
    assert list(response_in.x) == [300.0, 100.0]
    assert list(response_out.x) == [30.0, 10.0]
    assert list(ends.text) == ["330", "330"]
    assert post_in.customdata[0] == "none, or not told"
    assert post_in.customdata[1] == "200.0 a query<br>800 in all, n = 4"


def test_an_unknown_price_is_not_free() -> None:
    bars, ends = cost_bars(SPENT).data
    assert list(bars.x) == [1.5, None]
    assert list(ends.text) == ["$1.50", "price unknown"]
    assert bars.customdata[0] == "$1.50 for 1,000 queries<br>$0.006 in all, n = 4 of 4"
    assert bars.customdata[1] == "no price is known (0 of 4 records)"


def test_dollars() -> None:
    written = [dollars(amount) for amount in (0.0, 1234.5, 0.1, 0.0042, NAN)]
    assert written == ["$0.00", "$1,234.50", "$0.10", "$0.0042", "unknown"]


@pytest.mark.parametrize(
    "figure", [spread_boxes(SPREAD, "total"), spread_curves(SPREAD, "total"), token_bars(SPENT), cost_bars(SPENT)]
)
def test_backgrounds_and_fonts_are_left_to_the_page(figure: go.Figure) -> None:
    assert figure.layout.paper_bgcolor == "rgba(0,0,0,0)"
    assert figure.layout.font.color is None


def test_a_name_stays_text() -> None:
    frame = pd.DataFrame([spread_row("<b>bold</b>"), spread_row("none")])
    assert "&lt;b&gt;bold&lt;/b&gt;" in spread_boxes(frame, "total").data[0].y
    assert "&lt;b&gt;bold&lt;/b&gt;" in token_bars(SPENT.assign(mitigation=["<b>bold</b>", "x"])).data[0].y
