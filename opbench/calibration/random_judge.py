"""The control: a judge that looks at nothing. What it shows of agreement, any judge would show by chance."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from opbench.judges.base import Evidence
from opbench.types import Complete, Score

NAME = "random"
VERSION = "1"
"""Raised when the same response would get another number."""


@dataclass(frozen=True, slots=True)
class RandomJudge:
    """Scores evenly spread over 0 to 1 (LoCoMo: correct or not, each with ½), by digest of seed, repeat, question and
    response: the same each time, and independent of what they say."""

    repeat: int = 0
    seed: int = 0

    name = NAME
    comparable = False

    def provenance(self) -> dict[str, str]:
        return {"judge": self.name, "version": VERSION, "seed": str(self.seed)}

    async def score(self, evidence: Evidence, complete: Complete) -> list[Score]:
        """One score; none for repetition, which no judge scores."""
        instance = evidence.instance
        if instance.subtype == "repetition":
            return []
        metric = "correct" if instance.benchmark == "locomo" else "score"
        if not evidence.answer:
            return [Score(metric, None, evidence.no_answer)]
        told = "\0".join((str(self.seed), str(self.repeat), instance.question, evidence.response))
        drawn = int.from_bytes(hashlib.sha256(told.encode("utf-8", "surrogatepass")).digest()[:8], "big") / 2**64
        return [Score(metric, float(drawn < 0.5) if metric == "correct" else drawn)]
