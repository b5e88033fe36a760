"""`opbench mechanism ratio`: attention on memory against the query, of what was measured."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import pandas as pd
import typer

from opbench.analysis import attention as analysis
from opbench.analysis.attention import Readings
from opbench.analysis.attention_changes import changes
from opbench.commands.options import Exclude, leave_out, print_json, print_table, rows_of, the_store, words
from opbench.errors import UsageError
from opbench.figures.attention_answers import attention_answers, left_without
from opbench.sharing.tables import csv_bytes
from opbench.store.attention import read_attention
from opbench.store.reading import find_run, read_run


class RatioTable(StrEnum):
    configurations = "configurations"
    tasks = "tasks"
    users = "users"
    layers = "layers"
    heads = "heads"
    shares = "shares"
    changes = "changes"


_CONFIGURATION = "memory mitigation"
_RATIO = "value low high n n_users reason"
_COLUMNS = {
    RatioTable.configurations: f"{_CONFIGURATION} {_RATIO} read failed",
    RatioTable.tasks: f"{_CONFIGURATION} subtype {_RATIO}",
    RatioTable.users: f"{_CONFIGURATION} user {_RATIO}",
    RatioTable.layers: f"{_CONFIGURATION} layer {_RATIO}",
    RatioTable.heads: f"{_CONFIGURATION} layer head ratio n",
    RatioTable.shares: f"{_CONFIGURATION} segment value low high tokens n n_users reason",
    RatioTable.changes: f"{_CONFIGURATION} before_memory before_mitigation measure p_holm {_RATIO}",
}
_HEADS = {"before_memory": "against", "before_mitigation": "with", "n_users": "users", "p_holm": "p Holm"}


def add(app: typer.Typer) -> None:
    app.command("ratio")(ratio_command)


def ratio_command(
    run: Annotated[str | None, typer.Argument(help="Run id or name; default: the newest.")] = None,
    of: Annotated[RatioTable, typer.Option("--of", help="Which table.")] = RatioTable.configurations,
    reader: Annotated[str | None, typer.Option(help="Whose reading; default: the latest.")] = None,
    onset: Annotated[bool, typer.Option("--onset", help="Of the response's first token instead of all of it.")] = False,
    unfailed: Annotated[bool, typer.Option("--unfailed", help="Without records whose post-processing failed.")] = False,
    user: Annotated[str | None, typer.Option(help="Users, e.g. conv-26/Caroline; default all.")] = None,
    subtypes: Annotated[str | None, typer.Option(help="Subtypes; default all.")] = None,
    memory: Annotated[str | None, typer.Option(help="Memory systems; default all.")] = None,
    mitigation: Annotated[str | None, typer.Option(help="Post-processors; default all.")] = None,
    first_only: Annotated[bool, typer.Option("--first-only", help="First speakers only.")] = False,
    exclude: Exclude = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV, all columns.")] = False,
) -> None:
    """How much more attention a memory token gets than a query token, by configuration, task, layer and head."""
    store = the_store()
    data = leave_out(read_run(store, find_run(store, run)), words(exclude) or ())
    stored = read_attention(store, data.run_id, reader)
    if not len(stored):
        raise UsageError(
            f"attention isn't measured for run {data.run_id}: 'opbench mechanism attention {data.run_id}'."
        )
    readings = Readings.of(stored, "onset" if onset else "response")
    instances = data.instances[data.instances["first_speaker"].astype(bool)] if first_only else data.instances
    readings = readings.where(readings.records["instance"].isin(instances["instance"]))
    told = {"user": user, "subtype": subtypes, "memory": memory, "mitigation": mitigation}
    for column, given in told.items():
        readings = _only(readings, column, words(given))
    if unfailed:
        readings = readings.unfailed()
    if not len(readings):
        raise UsageError("none of the records that were read is left: choose fewer filters.")
    ratios, changed = analysis.ratios(readings), changes(readings)
    if of is RatioTable.configurations:
        frame = ratios
    elif of is RatioTable.changes:
        frame = changed
    elif of is RatioTable.tasks:
        frame = analysis.ratios(readings, ("subtype",))
    elif of is RatioTable.users:
        frame = analysis.ratios(readings, ("user",))
    elif of is RatioTable.layers:
        frame = analysis.ratios_by_layer(readings)
    elif of is RatioTable.shares:
        frame = analysis.shares(readings)
    else:
        frame = analysis.ratios_by_head_of_each(readings)
    own = int(readings.records["own"].sum())
    notes = [
        f"Read by {stored.reader}, {'the first token' if onset else 'all'} of each response; {len(readings):,} "
        f"records, {own:,} of them answered by the reading model itself.",
        *(f"{answer.head}: {' '.join(answer.sentences)}" for answer in attention_answers(ratios, changed)),
        *([left_without(ratios)] if left_without(ratios) else []),
    ]
    if as_csv:
        # What the notes say must not be lost where a file goes on alone.
        marked = frame.assign(run=data.run_id, reader=stored.reader, position="onset" if onset else "response")
        typer.echo(csv_bytes(marked).decode(), nl=False)
    elif as_json:
        print_json({"run": data.run_id, "reader": stored.reader, "notes": notes, "rows": rows_of(frame)})
    else:
        value = {RatioTable.shares: "share", RatioTable.changes: "change"}.get(of, "memory : query")
        known = _HEADS | {"value": value}
        heads = {name: known.get(name, name.replace("_", " ")) for name in _COLUMNS[of].split()}
        if "failed" in frame:
            # Counts, though those of configurations without a post-processor are missing.
            counts = [None if pd.isna(each) else int(each) for each in frame["failed"]]
            frame = frame.assign(failed=pd.Series(counts, index=frame.index, dtype="object"))
        print_table(frame, heads, title=f"run {data.run_id} {data.name}".rstrip(), notes=notes)


def _only(readings: Readings, column: str, names: tuple[str, ...] | None) -> Readings:
    """Readings of these names. Raises UsageError for one that isn't there."""
    if not names:
        return readings
    known = list(dict.fromkeys(readings.records[column]))
    for name in names:
        if name not in known:
            raise UsageError(f"no {column} '{name}' was read. There are: {', '.join(known[:12])}.")
    return readings.where(readings.records[column].isin(names))
