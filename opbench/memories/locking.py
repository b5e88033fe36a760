"""Locks between processes that end with their holder, however it ends."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


class FileLock:
    """An exclusive lock on a file, which is made when it isn't there."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._descriptor: int | None = None

    def acquire(self) -> bool:
        """Take the lock; False when another holds it."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Between opening and locking, its last holder may have deleted it: a lock on it would hold nobody off.
            if os.fstat(descriptor).st_ino == self._file.stat().st_ino:
                self._descriptor = descriptor
                return True
        except (BlockingIOError, FileNotFoundError):
            pass
        os.close(descriptor)
        return False

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def is_locked(file: Path) -> bool:
    """Whether somebody holds the lock on a file."""
    try:
        descriptor = os.open(file, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
