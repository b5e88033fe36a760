"""The funnel of a small build, counted by hand, and the paper's own numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from opbench.analysis.funnel import funnel, published_funnel, reasons
from opbench.construction.spec import BuildSpec
from opbench.figures.funnel import funnel as figure
from opbench.store.database import Store, open_store
from tests.construction.built import add, candidate, made_build


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(f"sqlite:///{tmp_path / 'store.sqlite3'}")


def built(store: Store) -> str:
    build_id = made_build(store, BuildSpec())
    fates = [
        *[("dropped", "format", "fact")] * 2,
        ("dropped", "length", "value"),
        *[("dropped", "duplicate", "fact")] * 3,
        ("dropped", "true-memory", "memory"),
        ("candidate", None, "memory"),
        *[("kept", None, "fact")] * 4,
        *[("rejected", "review", "fact")] * 2,
        ("accepted", "review", "value"),
    ]
    for n, (state, by, subtype) in enumerate(fates):
        generator = "second" if n % 2 else "first"
        made = candidate(n, f"Question {n}?", subtype, state=state, decided_by=by, generator=generator)
        add(store, build_id, made)
    return build_id


def test_every_step_is_what_the_step_before_left_less_what_it_dropped_and_what_waits(store: Store) -> None:
    frame = funnel(store, built(store)).set_index("step")
    assert dict(frame["n"]) == {
        **{"generated": 15, "format": 13, "length": 12, "template": 12, "duplicate": 9, "true-memory": 8},
        **{"personal": 8, "filtered": 7, "reviewed": 5, "accepted": 1},
    }
    assert frame.loc["filtered", "undecided"] == 1
    assert frame.loc["reviewed", "dropped"] == 2
    assert frame.loc["accepted", "undecided"] == 4
    assert frame.loc["filtered", "share"] == pytest.approx(7 / 15)
    before = frame["n"].shift(1, fill_value=15)
    assert (before - frame["dropped"] - frame["undecided"] == frame["n"]).all()


def test_parts_add_up_to_the_whole(store: Store) -> None:
    build_id = built(store)
    whole = funnel(store, build_id)
    parts = [funnel(store, build_id, generator=name) for name in ("first", "second")]
    assert list(parts[0]["n"] + parts[1]["n"]) == list(whole["n"])
    assert list(funnel(store, build_id, subtype="memory")["n"]) == [2, 2, 2, 2, 2, 1, 1, 0, 0, 0]


def test_a_build_without_candidates_has_no_shares(store: Store) -> None:
    frame = funnel(store, made_build(store, BuildSpec()))
    assert list(frame["n"]) == [0] * 10
    assert frame["share"].isna().all()
    figure(frame)


def test_reasons_by_generator_and_subtype(store: Store) -> None:
    frame = reasons(store, built(store))
    assert int(frame["n"].sum()) == 7
    assert frame.iloc[0].to_dict() == {"generator": "second", "subtype": "fact", "filter": "duplicate", "n": 2}


def test_the_papers_funnel() -> None:
    frame = published_funnel()
    assert list(frame["n"]) == [10_000, 4_289, 3_075, 1_700]
    # 28.3 % of 4,289 are 1,214; and 1,700 of 4,289 are the 39.6 % that the paper tells.
    assert list(frame["dropped"]) == [0, 5_711, 1_214, 1_375]
    assert frame["n"].iloc[3] / frame["n"].iloc[1] == pytest.approx(0.396, abs=5e-4)


def test_the_bars_of_a_step_are_as_long_as_what_the_step_before_left(store: Store) -> None:
    frame = funnel(store, built(store))
    drawn = figure(frame, mark="made here")
    bars = {trace.name: list(trace.x) for trace in drawn.data if trace.type == "bar"}
    lengths = [sum(parts) for parts in zip(*bars.values(), strict=True)]
    assert lengths == [15, *frame["n"].iloc[:-1]]
    assert drawn.layout.barmode == "stack"
    hover = drawn.data[0].customdata[4]
    assert hover == "9 left, 60 % of all generated<br>3 of 12 dropped (25 %)"
