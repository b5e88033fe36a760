"""What is told of ingestions: files, their states, and how they are removed."""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from opbench.errors import MemoryFault, StoreError, UsageError
from opbench.gateway.lease import Usage
from opbench.memories.copies import WorkingCopy, begin, checkpoint
from opbench.memories.library import Added
from opbench.memories.locking import FileLock, is_locked
from opbench.memories.manifest import (
    Failure,
    Manifest,
    SessionEntry,
    read_manifest,
    read_manifests,
    remove,
    write_failure,
)


def manifest(root: Path, planned: int = 3, user: str = "c-1/John", started_at: float = 1.0) -> Manifest:
    conversation, speaker = user.split("/")
    return Manifest(
        system="files",
        label="Files",
        note="",
        user=user,
        identity={"files": "1"},
        extractor="scripted",
        history_sha256="h",
        digest="d" * 64,
        sessions_planned=planned,
        started_at=started_at,
        path=root / "files" / conversation / speaker / "dddddddddddd",
    )


def entry(number: int, memories: int = 2, empty: int = 0, total: int = 2, at: float = 10.0) -> SessionEntry:
    usage = Usage(calls=1, prompt_tokens=100, completion_tokens=10, cost_usd=0.5, spent_usd=0.25)
    return SessionEntry(number, f"{number} May 2023", Added(memories, 1, empty), total, usage, 1.5, at)


def grown(at: Manifest, *entries: SessionEntry) -> Manifest:
    """With these sessions kept."""
    begin(at)
    for each in entries:
        copy = WorkingCopy(at.path)
        with (copy.store / "log").open("a") as file:
            file.write(f"{each.number}\n")
        at = checkpoint(copy, at.after(each))
        copy.remove()
    return at


def test_sums_are_over_the_sessions(tmp_path: Path) -> None:
    grown(manifest(tmp_path), entry(1, 3, total=3), entry(2, 0, empty=1, total=3, at=20.0))
    [found] = read_manifests(tmp_path)
    assert (found.memories, found.extractions, found.empty, found.seconds, found.changed_at) == (3, 2, 1, 3.0, 20.0)
    assert (found.usage.calls, found.usage.prompt_tokens, found.usage.cost_usd, found.usage.spent_usd) == (
        2, 200, 1.0, 0.5,
    )  # fmt: skip
    assert found.store_bytes == len("1\n2\n")
    assert not found.complete
    told = json.loads(json.dumps(found.to_dict()))
    assert (told["memories"], told["usage"]["calls"], told["sessions"][1]["day"]) == (3, 2, "2 May 2023")


def test_only_the_newest_checkpoint_stays(tmp_path: Path) -> None:
    kept = grown(manifest(tmp_path), entry(1), entry(2))
    assert [each.name for each in (kept.path / "checkpoints").iterdir()] == ["2"]
    assert (kept.path / "checkpoints" / "2" / "store" / "log").read_text() == "1\n2\n"
    assert not list((kept.path / "open").iterdir())


def test_a_half_written_checkpoint_is_none(tmp_path: Path) -> None:
    kept = grown(manifest(tmp_path), entry(1))
    half = kept.path / "checkpoints" / "2.part" / "store"
    half.mkdir(parents=True)
    (half / "log").write_text("half")
    found = read_manifest(kept.path)
    assert found is not None
    assert len(found.sessions) == 1
    grown_on = WorkingCopy(kept.path)
    checkpoint(grown_on, found.after(entry(2)))
    grown_on.remove()
    assert (kept.path / "checkpoints" / "2" / "store" / "log").read_text() == "1\n"


def test_a_cost_that_is_unknown_stays_unknown(tmp_path: Path) -> None:
    unknown = SessionEntry(2, "2 May 2023", Added(1, 1, 0), 3, Usage(cost_usd=None), 1.0, 2.0)
    grown(manifest(tmp_path), entry(1), unknown)
    assert read_manifests(tmp_path)[0].usage.cost_usd is None


def test_states(tmp_path: Path) -> None:
    kept = grown(manifest(tmp_path, planned=2), entry(1))
    assert read_manifests(tmp_path)[0].state == "partial"
    write_failure(kept.path, Failure("auth", "scripted: no key.", 5.0))
    found = read_manifests(tmp_path)[0]
    assert (found.state, found.failure) == ("failed", Failure("auth", "scripted: no key.", 5.0))
    lock = FileLock(kept.path / "lock")
    assert lock.acquire()
    assert read_manifests(tmp_path)[0].state == "at work"
    lock.release()
    assert read_manifests(tmp_path)[0].state == "failed"
    write_failure(kept.path, None)
    assert read_manifests(tmp_path)[0].state == "partial"
    copy = WorkingCopy(kept.path)
    checkpoint(copy, kept.after(entry(2)))
    copy.remove()
    assert read_manifests(tmp_path)[0].state == "complete"


def test_nothing_planned_is_complete(tmp_path: Path) -> None:
    begin(manifest(tmp_path, planned=0))
    assert read_manifests(tmp_path)[0].state == "complete"


def test_the_newest_comes_first(tmp_path: Path) -> None:
    grown(manifest(tmp_path, user="c-1/John"), entry(1, at=50.0))
    grown(manifest(tmp_path, user="c-2/John"), entry(1, at=70.0))
    grown(manifest(tmp_path, user="c-3/John", started_at=60.0))
    assert [each.user for each in read_manifests(tmp_path)] == ["c-2/John", "c-3/John", "c-1/John"]


def test_no_folder_is_no_ingestion(tmp_path: Path) -> None:
    assert read_manifests(tmp_path / "none") == []
    assert read_manifest(tmp_path / "none") is None
    (tmp_path / "a" / "b" / "c" / "d" / "checkpoints").mkdir(parents=True)
    assert read_manifests(tmp_path) == []


@pytest.mark.parametrize("content", ["", "{}", "[]", '"text"', '{"system": "files"}', "{half", "[" * 9000])
def test_a_damaged_manifest_hides_no_other(content: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    broken = grown(manifest(tmp_path, user="c-1/John"), entry(1))
    grown(manifest(tmp_path, user="c-2/John"), entry(1))
    file = broken.path / "checkpoints" / "1" / "manifest.json"
    file.write_text(content)
    with caplog.at_level(logging.WARNING):
        assert [each.user for each in read_manifests(tmp_path)] == ["c-2/John"]
    assert str(file) in caplog.text
    with pytest.raises(MemoryFault) as raised:
        read_manifest(broken.path)
    assert str(raised.value).startswith(f"{file}: can't be read")
    assert str(raised.value).endswith(f"Remove {broken.path} and ingest again.")


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("sessions_planned",), "three"),
        (("started_at",), None),
        (("identity",), []),
        (("sessions",), None),
        (("sessions", 0), 1),
        (("sessions", 0, "usage"), [1]),
        (("sessions", 0, "added", "memories"), "many"),
        (("sessions", 0, "total"), {}),
    ],
)
def test_a_manifest_of_other_types_is_damaged_and_says_where(
    place: tuple[str | int, ...], value: Any, tmp_path: Path
) -> None:
    broken = grown(manifest(tmp_path), entry(1))
    file = broken.path / "checkpoints" / "1" / "manifest.json"
    told = json.loads(file.read_text())
    inner = told
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = value
    file.write_text(json.dumps(told))
    with pytest.raises(MemoryFault) as raised:
        read_manifest(broken.path)
    assert str(raised.value).startswith(f"{file}: can't be read ({'.'.join(map(str, place))}: ")


def test_a_manifest_of_another_number_of_sessions_is_damaged(tmp_path: Path) -> None:
    kept = grown(manifest(tmp_path), entry(1), entry(2))
    file = kept.path / "checkpoints" / "2" / "manifest.json"
    told = json.loads(file.read_text())
    told["sessions"].pop()
    file.write_text(json.dumps(told))
    with pytest.raises(MemoryFault, match="tells of 1 sessions, and 2 are in its folder"):
        WorkingCopy(kept.path)
    assert not list((kept.path / "open").glob("*")), "no copy and no lock is left"


def test_a_checkpoint_without_its_store_is_damaged(tmp_path: Path) -> None:
    kept = grown(manifest(tmp_path), entry(1))
    shutil.rmtree(kept.path / "checkpoints" / "1" / "store")
    with pytest.raises(MemoryFault, match=r"store: is missing\. Remove .* and ingest again"):
        WorkingCopy(kept.path)
    assert not list((kept.path / "open").glob("*"))


@pytest.mark.parametrize("content", ['{"kind": 1, "error": {"a": [1]}, "at": "x"}', "[]", "{", '"text"', "1"])
def test_a_failure_that_was_changed_by_hand_counts_as_none(content: str, tmp_path: Path) -> None:
    kept = grown(manifest(tmp_path), entry(1))
    (kept.path / "failure.json").write_text(content)
    found = read_manifests(tmp_path)[0]
    assert (found.state, found.failure) == ("partial", None)


def test_where_a_failure_cannot_be_written_the_error_itself_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        write_failure(tmp_path / "gone", Failure("memory", "half \ud83d", 1.0))
    assert "failure.json: can't be written" in caplog.text


def test_a_full_disk_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`shutil.copytree` tells of each file that it couldn't copy, in a list."""
    kept = grown(manifest(tmp_path), entry(1))
    copy = WorkingCopy(kept.path)

    def full(source: str, target: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))

    monkeypatch.setattr(shutil, "copytree", partial(shutil.copytree, copy_function=full))
    with pytest.raises(StoreError) as raised:
        checkpoint(copy, kept.after(entry(2)))
    assert str(raised.value) == (
        f"{kept.path}: can't be copied ([Errno 28] No space left on device). Make room there or mend its rights."
    )
    copy.remove()


def test_what_cannot_be_locked_or_deleted_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = grown(manifest(tmp_path), entry(1))

    def refused(*_: object, **__: object) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", refused)
        with pytest.raises(StoreError, match="can't be deleted"):
            remove(kept)
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refused)
        with pytest.raises(StoreError, match=r"lock: can't be written \(Read-only file system\)"):
            remove(kept)
    remove(kept)
    assert read_manifests(tmp_path) == []


def test_locks_of_copies_that_were_never_made_go(tmp_path: Path) -> None:
    kept = grown(manifest(tmp_path), entry(1))
    (kept.path / "open" / "77-abcd.lock").touch()
    WorkingCopy(kept.path).remove()
    assert not list((kept.path / "open").iterdir())


def test_removing(tmp_path: Path) -> None:
    kept = grown(manifest(tmp_path), entry(1))
    other = grown(manifest(tmp_path, user="c-1/Maria"), entry(1))
    remove(kept)
    assert [each.user for each in read_manifests(tmp_path)] == ["c-1/Maria"]
    assert not kept.path.parent.exists()
    remove(other)
    assert list(tmp_path.iterdir()) == [], "no empty folders are left"


def test_what_is_worked_on_is_not_removed(tmp_path: Path) -> None:
    kept = grown(manifest(tmp_path), entry(1))
    lock = FileLock(kept.path / "lock")
    assert lock.acquire()
    with pytest.raises(UsageError, match="Files is taking in c-1/John at the moment"):
        remove(kept)
    lock.release()
    assert len(read_manifests(tmp_path)) == 1


def test_who_searches_keeps_the_copy_when_it_is_removed(tmp_path: Path) -> None:
    kept = grown(manifest(tmp_path), entry(1))
    copy = WorkingCopy(kept.path)
    remove(kept)
    assert (copy.store / "log").read_text() == "1\n"
    assert read_manifests(tmp_path) == []
    copy.remove()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(StoreError, match="nothing has been ingested there"):
        WorkingCopy(kept.path)


def test_copies_of_dead_processes_go_and_those_of_living_ones_stay(tmp_path: Path) -> None:
    kept = grown(manifest(tmp_path), entry(1))
    code = (
        "import os, sys; from pathlib import Path; from opbench.memories.copies import WorkingCopy; "
        "copy = WorkingCopy(Path(sys.argv[1])); print(copy.store, flush=True); "
        "sys.stdin.readline(); os._exit(9)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(kept.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    theirs = Path(process.stdout.readline().strip())
    assert theirs.exists()
    WorkingCopy(kept.path).remove()
    assert theirs.exists(), "it is alive"
    process.communicate("\n")
    assert theirs.exists(), "a death tidies nothing"
    WorkingCopy(kept.path).remove()
    assert not theirs.exists()
    assert list((kept.path / "open").iterdir()) == []


def test_a_copy_is_not_the_checkpoint(tmp_path: Path) -> None:
    kept = grown(manifest(tmp_path), entry(1))
    copy = WorkingCopy(kept.path)
    (copy.store / "log").write_text("spoiled")
    copy.remove()
    assert (kept.path / "checkpoints" / "1" / "store" / "log").read_text() == "1\n"


def test_a_lock_is_one_holder_s(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    assert not is_locked(file)
    one, other = FileLock(file), FileLock(file)
    assert one.acquire()
    assert is_locked(file)
    assert not other.acquire()
    file.unlink()
    assert other.acquire(), "a lock on a file that was removed holds nobody off"
    one.release()
    assert is_locked(file)
    other.release()
    assert not is_locked(file)
