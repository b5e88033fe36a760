"""A zip that anybody may have made, read with bounded memory: what it may hold is known, so all else is refused."""

from __future__ import annotations

import hashlib
import json
import stat
import struct
import zipfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, NoReturn

from opbench.errors import DataError

_BLOCK = 1 << 20
_DIRECTORY_BYTES = 1 << 16
"""Largest directory of a zip that is read: ours take under 1 KiB."""
_END = b"PK\x05\x06"
_END_BYTES = 22
_ENCRYPTED = 0x1

#: What a damaged or made-up zip can raise while it is read.
DAMAGES = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    RuntimeError,
    KeyError,
    TypeError,
    AttributeError,
    ValueError,
    OverflowError,
)


@dataclass(frozen=True, slots=True)
class Limits:
    """What is read at most. The defaults hold a study of 129,600 records with texts and embeddings."""

    unpacked: int = 1_500_000_000
    """Bytes of all members together; the packed file may not be larger either."""
    rows: int = 5_000_000
    """Lines of all members together."""
    line: int = 16 << 20
    """Bytes of one line."""
    manifest: int = 4 << 20
    """Bytes of the manifest."""


LIMITS = Limits()


class Archive:
    """An open zip whose members are named, sized and kept as ours are. `label` begins every message."""

    def __init__(self, packed: zipfile.ZipFile, label: str, limits: Limits) -> None:
        self._zip = packed
        self._members = {info.filename: info for info in packed.infolist()}
        self.label = label
        self.limits = limits

    def names(self) -> set[str]:
        return set(self._members)

    def manifest(self, name: str) -> Any:
        """A small member as JSON."""
        if name not in self._members:
            raise DataError(f"{self.label}: isn't a bundle: it has no {name}. Export it again.")
        if self._members[name].file_size > self.limits.manifest:
            raise DataError(f"{self.label}: {name} is larger than {self.limits.manifest >> 20} MiB: no bundle of ours.")
        return parse(self._zip.read(name))

    def lines(self, name: str, sha256: object) -> Iterator[bytes]:
        """A member's lines, one at a time; after the last one its digest is checked.

        Raises:
            DataError: a line is too long, or the digest isn't `sha256`.
        """
        digest, rest = hashlib.sha256(), b""
        with self._zip.open(name) as member:
            while block := member.read(_BLOCK):
                digest.update(block)
                *whole, rest = (rest + block).split(b"\n")
                yield from whole
                if len(rest) > self.limits.line:
                    raise DataError(f"{self.label}: {name} has a line of more than {self.limits.line >> 20} MiB.")
        if rest:
            yield rest
        if digest.hexdigest() != sha256:
            raise DataError(f"{self.label}: {name} was changed after the export. Get the bundle again from its maker.")


@contextmanager
def open_archive(file: BinaryIO, label: str, known: Collection[str], limits: Limits = LIMITS) -> Iterator[Archive]:
    """Open a zip that may hold `known` members and nothing else.

    What goes wrong inside the block because the zip is damaged becomes a DataError as well.

    Raises:
        DataError: not a zip, damaged, encrypted, too large, or with members that aren't ours; one line.
    """
    try:
        _look_at_directory(file, label, limits)
        with zipfile.ZipFile(file) as packed:
            _look_at_members(packed, label, known, limits)
            yield Archive(packed, label, limits)
    except OSError as error:
        raise DataError(f"{label}: can't be read ({error.strerror or error}).") from error
    except DAMAGES as error:
        said = " ".join(str(error).split())[:200]
        raise DataError(f"{label}: isn't a whole bundle ({type(error).__name__}: {said}). Export it again.") from error


def parse(line: bytes) -> Any:
    """JSON without NaN and infinities, which the store's numbers don't have. Raises ValueError."""
    return json.loads(line.decode(), parse_constant=_no_such_number)


def _no_such_number(name: str) -> NoReturn:
    raise ValueError(f"{name} isn't a number")


def _look_at_directory(file: BinaryIO, label: str, limits: Limits) -> None:
    """`zipfile` reads the whole directory at once: its size is looked at before."""
    size = file.seek(0, 2)
    if size > limits.unpacked:
        raise DataError(f"{label}: {_larger(size, limits)}")
    start = max(0, size - _DIRECTORY_BYTES - _END_BYTES)
    file.seek(start)
    tail = file.read()
    file.seek(0)
    place = tail.rfind(_END)
    if place < 0 or len(tail) - place < _END_BYTES:
        raise DataError(f"{label}: isn't a whole bundle (no zip, or its end is cut off). Get it again.")
    count, directory_bytes = struct.unpack_from("<HL", tail, place + 10)
    if count > 64 or directory_bytes > _DIRECTORY_BYTES:
        raise DataError(f"{label}: has {count} members or more. That is no bundle of ours.")


def _look_at_members(packed: zipfile.ZipFile, label: str, known: Collection[str], limits: Limits) -> None:
    seen: set[str] = set()
    for info in packed.infolist():
        # A NUL ends what `zipfile` gives as the name; the original one counts.
        name = info.orig_filename
        if name not in known or info.filename != name:
            raise DataError(f"{label}: holds {name[:60]!r}, which is no member of a bundle. It wasn't unpacked.")
        if name in seen:
            raise DataError(f"{label}: holds {name} twice. That is no bundle of ours.")
        seen.add(name)
        if info.flag_bits & _ENCRYPTED:
            raise DataError(f"{label}: {name} is encrypted. Bundles aren't: decrypt it first.")
        kind = stat.S_IFMT(info.external_attr >> 16)
        if kind not in (0, stat.S_IFREG):
            raise DataError(f"{label}: {name} is a link or folder, not a file. It wasn't followed.")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise DataError(f"{label}: {name} is packed in a way that bundles aren't (method {info.compress_type}).")
    size = sum(info.file_size for info in packed.infolist())
    if size > limits.unpacked:
        raise DataError(f"{label}: unpacks to {_larger(size, limits)}")


def _larger(size: int, limits: Limits) -> str:
    return f"{size:,} bytes, more than the {limits.unpacked:,} that are read. Export it again with --no-texts."
