"""The contract of a post-processor: what stands between memory retrieval and response.

Text in, text out: a post-processor knows neither the memory system nor the benchmark. This package imports
nothing from `opbench`, so it can be used in any agent (see README.md beside this file).
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

Family = Literal["none", "filter", "compression", "revision", "control"]
"""`control`: no mitigation, but what one has to beat."""
State = Literal["kept", "nothing", "failed"]


@dataclass(frozen=True, slots=True)
class Memory:
    """One retrieved memory. `date` is its source date as prose (`9 May 2024`); `score` the retriever's similarity."""

    text: str
    date: str | None = None
    score: float | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """A model's answer to one call of a post-processor."""

    text: str
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    duration_ms: float = 0.0


class Ask(Protocol):
    """Asks the model under test. Retries are its own business; what can't succeed is raised, never returned as text."""

    def __call__(
        self, messages: Sequence[tuple[str, str]], *, max_tokens: int = 512, temperature: float = 0.0
    ) -> Awaitable[Reply]:
        """`messages` are (role, content) pairs."""
        ...


class Search(Protocol):
    """Searches the memory system again, for methods that retrieve by themselves."""

    def __call__(self, query: str, k: int = 5) -> Awaitable[list[Memory]]: ...


@dataclass(frozen=True, slots=True)
class Line:
    """One line of processed context. `sources` are 1-based numbers of the prepared memories."""

    text: str
    date: str | None = None
    """The date that belongs before the text; several are joined by `; `; None where the text tells it itself."""
    sources: tuple[int, ...] = ()
    altered: bool = False
    """Whether the method's wording was replaced by the stored one, or differs from it."""


@dataclass(frozen=True, slots=True)
class Processed:
    """What a post-processor made of the memories.

    `kept`: `lines` are the context. `nothing`: the method said in the agreed form that nothing is needed (or there was
    nothing to process): the response gets the no-memory prompt. `failed`: the reply couldn't be used; `lines` are the
    original memories, and `reason` says why.
    """

    state: State
    lines: tuple[Line, ...]
    prepared: tuple[Memory, ...]
    """The memories as numbered for the model: duplicates dropped."""
    reason: str | None = None
    replies: tuple[Reply, ...] = ()
    called: bool = False
    """False when no model was asked; its latency then doesn't count in means."""
    counts: dict[str, int] = field(default_factory=dict)
    """What the parser met: `unaligned`, `altered`, `restored`, `truncated`, `disagreed`, …"""
    response_note: str = ""
    """Text that the method adds to the end of the response prompt (variants named `-original`)."""
    response_preface: str = ""
    """Text that the method puts before the question in the response prompt (`few-shot-cot-original`'s examples)."""
    heading: str = ""
    """A heading (`Memories for user X:`) that came with the memories; `context_lines` puts it back over kept lines."""
    answer: str | None = None
    """The response itself, when the method answers without the model; never set with the state `failed`."""


@dataclass(frozen=True, slots=True)
class Revised:
    """A draft after revision. `failed`: the draft stands, `reason` says why. `critique` is stored, never an answer."""

    state: Literal["revised", "unchanged", "failed"]
    text: str
    critique: str | None = None
    reason: str | None = None
    replies: tuple[Reply, ...] = ()
    called: bool = False
    counts: dict[str, int] = field(default_factory=dict)


@runtime_checkable
class PostProcessor(Protocol):
    """A method. `name` is unique in the registry; `prompt_sha256` identifies all of its prompt texts and settings."""

    name: str
    family: Family
    label: str
    """Name for people, e.g. `Few-Shot-CoT`."""
    calls: int
    """Model calls of its own for one question with memories (for quotes; an upper bound where it varies)."""
    revises: bool
    """Whether `revise` does anything (Self-Critic)."""

    @property
    def prompt_sha256(self) -> str: ...

    async def process(
        self, question: str, memories: Sequence[Memory], ask: Ask, search: Search | None = None
    ) -> Processed:
        """Before generation."""
        ...

    async def revise(
        self, question: str, memories: Sequence[Memory], draft: str, ask: Ask, *, system: str = ""
    ) -> Revised:
        """After generation. `system` is the response's system prompt, so that the rewrite keeps its tone."""
        ...
