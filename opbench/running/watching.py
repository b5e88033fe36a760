"""Looking on while an instance goes through the stages: what a live case shows. Runs look on at nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from mitigations.base import Line, Memory

Stage = Literal["retrieval", "post", "response", "judge"]
"""`post` is a post-processor's call before the response, or the revision after it."""


class Watch(Protocol):
    """Is told of one instance, in the event loop's thread; it must return at once and raise nothing."""

    def begun(self, stage: Stage) -> None:
        """A stage begins."""

    def retrieved(self, memories: Sequence[Memory]) -> None:
        """What the memory system found, or was given, without what is left out."""

    def processed(self, context: Sequence[Memory | Line], state: str | None, reason: str | None) -> None:
        """What goes on to the response; `state` None without a post-processor."""

    def text(self, stage: Stage, piece: str) -> None:
        """A piece of a model's answer, in order; a stored answer comes in one piece."""

    def anew(self, stage: Stage) -> None:
        """The answer of that stage is asked for again: what came of it so far doesn't count."""
