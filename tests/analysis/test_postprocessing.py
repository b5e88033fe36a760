"""How often a post-processor failed."""

from __future__ import annotations

import pandas as pd

from opbench.analysis.postprocessing import failures


def records(**states: list[str | None]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {"model": "m", "memory": "rag", "mitigation": mitigation.replace("_", "-"), "state": state}
            for mitigation, each in states.items()
            for state in each
        ]
    )


def test_failures_are_counted_of_the_records_that_had_post_processing() -> None:
    found = failures(
        records(
            none=[None, None],
            reminder=["failed", "kept", "kept", None],
            self_critic=["failed", "failed", "revised"],
            marag=["kept", "nothing"],
        )
    )
    # Self-Critic failed in 2 of 3, Reminder in 1 of 3: its fourth record failed before; MARAG never did.
    assert found.to_dict("records") == [
        {"model": "m", "memory": "rag", "mitigation": "self-critic", "failed": 2, "n": 3},
        {"model": "m", "memory": "rag", "mitigation": "reminder", "failed": 1, "n": 3},
    ]


def test_without_post_processing_there_is_nothing_to_count() -> None:
    found = failures(records(none=[None]))
    assert found.empty
    assert list(found.columns) == ["model", "memory", "mitigation", "failed", "n"]
