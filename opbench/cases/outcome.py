"""What came of a case's column, as far as it has come: what the page draws, the command line prints, a file keeps."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

State = Literal["waiting", "retrieval", "post", "response", "judge", "done", "failed", "cancelled"]
"""Where a column is; `post` is the post-processor's call before the response, or the revision after it."""
At = Literal["retrieval", "context"]
"""Where a memory is left out. `retrieval`: before the post-processor, which works again. `context`: of what the
response's prompt held; the post-processor's work stays as it was."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Found(_Frozen):
    """A memory as retrieved, or as given."""

    text: str
    date: str | None = None
    score: float | None = None


class Shown(_Frozen):
    """A line of the response's prompt. `sources`: 1-based numbers of *prepared* memories (`mitigations.context`);
    None where no post-processor made lines of its own: the line is then the memory of the same rank."""

    text: str
    date: str | None = None
    sources: tuple[int, ...] | None = None
    altered: bool = False


class Judged(_Frozen):
    """A judge's number (0 to 1), or None with the reason why it is missing."""

    metric: str
    value: float | None
    reason: str | None = None


class Outcome(_Frozen):
    """A column. Texts grow while it is at work; milliseconds and reuse are by stage (retrieval, post, response)."""

    state: State = "waiting"
    at_once: bool = False
    """Whether every call of it was reused: nothing was paid for."""
    retrieved: tuple[Found, ...] | None = None
    """None until the retrieval is over, and for BASE."""
    post_text: str = ""
    """The post-processor's own reply, as it comes."""
    post_state: str | None = None
    """`kept`, `nothing`, `failed`; for Self-Critic `revised`, `unchanged`, `failed`."""
    post_reason: str | None = None
    counts: dict[str, int] = Field(default_factory=dict)
    context: tuple[Shown, ...] | None = None
    """None until post-processing is over, and for BASE."""
    response: str = ""
    draft: str | None = None
    critique: str | None = None
    finish_reason: str | None = None
    scores: tuple[Judged, ...] = ()
    milliseconds: dict[str, float] = Field(default_factory=dict)
    reused: dict[str, bool] = Field(default_factory=dict)
    prompt_tokens: int | None = 0
    """Of post-processing and response together; None when the endpoint doesn't tell."""
    completion_tokens: int | None = 0
    cost_usd: float | None = 0.0
    """By list price; None when a price isn't known."""
    error_kind: str | None = None
    """As in `ModelErrorKind`, or `memory`, `usage` (the column asks for what doesn't exist),
    `store`, `internal`."""
    error: str | None = None
    retrying: str | None = None
    """While it waits to ask an endpoint again: what was wrong and for how long, e.g. `rate_limit: again in 4 s`."""
    first_text_ms: float | None = None
    """From the start of the case to the column's first text of a model; None for none."""
    total_ms: float | None = None
    """From the start of the case to the column's end."""

    @property
    def over(self) -> bool:
        return self.state in ("done", "failed", "cancelled")

    @property
    def score(self) -> float | None:
        """The headline score, 0 to 1: the first of `scores`; None while there is none, or where it is missing."""
        return self.scores[0].value if self.scores else None


class LeftOut(_Frozen):
    """The same column without one memory. `number` is 1-based in rank order; 0 is the control: nothing left out, drawn
    again (only where the temperature isn't 0)."""

    number: int
    text: str
    outcome: Outcome
    score_change: float | None = None
    """Score without it minus score with it, −1 to 1: positive when the memory was to blame. None where either is
    missing."""
    similarity: float | None = None
    """Cosine of the embedded responses with and without it; 1 says the same. None while at work or where one failed."""
    same: bool | None = None
    """Whether the two responses are the same text."""


class Ablation(_Frozen):
    """Leave-one-out over the memories of a column."""

    column: int
    at: At = "retrieval"
    base: Outcome
    """The column with all memories."""
    items: tuple[LeftOut, ...] = ()
    over: bool = False

    @property
    def strongest(self) -> LeftOut | None:
        """The memory whose absence raises the score most; where none raises it, the one whose absence changes the
        response most. Of those that were answered; None when leaving out changes nothing, or before the end."""
        told = [item for item in self.items if item.number and item.outcome.state == "done"]
        if not self.over:
            return None
        most = max((item.score_change for item in told if item.score_change is not None), default=0.0)
        if most > NOTHING:
            alike = [item for item in told if item.score_change is not None and item.score_change >= most - NOTHING]
            return max(alike, key=_change)
        changed = [item for item in told if item.similarity is not None and not item.same]
        return max(changed, key=_change) if changed else None

    @property
    def control(self) -> LeftOut | None:
        """All memories, drawn again: how much chance alone changes. None where it wasn't asked, or failed."""
        return next((item for item in self.items if not item.number and item.outcome.state == "done"), None)

    @property
    def raising(self) -> tuple[LeftOut, ...]:
        """The memories whose absence raises the score as much as that of the `strongest`, it among them; none where
        no score rises."""
        found = self.strongest
        if found is None or _raises(found) <= NOTHING:
            return ()
        return tuple(item for item in self.items if item.number and _raises(item) >= _raises(found) - NOTHING)

    @property
    def by_chance(self) -> bool | None:
        """Whether drawing again with all memories does as much as leaving out the `strongest`: raises the score as
        much, or changes the response as much where no score rises. None where the control has no score to compare."""
        found, control = self.strongest, self.control
        if found is None or control is None:
            return False
        if not self.raising:
            return _change(control) >= _change(found) - NOTHING
        return None if control.score_change is None else _raises(control) >= _raises(found) - NOTHING

    @property
    def culprit(self) -> LeftOut | None:
        """The `strongest`, if one can be named: no other raises the score as much, and it isn't chance, as far as that
        is known."""
        return self.strongest if len(self.raising) <= 1 and self.by_chance is False else None


NOTHING = 1e-6
"""Differences of scores and cosines below it are the arithmetic's."""


def _raises(item: LeftOut) -> float:
    """The change in score; 0 where there is none to compare."""
    return item.score_change or 0.0


def _change(item: LeftOut) -> float:
    """How far the response is from the one with all memories, 1 − cosine; 0 where that isn't known."""
    return 0.0 if item.similarity is None else 1.0 - item.similarity
