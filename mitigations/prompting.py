"""Prompt files, and the messages made of them.

A prompt file has sections, each opened by a line `[name]`. `{need}` and the like stand for sections of `common.txt`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from mitigations.base import Memory

PROMPTS = Path(__file__).parent / "prompts"
_SECTION = re.compile(r"^\[([a-z_]+)\][ \t]*\n", re.MULTILINE)
_FENCE = re.compile(r"<(?=\s*/?\s*(?:memories|question|draft|examples|example)\b)", re.IGNORECASE)


@cache
def sections(name: str) -> dict[str, str]:
    """The sections of `prompts/<name>.txt`; those of `common.txt` are filled in for `{section}`."""
    parts = _SECTION.split((PROMPTS / f"{name}.txt").read_text(encoding="utf-8"))[1:]
    found = {title: body.strip() for title, body in zip(parts[::2], parts[1::2], strict=True)}
    if name != "common":
        for title, body in sections("common").items():
            found = {key: text.replace("{" + title + "}", body) for key, text in found.items()}
    return found


def fenced(tag: str, text: str) -> str:
    """`text` between tags that it can't close itself: tags of ours inside it lose their bracket."""
    return f"<{tag}>\n{_FENCE.sub('‹', text)}\n</{tag}>"


def one_line(memory: Memory) -> str:
    """`(9 May 2024) text` on one line, so that a memory can't open a numbered line of its own."""
    text = " ".join(memory.text.split())
    return f"({memory.date}) {text}" if memory.date else text


def numbered(memories: Sequence[Memory]) -> str:
    """One memory a line: `[3] (9 May 2024) text`."""
    return "\n".join(f"[{number}] {one_line(memory)}" for number, memory in enumerate(memories, start=1))


def case(question: str, memories: Sequence[Memory], closing: str) -> str:
    """The user message: numbered memories, then the question, both fenced, then the reminder."""
    memory_block, question_block = fenced("memories", numbered(memories)), fenced("question", question.strip())
    return f"{memory_block}\n\n{question_block}\n\n{closing}"


def messages(
    system: str, closing: str, question: str, memories: Sequence[Memory], *, before: str = ""
) -> list[tuple[str, str]]:
    """System message (task and reply form), user message (`before`, e.g. examples; the case; the reminder)."""
    user = case(question, memories, closing)
    return [("system", system), ("user", f"{before}\n\n{user}" if before else user)]
