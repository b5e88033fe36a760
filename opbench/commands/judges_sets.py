"""`opbench judges sets`: responses with people's scores, brought, listed, taken out and deleted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pandas as pd
import typer

from opbench.commands.judges_job import Json
from opbench.commands.options import print_json, print_table, say, the_store
from opbench.errors import DataError, UsageError

if TYPE_CHECKING:
    from opbench.store.database import Store
    from opbench.store.judgings import SetRow

Kind = Literal["published", "run", "review", "csv", "traps", "bias"]
#: Sets that are made when they are named, since nothing has to be chosen.
MADE = ("published", "traps", "bias")

app = typer.Typer(help="Sets of responses with people's scores.", no_args_is_help=True)


def the_set(store: Store, wanted: str | None, data: str = "auto") -> SetRow:
    """The set that is named; `published`, `traps` and `bias` are made.

    Raises:
        UsageError: there is none, or it can't be made.
    """
    from opbench.store.judgings import find_set

    return find_set(store, make_set(store, wanted, None, data) if wanted in MADE else wanted)


def make_set(store: Store, kind: str | None, source: str | None, data: str, limit: int | None = None) -> str:
    """Make a set, or find it, and return its id. `data` and `limit` (questions) are of traps and bias."""
    from opbench.calibration import csv_sets, position, sets, traps
    from opbench.store.reading import find_run

    if kind == "published":
        return sets.published_set(store)
    if kind in ("traps", "bias"):
        from opbench.benchmarks.built import corpus_of

        corpus = corpus_of(data)
        make = traps.traps_set if kind == "traps" else position.bias_set
        return make(store, corpus, limit=limit)
    if source is None:
        raise UsageError(f"name the {'file' if kind == 'csv' else kind} after '{kind}'.")
    if kind == "run":
        return sets.run_set(store, find_run(store, source))
    if kind == "review":
        from opbench.store.reviews import find_review

        return sets.review_set(store, find_review(store, source))
    file = Path(source)
    try:
        content = file.read_bytes()
    except OSError as error:
        raise DataError(f"{file}: can't be read ({error.strerror}); check that it is there and may be read.") from error
    return csv_sets.csv_set(store, content, file.name)


@app.command("list")
def list_command(as_json: Json = False) -> None:
    """The sets in the store, newest first."""
    from opbench.store.judgings import set_list

    rows = set_list(the_store())
    if as_json:
        print_json([_told(row) for row in rows])
        return
    if not rows:
        say("There is no set yet. 'opbench judges sets add published' makes one of the paper's cases.")
        return
    frame = pd.DataFrame(
        [{"id": r.id, "kind": r.kind, "items": r.items, "rated": r.rated, "name": r.name} for r in rows]
    )
    columns = {"id": "set", "kind": "from", "items": "responses", "rated": "with scores", "name": "name"}
    print_table(frame, columns)


@app.command("add")
def add_command(
    kind: Annotated[Kind, typer.Argument(help="Where from: published cases, run, review, csv, traps or bias.")],
    source: Annotated[str | None, typer.Argument(help="The run, the review or the CSV file.")] = None,
    data: Annotated[str, typer.Option(help="For traps and bias: auto, or sample for the bundled sample.")] = "auto",
    limit: Annotated[int | None, typer.Option(min=1, help="For traps and bias: so many questions.")] = None,
    as_json: Json = False,
) -> None:
    """Make a set of responses with people's scores; one that is there already is found again.

    A CSV file has the columns question, response, subtype and score (0 to 1, empty: not scored); item, rater, pair,
    user, gold, profile, explanation, kind, memories, context and facts may be there.
    """
    from opbench.store.judgings import find_set

    store = the_store()
    row = find_set(store, make_set(store, kind, source, data, limit))
    if as_json:
        print_json(_told(row))
        return
    say(f"set {row.id}: {row.name}, {row.items:,} responses, {row.rated:,} of them with scores")


@app.command("export")
def export_command(
    wanted: Annotated[str, typer.Argument(metavar="SET", help="Id or name.")],
    file: Annotated[Path, typer.Argument(help="The CSV file to write; one that is there is left alone.")],
) -> None:
    """Write a set as a CSV file that 'opbench judges sets add csv' reads."""
    from opbench.calibration.csv_sets import write_csv
    from opbench.store.judgings import find_set, read_set

    store = the_store()
    items = read_set(store, find_set(store, wanted).id)
    try:
        with file.open("x", encoding="utf-8", newline="") as out:
            out.write(write_csv(items))
    except FileExistsError:
        raise UsageError(f"{file} is there already: name another file, or remove it first.") from None
    except OSError as error:
        raise UsageError(f"{file}: can't be written ({error.strerror}).") from error
    say(f"{file}: {len(items):,} responses")


@app.command("rename")
def rename_command(
    wanted: Annotated[str, typer.Argument(metavar="SET", help="Id or name.")],
    name: Annotated[str, typer.Argument(help="The new name.")],
) -> None:
    """Give a set another name."""
    from opbench.store.judgings import find_set, rename_set

    store = the_store()
    if not (name := " ".join(name.split())[:200]):
        raise UsageError("the name is empty.")
    row = find_set(store, wanted)
    rename_set(store, row.id, name)
    say(f"set {row.id}: {name}")


@app.command("delete")
def delete_command(wanted: Annotated[str, typer.Argument(metavar="SET", help="Id or name.")]) -> None:
    """Delete a set with what judges said of it; their calls stay, so that the same judging pays for none again."""
    from opbench.store.judgings import delete_set, find_set

    store = the_store()
    row = find_set(store, wanted)
    delete_set(store, row.id)
    say(f"deleted set {row.id} ({row.name})")


def _told(row: SetRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "name": row.name,
        "source": row.source,
        "maker": row.maker,
        "made_at": row.made_at,
        "responses": row.items,
        "rated": row.rated,
    }
