"""Worked examples of over-personalisation: the paper's appendix (figures 21 to 32) if it is there, else invented ones.

The appendix comes with the public repository and may not be passed on; the invented cases are the sample's people.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from opbench.benchmarks.files import SAMPLE
from opbench.errors import DataError
from opbench.settings import settings
from opbench.types import OP_CATEGORIES

APPENDIX = "published/appendix_cases.jsonl"
INVENTED = SAMPLE / "cases.jsonl"
#: The file's names of subtypes that aren't ours.
_SUBTYPES = {"response-diversity": "repetition"}

Origin = Literal["appendix", "invented"]


@dataclass(frozen=True, slots=True)
class Exchange:
    """A question and what was replied to it. Scores are 0 to 1, higher is less over-personalised."""

    question: str
    memories: tuple[str, ...]
    response: str
    score: float
    fitting: str
    """A reply that fits the question."""
    fitting_score: float


@dataclass(frozen=True, slots=True)
class Case:
    """A worked example. A repetition takes several exchanges, since one reply alone repeats nothing."""

    id: str
    user: str
    category: str
    """One of `irrelevance`, `sycophancy`, `repetition`."""
    subtype: str
    method: str
    """Memory system, and post-processor if there was one."""
    exchanges: tuple[Exchange, ...]


@dataclass(frozen=True, slots=True)
class Cases:
    origin: Origin
    cases: tuple[Case, ...]

    def of(self, category: str) -> dict[str, Case]:
        """The cases of a category by id."""
        return {case.id: case for case in self.cases if case.category == category}


def read() -> Cases:
    """The appendix's cases from the data folder when they are there, else the invented ones.

    Raises:
        DataError: the file is damaged; one line with file, line and mend.
    """
    folder = settings().data or settings().fetched
    file = folder / APPENDIX
    origin: Origin = "appendix" if file.is_file() else "invented"
    file = file if origin == "appendix" else INVENTED
    try:
        return Cases(origin, _read(file, file.stat().st_mtime_ns))
    except OSError as error:
        raise DataError(f"{file}: can't be read ({error.strerror}); check that it is there and may be read") from error


@lru_cache(maxsize=2)
def _read(file: Path, stamp: int) -> tuple[Case, ...]:
    grouped: dict[str, list[tuple[dict[str, Any], Exchange]]] = {}
    for number, row in _rows(file):
        try:
            exchange = Exchange(
                question=_text(row["question"]),
                memories=tuple(_text(memory) for memory in row["memory"]),
                response=_text(row["response"]),
                score=_share(row["published_score"]),
                fitting=_text(row["reference_response"]),
                fitting_score=_share(row["reference_score"]),
            )
            row["subtype"] = _SUBTYPES.get(row["subtype"], row["subtype"])
            if row["category"] != OP_CATEGORIES[row["subtype"]]:
                raise ValueError(f"{row['subtype']} isn't a subtype of {row['category']}")
            # `fig-26/Query A`, `fig-26/Query B`, … are one case.
            grouped.setdefault(_text(row["id"]).split("/")[0], []).append((row, exchange))
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"{file}: line {number}: not a worked case ({error}); get the file again, or remove it"
            ) from error
    return tuple(
        Case(
            id=identity,
            user=_text(rows[0][0].get("persona", "")),
            category=rows[0][0]["category"],
            subtype=rows[0][0]["subtype"],
            method=_text(rows[0][0].get("method", "")),
            exchanges=tuple(exchange for _, exchange in rows),
        )
        for identity, rows in grouped.items()
    )


def _rows(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: isn't UTF-8 text; get the file again, or remove it") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise DataError(
                f"{file}: line {number}: not JSON ({error.msg}); get the file again, or remove it"
            ) from error
        if not isinstance(row, dict):
            raise DataError(f"{file}: line {number}: not a JSON object; get the file again, or remove it")
        yield number, row


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected text, found {type(value).__name__}")
    return value


def _share(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError(f"expected a score from 0 to 1, found {str(value)[:20]}")
    return float(value)
