"""The contract of a judge: what it may look at, and what it gives.

A judge of one's own is a callable without arguments that returns a `Judge`: registered by a plugin file with
`opbench.judges.register_judge(name, callable)`, or an installed package's entry point in the group `opbench.judges`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from opbench.judges.text import strip_thinking
from opbench.types import Complete, Instance, Score


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a judge may look at: one instance, what a configuration answered, and what is on record about the user."""

    instance: Instance
    response: str
    profile: str = ""
    """The user's profile text from OP-Bench's file; may be empty."""
    memories: tuple[str, ...] = ()
    """Texts of the retrieved memories, in rank order."""
    context: tuple[str, ...] = ()
    """Lines that the response model saw, after post-processing."""
    finish_reason: str | None = None
    own_facts: tuple[str, ...] = ()
    """The user's observations from OP-Bench's file: what is truly on record."""

    @property
    def answer(self) -> str:
        """The response as a reader sees it, without thinking blocks; empty when there is nothing to judge."""
        return strip_thinking(self.response)

    @property
    def no_answer(self) -> str:
        """Why there is nothing to judge; only meaningful when `answer` is empty."""
        if self.response.strip():
            return "empty response: only a thinking block"
        if self.finish_reason not in (None, "stop"):
            return f"empty response ({self.finish_reason})"
        return "empty response"


@runtime_checkable
class Judge(Protocol):
    """Gives scores from 0 to 1, higher is better, or None with the reason; never raises for a model that failed."""

    @property
    def name(self) -> str:
        """`offline`, or the judging model's name in the registry."""
        ...

    @property
    def comparable(self) -> bool:
        """Whether its numbers may stand beside the paper's."""
        ...

    def provenance(self) -> dict[str, str]:
        """All that determines its numbers: prompt pack and sha256, model, version. Part of the study's hash."""
        ...

    async def score(self, evidence: Evidence, complete: Complete) -> list[Score]:
        """Scores of one record; an empty list for repetition, which is scored per user (`repetition.py`)."""
        ...
