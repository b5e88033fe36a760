"""What a review is: its settings, what reviewers see of an item, and what they may say (paper, A.3.2 and figure 8)."""

from __future__ import annotations

import secrets
from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

#: Which of the two responses is over-personalised.
Verdict = Literal["base", "memory", "neither", "both"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
Side = Literal["base", "memory"]
ReviewerRole = Literal["reviewer", "senior"]
#: What a review has decided of an item: `open` while answers are missing, `disputed` waits for the senior.
Decision = Literal["open", "disputed", "accepted", "rejected"]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ReviewSpec(_Part):
    """A review's settings. Configurations are (model, memory system, post-processor)."""

    base: tuple[str, str, str]
    memory: tuple[str, str, str]
    per_item: int = Field(2, ge=1, le=9)
    """Independent reviewers of an item (paper: 2)."""
    subtypes: tuple[str, ...] = ()
    limit: int | None = Field(None, ge=1)
    """Items in all, spread evenly over users and subtypes; None: all."""
    seed: int = 0
    """Of the order in which A and B stand, with item and reviewer, and of the items' order. Who knows it can work out
    which response is which: `drawn_seed` gives one that nobody knows."""
    hours: float = Field(72.0, gt=0)
    """An item that somebody has in hand for longer goes back to the pool."""
    check_every: int = Field(10, ge=2, le=100)
    """One item in so many that somebody is given is a spot check, as far as there are any."""
    guidance: str = Field("", max_length=5000)
    """Shown to reviewers above the item; plain text."""


def drawn_seed() -> int:
    """A seed that no reviewer can guess."""
    return secrets.randbits(53)


class ShownMemory(_Part):
    text: str
    date: str = ""
    relevant: bool = False
    """Whether it bears on the question: it was retrieved for it."""
    fact: bool = False
    """Whether it is an observation on record, in the benchmark's words."""


class Content(_Part):
    """What is shown of an item. Which response is which, reviewers never see."""

    question: str
    base: str
    memory: str
    profile: str = ""
    topics: tuple[str, ...] = ()
    memories: tuple[ShownMemory, ...] = ()
    kind: str = ""
    explanation: str = ""
    """What a normal and an over-personalising answer would do; for judges, reviewers don't see it."""
    context: tuple[str, ...] = ()
    """The lines that the response with memory was made from, after post-processing; for judges."""
    base_sha256: str = ""
    memory_sha256: str = ""


class Said(_Part):
    """One answer. Scores are 0 to 1, higher is less over-personalised; `seconds` from showing to answering."""

    verdict: Verdict | None
    base_score: float | None = Field(None, ge=0.0, le=1.0)
    memory_score: float | None = Field(None, ge=0.0, le=1.0)
    comment: str = Field("", max_length=2000)
    flagged: bool = False
    seconds: float | None = Field(None, ge=0.0, allow_inf_nan=False)
