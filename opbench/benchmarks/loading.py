"""From files to a corpus."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Literal

from opbench.benchmarks import files, locomo, op_bench
from opbench.types import Corpus


def load(where: Path | Literal["sample"] | None = None) -> Corpus:
    """Both benchmarks from a data folder, or from where `files.find` looks.

    Read once a process as long as the files don't change; treat the corpus' dicts as read-only.

    Raises:
        DataError: a file is missing, damaged or of the wrong shape; the message is one line with file, place and mend.
    """
    found = files.find(where)
    return _load(found, _stamp(found.op), _stamp(found.locomo))


def _stamp(path: Path) -> tuple[int, int] | None:
    """Changes when the file does; None when it isn't there (reading it will say so)."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size


@lru_cache(maxsize=4)
def _load(found: files.DataFiles, op_stamp: object, locomo_stamp: object) -> Corpus:
    op_bytes, locomo_bytes = files.read_bytes(found.op), files.read_bytes(found.locomo)
    conversations = locomo.parse(files.parse_json(locomo_bytes, found.locomo))
    questions = op_bench.parse(files.parse_json(op_bytes, found.op), conversations.conversations, conversations.users)
    return Corpus(
        source=found.source,
        conversations=conversations.conversations,
        users=conversations.users,
        profiles=questions.profiles,
        op=tuple(questions.instances),
        locomo=tuple(conversations.instances),
        sha256={
            f"{path.parent.name}/{path.name}": files.sha256(data)
            for path, data in ((found.op, op_bytes), (found.locomo, locomo_bytes))
        },
        oddities=(*questions.oddities, *conversations.oddities),
    )
