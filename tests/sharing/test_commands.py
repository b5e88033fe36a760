"""Sharing from the command line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from opbench.benchmarks import load
from opbench.cli import app
from opbench.errors import DataError, UsageError
from opbench.settings import settings
from opbench.store.database import Store, open_store
from opbench.store.reading import run_ids
from tests.pages.made_run import MADE, write_run
from tests.sharing.public import judged, responses


@pytest.fixture
def store(home: Path) -> Iterator[Store]:
    opened = open_store(settings().store_url)
    yield opened
    opened.close()


def run(*arguments: str | Path, typed: str | None = None) -> Any:
    result = CliRunner().invoke(app, [str(each) for each in arguments], input=typed)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_the_reports_numbers_are_the_tables(store: Store, tmp_path: Path) -> None:
    write_run(store, name="pilot")
    file = tmp_path / "pilot.html"
    assert run("report", "pilot", file, "--rule", "instance").stdout.strip() == str(file)
    found = re.search(r'id="data">(.*?)</script>', file.read_text("utf-8"), re.S)
    assert found
    embedded = {table["name"]: table for table in json.loads(found[1])["tables"]}
    for name, flags in (("op", ["--aggregate", "instance"]), ("locomo", []), ("latency", [])):
        printed = json.loads(run("table", "pilot", "--of", name, "--json", *flags).stdout)["rows"]
        table = embedded[name]
        rows = [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]
        assert len(rows) == len(printed)
        for ours, theirs in zip(rows, printed, strict=True):
            for key, value in theirs.items():
                assert ours[key] == (pytest.approx(value, abs=1e-9) if isinstance(value, float) else value), key


def test_texts_are_in_the_report_on_request_alone(store: Store, tmp_path: Path) -> None:
    write_run(store)
    run("report", MADE, tmp_path / "without.html")
    run("report", MADE, tmp_path / "with.html", "--with-texts")
    assert "A reply." not in (tmp_path / "without.html").read_text("utf-8")
    assert "A reply." in (tmp_path / "with.html").read_text("utf-8")
    with pytest.raises(UsageError, match="no rule 'mean'"):
        run("report", MADE, tmp_path / "x.html", "--rule", "mean")


def test_a_bundle_goes_and_comes(store: Store, tmp_path: Path) -> None:
    write_run(store, name="pilot")
    file = tmp_path / "a.opbench.zip"
    assert run("export", "pilot", file, "--no-texts").stdout.strip() == str(file)
    assert run("import", file).stdout.strip() == f"rec-{MADE}"
    with pytest.raises(UsageError, match="came without texts"):
        run("report", f"rec-{MADE}", tmp_path / "x.html", "--with-texts")


def test_public_files_go_and_come(store: Store, tmp_path: Path) -> None:
    write_run(store)
    folder = tmp_path / "out"
    written = run("export", MADE, folder, "--format", "public").stdout.split()
    assert len(written) == 8
    assert all(Path(file).is_file() for file in written)
    chosen = [folder / "judged" / f"rag_smollm2-135m_{name}_offline.json" for name in ("none", "reminder")]
    brought = run("import", *chosen, "--model", "m", "--memory", "rag", "--mitigation", "none,reminder")
    assert brought.stdout.strip().startswith("rec-pub-")
    table = json.loads(run("table", brought.stdout.strip(), "--json").stdout)
    assert [row["mitigation"] for row in table["rows"]] == ["none", "reminder"]
    with pytest.raises(UsageError, match="--no-texts goes with bundles only"):
        run("export", MADE, folder, "--format", "public", "--no-texts")


def test_zeros_are_told_at_the_import(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "judged.json"
    file.write_text(json.dumps(judged(responses(load("sample")), score=0.0)))
    judged_instances = sum(each.subtype != "repetition" for each in load("sample").op)
    result = run("import", file, "--model", "m", "--memory", "mem0", "--mitigation", "none")
    assert f"{judged_instances} scores of 0 may mean that the judge failed." in result.stderr


def test_what_the_files_dont_tell_is_asked_for(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "judged.json"
    file.write_text("{}")
    with pytest.raises(UsageError, match="don't name the model: give it with --model"):
        run("import", file)
    with pytest.raises(UsageError, match="--memory names 2 for 1 files"):
        run("import", file, "--model", "m", "--memory", "rag,mem0", "--mitigation", "none")
    with pytest.raises(DataError, match=r"judged\.json: holds no result"):
        run("import", file, "--model", "m", "--memory", "rag", "--mitigation", "none")
    with pytest.raises(DataError, match=r"gone\.json: can't be read"):
        run("import", tmp_path / "gone.json")
    (tmp_path / "b.zip").write_bytes(b"PK")
    with pytest.raises(UsageError, match="give bundles and JSON files apart"):
        run("import", file, tmp_path / "b.zip")


def test_a_run_is_renamed_and_deleted(store: Store) -> None:
    write_run(store, name="old")
    run("rename", "old", "new")
    assert run("delete", "new", typed="n\n").exit_code == 1
    assert run_ids(store) == [MADE]
    assert "96 records deleted" in run("delete", "new", "--yes").stdout
    assert run_ids(store) == []
