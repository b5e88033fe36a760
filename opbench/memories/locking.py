"""Locks between processes that end with their holder, however it ends."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from opbench.errors import StoreError


class FileLock:
    """An exclusive lock on a file, which is made when it isn't there."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._descriptor: int | None = None

    def acquire(self) -> bool:
        """Take the lock; False when another holds it.

        Raises:
            StoreError: the file can't be made or locked.
        """
        descriptor = None
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT, 0o666)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Between opening and locking, its last holder may have deleted it: a lock on it would hold nobody off.
            if os.fstat(descriptor).st_ino == self._file.stat().st_ino:
                self._descriptor, descriptor = descriptor, None
                return True
        except (BlockingIOError, FileNotFoundError):
            pass
        except OSError as error:
            raise StoreError(
                f"{self._file}: can't be written ({error.strerror or error}). Make room there or mend its rights."
            ) from error
        finally:
            if descriptor is not None:
                os.close(descriptor)
        return False

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def is_locked(file: Path) -> bool:
    """Whether somebody holds the lock on a file; also said of one that isn't ours to open, since nobody can tell."""
    try:
        descriptor = os.open(file, os.O_RDONLY)
    except FileNotFoundError:
        return False
    except PermissionError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
