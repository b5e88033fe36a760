"""Which memories come back across a user's responses to repetition questions (paper, appendix C.3: retrieved memories
act as anchors)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from opbench.analysis.fates import fates
from opbench.analysis.grids import Key
from opbench.cases.marks import spans
from opbench.cases.outcome import Found

COLUMNS = ("memory", "date", "questions", "retrieved", "went_on", "shows", "instances")


def recurring(texts: pd.DataFrame, key: Key, user: str) -> pd.DataFrame:
    """The memories that were retrieved for a user's repetition questions, those that came most often first.

    `texts` is `store.texts.read_texts(…, memories=True)` of repetition. Columns: memory, date, questions (of the user,
    as far as they were answered), and of them: retrieved (it was among the k), went_on (the response model saw it, in
    whatever words: `analysis.fates`), shows (a piece of the response shares wording with it and not with the question:
    `cases.marks`, no proof of cause), instances (for which it was retrieved, ids joined by commas).
    """
    mine = texts[(texts["model"] == key[0]) & (texts["memory"] == key[1]) & (texts["mitigation"] == key[2])]
    mine = mine[mine["user"] == user]
    rows = [{"instance": row["instance"], **each} for row in mine.to_dict("records") for each in _memories_of(row)]
    if not rows:
        return pd.DataFrame(columns=list(COLUMNS))
    frame = pd.DataFrame(rows)
    # A memory that a record holds twice is one.
    by_record = frame.groupby(["memory", "date", "instance"], sort=False)[["went_on", "shows"]].any().reset_index()
    grouped = by_record.groupby(["memory", "date"], sort=False)
    found = grouped[["went_on", "shows"]].sum().astype("int64")
    found["retrieved"] = grouped.size()
    found["instances"] = grouped["instance"].agg(", ".join)
    found = found.reset_index().assign(questions=len(mine))
    order = ["retrieved", "went_on", "shows", "memory"]
    return found.sort_values(order, ascending=[False, False, False, True])[list(COLUMNS)].reset_index(drop=True)


def _memories_of(row: dict[Any, Any]) -> Iterator[dict[str, Any]]:
    """Of one record: each memory, whether it went on, whether it shows."""
    retrieved = row["retrieved"] or []
    became = [each for each in fates(retrieved, row["context"]) if each.text is not None]
    marked = spans(
        row["response"], [Found(text=str(each.text), date=each.date) for each in became], row["question"] or ""
    )
    shown = {number for span in marked for number in span.memories}
    for number, each in enumerate(became, 1):
        yield {
            "memory": each.text,
            "date": each.date or "",
            "went_on": each.became != "dropped",
            # A memory that the model didn't see can't be where the wording is from.
            "shows": each.became != "dropped" and number in shown,
        }
