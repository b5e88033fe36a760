"""What a judge's numbers mean, in words, where they can't be compared with the paper's."""

from __future__ import annotations

from opbench.store.rundata import RunData


def explain(data: RunData) -> str:
    """Markdown."""
    return ""
