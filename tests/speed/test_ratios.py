"""When a ratio counts as fallen, and what a baseline keeps."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from tests.speed.ratios import BASELINE, Ratio, fallen, read_baseline, write_baseline


@pytest.mark.parametrize(
    ("now", "fell"),
    # Two thirds of 0.30 are 0.20.
    [(0.30, False), (0.45, False), (0.21, False), (0.20, True), (0.19, True), (0.0, True), (math.nan, True)],
)
def test_a_ratio_has_fallen_at_two_thirds(now: float, fell: bool) -> None:
    found = fallen([Ratio("engine/floor", now, "")], {"engine/floor": 0.30})
    assert bool(found) is fell


def test_each_fallen_ratio_is_a_line_of_its_own() -> None:
    ratios = [Ratio("a", 0.15, ""), Ratio("b", 1.0, ""), Ratio("c", 2.0, ""), Ratio("new", 0.1, "")]
    assert fallen(ratios, {"a": 0.30, "b": 1.4, "c": 4.0}) == [
        "a: 0.150, 50 % below the baseline's 0.300",
        "c: 2.000, 50 % below the baseline's 4.000",
    ]


def test_a_ratio_that_was_not_measured_has_fallen_unless_its_part_was_left_out() -> None:
    assert fallen([], {"a": 0.30}) == ["a: the baseline has 0.300, and it wasn't measured"]
    assert fallen([], {"a": 0.30}, whole=False) == []


def test_a_baseline_is_ratios_and_the_machine_and_keeps_what_was_not_measured_again(tmp_path: Path) -> None:
    file = tmp_path / "baseline.json"
    write_baseline([Ratio("a", 0.123456, "x"), Ratio("b", 2.0, "y")], file)
    write_baseline([Ratio("b", 3.0, "y")], file)
    assert read_baseline(file) == {"a": 0.1235, "b": 3.0}
    assert set(json.loads(file.read_text())["taken_on"]) == {"processor", "processors", "machine", "system", "python"}


def test_an_aim_is_met_or_missed() -> None:
    assert Ratio("engine/floor", 0.31, "1,600 of 5,170", 0.30).line == (
        "engine/floor 0.310  (1,600 of 5,170)  aim 0.30: met"
    )
    assert Ratio("engine/floor", 0.29, "x", 0.30).line.endswith("aim 0.30: MISSED")


def test_the_stored_baseline_has_the_engines_ratio() -> None:
    assert "engine/floor" in read_baseline(BASELINE)
