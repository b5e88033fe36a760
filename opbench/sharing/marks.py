"""What is said of a run that came from elsewhere, wherever its numbers are shown."""

from __future__ import annotations

from typing import Any


def remarks(provenance: dict[str, Any]) -> list[str]:
    """Marks that came with the run, e.g. that zeros in it may be failed judgements; a bundle may hold anything here."""
    found = provenance.get("marks")
    return [str(mark)[:200] for mark in found[:10]] if isinstance(found, list) else []
