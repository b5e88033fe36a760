"""Prompt files of construction: read, filled, and known by their digest.

A file stands in `prompts/`, with the parts `=== system` and `=== user`; `$name` is filled. Written for this project.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from string import Template

from opbench.errors import DataError
from opbench.models.failures import storable
from opbench.types import Message

FOLDER = Path(__file__).parent / "prompts"
_SYSTEM, _USER = "=== system\n", "\n=== user\n"


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as its file has it."""

    name: str
    system: str
    user: str
    sha256: str
    """SHA-256 (hex) of the file."""

    def holds(self, text: str) -> bool:
        """Whether a text is one of the file's example: a weak model hands that back as its answer."""
        return _plain(text) in _example(self.user)

    def messages(self, values: Mapping[str, str]) -> tuple[Message, ...]:
        """The prompt filled. Raises KeyError when a value is missing."""
        system, user = (Template(part).substitute(values) for part in (self.system, self.user))
        return Message("system", storable(system)), Message("user", storable(user))


@lru_cache(maxsize=64)
def load_prompt(name: str) -> Prompt:
    """The prompt of that name.

    Raises:
        DataError: its file is missing or damaged: the installation is.
    """
    file = FOLDER / f"{name}.txt"
    try:
        data = file.read_bytes()
        text = data.decode("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file}: can't be read ({error}): install the package again.") from error
    system, found, user = text.partition(_USER)
    if not (found and system.startswith(_SYSTEM)):
        raise DataError(f"{file}: expected the parts '=== system' and '=== user': install the package again.")
    return Prompt(name, system.removeprefix(_SYSTEM).strip(), user.strip(), hashlib.sha256(data).hexdigest())


def prompt_digests() -> dict[str, str]:
    """SHA-256 (hex) of every prompt file by name."""
    return {file.stem: load_prompt(file.stem).sha256 for file in sorted(FOLDER.glob("*.txt"))}


@lru_cache(maxsize=64)
def _example(user: str) -> frozenset[str]:
    """The texts of the lines that are JSON."""
    found: set[str] = set()

    def collect(value: object) -> None:
        if isinstance(value, str):
            found.add(_plain(value))
        elif isinstance(value, dict | list):
            for each in value.values() if isinstance(value, dict) else value:
                collect(each)

    for line in user.splitlines():
        with suppress(ValueError):
            collect(json.loads(line) if line.startswith("{") else None)
    return frozenset(found)


def _plain(text: str) -> str:
    """Letters and digits alone."""
    return " ".join("".join(sign if sign.isalnum() else " " for sign in text.casefold()).split())


def bullets(lines: tuple[str, ...] | list[str], nothing: str = "(none)") -> str:
    """Lines as a list for a prompt."""
    return "\n".join(f"- {' '.join(line.split())}" for line in lines) or nothing
