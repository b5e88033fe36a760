"""`opbench compare`: what changed from one configuration to another, of one run or of two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import pandas as pd
import typer

from opbench.analysis.aggregate import RULES, Rule
from opbench.analysis.compare import Change
from opbench.analysis.differences import Side, largest, op_average_change, pair, pairs, repetition_pairs, summary
from opbench.analysis.grids import configuration_keys
from opbench.analysis.intervals import Interval
from opbench.analysis.unlike import doubts, unlike
from opbench.commands.instances import one_of
from opbench.commands.options import Exclude, leave_out, print_json, print_table, rows_of, the_store, words
from opbench.errors import UsageError
from opbench.protocol import metric_label
from opbench.sharing.marks import remarks
from opbench.sharing.visible import one_line
from opbench.store.database import Store
from opbench.store.reading import find_run, read_run


def add(app: typer.Typer) -> None:
    app.command("compare")(compare_command)


def compare_command(
    first: Annotated[str, typer.Argument(metavar="A", help="RUN, or RUN:MODEL/MEMORY/MITIGATION (MODEL/ may go).")],
    second: Annotated[str, typer.Argument(metavar="B", help="The same; :MEMORY/MITIGATION is of A's run.")],
    rule: Annotated[Rule, typer.Option("--aggregate", help="Rule of the OP average.")] = RULES[0],
    first_only: Annotated[bool, typer.Option("--first-only", help="First speakers only.")] = False,
    exclude: Exclude = None,
    top: Annotated[int, typer.Option(min=0, help="Largest changes of each direction to print.")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """What changed from A to B: better, worse, equal, by how much, and what differs between their studies."""
    store = the_store()
    without = words(exclude) or ()
    before = _side(store, first, None, without)
    after = _side(store, second, before, without)
    found = pair(before, after, first_only)
    average, table, frame = op_average_change(found, rule), summary(found), pairs(found)
    better, worse = largest(frame, top)
    interval = average.interval()
    if as_json:
        print_json(
            {
                **{
                    name: {
                        "run": side.data.run_id,
                        "configuration": side.label,
                        "judge": side.data.study.judge,
                        "comparable": side.data.comparable,
                        "recorded": side.data.recorded,
                        "marks": remarks(side.data.provenance),
                    }
                    for name, side in (("before", before), ("after", after))
                },
                "doubts": doubts(before, after),
                "remarks": found.remarks,
                "only_before": found.only_before,
                "only_after": found.only_after,
                "first_only": first_only,
                "exclude": without,
                "rule": rule,
                "locomo_metric": found.metric,
                "op_change": _finite(average.points),
                "op_low": _finite(interval.low),
                "op_high": _finite(interval.high),
                "op_p": _finite(interval.p),
                "op_n_paired": average.n,
                "op_n_planned": len(found.op.grid.instances),
                "op_note": average.note,
                "op_interval_note": interval.reason,
                "summary": rows_of(table),
                "better": rows_of(better),
                "worse": rows_of(worse),
                "repetition": rows_of(repetition_pairs(found)),
                "differs": rows_of(unlike(before, after)),
            }
        )
        return
    notes = [*doubts(before, after), *found.remarks]
    told = _signed(average, interval, len(found.op.grid.instances))
    notes.append(f"OP-Bench average ({rule}): {told}.")
    notes.append(
        f"Points of 100, over what both have scored; LoCoMo by {metric_label(found.metric)}. Each row's "
        "95 % interval stands alone: of twenty rows without any change, one would be expected to leave out 0."
    )
    notes += _marks(before, after)
    notes += ["First speakers only."] if first_only else []
    notes += [f"Left out: {', '.join(without)}."] if without else []
    if found.only_before or found.only_after:
        notes.append(f"Not compared: {found.only_before:,} instances only in A, {found.only_after:,} only in B.")
    columns = {"subtype": "subtype", "before": "A", "after": "B", "change": "change", "low": "low", "high": "high"}
    columns |= {name: name for name in ("better", "worse", "equal")}
    columns |= {"n_paired": "n", "n_planned": "of", "unit": "unit"}
    title = f"A {before.data.run_id} {before.label}\nB {after.data.run_id} {after.label}"
    print_table(table, {"benchmark": ""} | columns, title=title, notes=notes)
    for what, rows in (("better", better), ("worse", worse)):
        if len(rows):
            heads = {"instance": "instance", "before": "A", "after": "B", "change": "change"}
            print_table(rows, heads, title=f"Got {what} by most")
    differs = unlike(before, after)
    if len(differs):
        print_table(differs.map(lambda text: one_line(text, 60)), {"what": "differs", "before": "A", "after": "B"})


def _side(store: Store, told: str, other: Side | None, without: Sequence[str]) -> Side:
    """`RUN`, `RUN:MEMORY/MITIGATION` or `RUN:MODEL/MEMORY/MITIGATION`; nothing before the colon is `other`'s run."""
    run, _, configuration = told.partition(":")
    data = leave_out(read_run(store, find_run(store, run or None)), without) if run or other is None else other.data
    parts: list[str | None] = [*configuration.rsplit("/", 2)] if configuration else []
    if len(parts) == 1:
        raise UsageError(f"'{told}': write a configuration as MEMORY/MITIGATION or MODEL/MEMORY/MITIGATION.")
    wanted = [*(None for _ in range(3 - len(parts))), *parts]
    return Side(data, one_of(configuration_keys(data), wanted, f"Write one as {data.run_id}:MODEL/MEMORY/MITIGATION"))


def _finite(value: float) -> float | None:
    return None if pd.isna(value) else value


def _signed(change: Change, interval: Interval, planned: int) -> str:
    if pd.isna(change.points):
        return f"missing, {change.note}"
    ends = f"95 % interval {interval.low:+.2f} to {interval.high:+.2f}"
    within = f"no interval ({interval.reason})" if pd.isna(interval.low) else ends
    return f"{change.points:+.2f} points, {within}, n = {change.n:,} of {planned:,}, {change.note}"


def _marks(before: Side, after: Side) -> list[str]:
    """What must be said of each run's numbers, once if it is the same."""
    runs = {side.data.run_id: side.data for side in (before, after)}
    said = []
    for data in runs.values():
        paper = "" if data.comparable else ", not comparable with the paper"
        said.append(f"Run {data.run_id}: judge {data.study.judge}{paper}{', recorded' if data.recorded else ''}.")
        said += [f"Run {data.run_id}: {mark}." for mark in remarks(data.provenance)]
    return said
