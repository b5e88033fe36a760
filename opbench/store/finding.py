"""Finding one thing among several by what people call it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opbench.errors import UsageError


def the_one(rows: Sequence[Any], wanted: str, what: str) -> str:
    """The id of the row (`id`, `name`) whose id is `wanted`, else whose name is, else whose id begins with it. `what`
    names such a thing, without its plural s.

    Raises:
        UsageError: none of the rows, or more than one.
    """
    for fits in (
        [row for row in rows if row.id == wanted],
        [row for row in rows if row.name == wanted],
        [row for row in rows if wanted and row.id.startswith(wanted)],
    ):
        if len(fits) == 1:
            return str(fits[0].id)
        if fits:
            listed = ", ".join(row.id for row in fits[:10])
            raise UsageError(f"'{wanted[:40]}' fits {len(fits)} {what}s: {listed}. Give the id.")
    if not rows:
        raise UsageError(f"there is no {what} in this store yet.")
    raise UsageError(f"no {what} '{wanted[:40]}'. There are: {', '.join(row.id for row in rows[:10])}.")
