"""Walking through parsed JSON with the place at hand: an error names it, as `[3].Maria.tasks.sycophancy[2].type`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from opbench.errors import DataError

MEND = "correct it there, or get the public file again with `opbench data fetch`"
_PLAIN_KEY = re.compile(r"[^\s.\[\]\"]+")


def printable(text: str) -> str:
    """A text of a file on one line, without what a terminal can't or shouldn't show."""
    return "".join(char if char.isprintable() else "�" for char in " ".join(text.split()))


def describe(value: object) -> str:
    """A JSON value in a few words, on one line."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        flat = printable(value)
        return f'the text "{flat[:30]}…"' if len(flat) > 30 else f'the text "{flat}"'
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, dict):
        return "an object"
    digits = str(value)
    return f"the number {digits}" if len(digits) <= 30 else f"the number {digits[:30]}…"


@dataclass(frozen=True, slots=True)
class Node:
    """A JSON value with its file and its place in it. Every reading method raises DataError when the shape is wrong."""

    file: Path
    value: object
    place: str = ""
    mend: str = MEND
    """What its reader can do about a wrong shape."""

    def error(self, problem: str) -> DataError:
        """The one line about this place; for `raise node.error(...)`."""
        return DataError(f"{self.file}: {self.place or 'top level'}: {printable(problem)}; {self.mend}")

    def entries(self) -> dict[str, Node]:
        """The values of a JSON object by key, in file order."""
        if not isinstance(self.value, dict):
            raise self.error(f"expected an object, found {describe(self.value)}")
        return {key: Node(self.file, value, self._under(key), self.mend) for key, value in self.value.items()}

    def items(self) -> list[Node]:
        """The elements of a JSON list."""
        if not isinstance(self.value, list):
            raise self.error(f"expected a list, found {describe(self.value)}")
        return [Node(self.file, value, f"{self.place}[{index}]", self.mend) for index, value in enumerate(self.value)]

    def key(self, name: str) -> Node:
        """The value of a key that must be there."""
        entries = self.entries()
        if name not in entries:
            raise self.error(f'the key "{name}" is missing')
        return entries[name]

    def text(self) -> str:
        """A text with something in it, exactly as in the file."""
        if not isinstance(self.value, str):
            raise self.error(f"expected a text, found {describe(self.value)}")
        if not self.value.strip():
            raise self.error("expected a text, found an empty one")
        if re.search("[\x00\ud800-\udfff]", self.value):
            raise self.error("the text holds a character that can't be stored (NUL or half a surrogate pair)")
        return self.value

    def name(self) -> str:
        """A text that may be part of an instance id: on one line, without `/` and outer blanks."""
        text = self.text()
        if "/" in text or text != text.strip() or not text.isprintable():
            raise self.error(f"expected a name without slashes, line breaks and outer blanks, found {describe(text)}")
        return text

    def choice(self, allowed: tuple[str, ...]) -> str:
        """A text that is one of `allowed`."""
        text = self.text()
        if text not in allowed:
            raise self.error(f"expected one of {', '.join(allowed)}, found {describe(text)}")
        return text

    def _under(self, key: str) -> str:
        if not _PLAIN_KEY.fullmatch(key) or not key.isprintable():
            return f'{self.place}["{printable(key)}"]'
        return f"{self.place}.{key}" if self.place else key
