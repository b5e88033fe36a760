"""A streamed chat answer: from server-sent events to the JSON that the endpoint would have sent in one piece."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable
from typing import Any

from opbench.models.failures import Failure, storable

OnText = Callable[[str], None]
"""Takes the next piece of an answer's text."""
OnAnew = Callable[[], None]
"""The answer is asked for again: the pieces so far don't count."""
DONE = "[DONE]"


_LINE_END = re.compile(rb"\r\n|\n|\r(?!$)")


async def lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[str]:
    """The lines of a body without their ends, as the format of server-sent events has them: in UTF-8, ended by CR LF,
    LF or CR, and by nothing else. A last one without an end counts."""
    rest = b""
    async for chunk in chunks:
        # A CR at the end may be half of a line's end.
        *whole, rest = _LINE_END.split(rest + chunk)
        for line in whole:
            yield line.decode("utf-8", "replace")
    if rest:
        yield rest.removesuffix(b"\r").decode("utf-8", "replace")


async def events(lines: AsyncIterator[str]) -> AsyncIterator[str]:
    """The data of each event. A last one that isn't ended by a blank line counts when it is whole."""
    data: list[str] = []
    async for line in lines:
        if not line:
            if data:
                yield "\n".join(data)
            data = []
            continue
        field, _, value = line.partition(":")
        # Older llama.cpp tells errors in a field of that name.
        if field in ("data", "error"):
            value = value.removeprefix(" ")
            data.append(f'{{"error": {value}}}' if field == "error" else value)
    left = "\n".join(data)
    if left == DONE or _whole(left):
        yield left


def _whole(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


class Hearing:
    """Passes an answer's text on as it comes: never a key, nor a half of one, nor half a character.

    One for all attempts of a call.
    """

    def __init__(self, on_text: OnText, on_anew: OnAnew | None, key: str | None) -> None:
        """`key` is taken out of what is heard; None when there is none to be taken out."""
        self._on_text = on_text
        self._on_anew = on_anew
        self._key = key
        self._held = ""
        self._told: list[str] = []

    @property
    def told(self) -> str:
        """What was passed on of this attempt."""
        return "".join(self._told)

    def begin(self) -> None:
        """An attempt begins."""
        self._held = ""
        if self._told:
            self._told = []
            if self._on_anew is not None:
                self._on_anew()

    def add(self, piece: str) -> None:
        text = self.clean(self._held + piece)
        cut = len(text) - self._unsure(text)
        self._held = text[cut:]
        self._tell(storable(text[:cut]))

    def end(self, text: str) -> None:
        """The answer is whole, and this is it."""
        self.add("")
        self._tell(storable(self._held))
        self._held = ""
        if self.told != text:
            self.begin()
            self._tell(text)

    def clean(self, text: str) -> str:
        """Without the key, and with both halves of a character as one."""
        if not text.isascii():
            text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        return text.replace(self._key, "[key]") if self._key else text

    def _unsure(self, text: str) -> int:
        """How many signs at the end may be the begin of a key, or half a character."""
        if text and "\ud800" <= text[-1] <= "\udbff":
            return 1
        key = self._key or ""
        return next((n for n in range(min(len(key) - 1, len(text)), 0, -1) if text.endswith(key[:n])), 0)

    def _tell(self, piece: str) -> None:
        if piece:
            self._told.append(piece)
            self._on_text(piece)


class Assembly:
    """Puts the chunks of one answer together."""

    def __init__(self, hearing: Hearing) -> None:
        self._hearing = hearing
        self._content: list[str] = []
        self._refusal: list[str] = []
        self._chosen = False
        self._finish: Any = None
        self._model: Any = None
        self._usage: Any = None
        self.done = False
        """Whether the endpoint has said that this is all."""

    def add(self, chunk: dict[str, Any]) -> None:
        self._model = self._model or chunk.get("model")
        # Some tell the counts with every chunk: the last ones are the whole answer's.
        self._usage = chunk.get("usage") or self._usage
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else []:
            if isinstance(choice, dict) and choice.get("index", 0) == 0:
                self._take(choice)

    def _take(self, choice: dict[str, Any]) -> None:
        self._chosen = True
        self._finish = choice.get("finish_reason") or self._finish
        delta = choice.get("delta")
        delta = delta if isinstance(delta, dict) else {}
        content, refusal = _text(delta.get("content")), _text(delta.get("refusal"))
        self._content.append(content)
        self._refusal.append(refusal)
        self._hearing.add(content or refusal)

    def reply(self) -> dict[str, Any]:
        """The reply in one piece.

        Raises:
            Failure: the stream broke off.
        """
        if not self._chosen:
            return {"choices": []}
        if self._finish is None and not self.done:
            raise Failure("connection", "the answer broke off: the stream ended before the answer did")
        content = self._hearing.clean("".join(self._content))
        message = {"content": content or None, "refusal": self._hearing.clean("".join(self._refusal))}
        return {
            "model": self._model,
            "choices": [{"message": message, "finish_reason": self._finish}],
            "usage": self._usage,
        }


def _text(content: object) -> str:
    """Text of a piece, which may come as a list of parts."""
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return "".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""
