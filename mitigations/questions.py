"""What kind of question is asked: openly, for a yes to what it says, or for what was told before."""

from __future__ import annotations

import re

RECALL = re.compile(
    r"\b(?:remember|recall|forg[eo]t|remind me"
    r"|(?:did|have|had) i (?:ever |already )?(?:tell|told|mention(?:ed)?|say|said"
    r"|shared?)"
    r"|(?:as )?i (?:once |already |have |had )*(?:told|mentioned)|i was telling you|i said)\b",
    re.IGNORECASE,
)
_ASKS = re.compile(r"\b(?:who|whom|whose|what|when|where|which|why|how)\b", re.IGNORECASE)
_CLAIM_TAG = re.compile(
    r"\b(?:right|correct|agree|true|isn't it|aren't they|don't you think|no)\s*\?+\W*$", re.IGNORECASE
)
_YES_NO = re.compile(
    r"(?:^|[.!?,]\s+)(?:am|is|are|was|were|do|does|did|has|have|had|can|could|will|would|should|may|might)\b[^.!?]*\?",
    re.IGNORECASE,
)


def asks_openly(question: str) -> bool:
    """Whether the question asks for something (who, when, which …) rather than for a yes to what it says."""
    return bool(_ASKS.search(question)) and not RECALL.search(question) and not _CLAIM_TAG.search(question)


def asks_yes_or_no(question: str) -> bool:
    """Whether the question can be answered with yes or no, without being a claim or a call to remember."""
    return bool(_YES_NO.search(question)) and not RECALL.search(question) and not _CLAIM_TAG.search(question)
