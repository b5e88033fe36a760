"""Bundles as they go and come: people's scores, texts, a run at work, and what people scored here."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import func, select

from opbench.errors import UsageError
from opbench.store import archive
from opbench.store import bundle as bundles
from opbench.store import schema as s
from opbench.store.attention import Measured, read_attention, save_attention, words
from opbench.store.bundle import export_run, import_run
from opbench.store.database import Store, open_store
from opbench.store.reading import read_run
from opbench.store.studies import rename_run
from opbench.store.writing import FinishedRecord, save_records
from opbench.types import Score
from tests.pages.made_run import MADE, write_run


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(f"sqlite:///{tmp_path / 'other.sqlite3'}")
    yield opened
    opened.close()


def rate(store: Store, run_id: str, value: float | None, note: str, made_at: float = 5.0, **more: Any) -> None:
    """A person's score of rag · reminder on the run's first instance."""
    c, i = s.configurations.c, s.instances.c
    with store.begin() as connection:
        configuration = connection.scalar(
            select(c.id).where(c.run_id == run_id, c.memory == "rag", c.mitigation == "reminder")
        )
        instance = connection.scalar(select(i.instance_id).where(i.run_id == run_id, i.ordinal == 0))
        row = {"run_id": run_id, "configuration_id": configuration, "instance_id": instance, "rater": "ada"}
        row |= {"response_sha256": "0" * 64, "value": value, "note": note, "made_at": made_at}
        connection.execute(s.human_scores.insert().values(**row | more))


def rated(store: Store, run_id: str) -> list[tuple[Any, ...]]:
    h, c = s.human_scores.c, s.configurations.c
    query = (
        select(c.memory, c.mitigation, h.instance_id, h.value, h.note, h.rater, h.made_at)
        .join(s.configurations, c.id == h.configuration_id)
        .where(h.run_id == run_id)
        .order_by(h.made_at)
    )
    with store.begin() as connection:
        return [tuple(row) for row in connection.execute(query)]


def test_peoples_scores_go_with_the_run(store: Store, other: Store, tmp_path: Path) -> None:
    write_run(store)
    rate(store, MADE, 0.75, "a little pushy")
    rate(store, MADE, None, "", made_at=6.0)
    run = import_run(other, export_run(store, MADE, tmp_path / "a.zip"))
    assert rated(other, run) == rated(store, MADE)
    assert [row[3:] for row in rated(other, run)] == [(0.75, "a little pushy", "ada", 5.0), (None, "", "ada", 6.0)]


def test_a_note_is_a_text(store: Store, other: Store, tmp_path: Path) -> None:
    write_run(store)
    rate(store, MADE, 0.75, "quotes the answer")
    file = export_run(store, MADE, tmp_path / "a.zip", texts=False)
    with zipfile.ZipFile(file) as packed:
        assert b"quotes" not in b"".join(packed.read(name) for name in packed.namelist())
    run = import_run(other, file)
    assert [row[3:6] for row in rated(other, run)] == [(0.75, "", "ada")]


def test_what_people_scored_here_outlasts_a_newer_bundle(store: Store, other: Store, tmp_path: Path) -> None:
    write_run(store)
    run = import_run(other, export_run(store, MADE, tmp_path / "a.zip"))
    rate(other, run, 0.25, "ours")
    rate(store, MADE, 0.75, "theirs", made_at=7.0, rater="bo")
    newer = export_run(store, MADE, tmp_path / "b.zip")
    assert import_run(other, newer) == run
    assert [row[3:6] for row in rated(other, run)] == [(0.25, "ours", "ada"), (0.75, "theirs", "bo")]
    rename_run(store, MADE, "once more")
    import_run(other, export_run(store, MADE, tmp_path / "c.zip"))
    assert [row[3:6] for row in rated(other, run)] == [(0.25, "ours", "ada"), (0.75, "theirs", "bo")]
    assert read_run(other, run).name == "once more"


def test_the_same_run_gives_the_same_bytes(store: Store, tmp_path: Path) -> None:
    write_run(store, failed=2)
    first, second = (export_run(store, MADE, tmp_path / name).read_bytes() for name in ("a.zip", "b.zip"))
    assert first == second


def test_a_bundle_of_a_bundle_is_the_run_again(store: Store, other: Store, tmp_path: Path) -> None:
    write_run(store, name="pilot", failed=1, left=2)
    rate(store, MADE, 0.5, "fair")
    run = import_run(other, export_run(store, MADE, tmp_path / "a.zip"))
    third = open_store(f"sqlite:///{tmp_path / 'third.sqlite3'}")
    assert import_run(third, export_run(other, run, tmp_path / "b.zip")) == run
    ours, theirs = read_run(store, MADE), read_run(third, run)
    assert theirs.records.equals(ours.records)
    assert theirs.scores.equals(ours.scores)
    assert theirs.user_scores.equals(ours.user_scores)
    assert rated(third, run) == rated(store, MADE)
    third.close()


def test_what_would_be_too_large_to_read_isnt_written(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(store)
    monkeypatch.setattr(bundles, "LIMITS", archive.Limits(unpacked=5_000))
    with pytest.raises(UsageError, match=r"more than 5,000 bytes. Leave the texts out"):
        export_run(store, MADE, tmp_path / "a.zip")
    assert list(tmp_path.glob("*.zip*")) == []


def test_a_bundle_that_cant_be_written_leaves_nothing(store: Store, tmp_path: Path) -> None:
    write_run(store)
    with pytest.raises(UsageError, match="can't be written"):
        export_run(store, MADE, tmp_path / "no folder" / "a.zip")


def test_the_manifest_tells_format_and_digests(store: Store, tmp_path: Path) -> None:
    write_run(store)
    with zipfile.ZipFile(export_run(store, MADE, tmp_path / "a.zip")) as packed:
        manifest = json.loads(packed.read("manifest.json"))
        assert manifest["format"] == 3
        assert {f"{name}.jsonl" for name in manifest["sha256"]} == set(packed.namelist()) - {"manifest.json"}


def test_a_run_that_goes_on_meanwhile_is_written_as_it_was(
    store: Store, other: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(store, left=2)
    whole = bundles._rows

    def rows(connection: Any, run_id: str, name: str, texts: bool) -> Iterator[dict[str, Any]]:
        if name == "scores":
            # Between records and scores the run makes its last two records.
            write_more(store)
        return whole(connection, run_id, name, texts)

    monkeypatch.setattr(bundles, "_rows", rows)
    data = read_run(other, import_run(other, export_run(store, MADE, tmp_path / "a.zip")))
    assert len(data.records) == 94
    assert len(read_run(store, MADE).records) == 96


def write_more(store: Store) -> None:
    """The two records that `write_run(left=2)` leaves out, with a score each."""
    c, i = s.configurations.c, s.instances.c
    with store.begin() as connection:
        marag = connection.scalar(select(c.id).where(c.run_id == MADE, c.mitigation == "marag")) or 0
        last = connection.scalars(
            select(i.instance_id).where(i.run_id == MADE).order_by(i.ordinal.desc()).limit(2)
        ).all()
    records = [
        FinishedRecord(marag, each, {"status": "done", "response": "Late.", "finished_at": 3.0}) for each in last
    ]
    for record in records:
        record.judge, record.scores = "offline", [Score("f1", 0.5)]
    save_records(store, MADE, records)


def measure(store: Store) -> None:
    """Similarities of one retrieval, and one record as a reader of 2 layers and 3 heads read it."""
    data = read_run(store, MADE)
    instance = str(data.instances["instance"].iloc[0])
    made = {"run_id": MADE, "instance_id": instance, "embedder": "minilm", "identity": "01ab", "made_at": 2e9}
    with store.begin() as connection:
        connection.execute(s.similarities.insert().values(memory="rag", cosines=[0.75, -0.25], **made))
        connection.execute(s.similarities.insert().values(memory="random", cosines=[], **made))
        record = connection.scalar(select(func.min(s.records.c.id)).where(s.records.c.status == "done"))
    # All attention of every head goes to the query but a quarter, which the memory gets.
    masses = np.zeros((2, 2, 3, 6), dtype=np.float32)
    masses[..., 3], masses[..., 4] = 0.25, 0.75
    words = (("memory", "Ottilie bakes."), ("query", "What now?"))
    measured = Measured("0" * 64, (0, 0, 0, 1, 1, 4), masses, words, np.array([0.25, 0.75], dtype=np.float32))
    assert record is not None
    assert save_attention(store, record, "reader@0123/v1", measured)


@pytest.mark.parametrize("texts", [True, False])
def test_what_was_measured_goes_with_the_run(store: Store, other: Store, tmp_path: Path, texts: bool) -> None:
    write_run(store)
    measure(store)
    run = import_run(other, export_run(store, MADE, tmp_path / "a.zip", texts=texts))
    found = read_attention(other, run)
    assert found.reader == "reader@0123/v1"
    assert found.masses.shape == (1, 2, 3, 6)
    assert found.masses[0, 1, 2].tolist() == [0, 0, 0, 0.25, 0.75, 0]
    assert found.tokens.tolist() == [[0, 0, 0, 1, 1, 4]]
    read = words(other, int(found.records["record"].iloc[0]), found.reader)
    assert read is not None
    assert read.weights.tolist() == [0.25, 0.75]
    assert read.texts == (("Ottilie bakes.", "What now?") if texts else None)
    with other.begin() as connection:
        rows = connection.execute(select(s.similarities).where(s.similarities.c.run_id == run)).all()
    assert {row.memory: row.cosines for row in rows} == {"rag": [0.75, -0.25], "random": []}


def test_a_run_from_a_file_tells_whether_its_own_model_read_it(store: Store, other: Store, tmp_path: Path) -> None:
    write_run(store)
    measure(store)
    with store.begin() as connection:
        given = connection.scalar(select(s.runs.c.provenance).where(s.runs.c.id == MADE)) or {}
        model = read_attention(store, MADE).records["model"].iloc[0]
        known = given | {"models": {model: {"sha256": "0123"}}}
        connection.execute(s.runs.update().where(s.runs.c.id == MADE).values(provenance=known))
    run = import_run(other, export_run(store, MADE, tmp_path / "a.zip"))
    assert read_attention(other, run).records["own"].tolist() == [True]
