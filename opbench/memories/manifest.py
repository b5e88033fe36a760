"""What is known of an ingestion: a user's history in one memory system, session by session. Files are the truth."""

from __future__ import annotations

import json
import logging
import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from opbench.errors import MemoryFault, StoreError, UsageError
from opbench.gateway.lease import Usage
from opbench.memories.library import Added
from opbench.memories.locking import FileLock, is_locked

log = logging.getLogger(__name__)

MANIFEST = "manifest.json"
CHECKPOINTS = "checkpoints"
FAILURE = "failure.json"
LOCK = "lock"
OPEN = "open"

State = Literal["complete", "at work", "partial", "failed"]


@dataclass(frozen=True, slots=True)
class SessionEntry:
    """One session that is in the store."""

    number: int
    """Of the session in its conversation."""
    day: str
    """Its date, e.g. `8 May 2023`."""
    added: Added
    total: int
    """Memories in the store after it."""
    usage: Usage
    """What it took through the gateway, by the try that succeeded."""
    seconds: float
    """Wall time."""
    finished_at: float
    """Seconds since the epoch."""

    @property
    def taken_s(self) -> float:
        """Seconds with what reused calls took when they were made, as in all that is told of a time (design rule 1)."""
        return self.seconds + self.usage.reused_ms / 1000


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an ingestion stopped."""

    kind: str
    """A `ModelErrorKind`, or `memory` when the library itself failed."""
    error: str
    """One line."""
    at: float
    """Seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """How far a memory system has taken in a user's history, and what that took."""

    system: str
    """Name of the memory system, e.g. `mem0`."""
    label: str
    note: str
    """What results must say about the system; may be empty."""
    user: str
    """User id, e.g. `conv-26/Caroline`."""
    identity: dict[str, str]
    """All that determines the store's content but the history: library versions and settings, extractor, embedder."""
    extractor: str | None
    """Registry name of the extractor; None when the system extracts by itself."""
    history_sha256: str
    digest: str
    """SHA-256 over identity and history: names the folder."""
    sessions_planned: int
    started_at: float
    """Seconds since the epoch."""
    sessions: tuple[SessionEntry, ...] = ()
    store_bytes: int = 0
    """Size of the store as it stands after the last session."""
    state: State = "partial"
    """As found when it was read."""
    failure: Failure | None = None
    """Why the last try stopped; None when it didn't, or went on since."""
    path: Path = Path()
    """Folder of this ingestion."""

    @property
    def complete(self) -> bool:
        return len(self.sessions) >= self.sessions_planned

    @property
    def memories(self) -> int:
        """Memories in the store."""
        return self.sessions[-1].total if self.sessions else 0

    @property
    def extractions(self) -> int:
        return sum(entry.added.extractions for entry in self.sessions)

    @property
    def empty(self) -> int:
        """Extractions that gave no memory."""
        return sum(entry.added.empty for entry in self.sessions)

    @property
    def usage(self) -> Usage:
        """What all sessions took."""
        total = Usage()
        for entry in self.sessions:
            total.add(entry.usage)
        return total

    @property
    def seconds(self) -> float:
        """What all sessions took one after the other; a reused call as long as when it was made."""
        return sum(entry.taken_s for entry in self.sessions)

    @property
    def changed_at(self) -> float:
        """When it last got further, in seconds since the epoch."""
        return self.sessions[-1].finished_at if self.sessions else self.started_at

    def to_dict(self) -> dict[str, Any]:
        """As JSON values, with the sums; the sessions one by one."""
        sums = {name: getattr(self, name) for name in ("memories", "extractions", "empty", "seconds", "changed_at")}
        return asdict(self) | sums | {"usage": asdict(self.usage), "path": str(self.path)}

    def after(self, entry: SessionEntry) -> Manifest:
        """With one more session in."""
        return replace(self, sessions=(*self.sessions, entry))


_MANIFEST: TypeAdapter[Manifest] = TypeAdapter(Manifest)
_FAILURE: TypeAdapter[Failure] = TypeAdapter(Failure)
_FAILURE_PART = "failure.part"

#: What a file doesn't hold: it is found out at every reading.
_FOUND = ("state", "failure", "path")


def write_manifest(manifest: Manifest, folder: Path) -> None:
    stored = {name: value for name, value in asdict(manifest).items() if name not in _FOUND}
    (folder / MANIFEST).write_text(json.dumps(stored, ensure_ascii=False, indent=1), encoding="utf-8")


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of an ingestion's folder; None when nothing was begun there.

    Raises:
        MemoryFault: it was changed or damaged.
        StoreError: its rights don't let us read it.
    """
    newest = newest_checkpoint(folder)
    if newest is None:
        return None
    file = newest / MANIFEST
    try:
        manifest = _MANIFEST.validate_json(file.read_bytes())
    except FileNotFoundError:
        # A newer checkpoint took its place this moment, or it was removed.
        return read_manifest(folder) if newest_checkpoint(folder) != newest else None
    except OSError as error:
        raise StoreError(f"{file}: can't be read ({error.strerror or error}). Mend its rights.") from error
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, wrong["loc"]))
        told = f"{where}: {wrong['msg']}" if where else wrong["msg"]
        raise MemoryFault(f"{file}: can't be read ({told}). Remove {folder} and ingest again.") from error
    if newest.name != str(len(manifest.sessions)):
        raise MemoryFault(
            f"{file}: tells of {len(manifest.sessions)} sessions, and {newest.name} are in its folder. Remove {folder} "
            "and ingest again."
        )
    manifest = replace(manifest, path=folder, failure=_failure(folder))
    return replace(manifest, state=_state(manifest))


def newest_checkpoint(folder: Path) -> Path | None:
    """The checkpoint with the most sessions."""
    numbers = [int(each.name) for each in (folder / CHECKPOINTS).glob("*") if each.name.isdecimal()]
    return folder / CHECKPOINTS / str(max(numbers)) if numbers else None


def read_manifests(root: Path) -> list[Manifest]:
    """All ingestions under `<home>/memories`, whatever their version and state, the one that changed last first."""
    found = []
    for folder in root.glob("*/*/*/*"):
        try:
            manifest = read_manifest(folder)
        except (MemoryFault, StoreError) as error:
            log.warning("%s", error)
            continue
        if manifest is not None:
            found.append(manifest)
    return sorted(found, key=lambda manifest: manifest.changed_at, reverse=True)


def remove(manifest: Manifest) -> None:
    """Delete an ingestion. Processes that search it keep their own copy until they close it.

    Raises:
        UsageError: it is being worked on.
        StoreError: its rights don't let us delete it.
    """
    folder = manifest.path
    lock = FileLock(folder / LOCK)
    if not lock.acquire():
        raise UsageError(f"{manifest.label} is taking in {manifest.user} at the moment: stop that first.")
    try:
        if (folder / CHECKPOINTS).exists():
            shutil.rmtree(folder / CHECKPOINTS)
        for name in (FAILURE, _FAILURE_PART):
            (folder / name).unlink(missing_ok=True)
        clean_open(folder)
        (folder / LOCK).unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"{folder}: can't be deleted ({error.strerror or error}). Mend its rights.") from error
    finally:
        lock.release()
    forget_folders(folder)


def forget_folders(folder: Path) -> None:
    """Remove the folders of an ingestion in which nothing is any more."""
    for each in (folder / OPEN, folder, *folder.parents[:3]):
        try:
            each.rmdir()
        except OSError:
            break


def clean_open(folder: Path) -> None:
    """Remove the working copies of processes that are gone."""
    for each in (folder / OPEN).glob("*"):
        lock = each.with_suffix(".lock")  # one may be there without its copy, and the other way round
        if not is_locked(lock):
            shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
            lock.unlink(missing_ok=True)


def write_failure(folder: Path, failure: Failure | None) -> None:
    """Remember why an ingestion stopped; None forgets it. What can't be written is told by the error alone."""
    file, part = folder / FAILURE, folder / _FAILURE_PART
    try:
        if failure is None:
            file.unlink(missing_ok=True)
            return
        part.write_text(json.dumps(asdict(failure)), encoding="utf-8")
        part.replace(file)
    except OSError as error:
        log.warning("%s: can't be written (%s)", file, error.strerror or error)


def _state(manifest: Manifest) -> State:
    if manifest.complete:
        return "complete"
    if is_locked(manifest.path / LOCK):
        return "at work"
    return "failed" if manifest.failure else "partial"


def _failure(folder: Path) -> Failure | None:
    try:
        return _FAILURE.validate_json((folder / FAILURE).read_bytes())
    except (OSError, ValidationError):
        return None
