"""From the flags of `opbench ask` to a case: whom and what is asked, the columns, and what is changed in them."""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

import mitigations
from mitigations.registry import BrokenPlugin, UnknownMitigation
from opbench.benchmarks import load
from opbench.cases import drafts, published
from opbench.cases.saved import wrong_place
from opbench.cases.spec import CaseSpec, Column, Draft, Given
from opbench.commands.memory_choice import the_users
from opbench.entries import nearest
from opbench.errors import UsageError
from opbench.judges import is_rule_judge, make_judge
from opbench.memories import memory_names
from opbench.models import load_registry
from opbench.study import BASE, NO_MITIGATION
from opbench.types import Corpus, Instance

#: Bytes of a file with memories, a draft or a prompt's section.
_LARGEST_FILE = 1_000_000
_NAMED = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked, and of whom. A published case brings its memories, and the columns that it is shown with."""

    fields: dict[str, Any]
    """Of `CaseSpec`."""
    given: tuple[Given, ...] | None = None
    configured: tuple[tuple[str, str], ...] = (("rag", NO_MITIGATION),)
    """Memory system and post-processor of the columns where no flag names any."""


def whom_and_what(
    question: str | None, user: str | None, instance: str | None, published_id: str | None, data: str
) -> Asked:
    """The case's question and user, from where they were told.

    Raises:
        UsageError: too much or too little was told, or something isn't there (with the nearest).
        DataError: a benchmark file is damaged.
    """
    ways = {"a QUESTION": question, "--instance": instance, "--published": published_id}
    told = [name for name, given in ways.items() if given is not None]
    if len(told) != 1:
        raise UsageError(
            f"{' and '.join(told)} were given: give one of them."
            if told
            else "nothing to ask: give a QUESTION, --instance ID or --published ID."
        )
    if published_id is not None:
        return _published(published_id, user)
    corpus = load("sample" if data == "sample" else None)
    if instance is not None:
        if user is not None:
            raise UsageError("--user goes with a QUESTION: an instance has its own.")
        asked = _instance(corpus, instance)
        fields = {"question": asked.question, "user": asked.user.id, "instance": asked.id, "subtype": asked.subtype}
        return Asked({**fields, "data": data})
    if question is None or not question.strip():
        raise UsageError("the question is empty.")
    users = [each.id for each in the_users(corpus, [user] if user else [])]
    if user is not None and user not in users:
        raise UsageError(f"'{user}' is a conversation: name one of its users, {' or '.join(users)}.")
    return Asked({"question": question, "user": users[0], "data": data})


def _published(published_id: str, user: str | None) -> Asked:
    found, number = published.find(published_id)
    # Any model will do: the columns are made of the flags.
    spec = found.to_spec(["any"], number, user)
    shown = [column for column in spec.columns if column.memory != BASE]
    return Asked(
        spec.model_dump(include={"question", "user", "instance", "published", "subtype", "data"}),
        shown[0].given,
        tuple((column.memory, column.mitigation) for column in shown),
    )


def _instance(corpus: Corpus, wanted: str) -> Instance:
    known = {each.id: each for each in (*corpus.op, *corpus.locomo)}
    if wanted in known:
        return known[wanted]
    near = difflib.get_close_matches(wanted, known, n=3, cutoff=0.5)
    hint = f"Did you mean {' or '.join(near)}?" if near else f"An id is such as {next(iter(known))}."
    raise UsageError(f"no instance '{wanted[:80]}'. {hint}")


def configurations(columns: Sequence[str], memories: Sequence[str], methods: Sequence[str]) -> list[tuple[str, str]]:
    """Memory system and post-processor of each column but BASE, in order: of `--columns rag,rag:reminder`, or each of
    `--memory` with each of `--mitigation`.

    Raises:
        UsageError: both ways at once, or something isn't known (with the nearest).
    """
    if columns and (memories or methods):
        raise UsageError("--columns and --memory or --mitigation say the same thing: give one of the two.")
    if columns:
        parts = [each.strip().partition(":") for one in columns for each in one.split(",") if each.strip()]
        found = [(memory.strip(), method.strip() or NO_MITIGATION) for memory, _, method in parts]
    else:
        found = [(memory, method) for memory in memories or ("rag",) for method in methods or (NO_MITIGATION,)]
    for memory, method in found:
        known_memory(memory)
        known_method(method)
        if memory == BASE and method != NO_MITIGATION:
            raise UsageError(f"{memory}:{method}: BASE answers without memories, so it takes no post-processor.")
    return [each for each in dict.fromkeys(found) if each[0] != BASE]


def known_memory(name: str) -> None:
    """Raises UsageError, with the nearest name, for a memory system that nobody registered."""
    known = memory_names()
    if name not in known:
        near = nearest(name, known)
        hint = f" Did you mean '{near}'?" if near else ""
        raise UsageError(f"no memory system '{name}'.{hint} There are: {', '.join(known)}.")


def known_method(name: str) -> None:
    """Raises UsageError, with the nearest names, for a post-processor that nobody registered."""
    try:
        mitigations.get(name)
    except (UnknownMitigation, BrokenPlugin) as error:
        raise UsageError(str(error)) from None


def known_models(models: Sequence[str], judge: str) -> None:
    """Raises UsageError for a model or judge that isn't in the registry, with the nearest name."""
    registry = load_registry()
    for name in models:
        registry.model(name)
    make_judge(judge)
    if not is_rule_judge(judge):
        registry.model(judge)


def all_columns(
    models: Sequence[str],
    configured: Sequence[tuple[str, str]],
    *,
    given: tuple[Given, ...] | None = None,
    draft: Draft | None = None,
    instead: tuple[Given, ...] | None = None,
    without: Sequence[int] = (),
    prompts: Mapping[str, str] | None = None,
) -> tuple[Column, ...]:
    """For each model BASE and the configurations, with the `given` memories where the case brings some; a draft is one
    more for each memory system. What is changed (memories `instead`, some left out, sections of prompts) stands beside
    its column as it is, so that the difference can be seen.

    Raises:
        UsageError: a change fits no column.
    """
    prompts = dict(prompts or {})
    if (instead is not None or without or draft is not None) and not configured:
        raise UsageError("there is no column with memories to change: name a memory system, e.g. --columns rag.")
    columns: list[Column] = []
    for model in dict.fromkeys(models):
        columns.append(Column(model=model))
        whole = [Column(model=model, memory=memory, mitigation=method, given=given) for memory, method in configured]
        if draft is not None:
            systems = dict.fromkeys(memory for memory, _ in configured)
            whole += [
                Column(model=model, memory=memory, mitigation=draft.name, draft=draft, given=given)
                for memory in systems
            ]
        for column in whole:
            changed = _changed(column, instead, without, prompts)
            columns += [column] if changed == column else [column, changed]
    for section in prompts:
        if not any(section in column.prompts for column in columns):
            there = {name for _, method in configured for name in _sections(method)}
            known = f" These columns have: {', '.join(sorted(there))}." if there else " None of these columns has any."
            raise UsageError(f"--prompt {section}: no column's post-processor has such a section.{known}")
    return tuple(columns)


def _changed(
    column: Column, instead: tuple[Given, ...] | None, without: Sequence[int], prompts: Mapping[str, str]
) -> Column:
    update: dict[str, Any] = {}
    if instead is not None:
        update["given"] = instead
    if without:
        update["without"] = tuple(sorted(set(without)))
    if column.draft is None:
        mine = {name: text for name, text in prompts.items() if name in _sections(column.mitigation)}
        update |= {"prompts": mine} if mine else {}
    return column.model_copy(update=update)


def _sections(method: str) -> Mapping[str, str]:
    return mitigations.prompt_sections(mitigations.get(method))


def make_case(columns: Sequence[Column], fields: Mapping[str, Any]) -> CaseSpec:
    """A checked case.

    Raises:
        UsageError: says where it is wrong.
    """
    try:
        # Changed columns are copies that nobody checked.
        return CaseSpec.model_validate({**fields, "columns": [column.model_dump() for column in columns]})
    except ValidationError as error:
        raise UsageError(f"opbench ask: {wrong_place(error)}.") from None


def read_given(file: Path) -> tuple[Given, ...]:
    """Memories from a file: a JSON list of texts or of objects with `text`, `date` and `score`, or a line each.

    Raises:
        UsageError: the file can't be read, or holds something else; says where.
    """
    text = _read(file)
    if not text.lstrip().startswith("["):
        return _checked(file, [{"text": line.strip()} for line in text.splitlines() if line.strip()], "line")
    try:
        rows = json.loads(text)
    except ValueError as error:
        raise UsageError(f"{file}: isn't JSON ({error}). Give a JSON list, or one memory a line.") from None
    for number, row in enumerate(rows, 1):
        if not isinstance(row, str | dict):
            raise UsageError(f'{file}: memory {number} is neither a text nor an object such as {{"text": "…"}}.')
    return _checked(file, [{"text": row} if isinstance(row, str) else row for row in rows], "memory")


def _checked(file: Path, rows: Sequence[Any], what: str) -> tuple[Given, ...]:
    found = []
    for number, row in enumerate(rows, 1):
        try:
            memory = Given.model_validate(row)
        except ValidationError as error:
            raise UsageError(f"{file}: {what} {number}: {wrong_place(error)}.") from None
        if memory.score is not None and not math.isfinite(memory.score):
            raise UsageError(f"{file}: {what} {number}: score: give a number, or leave it out.")
        found.append(memory)
    return tuple(found)


def read_draft(file: Path) -> Draft:
    """A draft from a plugin file that was saved as one, or from a text file that holds the instructions; its name is
    then the file's.

    Raises:
        UsageError: the file can't be read, or is neither.
    """
    if file.suffix == ".py":
        _read(file)
        draft = drafts.read(file)
        if draft is None:
            raise UsageError(f"{file}: isn't a saved draft. Give a text file with instructions, or use --plugin.")
        return draft
    instructions = _read(file).strip()
    name = _NAMED.sub("-", file.stem.casefold()).strip("-")[:40].strip("-")
    try:
        draft = Draft(name=name, label=file.stem[:60], instructions=instructions)
    except ValidationError as error:
        raise UsageError(
            f"{file}: {wrong_place(error)}. The file's name is the draft's, its text the instructions."
        ) from None
    if draft.name in mitigations.names():
        raise UsageError(f"{file}: a post-processor '{draft.name}' is there already: give the file another name.")
    return draft


def read_sections(told: Sequence[str]) -> dict[str, str]:
    """`SECTION=FILE` as the section's own wording, by name.

    Raises:
        UsageError: another form, or a file that can't be read.
    """
    sections = {}
    for each in told:
        name, equals, file = each.partition("=")
        if not equals or not name.strip() or not file.strip():
            raise UsageError(f"--prompt {each[:60]}: write SECTION=FILE, e.g. system=own.txt.")
        sections[name.strip()] = _read(Path(file.strip())).strip("\n")
    return sections


def _read(file: Path) -> str:
    try:
        if file.stat().st_size > _LARGEST_FILE:
            raise UsageError(f"{file}: larger than the {_LARGEST_FILE:,} bytes that are read.")
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{file}: can't be read ({error.strerror}).") from error
    except UnicodeDecodeError:
        raise UsageError(f"{file}: isn't UTF-8 text. Save it as UTF-8.") from None
