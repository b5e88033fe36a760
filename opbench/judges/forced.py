"""A judge whose model can only answer in the form that is asked for, as JSON by a schema.

A small model that is asked for `Score: <number>` mostly writes something else, and its judgement is missing. With the
schema (llama.cpp makes a grammar of it, hosted models take it as structured output) it answers with one of eleven
scores, or with a verdict: there is no room for reasons, which a larger model may need to judge well. So it is another
judge than the same one unforced.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable
from dataclasses import dataclass, replace
from typing import Any

from opbench.judges.base import Evidence, Judge
from opbench.types import ChatRequest, ChatResult, Complete, Score

#: More than the longest answer takes, whatever the tokeniser.
_MAX_TOKENS = 48
_SCORES = [each / 10 for each in range(11)]
_FIELDS: dict[str, tuple[str, list[Any]]] = {"op": ("score", _SCORES), "locomo": ("label", ["CORRECT", "WRONG"])}


@dataclass(frozen=True, slots=True)
class ForcedJudge:
    """`judge` (of a model, with prompts), whose calls are asked for by a schema."""

    judge: Judge

    @property
    def name(self) -> str:
        return self.judge.name

    @property
    def comparable(self) -> bool:
        """Never: the paper's judge writes freely."""
        return False

    def provenance(self) -> dict[str, str]:
        forms = "".join(form_of(benchmark) for benchmark in _FIELDS)
        return {**self.judge.provenance(), "forced_sha256": hashlib.sha256(forms.encode()).hexdigest()}

    async def score(self, evidence: Evidence, complete: Complete) -> list[Score]:
        """As the judge's own; a call that the endpoint refuses for its form is missing with that reason."""
        form = form_of(evidence.instance.benchmark)

        def asked(request: ChatRequest) -> Awaitable[ChatResult]:
            return complete(replace(request, max_tokens=_MAX_TOKENS, further=form))

        return await self.judge.score(evidence, asked)


def form_of(benchmark: str) -> str:
    """The further fields of a request to judge a response of this benchmark, as a canonical JSON object."""
    field, values = _FIELDS[benchmark]
    schema = {
        "type": "object",
        "properties": {field: {"enum": values}},
        "required": [field],
        "additionalProperties": False,
    }
    named = {"name": "judgement", "strict": True, "schema": schema}
    return json.dumps(
        {"response_format": {"type": "json_schema", "json_schema": named}}, sort_keys=True, separators=(",", ":")
    )
