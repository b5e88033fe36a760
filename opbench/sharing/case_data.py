"""A saved case for an exported file's data block: whole, or its numbers alone."""

from __future__ import annotations

from typing import Any

from opbench.cases.outcome import Outcome
from opbench.cases.saved import SavedCase


def numbers_of(case: SavedCase, with_texts: bool) -> dict[str, Any]:
    """The case for the file's data block: whole, or the numbers alone."""
    if with_texts:
        return case.model_dump(mode="json")
    spec = case.spec
    return {
        "id": case.id,
        "made_at": case.made_at,
        "spec": {
            **spec.model_dump(mode="json", exclude={"question", "columns"}),
            "columns": [
                {
                    **column.model_dump(mode="json", include={"model", "memory", "k", "temperature", "repeat"}),
                    "mitigation": "draft" if column.draft is not None else column.mitigation,
                    "without": list(column.without),
                    "given": None if column.given is None else len(column.given),
                    "edited": column.edited,
                }
                for column in spec.columns
            ],
        },
        "outcomes": [_numbers(outcome) for outcome in case.outcomes],
        "ablations": [
            {
                "column": ablation.column,
                "at": ablation.at,
                "over": ablation.over,
                "base": _numbers(ablation.base),
                "items": [
                    {
                        **item.model_dump(mode="json", include={"number", "score_change", "similarity", "same"}),
                        "outcome": _numbers(item.outcome),
                    }
                    for item in ablation.items
                ],
            }
            for ablation in case.ablations
        ],
        "provenance": case.provenance,
    }


def _numbers(outcome: Outcome) -> dict[str, Any]:
    kept = {
        "state",
        "at_once",
        "post_state",
        "counts",
        "finish_reason",
        "milliseconds",
        "reused",
        "prompt_tokens",
        "completion_tokens",
        "cost_usd",
        "error_kind",
        "first_text_ms",
        "total_ms",
    }
    return {
        **outcome.model_dump(mode="json", include=kept),
        "similarities": None if outcome.retrieved is None else [memory.score for memory in outcome.retrieved],
        "scores": [{"metric": each.metric, "value": each.value} for each in outcome.scores],
    }
