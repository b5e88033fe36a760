"""Every error that the workbench raises on purpose.

    OpbenchError
    ├── UsageError        wrong flag, study file, registry entry or link: exit code 2
    ├── DataError         a benchmark file that can't be read as what it should be: exit code 1
    ├── StoreError        the store can't be opened, migrated or written: exit code 1
    │   ├── LeaseLost     another worker has taken this one's part of a run
    │   └── StoreBroken   the database server broke the connection off, or is away
    ├── ModelError        a call to a model or embedder that failed for good: the record is an error
    └── MemoryFault       a memory library that failed by itself: the record is an error of kind `memory`

The message is one line that names the thing (file, key, model), the place and the mend. It never
holds a key, an Authorization header or a password.
"""

from __future__ import annotations

from typing import Literal

ModelErrorKind = Literal[
    "auth",  # 401, 403: wrong or missing key
    "not_found",  # 404: model or route unknown
    "quota",  # quota or credit used up: waiting doesn't help
    "rate_limit",  # 429 that outlasted the retries
    "timeout",  # no answer in time
    "connection",  # refused, reset, name not found, body cut off
    "server",  # 5xx that outlasted the retries
    "bad_request",  # 400: refused parameters
    "too_long",  # prompt beyond the context window
    "content_filter",  # refused by the provider's filter
    "bad_reply",  # 200 with a body that isn't a chat completion
    "empty",  # a completion without content
]


class OpbenchError(Exception):
    """Base of all; `str(error)` is the line that a user reads."""


class UsageError(OpbenchError):
    """The user asked for something that doesn't exist or can't be."""


class DataError(OpbenchError):
    """A data file is damaged, missing or of the wrong shape."""


class StoreError(OpbenchError):
    """The store can't do what was asked of it."""


class LeaseLost(StoreError):
    """A worker was silent for so long that others have taken what it had leased: what it did there isn't written."""


class StoreBroken(StoreError):
    """The database server ended a connection or can't be reached: it may be back in a moment."""


class ModelError(OpbenchError):
    """A model call failed after all retries that made sense.

    `kind` is what went wrong, `attempts` how many requests were sent, `model` the registry name.
    """

    def __init__(self, message: str, *, kind: ModelErrorKind, model: str = "", attempts: int = 1) -> None:
        super().__init__(message)
        self.kind: ModelErrorKind = kind
        self.model = model
        self.attempts = attempts


class MemoryFault(OpbenchError):
    """A memory library, its process or its database failed; names the system, the user and the mend."""
