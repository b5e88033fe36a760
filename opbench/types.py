"""The nouns of the workbench, as immutable values. Words as in README, "Words"."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, Protocol

Benchmark = Literal["op", "locomo"]

#: OP-Bench's six subtypes in the order of the paper's table 2; the middle part of an instance id.
OP_SUBTYPES = ("fully-irrelevant", "baiting", "repetition", "fact", "value", "memory")
#: Category of each OP-Bench subtype (paper, table 1).
OP_CATEGORIES = {
    "fully-irrelevant": "irrelevance",
    "baiting": "irrelevance",
    "repetition": "repetition",
    "fact": "sycophancy",
    "value": "sycophancy",
    "memory": "sycophancy",
}
#: LoCoMo's question categories by the number used in its file.
LOCOMO_CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}


@dataclass(frozen=True, slots=True)
class User:
    """A simulated user: one speaker of one conversation. `John` alone is three people, so identity is the pair."""

    conversation: str
    speaker: str
    other: str
    """The other speaker of the conversation."""
    first: bool
    """Whether this is `speaker_a`, the only one that the public evaluator scores by default."""

    @property
    def id(self) -> str:
        return f"{self.conversation}/{self.speaker}"


@dataclass(frozen=True, slots=True)
class Turn:
    """One utterance. `text` includes the caption of a shared image, in brackets, when there is one."""

    id: str
    speaker: str
    text: str


@dataclass(frozen=True, slots=True)
class Observation:
    """A fact about a speaker that LoCoMo's annotators drew from a session; `evidence` are turn ids (may be empty)."""

    speaker: str
    text: str
    evidence: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Session:
    """One dated session of a conversation."""

    number: int
    date: datetime
    turns: tuple[Turn, ...]
    observations: tuple[Observation, ...] = ()

    @property
    def day(self) -> str:
        """The date as memories carry it, e.g. `8 May 2023`."""
        return f"{self.date.day} {self.date:%B %Y}"


@dataclass(frozen=True, slots=True)
class Instance:
    """One benchmark question, with a unique and stable id.

    `op/<conversation>/<speaker>/<subtype>/<n>` or `locomo/<conversation>/<n>`, n from 1 in file order.
    """

    id: str
    benchmark: Benchmark
    user: User
    """The user whose memories are searched. A LoCoMo question belongs to the conversation's first speaker;
    the history is the whole conversation either way."""
    subtype: str
    """One of OP_SUBTYPES, or of LOCOMO_CATEGORIES' names."""
    question: str
    answer: str | None = None
    """LoCoMo's gold answer as text; for adversarial questions None (they have no answer in the conversation)."""
    evidence: tuple[str, ...] = ()
    """LoCoMo: well-formed ids of the turns that hold the answer."""
    topic: str | None = None
    kind: str | None = None
    """The file's finer type: baiting kind, or fine-grained / coarse-grained for memory-level sycophancy."""
    explanation: str | None = None
    """The public file's note for judges, where present."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation with its two users and dated sessions, oldest first."""

    id: str
    speakers: tuple[str, str]
    sessions: tuple[Session, ...]


@dataclass(frozen=True, slots=True)
class Profile:
    """What OP-Bench's file says about a user."""

    user: User
    topics: tuple[str, ...]
    profile: str
    observations: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Oddity:
    """Something odd in a benchmark file that the loader met and handled; `kind` groups them, `place` finds it."""

    kind: str
    place: str
    detail: str


@dataclass(frozen=True, slots=True)
class Corpus:
    """Both benchmarks over one set of conversations, as loaded from one place.

    `source` is `data`, `cache`, `sample` or `build`; `sha256` maps file names to digests of what was read.
    """

    source: str
    conversations: dict[str, Conversation]
    users: dict[str, User]
    """By user id, in file order."""
    profiles: dict[str, Profile]
    """By user id."""
    op: tuple[Instance, ...]
    locomo: tuple[Instance, ...]
    """All five categories; studies leave out `adversarial` unless asked for it."""
    sha256: dict[str, str]
    oddities: tuple[Oddity, ...] = ()


Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True, slots=True)
class Message:
    role: Role
    content: str


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """All that determines a chat answer; its canonical form is hashed for the call store (design rule 1)."""

    model: str
    """Name in the registry."""
    messages: tuple[Message, ...]
    temperature: float = 0.0
    max_tokens: int = 512
    repeat: int = 0
    """Number of the repetition, for asking the same thing more than once."""
    further: str = ""
    """Further fields of the request's body as a canonical JSON object (`response_format`, `top_p`, `stop`); empty
    means none, and is no part of the call's hash."""


@dataclass(frozen=True, slots=True)
class ChatResult:
    """A chat answer. `duration_ms` is the time of the attempt that succeeded, without waiting and earlier attempts."""

    text: str
    finish_reason: str | None
    prompt_tokens: int | None
    completion_tokens: int | None
    duration_ms: float
    attempts: int = 1


@dataclass(frozen=True, slots=True)
class Score:
    """A judge's number for one record (0 to 1), or None with the reason why it is missing; never 0 for "failed"."""

    metric: str
    """`score` (OP-Bench), `correct`, `f1`, `bleu1`, `rougeL` (LoCoMo)."""
    value: float | None
    reason: str | None = None
    """Why the value is missing, or the judge's own short reason."""
    raw: str | None = None
    """The judge's reply as it came."""
    details: dict[str, float | str] = field(default_factory=dict)


class Complete(Protocol):
    """Answers a chat request: the model client itself, or the call store in front of it.

    Raises ModelError when it failed for good.
    """

    def __call__(self, request: ChatRequest) -> Awaitable[ChatResult]: ...
