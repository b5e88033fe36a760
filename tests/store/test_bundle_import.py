"""Bundles that anybody may have made: what doesn't fit is refused with one line, and nothing of it stays."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import stat
import struct
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import func, select

from opbench.errors import DataError
from opbench.settings import ROOT
from opbench.store import schema as s
from opbench.store.archive import LIMITS, Limits
from opbench.store.bundle import export_run, import_run
from opbench.store.bundle_import import digest_of
from opbench.store.database import Store, open_store
from opbench.store.reading import failures, read_run, run_ids
from tests.pages.made_run import MADE, write_run

Members = dict[str, bytes]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Members:
    """The members of a good bundle."""
    folder = tmp_path_factory.mktemp("made")
    made = open_store(f"sqlite:///{folder / 'store.sqlite3'}")
    write_run(made, name="pilot", failed=1)
    file = export_run(made, MADE, folder / "made.opbench.zip")
    made.close()
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(f"sqlite:///{tmp_path / 'other.sqlite3'}")
    yield opened
    opened.close()


def packed(members: Members, infos: dict[str, Callable[[zipfile.ZipInfo], None]] | None = None) -> io.BytesIO:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            if infos and name in infos:
                infos[name](info)
            archive.writestr(info, content)
    file.seek(0)
    return file


def signed(members: Members, **changed: Any) -> Members:
    """The members with a manifest that fits them: what a forger would make."""
    manifest = json.loads(members["manifest.json"]) | changed
    digests = {name.removesuffix(".jsonl"): hashlib.sha256(content).hexdigest() for name, content in members.items()}
    manifest["sha256"] = {name: digest for name, digest in digests.items() if name != "manifest.json"}
    manifest["manifest_sha256"] = digest_of(manifest)
    return members | {"manifest.json": json.dumps(manifest).encode()}


def edited(members: Members, member: str, edit: Callable[[dict[str, Any]], Any], line: int = 0) -> Members:
    rows = members[member].splitlines()
    row = json.loads(rows[line])
    replaced = edit(row)
    rows[line] = json.dumps(row if replaced is None else replaced).encode()
    return signed(members | {member: b"\n".join(rows) + b"\n"})


def refused(store: Store, file: io.BytesIO, limits: Limits = LIMITS) -> str:
    """What the import says; it must be one line, and leave nothing."""
    with pytest.raises(DataError) as told:
        import_run(store, file, label="a.zip", limits=limits)
    message = str(told.value)
    assert message.startswith("a.zip: ")
    assert "\n" not in message
    assert run_ids(store) == []
    with store.begin() as connection:
        assert connection.scalar(select(func.count()).select_from(s.records)) == 0
    return message


def test_a_good_bundle_is_read(other: Store, whole: Members) -> None:
    assert import_run(other, packed(whole), label="a.zip") == f"rec-{MADE}"
    assert import_run(other, packed(signed(whole)), label="a.zip") == f"rec-{MADE}"
    data = read_run(other, f"rec-{MADE}")
    # base and rag with three post-processors on 12 instances a benchmark
    assert len(data.records) == 4 * 24
    assert data.recorded


def test_the_bundles_of_the_first_format_are_read_as_they_were(other: Store) -> None:
    demo = ROOT / "results" / "demo"
    runs = [import_run(other, demo / f"smollm2-{name}.opbench.zip") for name in ("benchmark", "sample")]
    assert runs == ["rec-8c215e368604", "rec-72da1c5d6d68"]
    for run in runs:
        data = read_run(other, run)
        # 7 configurations on 24 instances a benchmark
        assert len(data.records) == 7 * 48
        assert (data.records["status"] == "done").all()
    with other.begin() as connection:
        provenance = connection.scalar(select(s.runs.c.provenance).where(s.runs.c.id == "rec-8c215e368604")) or {}
    # As version 0.1 wrote it: a store that has the bundle already must not read it in again.
    with zipfile.ZipFile(ROOT / "results" / "demo" / "smollm2-benchmark.opbench.zip") as archive:
        digests = json.loads(archive.read("manifest.json"))["sha256"]
    assert provenance["bundle_sha256"] == hashlib.sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest()


@pytest.mark.parametrize("member", ["records.jsonl", "scores.jsonl", "user_scores.jsonl", "human_scores.jsonl"])
def test_a_tampered_member_is_named(other: Store, whole: Members, member: str) -> None:
    said = refused(other, packed(whole | {member: whole[member].replace(b"0.7", b"0.9") + b" "}))
    assert f"{member} was changed after the export" in said


@pytest.mark.parametrize(
    ("member", "values", "said"),
    [
        ("records", {"finished_at": 1e300}, "finished_at isn't from 0 to 2.2e+11"),
        ("records", {"response_ms": -5.0}, "response_ms isn't from 0 to 1e+12"),
        ("records", {"response_ms": 10**400}, "response_ms isn't a number"),
        ("records", {"cost_usd": -0.5}, "cost_usd isn't from 0 to 1000000000"),
        ("records", {"concurrency": 0}, "concurrency isn't from 1 to 2147483647"),
        ("records", {"response_prompt_tokens": -1}, "response_prompt_tokens isn't from 0 to 2147483647"),
        ("scores", {"value": 1.5}, "value isn't from 0 to 1"),
        ("scores", {"value": -0.1}, "value isn't from 0 to 1"),
        ("user_scores", {"value": 7.0}, "value isn't from -1 to 2"),
        ("user_scores", {"n": -4}, "n isn't from 0 to 2147483647"),
        ("instances", {"benchmark": "op", "subtype": "temporal"}, "op has no temporal"),
        ("instances", {"benchmark": "locomo", "subtype": "fact"}, "locomo has no fact"),
    ],
)
def test_values_that_no_study_has_are_refused(
    other: Store, whole: Members, member: str, values: dict[str, Any], said: str
) -> None:
    """Dates that can't be written, times before they began, scores beyond their scale: every page would meet them."""
    assert said in refused(other, packed(edited(whole, f"{member}.jsonl", lambda row: row | values)))


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("created_at", 1e300, "created_at isn't from 0 to 2.2e+11"),
        ("created_at", -1.0, "created_at isn't from 0 to"),
        ("executions", 5, "provenance isn't one of ours (executions: "),
        ("executions", [5], "provenance isn't one of ours (executions.0: "),
        ("executions", [{"concurrency": "many"}], "(executions.0.concurrency: "),
        ("executions", [{"budget_usd": "a lot"}], "(executions.0.budget_usd: "),
        ("plugins", 5, "(plugins: "),
        ("data", [], "(data: "),
    ],
)
def test_a_run_that_no_page_could_show_is_refused(
    other: Store, whole: Members, field: str, value: Any, said: str
) -> None:
    run = json.loads(whole["manifest.json"])["run"]
    changed = {field: value} if field in run else {"provenance": run["provenance"] | {field: value}}
    assert said in refused(other, packed(signed(whole, run=run | changed)))


def test_a_bundle_of_nothing_is_refused(other: Store, whole: Members) -> None:
    empty = {name: b"" if name.endswith(".jsonl") else content for name, content in whole.items()}
    assert "holds no configuration or no instance" in refused(other, packed(signed(empty)))


def test_an_error_without_a_kind_is_told_as_such(other: Store, whole: Members) -> None:
    lines = [json.loads(line) for line in whole["records.jsonl"].splitlines()]
    place = next(number for number, row in enumerate(lines) if row["status"] == "error")
    unnamed = edited(whole, "records.jsonl", lambda row: row | {"error_kind": None, "error": None}, place)
    frame = failures(other, import_run(other, packed(unnamed), label="a.zip"))
    assert frame["kind"].tolist() == frame["reason"].tolist() == ["not told"]


def test_a_tampered_manifest_is_told(other: Store, whole: Members) -> None:
    changed = whole["manifest.json"].replace(b'"pilot"', b'"final"')
    assert changed != whole["manifest.json"]
    assert "manifest.json was changed after the export" in refused(other, packed(whole | {"manifest.json": changed}))


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "..\\x", "a/records.jsonl", "calls.jsonl", "RECORDS.JSONL"])
def test_a_member_that_isnt_ours_is_refused_by_name(other: Store, whole: Members, name: str) -> None:
    said = refused(other, packed(whole | {name: b"x"}))
    assert f"holds {name!r}, which is no member of a bundle" in said


def test_a_name_with_a_nul_isnt_cut_there(other: Store, whole: Members) -> None:
    file = packed({("records.jsonlX" if name == "records.jsonl" else name): each for name, each in whole.items()})
    said = refused(other, io.BytesIO(file.getvalue().replace(b"records.jsonlX", b"records.jsonl\x00")))
    assert "no member of a bundle" in said or "isn't a whole bundle" in said


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_member_that_is_there_twice_is_refused(other: Store, whole: Members) -> None:
    file = packed(whole)
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("records.jsonl", b"")
    assert "holds records.jsonl twice" in refused(other, file)


def test_links_and_folders_are_refused(other: Store, whole: Members) -> None:
    def link(info: zipfile.ZipInfo) -> None:
        info.create_system = 3
        info.external_attr = (stat.S_IFLNK | 0o777) << 16

    said = refused(other, packed(whole | {"records.jsonl": b"/etc/passwd"}, {"records.jsonl": link}))
    assert "records.jsonl is a link or folder" in said


def test_encrypted_members_are_refused(other: Store, whole: Members) -> None:
    content = bytearray(packed(whole).getvalue())
    place = content.index(b"PK\x01\x02")
    content[place + 8] |= 1
    assert "is encrypted" in refused(other, io.BytesIO(bytes(content)))


def test_other_ways_of_packing_are_refused(other: Store, whole: Members) -> None:
    def bzip2(info: zipfile.ZipInfo) -> None:
        info.compress_type = zipfile.ZIP_BZIP2

    assert "packed in a way that bundles aren't" in refused(other, packed(whole, {"records.jsonl": bzip2}))


@pytest.mark.parametrize("content", [b"", b"no zip", b"PK\x03\x04 and more", b"\x1f\x8b" + bytes(50)])
def test_what_isnt_a_zip_is_refused(other: Store, content: bytes) -> None:
    assert "isn't a whole bundle (no zip, or its end is cut off)" in refused(other, io.BytesIO(content))


def test_an_empty_zip_isnt_a_bundle(other: Store) -> None:
    assert "isn't a bundle: it has no manifest.json" in refused(other, io.BytesIO(b"PK\x05\x06" + bytes(18)))


@pytest.mark.parametrize("kept", [0.1, 0.5, 0.9, 0.999])
def test_a_truncated_bundle_is_refused(other: Store, whole: Members, kept: float) -> None:
    content = packed(whole).getvalue()
    assert "isn't a whole bundle" in refused(other, io.BytesIO(content[: int(kept * len(content))]))


def test_a_newer_format_is_refused_with_the_mend(other: Store, whole: Members) -> None:
    said = refused(other, packed(signed(whole, format=4)))
    assert said == "a.zip: format 4, this version reads 3 and older. Update first."


@pytest.mark.parametrize("member", ["manifest.json", "records.jsonl", "human_scores.jsonl"])
def test_a_missing_member_is_named(other: Store, whole: Members, member: str) -> None:
    said = refused(other, packed({name: content for name, content in whole.items() if name != member}))
    assert member in said


def test_what_unpacks_to_more_than_the_limit_is_refused_before_it_is_unpacked(other: Store, whole: Members) -> None:
    size = sum(map(len, whole.values()))
    assert f"unpacks to {size:,} bytes" in refused(other, packed(whole), Limits(unpacked=size - 1))


def test_a_bundle_of_two_gigabytes_is_refused_without_reading_it(other: Store, tmp_path: Path) -> None:
    file = tmp_path / "large.zip"
    with file.open("wb") as opened:
        opened.truncate(2_000_000_000)  # a sparse file: it takes no room
    with pytest.raises(DataError, match=r"2,000,000,000 bytes, more than the 1,500,000,000 that are read"):
        import_run(other, file)


def test_a_bomb_is_refused_and_takes_no_memory(other: Store, whole: Members) -> None:
    bomb = packed(whole | {"records.jsonl": bytes(300_000_000)})
    assert len(bomb.getvalue()) < 400_000
    tracemalloc.start()
    said = refused(other, bomb)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "records.jsonl has a line of more than 16 MiB" in said
    assert peak < 100_000_000


def test_a_zip_that_lies_about_its_sizes_is_refused(other: Store, whole: Members) -> None:
    """Declared: 10 bytes. Inside: much more."""
    content = bytearray(packed(whole | {"records.jsonl": b"x" * 5_000_000}).getvalue())
    directory = content.index(b"PK\x01\x02")
    while content[directory + 46 : directory + 59] != b"records.jsonl":
        directory = content.index(b"PK\x01\x02", directory + 4)
    local = content.index(b"records.jsonl") - 30
    struct.pack_into("<L", content, directory + 24, 10)
    struct.pack_into("<L", content, local + 22, 10)
    assert "isn't a whole bundle" in refused(other, io.BytesIO(bytes(content)))
    # Even with a checksum that fits what is said to be there.
    struct.pack_into("<L", content, directory + 16, zlib.crc32(b"x" * 10))
    struct.pack_into("<L", content, local + 14, zlib.crc32(b"x" * 10))
    assert "records.jsonl was changed after the export" in refused(other, io.BytesIO(bytes(content)))


def test_a_directory_of_many_members_isnt_read(other: Store) -> None:
    file = packed({f"{number}.jsonl": b"" for number in range(100)})
    assert "has 100 members or more" in refused(other, file)


def test_too_many_rows_are_refused(other: Store, whole: Members) -> None:
    rows = sum(content.count(b"\n") for name, content in whole.items() if name != "manifest.json")
    assert "more than 10 rows" in refused(other, packed(whole), Limits(rows=10))
    import_run(other, packed(whole), limits=Limits(rows=rows))


@pytest.mark.parametrize(
    ("member", "edit", "said"),
    [
        ("records.jsonl", lambda row: [row], "line 1: isn't a row"),
        ("records.jsonl", lambda row: row.update(cost="x"), "no column 'cost'"),
        ("records.jsonl", lambda row: row.update(response_ms="fast"), "response_ms isn't a number"),
        ("records.jsonl", lambda row: row.update(response_ms=True), "response_ms isn't a number"),
        ("records.jsonl", lambda row: row.update(concurrency=1.5), "concurrency isn't a whole number"),
        ("records.jsonl", lambda row: row.update(concurrency=2**40), "concurrency isn't a whole number"),
        ("records.jsonl", lambda row: row.update(status="lost"), "status isn't one of done, error"),
        ("records.jsonl", lambda row: row.update(status=None), "status isn't there"),
        ("records.jsonl", lambda row: row.update(response="\ud800"), "response isn't text that can be stored"),
        ("records.jsonl", lambda row: row.update(response="a\x00b"), "response isn't text that can be stored"),
        ("records.jsonl", lambda row: row.update(context="x"), "context isn't a list of memories"),
        ("records.jsonl", lambda row: row.update(retrieved=[{"text": 1}]), "retrieved isn't a list of memories"),
        ("records.jsonl", lambda row: row.update(counts=[1]), "counts isn't an object"),
        ("records.jsonl", lambda row: row.update(instance_id="op/x"), "no instance 'op/x'"),
        ("records.jsonl", lambda row: row.update(configuration_id=99), "no configuration 99"),
        ("scores.jsonl", lambda row: row.update(record_id=9999), "no record 9999"),
        ("scores.jsonl", lambda row: row.update(retriable="no"), "retriable isn't true or false"),
        ("instances.jsonl", lambda row: row.update(subtype="x"), "subtype isn't one of"),
        ("instances.jsonl", lambda row: row.update(instance_id="x" * 300), "instance_id isn't at most 200 signs"),
    ],
)
def test_a_row_that_fits_its_digest_and_nothing_else_is_refused(
    other: Store, whole: Members, member: str, edit: Callable[[dict[str, Any]], Any], said: str
) -> None:
    told = refused(other, packed(edited(whole, member, edit)))
    assert said in told
    assert member in told


@pytest.mark.parametrize("literal", [b"NaN", b"Infinity", b"-Infinity"])
def test_what_isnt_a_number_isnt_read_as_one(other: Store, whole: Members, literal: bytes) -> None:
    changed = whole["scores.jsonl"].replace(b'"value": 0.9', b'"value": ' + literal, 1)
    assert literal.decode() in refused(other, packed(signed(whole | {"scores.jsonl": changed})))


def test_rows_that_are_there_twice_are_refused(other: Store, whole: Members) -> None:
    doubled = whole["scores.jsonl"] + whole["scores.jsonl"].splitlines()[0] + b"\n"
    assert "don't fit together" in refused(other, packed(signed(whole | {"scores.jsonl": doubled})))


def test_a_fault_in_the_last_row_leaves_the_bundle_that_was_there(other: Store, whole: Members) -> None:
    run = import_run(other, packed(whole))
    before = read_run(other, run)
    broken = edited(whole, "user_scores.jsonl", lambda row: row.update(value="x"), line=-1)
    with pytest.raises(DataError, match="value isn't a number"):
        import_run(other, packed(broken), label="a.zip")
    after = read_run(other, run)
    assert after.records.equals(before.records)
    assert after.user_scores.equals(before.user_scores)


@pytest.mark.parametrize("identity", ["../x", "a b", "", "x" * 61, "<b>"])
def test_a_runs_id_is_an_id(other: Store, whole: Members, identity: str) -> None:
    run = json.loads(whole["manifest.json"])["run"] | {"id": identity}
    assert "can't be a run's id" in refused(other, packed(signed(whole, run=run)))


def test_a_study_that_isnt_one_is_refused(other: Store, whole: Members) -> None:
    run = json.loads(whole["manifest.json"])["run"]
    said = refused(other, packed(signed(whole, run=run | {"study": run["study"] | {"models": []}})))
    assert "its study isn't one of ours" in said
    assert "study isn't an object" in refused(other, packed(signed(whole, run=run | {"study": []})))


def test_a_bundle_can_be_read_from_a_folder_only_as_a_file(other: Store, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="can't be read"):
        import_run(other, tmp_path)


def line_of(table: str, members: Members, **changed: Any) -> Members:
    """The members with one good row of what is measured, but for `changed`."""
    record, instance = (json.loads(members[f"{name}.jsonl"].splitlines()[0]) for name in ("records", "instances"))
    shares = np.zeros((2, 1, 1, 6), dtype="<f4")
    shares[..., 4] = 1.0
    rows: dict[str, dict[str, Any]] = {
        "similarities": {
            "run_id": MADE, "memory": "rag", "instance_id": instance["instance_id"], "embedder": "minilm",
            "identity": "01ab", "cosines": [0.5], "made_at": 2e9,
        },
        "attention": {
            "record_id": record["id"], "reader": "r@1/v1", "text_sha256": "0" * 64, "layers": 1, "heads": 1,
            "segments": ["first", "template", "instructions", "memory", "query", "response"],
            "tokens": [1, 0, 0, 0, 1, 1], "masses": base64.b64encode(shares.tobytes()).decode(),
            "words": [["query", "Hm?"]], "weights": base64.b64encode(np.ones(1, "<f4").tobytes()).decode(),
            "made_at": 2e9,
        },
    }  # fmt: skip
    return signed(members | {f"{table}.jsonl": json.dumps(rows[table] | changed).encode() + b"\n"})


HALF = base64.b64encode(np.full(12, 0.05, "<f4").tobytes()).decode()


@pytest.mark.parametrize(
    ("table", "changed", "said"),
    [
        ("similarities", {"cosines": [2.0]}, "cosines isn't from -1.001 to 1.001"),
        ("similarities", {"cosines": ["<b>"]}, "cosines isn't a list of cosines"),
        ("similarities", {"instance_id": "op/nobody/1"}, "no instance 'op/nobody/1'"),
        ("attention", {"record_id": 987_654}, "no record 987654"),
        ("attention", {"masses": "AAAA"}, "masses isn't shares from 0 to 1"),
        ("attention", {"masses": HALF}, "masses isn't the attention of its layers and heads"),
        ("attention", {"heads": 2}, "masses isn't the attention of its layers and heads"),
        ("attention", {"layers": 0}, "layers isn't from 1 to 10000"),
        ("attention", {"segments": ["query"]}, "its segments aren't first, template, instructions, memory, query"),
        ("attention", {"tokens": [1, 0, 0, 0, 1, -1]}, "tokens isn't from 0"),
        ("attention", {"words": [["query"]]}, "words isn't a list of words with their segments"),
        ("attention", {"words": []}, "words and weights aren't of the same prompt"),
    ],
)
def test_measurements_that_cant_be_are_refused(
    other: Store, whole: Members, table: str, changed: dict[str, Any], said: str
) -> None:
    assert said in refused(other, packed(line_of(table, whole, **changed)))


@pytest.mark.parametrize("table", ["similarities", "attention"])
def test_measurements_that_can_be_are_read(other: Store, whole: Members, table: str) -> None:
    import_run(other, packed(line_of(table, whole)), label="a.zip")
    with other.begin() as connection:
        assert connection.scalar(select(func.count()).select_from(s.metadata.tables[table])) == 1
