"""What must be said of a run wherever its numbers are shown."""

from __future__ import annotations

from typing import Any


def remarks(provenance: dict[str, Any]) -> list[str]:
    """That its questions were made here, where they were; LoCoMo's protocol where it isn't the uniform one; and marks
    that came with the run, e.g. that zeros in it may be failed judgements. A bundle may hold anything here."""
    protocol, found = provenance.get("protocol"), provenance.get("marks")
    name = protocol.get("name") if isinstance(protocol, dict) else None
    said = ["questions of a build"] if provenance.get("data_source") == "build" else []
    said += [f"LoCoMo by protocol {str(name)[:20]}"] if name else []
    return said + ([str(mark)[:200] for mark in found[:10]] if isinstance(found, list) else [])
