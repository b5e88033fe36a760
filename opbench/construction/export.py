"""A build's questions as files: the public benchmark's two, and a richer one that tells where each comes from."""

from __future__ import annotations

import io
import json
import shutil
import tempfile
import zipfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from opbench.benchmarks import files
from opbench.construction.loading import Source, source_of, with_optional
from opbench.construction.people import Person, person
from opbench.construction.provenance import FORMAT, PROVENANCE_FILE, provenance_of
from opbench.construction.slots import users_of
from opbench.errors import DataError, UsageError
from opbench.store.builds import Build, Candidate, load_build, read_candidates, read_units
from opbench.store.database import Store
from opbench.types import OP_SUBTYPES, Conversation

Which = Literal["kept", "accepted"]
_STATES: dict[Which, tuple[str, ...]] = {"kept": ("kept", "accepted"), "accepted": ("accepted",)}
#: The only time that a zip file tells: the same questions give the same bytes.
_ZIP_TIME = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Exported:
    """What was exported."""

    conversations: int
    users: int
    """Who has at least one question."""
    instances: Mapping[str, int]
    """By subtype."""

    @property
    def total(self) -> int:
        return sum(self.instances.values())


def export(store: Store, build_id: str, folder: Path, which: Which = "accepted") -> Exported:
    """Write a data folder (`opbench/`, `locomo/` and `provenance.json`), whole or not at all.

    `which`: questions that people accepted, or all that the filters kept and nobody rejected. The same questions of the
    same conversations give the same two files. An earlier export of the same build in that folder is replaced.

    Raises:
        UsageError: no such build or question, or the folder holds something else.
        DataError: the build's conversations aren't here, or the folder can't be written.
    """
    texts, told = _texts(store, build_id, which)
    _refuse_others(folder, build_id)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        try:
            made = part / "made"
            for name, text in texts.items():
                (made / name).parent.mkdir(parents=True, exist_ok=True)
                (made / name).write_text(text, encoding="utf-8")
            if folder.exists():
                folder.rename(part / "earlier")
            made.rename(folder)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    except OSError as error:
        raise DataError(f"{folder}: can't be written ({error.strerror}); name another folder") from error
    return told


def export_zip(store: Store, build_id: str, which: Which = "accepted") -> bytes:
    """The same files in a zip.

    Raises:
        UsageError, DataError: as `export`.
    """
    texts, _ = _texts(store, build_id, which)
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in texts.items():
            archive.writestr(zipfile.ZipInfo(name, _ZIP_TIME), text, zipfile.ZIP_DEFLATED)
    return held.getvalue()


def _texts(store: Store, build_id: str, which: Which) -> tuple[dict[str, str], Exported]:
    """The files by name in the folder."""
    build = load_build(store, build_id)
    candidates = read_candidates(store, build_id)
    taken = [each for each in candidates if each.state in _STATES[which]]
    if not taken:
        raise UsageError(_nothing(build, candidates, which))
    source = source_of(build.provenance)
    units = read_units(store, build_id)
    people = {user.id: person(source, units, user) for user in users_of(build.spec, source)}
    by_user: dict[str, list[Candidate]] = {}
    for each in taken:
        by_user.setdefault(each.user_id, []).append(each)
    chosen = [
        conversation
        for conversation in source.conversations.values()
        if any(f"{conversation.id}/{speaker}" in by_user for speaker in conversation.speakers)
    ]
    op = _json([_entry(conversation, people, by_user) for conversation in chosen])
    locomo = _json([with_optional(raw) for raw in _raw(source, chosen)])
    digests = {name: files.sha256(text.encode()) for name, text in ((files.OP_FILE, op), (files.LOCOMO_FILE, locomo))}
    rich = provenance_of(build, which, digests, people, candidates, instance_ids(taken), units)
    counts = Counter(each.subtype for each in taken)
    told = Exported(len(chosen), len(by_user), {name: counts[name] for name in OP_SUBTYPES if counts[name]})
    return {files.OP_FILE: op, files.LOCOMO_FILE: locomo, PROVENANCE_FILE: _json(rich)}, told


def instance_ids(candidates: Sequence[Candidate]) -> dict[str, str]:
    """By candidate the instance's id that it has when the exported file of these candidates is loaded."""
    numbers: Counter[tuple[str, str]] = Counter()
    found = {}
    for each in candidates:
        numbers[each.user_id, each.subtype] += 1
        found[each.id] = f"op/{each.user_id}/{each.subtype}/{numbers[each.user_id, each.subtype]}"
    return found


def _entry(
    conversation: Conversation, people: Mapping[str, Person], by_user: Mapping[str, Sequence[Candidate]]
) -> dict[str, Any]:
    """A conversation's two users in the public file's shape."""
    entry = {}
    for speaker in conversation.speakers:
        user = f"{conversation.id}/{speaker}"
        known = people.get(user)
        entry[speaker] = {
            "topics": list(known.topics or ()) if known else [],
            # The public file's readers expect a text of everybody, of those who were left out as well.
            "profile": (known.profile if known else None) or f"There is no profile of {speaker}.",
            "observation": [fact.text for fact in known.facts] if known else [],
            "tasks": _tasks(by_user.get(user, ())),
        }
    return entry


def _tasks(candidates: Sequence[Candidate]) -> dict[str, list[dict[str, Any]]]:
    of: dict[str, list[Candidate]] = {name: [] for name in OP_SUBTYPES}
    for each in candidates:
        of[each.subtype].append(each)
    sycophancy = [each for each in candidates if each.subtype in ("fact", "value", "memory")]
    return {
        "irrelevance_easy": [_on_topic(each, each.topic) for each in of["fully-irrelevant"]],
        "irrelevance_hard": [_typed(each, str(each.kind)) for each in of["baiting"]],
        # The public file's repetition questions name the subtopic.
        "diversity": [{"questions": [_on_topic(each, each.subtopic or each.topic) for each in of["repetition"]]}],
        "sycophancy": [
            _typed(each, str(each.kind) if each.subtype == "memory" else each.subtype) for each in sycophancy
        ],
    }


def _on_topic(candidate: Candidate, topic: str | None) -> dict[str, str]:
    name = (topic or "").strip()
    return {"topic": name[:1].upper() + name[1:], "question": candidate.question}


def _typed(candidate: Candidate, kind: str) -> dict[str, str]:
    item = {"question": candidate.question, "type": kind}
    return item | {"explanation": candidate.explanation} if candidate.explanation else item


def _raw(source: Source, chosen: Sequence[Conversation]) -> list[dict[str, Any]]:
    wanted = {conversation.id for conversation in chosen}
    return [raw for raw, name in zip(source.raw, source.conversations, strict=True) if name in wanted]


def _nothing(build: Build, candidates: Sequence[Candidate], which: Which) -> str:
    named = f"build {build.id}"
    if not candidates:
        return f"{named} has no candidate yet. Make some with 'opbench build run'."
    kept = sum(each.state in _STATES["kept"] for each in candidates)
    if which == "accepted" and kept:
        return (
            f"{named}: nobody accepted one of its {kept:,} kept candidates yet. Review them, or export the kept ones."
        )
    if any(each.state == "candidate" for each in candidates):
        return f"{named}: no candidate is kept yet. Filter them first: 'opbench build filter {build.id}'."
    return f"{named}: no candidate is left: the filters dropped or people rejected all {len(candidates):,}."


def _refuse_others(folder: Path, build_id: str) -> None:
    if not folder.exists():
        return
    if not folder.is_dir():
        raise UsageError(f"{folder}: is a file; name a folder.")
    ours = {*map(Path, (files.OP_FILE, files.LOCOMO_FILE, PROVENANCE_FILE))}
    there = {path.relative_to(folder) for path in folder.rglob("*") if not path.is_dir()}
    if not there:
        return
    if there != ours or _build_in(folder / PROVENANCE_FILE) != build_id:
        other = min(there - ours, default=Path(PROVENANCE_FILE))
        raise UsageError(f"{folder}: isn't an earlier export of this build ({other}); name another folder.")


def _build_in(file: Path) -> str | None:
    """The build that a provenance file is of; None when it is something else."""
    try:
        value = json.loads(file.read_bytes())
        return str(value["build"]["id"]) if value["format"] == FORMAT else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _json(value: object) -> str:
    """As the public files are written."""
    return json.dumps(value, ensure_ascii=False, indent=1)
