"""Copies of a user's store: what a process works on, and the checkpoints that it makes of it.

Nobody ever works on a checkpoint: a process that dies leaves a copy behind, and the checkpoint as it was.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from dataclasses import replace
from pathlib import Path

from opbench.errors import MemoryFault, StoreError
from opbench.memories.locking import FileLock
from opbench.memories.manifest import (
    CHECKPOINTS,
    OPEN,
    Manifest,
    clean_open,
    forget_folders,
    newest_checkpoint,
    read_manifest,
    write_manifest,
)

STORE = "store"


class WorkingCopy:
    """A copy of the newest checkpoint's store, this process's alone: `store` is its folder."""

    def __init__(self, folder: Path) -> None:
        """`folder` is the ingestion's (`Manifest.path`), in which something is begun.

        Raises:
            StoreError: it can't be copied, or there is nothing to copy.
            MemoryFault: what is to be copied is damaged.
        """
        self._folder = folder
        try:
            clean_open(folder)
            self._place, self._lock = _place(folder / OPEN)
            try:
                self.store = self._place / STORE
                self.manifest = self._copy()
            except BaseException:
                self.remove()
                raise
        except OSError as error:
            raise _refused(folder, error) from error

    def _copy(self) -> Manifest:
        """Copy, and the manifest that belongs to the copy."""
        while True:
            manifest = read_manifest(self._folder)
            if manifest is None:
                raise StoreError(f"{self._folder}: nothing has been ingested there, or it was removed meanwhile.")
            shutil.rmtree(self._place, ignore_errors=True)
            try:
                _copy_tree(self._folder / CHECKPOINTS / str(len(manifest.sessions)) / STORE, self.store)
            except OSError:
                # Who ingests meanwhile has made a newer checkpoint and removed this one.
                newest = newest_checkpoint(self._folder)
                if newest is None or newest.name != str(len(manifest.sessions)):
                    continue
                if not (newest / STORE).is_dir():
                    raise MemoryFault(
                        f"{newest / STORE}: is missing. Remove {self._folder} and ingest again."
                    ) from None
                raise
            return manifest

    def remove(self) -> None:
        """Delete the copy. What can't be deleted now is when the next one is made: nobody holds its lock then."""
        shutil.rmtree(self._place, ignore_errors=True)
        with contextlib.suppress(OSError):
            self._place.with_suffix(".lock").unlink()
        self._lock.release()
        if newest_checkpoint(self._folder) is None:
            # It was removed while this copy was open.
            forget_folders(self._folder)


def begin(manifest: Manifest) -> Manifest:
    """Make the checkpoint of an empty store, from which every ingestion starts."""
    return _keep(None, manifest)


def checkpoint(copy: WorkingCopy, manifest: Manifest) -> Manifest:
    """Keep the copy as it stands now as what `manifest` tells; earlier checkpoints go.

    The checkpoint has its name only when it is whole.

    Raises:
        StoreError: it can't be written.
    """
    return _keep(copy.store, manifest)


def _keep(store: Path | None, manifest: Manifest) -> Manifest:
    checkpoints = manifest.path / CHECKPOINTS
    whole = checkpoints / str(len(manifest.sessions))
    part = whole.with_suffix(".part")
    try:
        shutil.rmtree(part, ignore_errors=True)
        if store is None:
            (part / STORE).mkdir(parents=True)
        else:
            _copy_tree(store, part / STORE)
        manifest = replace(manifest, store_bytes=_size(part / STORE))
        write_manifest(manifest, part)
        part.rename(whole)
        for other in checkpoints.iterdir():
            if other != whole:
                shutil.rmtree(other, ignore_errors=True)
    except OSError as error:
        raise _refused(manifest.path, error) from error
    return manifest


def _place(open_folder: Path) -> tuple[Path, FileLock]:
    """A new folder's name for this process, and the lock that says that it is alive."""
    while True:
        place = open_folder / f"{os.getpid()}-{secrets.token_hex(4)}"
        lock = FileLock(place.with_suffix(".lock"))
        if lock.acquire():
            try:
                place.mkdir()
            except OSError:
                lock.release()
                raise
            return place, lock


def _copy_tree(source: Path, target: Path) -> None:
    """Copy a folder; sockets and pipes, which no copy can be of, are left out."""

    def unfit(folder: str, names: list[str]) -> list[str]:
        paths = [Path(folder) / name for name in names]
        return [each.name for each in paths if each.is_socket() or each.is_fifo()]

    shutil.copytree(source, target, symlinks=True, ignore=unfit)


def _size(folder: Path) -> int:
    return sum(each.stat().st_size for each in folder.rglob("*") if each.is_file())


def _refused(folder: Path, error: OSError) -> StoreError:
    if isinstance(error, shutil.Error):  # of a whole tree: (source, target, reason) of each file
        told = str(error.args[0][0][2]).partition(": '")[0]
        return StoreError(f"{folder}: can't be copied ({told}). Make room there or mend its rights.")
    return StoreError(f"{folder}: can't be written ({error.strerror or error}). Make room there or mend its rights.")
