"""The spread of changes: bins worked out by hand, colours on the right side, numbers on hover."""

from __future__ import annotations

import pandas as pd

from opbench.figures import theme
from opbench.figures.differences import binned, spread_of_changes


def changes(op: list[float], locomo: list[float] = []) -> pd.DataFrame:  # noqa: B006  never changed
    rows = [("op", value) for value in op] + [("locomo", value) for value in locomo]
    return pd.DataFrame(rows, columns=["benchmark", "change"])


def test_bins_hold_changes_up_to_and_with_their_far_end() -> None:
    bins = binned(changes([0.0, 1e-12, 0.5, 10.0, 10.5, -10.0, -100.0, 100.0]))
    counted = {row["change"]: row["n"] for row in bins.to_dict("records") if row["n"]}
    assert counted == {
        "equal": 2,
        "over 0 to +10 points": 2,
        "over +10 to +20 points": 1,
        "over 0 to −10 points": 1,
        "over −90 to −100 points": 1,
        "over +90 to +100 points": 1,
    }
    assert len(bins) == 21


def test_a_change_of_thirty_is_not_a_bit_over_thirty() -> None:
    # 100 × (0.7 − 0.4) is 29.999…; 100 × 0.9 − 100 × 0.6 is 30.000…1.
    bins = binned(changes([100 * 0.7 - 100 * 0.4, 100 * 0.9 - 100 * 0.6]))
    assert bins.loc[bins["n"] > 0, "change"].tolist() == ["over +20 to +30 points"]


def test_repetition_beyond_a_hundred_stays_in_the_last_bin() -> None:
    assert binned(changes([107.0]))["n"].iloc[-1] == 1


def test_one_panel_a_benchmark_with_n_and_numbers_on_hover() -> None:
    figure = spread_of_changes(changes([5.0, -5.0, 0.0], [20.0]), "not comparable with the paper")
    assert [each.text for each in figure.layout.annotations] == ["OP-Bench, n = 3", "LoCoMo, n = 1"]
    assert "not comparable" in figure.layout.title.text
    assert sum(figure.data[0].y) == 3
    assert "instances" in figure.data[0].hovertemplate
    assert figure.layout.xaxis.title.text == "change, points"


def test_equal_is_grey_worse_and_better_are_the_two_ends_of_the_scale() -> None:
    colours = spread_of_changes(changes([1.0])).data[0].marker.color
    assert colours[10] == theme.GREY
    assert colours[0] == "rgb(224, 130, 20)"
    assert colours[20] == "rgb(128, 115, 172)"
    assert len({colours[9], colours[10], colours[11]}) == 3


def test_nothing_to_show_is_an_empty_figure() -> None:
    assert len(spread_of_changes(changes([])).data) == 0
