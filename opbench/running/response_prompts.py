"""The response prompts: files in `prompts/`, written for this project after the paper's section B.3.

`prompts/memos/` is for LoCoMo by protocol memos: MemOS's evaluation puts one prompt into the system role, one for Mem0
and another for all other memory systems. The texts are written anew; the instructions are those of that evaluation.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from mitigations.base import Line, Memory
from opbench.protocol import by_memos
from opbench.study import Study
from opbench.types import Benchmark, Instance, Message

_FOLDER = Path(__file__).parent / "prompts"
_MEMOS = _FOLDER / "memos"
#: Protocol memos answers at this temperature, whatever the study's.
_MEMOS_TEMPERATURE = 0.0


@cache
def _text(name: str) -> str:
    return (_FOLDER / f"{name}.txt").read_text(encoding="utf-8").strip()


def prompts_sha256() -> str:
    """SHA-256 (hex) over the response prompts of all studies, part of the study's hash."""
    return _sha256(_FOLDER)


def memos_prompts_sha256() -> str:
    """SHA-256 (hex) over the prompts of protocol memos, part of the hash of studies by it."""
    return _sha256(_MEMOS)


def _sha256(folder: Path) -> str:
    digest = hashlib.sha256()
    for file in sorted(folder.glob("*.txt")):
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


def answer_messages(
    study: Study,
    memory: str,
    instance: Instance,
    context: Sequence[Memory | Line],
    note: str = "",
    preface: str = "",
) -> tuple[Message, ...]:
    """The messages that ask for the response of a configuration with that memory system, by the study's protocol.

    By protocol memos the whole prompt is one system message. BASE, an empty retrieval and a filter that keeps nothing
    get its no-memory prompt (design rule 7), the same for all memory systems; that evaluation knows no such case.
    """
    if not by_memos(study, instance.benchmark):
        return response_messages(instance.benchmark, instance.question, context, note, preface)
    if context:
        prompt = _fill(
            _text("memos/with_memory"),
            instructions=_memos_instructions(memory),
            memories=memory_blocks(instance, context),
            question=instance.question,
        )
    else:
        prompt = _fill(
            _text("memos/without_memory"),
            first=instance.user.speaker,
            second=instance.user.other,
            question=instance.question,
        )
    return (Message("system", "\n\n".join(part for part in (preface, prompt, note) if part)),)


def answer_system(study: Study, memory: str, instance: Instance) -> str:
    """What a post-processor that revises the response is told in the system role: how the response was asked for."""
    return _memos_instructions(memory) if by_memos(study, instance.benchmark) else system_prompt(instance.benchmark)


def answer_temperature(study: Study, instance: Instance) -> float:
    """The temperature at which the response is asked for."""
    return _MEMOS_TEMPERATURE if by_memos(study, instance.benchmark) else study.temperature


def _memos_instructions(memory: str) -> str:
    """Those for Mem0 and its variants (`mem0-…`), or those for all other memory systems."""
    return _text("memos/mem0" if memory.partition("-")[0] == "mem0" else "memos/memos")


def memory_blocks(instance: Instance, context: Sequence[Memory | Line]) -> str:
    """The memories as two blocks headed by the speakers' names, as protocol memos shows them.

    A line is its speaker's when it begins with `Name: `, as memories of both speakers do. Lines that a post-processor
    has made of several stand in a block of their own.
    """
    names = (instance.user.speaker, instance.user.other)
    blocks: dict[str, list[str]] = {name: [] for name in names}
    of_both = []
    for line in context:
        name = next((name for name in names if line.text.startswith(f"{name}: ")), None)
        if name is None:
            of_both.append(_dated(line.text, line.date))
        else:
            blocks[name].append(_dated(line.text.removeprefix(f"{name}: "), line.date))
    parts = []
    if any(blocks.values()):
        parts += [f"Memories of {name}:\n" + ("\n".join(lines) or "(none)") for name, lines in blocks.items()]
    if of_both:
        parts.append(f"Memories of {' and '.join(names)} together:\n" + "\n".join(of_both))
    return "\n\n".join(parts)


def system_prompt(benchmark: Benchmark) -> str:
    return _text(f"{benchmark}_system")


def response_messages(
    benchmark: Benchmark, question: str, context: Sequence[Memory | Line], note: str = "", preface: str = ""
) -> tuple[Message, ...]:
    """The messages that ask for the response: without any context line it is the no-memory prompt (design rule 7).

    `note` and `preface` are what a method adds at the end and before all else (the `-original` variants).
    """
    user = "".join(text for _, text in response_pieces(benchmark, question, context))
    user = "\n\n".join(part for part in (preface, user, note) if part)
    return (Message("system", system_prompt(benchmark)), Message("user", user))


def response_pieces(
    benchmark: Benchmark, question: str, context: Sequence[Memory | Line]
) -> tuple[tuple[str, str], ...]:
    """The user's message of `response_messages`, without what a method adds, as (name, text): the name is `memories` or
    `question` where the text is theirs, and empty where it is the prompt's own."""
    if not context:
        return _pieces(_text(f"{benchmark}_without_memory"), question=question)
    memories = "\n".join(_dated(line.text, line.date) for line in context)
    return _pieces(_text(f"{benchmark}_with_memory"), memories=memories, question=question)


def _dated(text: str, date: str | None) -> str:
    return f"- ({date}) {text}" if date else f"- {text}"


def _fill(template: str, **values: str) -> str:
    return "".join(text for _, text in _pieces(template, **values))


def _pieces(template: str, **values: str) -> tuple[tuple[str, str], ...]:
    """The template with every `{name}` replaced, in one pass, so that braces inside a memory or a question stay what
    they are."""
    return tuple((part, values[part]) if place % 2 else ("", part) for place, part in enumerate(_parts(template)))


@cache
def _parts(template: str) -> tuple[str, ...]:
    """By turns the template's own text and a name."""
    return tuple(re.split(r"\{(\w+)\}", template))
