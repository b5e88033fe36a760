"""Text as text, and numbers as sentences have them."""

from __future__ import annotations

import pandas as pd
import pytest

from pages.shared import wording
from pages.shared.parts import csv, plain


def test_plain_text_keeps_its_signs() -> None:
    assert plain("a *b* [c](d) <e> $f$ :red[g]") == r"a \*b\* \[c\]\(d\) \<e\> \$f\$ \:red\[g\]"


def test_plain_text_is_one_line() -> None:
    assert plain("one\n\n# two") == r"one \# two"


def test_a_cell_is_no_formula() -> None:
    frame = pd.DataFrame({"text": ["=1+1", "@x", "fine"], "number": [-1.5, 2.0, 3.0]})
    assert csv(frame).decode().splitlines() == ["text,number", "'=1+1,-1.5", "'@x,2.0", "fine,3.0"]


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.4, "0 s"), (59.6, "1 min 00 s"), (200, "3 min 20 s"), (7500, "2 h 05 min"), (273_600, "3 d 4 h")],
)
def test_durations(seconds: float, said: str) -> None:
    assert wording.duration(seconds) == said


def test_rates_and_money() -> None:
    assert wording.rate(2.04) == "2.0/s"
    assert wording.rate(0.25) == "15.0/min"
    assert [wording.dollars(amount) for amount in (None, 0.0, 0.004, 12.345)] == [
        "unknown",
        "$0.00",
        "under $0.01",
        "$12.35",
    ]
