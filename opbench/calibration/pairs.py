"""Judges' scores beside people's, a row a judging and response: what the statistics and the page rest on."""

from __future__ import annotations

from collections.abc import Sequence

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
    known = {(judging, item): rows for (judging, item), rows in _grouped(store, [each.id for each in chosen]).items()}
    found = []
    for judging in chosen:
        for each in items:
            response = each.response
            rows = known.get((judging.id, each.item))
            # What was said of another response of this name isn't of this one.
            rows = rows if rows is None else rows[rows["response_sha256"] == sha256_of(response.response)]
            given = None if rows is None or rows.empty else rows
            values = pd.Series(dtype="float64") if given is None else given["value"].dropna()
            value = float(values.mean()) if len(values) else float("nan")
            people = float("nan") if each.people is None else each.people
            reason = None if len(values) else "not judged yet" if given is None else given["reason"].iloc[0]
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
                    None if given is None else given["metric"].iloc[0],
                    value,
                    len(values),
                    reason,
                    None if given is None else given["raw"].iloc[0],
                    value - people,
                )
            )
    numbers = dict.fromkeys(("people", "value", "residual"), "float64")
    return pd.DataFrame(found, columns=list(COLUMNS)).astype(numbers)


def _grouped(store: Store, judging_ids: Sequence[str]) -> dict[tuple[str, str], pd.DataFrame]:
    frame = read_judgements(store, judging_ids)
    return {(str(place[0]), str(place[1])): rows for place, rows in frame.groupby(["judging", "item"], sort=False)}
