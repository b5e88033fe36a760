"""A lease: one library's access to the gateway, with a token of its own, and what it used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from opbench.errors import ModelError, StoreError


@dataclass(slots=True)
class Usage:
    """What was asked through a lease. Costs are by list price, repeated calls included; None when one is unknown."""

    calls: int = 0
    """Chat calls answered."""
    reused: int = 0
    """Of these, the ones that the call store answered: nothing was paid for them now."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    embedding_calls: int = 0
    """Embedding requests of the library."""
    embedded_texts: int = 0
    embedded_reused: int = 0
    """Texts whose vectors were in the call store."""
    embedded_tokens: int = 0
    """As endpoints tell them; 0 for the embedded embedder."""
    cost_usd: float | None = 0.0
    spent_usd: float = 0.0
    """What was paid now, without the reused."""
    model_ms: float = 0.0
    """Time of the chat calls when they were made."""
    reused_ms: float = 0.0
    """Of that, the time of the reused ones, for which nobody waited now."""

    def add(self, other: Usage) -> None:
        """Add another's counts to these."""
        for name in self.__slots__:
            if name != "cost_usd":
                setattr(self, name, getattr(self, name) + getattr(other, name))
        known = self.cost_usd is not None and other.cost_usd is not None
        self.cost_usd = (self.cost_usd or 0.0) + (other.cost_usd or 0.0) if known else None


@dataclass(slots=True)
class Lease:
    """What a library needs to be configured with, and what we need to know of it. Made by `Gateway.lease`."""

    base_url: str
    """`http://127.0.0.1:PORT/v1`."""
    key: str = field(repr=False)
    """Random, valid while the lease is open."""
    label: str
    """Who asks, for logs: `mem0 conv-26/Caroline`."""
    model: str
    """Registry name of the extractor: what the library sends as `model`; empty for a library that asks none."""
    embedder: str
    """Registry name of the embedder."""
    dimensions: int
    """Of the embedder's vectors."""
    phase: Literal["ingest", "search"] = "ingest"
    """While ingesting, vectors come from the call store where they are; while searching they are always computed, so
    that a retrieval's latency is a retrieval's."""
    schema: dict[str, Any] | None = None
    """JSON Schema that an answer must follow, asked for where the model's endpoint enforces it (registry:
    `json_schema`). Set by the library before it asks."""
    rewrite: Callable[[str], str] | None = None
    """Applied to every message's text before it is asked and hashed, e.g. to put the session's date in place of
    today's. Set by the library before it asks."""
    usage: Usage = field(default_factory=Usage)
    failure: ModelError | StoreError | None = None
    """The last call that failed for good, or that the gateway refused (kinds `bad_request` and `not_found`), or that
    the store couldn't keep: libraries swallow errors, so whoever drives them looks here afterwards."""

    def take(self) -> Usage:
        """What was used since the last `take`."""
        taken, self.usage = self.usage, Usage()
        return taken

    def raise_failure(self) -> None:
        """Raise, and forget, what failed since the last look.

        Raises:
            ModelError: a call through this lease failed for good, or was refused by the gateway.
            StoreError: the call store can't be read or written.
        """
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure
