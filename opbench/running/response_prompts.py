"""The response prompts: files in `prompts/`, written for this project after the paper's section B.3."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from mitigations.base import Line, Memory
from opbench.types import Benchmark, Message

_FOLDER = Path(__file__).parent / "prompts"


@cache
def _text(name: str) -> str:
    return (_FOLDER / f"{name}.txt").read_text(encoding="utf-8").strip()


def prompts_sha256() -> str:
    """SHA-256 (hex) over all response prompts, part of the study's hash."""
    digest = hashlib.sha256()
    for file in sorted(_FOLDER.glob("*.txt")):
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


def system_prompt(benchmark: Benchmark) -> str:
    return _text(f"{benchmark}_system")


def response_messages(
    benchmark: Benchmark, question: str, context: Sequence[Memory | Line], note: str = "", preface: str = ""
) -> tuple[Message, ...]:
    """The messages that ask for the response: without any context line it is the no-memory prompt (design rule 7).

    `note` and `preface` are what a method adds at the end and before all else (the `-original` variants).
    """
    if context:
        memories = "\n".join(f"- ({line.date}) {line.text}" if line.date else f"- {line.text}" for line in context)
        user = _fill(_text(f"{benchmark}_with_memory"), memories=memories, question=question)
    else:
        user = _fill(_text(f"{benchmark}_without_memory"), question=question)
    user = "\n\n".join(part for part in (preface, user, note) if part)
    return (Message("system", system_prompt(benchmark)), Message("user", user))


def _fill(template: str, **values: str) -> str:
    """Replace every `{name}` in one pass, so that braces inside a memory or a question stay what they are."""
    return re.sub(r"\{(\w+)\}", lambda match: values[match[1]], template)
