"""What is judged when a judge is set against people: a response with all that a judge may look at, and its scores."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

SourceKind = Literal["run", "review", "csv", "published", "traps", "bias"]


class Response(BaseModel):
    """One response. Lists are in rank order."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    question: str
    response: str
    benchmark: Literal["op", "locomo"] = "op"
    subtype: str
    user: str
    """User id, `conversation/speaker`: what intervals are clustered by where items share users."""
    profile: str = ""
    memories: tuple[str, ...] = ()
    context: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    gold: str = ""
    explanation: str = ""
    kind: str = ""
    """What is done to an answer of a set that is made by rule: how it is wrong, where the fact stands."""
    pair: str = ""
    """What responses to the same question have in common: the cluster of an interval (paper, A.4.2: 100 queries with
    two responses each)."""


class Rated(BaseModel):
    """A response and what people said of it: (rater, value) with values from 0 to 1; may be empty."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    item: str
    response: Response
    human: tuple[tuple[str, float], ...] = ()

    @property
    def people(self) -> float | None:
        """Mean over raters; None when nobody scored it."""
        return sum(value for _, value in self.human) / len(self.human) if self.human else None


class JudgeChoice(BaseModel):
    """A judge to try: `offline`, `random` (the control), a registered judge, or a model with a prompt pack."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    judge: str
    pack: str = "auto"
    """own, brief, official, auto, memos (LoCoMo), or a folder with prompts of one's own."""
    forced: bool = False
    """Whether a model is held to the form of the answer by a schema (`opbench.judges.forced`)."""
    repeats: int = Field(1, ge=1, le=20)
    temperature: float = Field(0.0, ge=0.0, le=2.0)
