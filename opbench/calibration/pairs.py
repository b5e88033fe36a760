"""Judges' scores beside people's, a row a judging and response: what the statistics and the page rest on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from opbench.calibration.material import REPETITION
from opbench.errors import UsageError
from opbench.store.database import Store
from opbench.store.judgings import judging_list, read_judgements, read_set
from opbench.store.record import sha256_of

COLUMNS = (
    "judging",
    "label",
    "judge",
    "item",
    "pair",
    "user",
    "benchmark",
    "subtype",
    "kind",
    "question",
    "response",
    "people",
    "raters",
    "metric",
    "value",
    "repeats",
    "reason",
    "raw",
    "residual",
)


def paired(store: Store, set_id: str, judging_ids: Sequence[str] = ()) -> pd.DataFrame:
    """A row a judging and response of the set: `COLUMNS`. No judging named: all of the set's.

    people: mean over raters, 0 to 1, NaN where nobody scored; value: mean over the repeats that have one (`repeats` of
    them), NaN where none has, and then `reason` says why (`not judged yet` among them); raw: the judge's first reply;
    residual: value − people. Repetition isn't among the rows: no judge scores it.

    Raises:
        UsageError: a judging is none of this set's.
    """
    judgings = judging_list(store, set_id=set_id)
    for wanted in judging_ids:
        if wanted not in {each.id for each in judgings}:
            raise UsageError(f"judging {wanted} is none of set {set_id}.")
    chosen = [each for each in judgings if not judging_ids or each.id in judging_ids]
    items = [each for each in read_set(store, set_id) if each.response.subtype != REPETITION]
    known = _by_item(store, [each.id for each in chosen])
    found = []
    for judging in chosen:
        for each in items:
            response = each.response
            # What was said of another response of this name isn't of this one.
            sha256 = sha256_of(response.response)
            given = [row for row in known.get((judging.id, each.item), []) if row.response_sha256 == sha256]
            values = [row.value for row in given if not math.isnan(row.value)]
            value = sum(values) / len(values) if values else math.nan
            people = math.nan if each.people is None else each.people
            reason = None if values else given[0].reason if given else "not judged yet"
            found.append(
                (
                    judging.id,
                    judging.label,
                    judging.judge,
                    each.item,
                    response.pair or each.item,
                    response.user,
                    response.benchmark,
                    response.subtype,
                    response.kind,
                    response.question,
                    response.response,
                    people,
                    len(each.human),
                    given[0].metric if given else None,
                    value,
                    len(values),
                    reason,
                    given[0].raw if given else None,
                    value - people,
                )
            )
    numbers = dict.fromkeys(("people", "value", "residual"), "float64")
    return pd.DataFrame(found, columns=list(COLUMNS)).astype(numbers)


def _by_item(store: Store, judging_ids: Sequence[str]) -> dict[tuple[str, str], list[Any]]:
    """Judgements by judging and item, by repeat."""
    found: dict[tuple[str, str], list[Any]] = {}
    for row in read_judgements(store, judging_ids).itertuples(index=False):
        found.setdefault((str(row.judging), str(row.item)), []).append(row)
    return found
