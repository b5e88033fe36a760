"""Names of files that are written."""

from __future__ import annotations

import re


def file_stem(name: str) -> str:
    """A run's name as the beginning of a file name."""
    return re.sub(r"[^\w.-]+", "-", name).strip("-.")[:80] or "run"
