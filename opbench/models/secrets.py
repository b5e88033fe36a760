"""What looks like a key, and how it's taken out of what is kept or told."""

from __future__ import annotations

import logging
import re
import sys
from typing import Any

#: Where a word ends: the marks behind it aren't the key's, and without them the sentence around it runs on.
END = r"(?=[).,;:]*(?:\s|$))"
KEY_LIKE = re.compile(
    rf"[^\s(]*\*{{3,}}\S*?{END}|\b(sk|gsk|rk|pk|hf|xai)[-_][\w-]{{8,}}|\bAIza[\w-]{{10,}}|\bBearer\s+\S+?{END}"
)
_SECRET_NAME = re.compile(r"(^|_)(api_?key|key|secret|password|passwd|credentials?|authorization|(auth|access)_token)$")
#: A field named `key` may be a musical one, and `hf-adapter-2` a model's name: no word of theirs is so long. What is
#: hidden for nothing would let two models pass for one.
_LONG = re.compile(r"\S{16,}")
HIDDEN = "[key]"


def without_keys(value: Any) -> Any:
    """A JSON value without what is, by its field's name or by its looks, a key: that takes no part in what a model
    answers, and mustn't be in hashes' sources, stores and exports."""
    if isinstance(value, dict):
        return {
            name: HIDDEN if isinstance(each, str) and _is_secret(name.lower(), each) else without_keys(each)
            for name, each in value.items()
        }
    if isinstance(value, list):
        return [without_keys(each) for each in value]
    return KEY_LIKE.sub(_if_long, value) if isinstance(value, str) else value


def _is_secret(name: str, value: str) -> bool:
    found = _SECRET_NAME.search(name)
    return found is not None and (found[2] != "key" or _LONG.search(value) is not None)


def _if_long(found: re.Match[str]) -> str:
    return HIDDEN if _LONG.search(found[0]) else found[0]


class KeylessFormatter(logging.Formatter):
    """Log lines, tracebacks among them, without what looks like a key: other people's code quotes what it sends."""

    def format(self, record: logging.LogRecord) -> str:
        return KEY_LIKE.sub(HIDDEN, super().format(record))


def log_without_keys() -> None:
    """Have this process's warnings and errors written to standard error, keys taken out."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(KeylessFormatter("%(levelname)s %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
