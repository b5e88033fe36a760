"""Conversations to build from: LoCoMo's format, with or without the questions and notes that LoCoMo adds to them."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from opbench.benchmarks import files, locomo
from opbench.benchmarks.shape import Node
from opbench.errors import DataError
from opbench.settings import settings
from opbench.types import Conversation, Instance, User

_AGAIN = "get it again from where it came"
_MEND = "correct it there; the format is LoCoMo's (docs/building.md), and `opbench build convert` makes it of chats"
#: What LoCoMo has beside the conversations, and what stands for it where it is absent.
_OPTIONAL: dict[str, Any] = {"qa": [], "event_summary": {}, "observation": {}, "session_summary": {}}


@dataclass(frozen=True, slots=True)
class Source:
    """Conversations with all that their file says about them; treat it as read-only."""

    name: str
    """Of the file or folder, without its path."""
    sha256: str
    """Of the conversations as canonical JSON: the same for the same content, however it is laid out in files."""
    raw: list[dict[str, Any]]
    """The conversations as in the file."""
    conversations: dict[str, Conversation]
    """By id, in file order."""
    users: dict[str, User]
    """By user id, speaker_a before speaker_b, in file order."""
    locomo: tuple[Instance, ...]
    """The file's own questions; often none."""
    summaries: dict[str, dict[int, str]]
    """The file's own summaries by conversation and session number; often none."""

    def stamp(self) -> dict[str, str]:
        """What a build's provenance says of it; `source_of` finds the conversations by it."""
        return {"name": self.name, "sha256": self.sha256}


def read_source(where: Path | Literal["sample"] | None = None) -> Source:
    """Conversations from a LoCoMo-format file, a data folder that holds `locomo/`, a folder of such files, or
    `"sample"`; None is where the benchmark data are (`opbench.benchmarks.find`).

    Raises:
        DataError: nothing there, damaged, of the wrong shape, or a conversation twice; one line with file and place.
    """
    if where is None or where == "sample":
        found = files.find(where)
        return _read(found.locomo.name if where is None else "sample", [found.locomo])
    if not where.exists():
        raise DataError(f"{where}: no such file or folder; name a file in LoCoMo's format, or a folder of such files")
    if where.is_file():
        return _read(where.name, [where])
    folder = where / "locomo" if (where / "locomo").is_dir() else where
    paths = sorted(folder.glob("*.json"))
    if not paths:
        raise DataError(f"{folder}: no .json file in it; put conversations in LoCoMo's format there")
    return _read(where.resolve().name, paths)


def read_bytes(data: bytes, name: str) -> Source:
    """Conversations from the bytes of a LoCoMo-format file, such as an upload of that name.

    Raises:
        DataError: as `read_source`.
    """
    return _source(name, [_nodes(data, Path(name))])


def keep(source: Source) -> None:
    """Keep a copy in the home, under the content's digest, so that later steps of a build find the conversations
    wherever their file has gone.

    Raises:
        DataError: it can't be written.
    """
    path = _kept(source.sha256)
    if path.exists():
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".part", delete=False) as part:
            part.write(_canonical(source.raw))
        Path(part.name).replace(path)
    except OSError as error:
        raise DataError(f"{path.parent}: can't be written ({error.strerror}); check OPBENCH_HOME") from error


def source_of(provenance: Mapping[str, Any]) -> Source:
    """The conversations that a build was made from, by its provenance's `conversations`.

    Raises:
        DataError: they aren't in this home.
    """
    stamp = provenance["conversations"]
    path = _kept(str(stamp["sha256"]))
    if not path.is_file():
        raise DataError(
            f"{path}: the build's conversations ({stamp['name']}) aren't in this home; copy that file from the home "
            "where the build was made"
        )
    return _load_kept(path, str(stamp["name"]))


@lru_cache(maxsize=2)
def _load_kept(path: Path, name: str) -> Source:
    # Its name is its digest, so that what was read once is what is there.
    return _read(name, [path])


def with_optional(raw: dict[str, Any]) -> dict[str, Any]:
    """A conversation of `Source.raw` with empty parts for those that LoCoMo has and it has not."""
    return {**raw, **{name: empty for name, empty in _OPTIONAL.items() if name not in raw}}


def _kept(digest: str) -> Path:
    return settings().home / "conversations" / f"{digest}.json"


def _read(name: str, paths: list[Path]) -> Source:
    return _source(name, [_nodes(files.read_bytes(path), path) for path in paths])


def _nodes(data: bytes, path: Path) -> list[Node]:
    root = files.parse_json(data, path, _AGAIN)
    # A file of one conversation may hold it without a list around it.
    value = [root.value] if isinstance(root.value, dict) else root.value
    return Node(path, value, mend=_MEND).items()


def _source(name: str, of_files: list[list[Node]]) -> Source:
    raw: list[dict[str, Any]] = []
    parsed = locomo.LocomoFile()
    summaries: dict[str, dict[int, str]] = {}
    for nodes in of_files:
        if not nodes:
            continue
        whole = [with_optional(node.value) if isinstance(node.value, dict) else node.value for node in nodes]
        part = locomo.parse(Node(nodes[0].file, whole, mend=_MEND))
        for node, conversation in zip(nodes, part.conversations.values(), strict=True):
            if conversation.id in parsed.conversations:
                raise node.error(f'the conversation "{conversation.id}" is in another file too')
            summaries[conversation.id] = _summaries(node, conversation)
            raw.append(node.value)  # type: ignore[arg-type]  # `locomo.parse` has seen that it is an object
        parsed.conversations |= part.conversations
        parsed.users |= part.users
        parsed.instances += part.instances
    if not parsed.conversations:
        raise DataError(f"{name}: no conversation in it; give conversations in LoCoMo's format")
    return Source(
        name,
        files.sha256(_canonical(raw)),
        raw,
        parsed.conversations,
        parsed.users,
        tuple(parsed.instances),
        summaries,
    )


def _summaries(node: Node, conversation: Conversation) -> dict[int, str]:
    given = node.entries().get("session_summary")
    if given is None:
        return {}
    entries = given.entries()
    found = {}
    for session in conversation.sessions:
        summary = entries.get(f"session_{session.number}_summary")
        if summary is not None and summary.value not in ("", None):
            found[session.number] = summary.text()
    return found


def _canonical(raw: list[dict[str, Any]]) -> bytes:
    return json.dumps(raw, separators=(",", ":")).encode()
