"""When what is kept of a run is read anew."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from opbench.store.reading import RunStatus
from pages.shared import results

STATUS = RunStatus(
    run_id="r1",
    name="",
    created_at=0.0,
    recorded=False,
    text_left_out=False,
    planned=100_000,
    done=90,
    errors=1,
    unscored=2,
    retriable=3,
    error_kinds={},
    missing_reasons={},
    by_configuration=pd.DataFrame(),
    request="go",
    working=False,
)


@pytest.mark.parametrize(
    "news",
    [{"done": 91}, {"errors": 0}, {"unscored": 1}, {"retriable": 0}, {"bundle_sha256": "another"}, {"working": True}],
)
def test_what_changes_a_runs_numbers_changes_its_stamp(news: dict[str, object]) -> None:
    assert results.stamp(replace(STATUS, **news)) != results.stamp(STATUS)  # type: ignore[arg-type]


def test_a_large_run_at_work_is_read_once_in_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    stamps = []
    for second in range(110):
        monkeypatch.setattr("pages.shared.results.time.time", lambda second=second: 550_000.0 + second)
        stamps.append(results.stamp(replace(STATUS, working=True, done=90 + second)))
    # 5 s and half a second for each of 100 thousand planned records: every 55 s, whatever was done meanwhile.
    assert len(set(stamps)) == 2


def test_a_small_run_at_work_is_read_every_five_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    small = replace(STATUS, working=True, planned=10)
    monkeypatch.setattr("pages.shared.results.time.time", lambda: 1_000_000.0)
    before = results.stamp(small)
    monkeypatch.setattr("pages.shared.results.time.time", lambda: 1_000_010.0)
    assert results.stamp(small) != before
