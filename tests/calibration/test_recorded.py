"""A run's judgings as a file: the same numbers in another store, once, and for the same responses only."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from opbench.calibration.recorded import export_judgings, import_judgings
from opbench.errors import DataError, UsageError
from opbench.store import bundle, schema
from opbench.store.database import Store, open_store
from opbench.store.judgings import (
    JudgementRow,
    judging_list,
    read_judgements,
    run_scores,
    save_judgements,
    start_judging,
)
from opbench.store.record import sha256_of
from tests.pages.made_run import MADE, write_run

Made = tuple[Store, Path, Path]


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Made]:
    """A store with a run that was judged again, its bundle, and the judgings' file."""
    store = open_store(f"sqlite:///{tmp_path}/first.sqlite")
    write_run(store)
    judge(store, "strict · own", 0.25)
    judge(store, "random", 0.5)
    file = tmp_path / "made.judgings.jsonl"
    export_judgings(store, MADE, file)
    yield store, bundle.export_run(store, MADE, tmp_path / "made.opbench.zip"), file
    store.close()


def judge(store: Store, label: str, value: float, run_id: str = MADE) -> str:
    """Every record gets the same value, the first one none; one call failed in transport."""
    with store.begin() as connection:
        records = connection.execute(
            schema.records.select().where(schema.records.c.run_id == run_id).order_by(schema.records.c.id)
        ).all()
    identity = start_judging(
        store, run_id=run_id, judge=label.split(" ")[0], label=label, provenance={"judge": label}, repeats=1
    )
    rows = [
        JudgementRow(
            item=f"{row.configuration_id}|{row.instance_id}",
            repeat=0,
            response_sha256=sha256_of(row.response or ""),
            metric="score",
            value=None if place < 2 else value,
            reason="no clear score" if place < 2 else None,
            raw="the judge's words",
            retriable=place == 1,
            prompt_tokens=100,
            completion_tokens=5,
            cost_usd=0.001,
            duration_ms=12.5,
            reused=False,
            made_at=1.0,
        )
        for place, row in enumerate(records)
    ]
    save_judgements(store, identity, rows)
    return identity


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Store]:
    store = open_store(f"sqlite:///{tmp_path}/second.sqlite")
    yield store
    store.close()


def test_another_store_gets_the_same_scores(made: Made, other: Store) -> None:
    store, zipped, file = made
    recorded = bundle.import_run(other, zipped)
    new = import_judgings(other, file)
    before, after = judging_list(store, run_id=MADE), judging_list(other, run_id=recorded)
    assert [row.label for row in after] == ["strict · own", "random"]
    assert [row.judge for row in after] == [row.judge for row in before]
    assert [row.digest for row in after] == [row.digest for row in before]
    # The one that failed in transport would be asked again: it isn't handed on.
    assert [row.judgements for row in after] == [row.judgements - 1 for row in before]
    assert new == sum(row.judgements for row in after)
    scores = [run_scores(each, rows[0].id) for each, rows in ((store, before), (other, after))]
    key = ["model", "memory", "mitigation", "instance", "metric"]
    merged = scores[1].merge(scores[0], on=key, suffixes=("", "_before"))
    assert len(merged) == len(scores[1]) == len(scores[0]) - 1
    assert merged["value"].equals(merged["value_before"])
    assert merged["value"].isna().sum() == 1
    assert after[0].cost_usd == pytest.approx(0.001 * after[0].judgements)


def test_no_text_leaves_with_it(made: Made) -> None:
    _, _, file = made
    assert "the judge's words" not in file.read_text("utf-8")
    kinds = [json.loads(line)["kind"] for line in file.read_text("utf-8").splitlines()]
    assert kinds[0] == "judgings"
    assert kinds.count("judging") == 2


def test_reading_it_again_changes_nothing(made: Made, other: Store) -> None:
    _, zipped, file = made
    bundle.import_run(other, zipped)
    import_judgings(other, file)
    ids = [row.id for row in judging_list(other)]
    before = read_judgements(other, ids)
    assert import_judgings(other, file) == 0
    assert read_judgements(other, ids).equals(before)


def test_it_counts_for_the_same_response_only(made: Made, other: Store) -> None:
    _, zipped, file = made
    recorded = bundle.import_run(other, zipped)
    import_judgings(other, file)
    (row, _) = judging_list(other, run_id=recorded)
    before = len(run_scores(other, row.id))
    with other.begin() as connection:
        first = connection.execute(schema.records.select().order_by(schema.records.c.id.desc())).first()
        assert first is not None
        of_it = schema.records.c.id == first.id
        connection.execute(schema.records.update().where(of_it).values(response="made again"))
    assert len(run_scores(other, row.id)) == before - 1


def test_a_run_that_is_not_here_and_damage_are_told_in_one_line(made: Made, other: Store, tmp_path: Path) -> None:
    _, zipped, file = made
    with pytest.raises(DataError, match=f"run {MADE} isn't in this store. Import its bundle first"):
        import_judgings(other, file)
    bundle.import_run(other, zipped)
    lines = file.read_text("utf-8").splitlines()
    damaged = tmp_path / "damaged.judgings.jsonl"
    for changed, wanted in (
        ([*lines[:2], lines[2].replace('"value":', '"value":7,"x":')], "line 3: judgement"),
        ([lines[0], lines[2]], "a judgement before its judging"),
        (lines[1:], "line 1 isn't the head"),
        ([lines[0].replace('"format":1', '"format":9')], "line 1 isn't the head of judgings of format 1"),
        ([*lines[:1], "{"], "line 2"),
    ):
        damaged.write_text("\n".join(changed), "utf-8")
        with pytest.raises(DataError, match=wanted) as caught:
            import_judgings(other, damaged)
        assert "\n" not in str(caught.value)
    with pytest.raises(DataError, match="can't be read"):
        import_judgings(other, tmp_path / "nowhere")
    with pytest.raises(UsageError, match="has no judgings"):
        export_judgings(other, "nobody", tmp_path / "none")
