"""`opbench case`: saved cases, books of them, drafts as plugins, and the published cases beside our judges."""

from __future__ import annotations

import asyncio
import getpass
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import pandas as pd
import typer

from opbench.cases import drafts
from opbench.cases.published import ABOUT, LISTED, counted
from opbench.cases.saved import CaseRow, SavedCase
from opbench.cases.telling import named
from opbench.commands import case_choice
from opbench.commands.case_text import ColumnTeller, remarks, tell_ablation
from opbench.commands.options import print_json, print_table, rows_of, say, the_store, words
from opbench.errors import UsageError
from opbench.sharing.case_html import book_html, case_html
from opbench.sharing.naming import file_stem
from opbench.sharing.tables import csv_bytes
from opbench.sharing.visible import one_line
from opbench.store import cases
from opbench.store.database import Store

if TYPE_CHECKING:
    from opbench.cases.published_scores import Ratings

app = typer.Typer(no_args_is_help=True, help="Saved cases: list, show, export, put together into books.")
book = typer.Typer(no_args_is_help=True, help="Case books: several saved cases in an order, for a paper or a meeting.")
app.add_typer(book, name="book")

Case = Annotated[str, typer.Argument(help="Case id (or its beginning) or name.")]
Cases = Annotated[list[str], typer.Argument(help="Case ids or names, in order.")]
Book = Annotated[str, typer.Argument(help="Book id (or its beginning) or name.")]
NewName = Annotated[str, typer.Argument(help="The new name.")]
Note = Annotated[str | None, typer.Option(help="A new note too.")]
Yes = Annotated[bool, typer.Option("--yes", help="Don't ask.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("list")
def list_command(as_json: Json = False) -> None:
    """List the saved cases, newest first."""
    rows = cases.list_cases(the_store())
    if as_json:
        print_json([asdict(row) for row in rows])
    elif not rows:
        say("There is no saved case yet. Save one: opbench ask … --save NAME")
    else:
        frame = pd.DataFrame(
            {
                "id": [row.id for row in rows],
                "name": [row.name for row in rows],
                "saved": [_day(row.made_at) for row in rows],
                "maker": [row.maker for row in rows],
                "user": [row.user or "–" for row in rows],
                "columns": [len(row.columns) for row in rows],
                "scores": [_scores(row) for row in rows],
                "detail": [one_line(row.question, 60) if row.damage is None else "can't be read" for row in rows],
            }
        )
        heads = {name: name for name in frame.columns} | {"detail": "question"}
        print_table(frame, heads, notes=["Scores 0 to 1, a column each in order; see 'opbench case show ID'."])
    _damages([row.damage for row in rows])


@app.command("show")
def show_command(case: Case, as_json: Json = False) -> None:
    """Show a saved case whole: columns, scores, what leaving memories out showed."""
    store = the_store()
    saved = cases.load_case(store, cases.find_case(store, case))
    if as_json:
        print_json(saved.model_dump(mode="json"))
        return
    say(f"{saved.name}  ({saved.id}, saved by {saved.maker}, {_day(saved.made_at)})")
    if saved.note:
        say(saved.note)
    spec = saved.spec
    say(f"user {spec.user}, judged as {spec.subtype}: {spec.question}\n")
    names = named(spec, {})
    for number, (name, outcome) in enumerate(zip(names, saved.outcomes, strict=True)):
        ColumnTeller(spec, number, name).tell(outcome)
    for ablation in saved.ablations:
        tell_ablation(spec, ablation, {})
    say(remarks(spec, saved.comparable))


@app.command("rename")
def rename_command(case: Case, name: NewName, note: Note = None) -> None:
    """Give a saved case another name; its id stays."""
    store = the_store()
    cases.rename_case(store, cases.find_case(store, case), name, note=note)


@app.command("delete")
def delete_command(case: Case, yes: Yes = False) -> None:
    """Delete a saved case. Books show it as gone; the call store keeps what was paid for."""
    store = the_store()
    case_id = cases.find_case(store, case)
    if not yes:
        typer.confirm(f"Delete saved case {case_id}?", abort=True)
    cases.delete_case(store, case_id)


@app.command("export")
def export_command(
    what: Annotated[str, typer.Argument(metavar="CASE|BOOK", help="A case or a book, by id or name.")],
    out: Annotated[Path | None, typer.Option("--out", help="The HTML file to write. Default: its name, here.")] = None,
    texts: Annotated[
        bool, typer.Option("--texts", help="With questions, memories and responses; they may not be passed on freely.")
    ] = False,
) -> None:
    """Write a case or a book as one HTML file that opens offline."""
    store = the_store()
    case, named_book = _either(store, what)
    if case is not None:
        html, name = case_html(case, with_texts=texts), case.name
    else:
        found = cases.load_book(store, named_book)
        html, name = book_html(found, with_texts=texts), found.name
        _problems([entry.problem for entry in found.entries])
    file = out or Path(f"{file_stem(name)}.html")
    _write(file, html.encode())
    say(str(file))


@app.command("draft")
def draft_command(
    file: Annotated[Path, typer.Argument(help="A text file with the instructions; its name is the draft's.")],
    replace: Annotated[bool, typer.Option("--replace", help="Overwrite another draft of that name.")] = False,
    delete: Annotated[bool, typer.Option("--delete", help="Delete the saved draft that FILE names.")] = False,
) -> None:
    """Save a prompt-only post-processor as a plugin file; prints where. Try it first: opbench ask … --draft FILE."""
    if delete:
        say(f"deleted {drafts.delete(file.stem)}")
        return
    draft = case_choice.read_draft(file)
    target = drafts.save(draft, replace=replace)
    say(str(target))
    say(f"run it: opbench run --plugin {target} --mitigations none,{draft.name} …", err=True)


@app.command("judge-published")
def judge_published_command(
    judge: Annotated[
        list[str] | None, typer.Option(help="A judge; several are possible. Default: offline, which needs no model.")
    ] = None,
    embedder: Annotated[str, typer.Option(help="Embedder of the repetition score.")] = "minilm",
    only: Annotated[str | None, typer.Option(help="One case by its id.")] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print the scores as CSV.")] = False,
    as_json: Json = False,
) -> None:
    """Set our judges' scores beside those of the published cases (paper, appendix D)."""
    if as_csv and as_json:
        raise UsageError("give --csv or --json, not both.")
    # What its judges score by loads for half a second, which no other command should wait for.
    from opbench.cases import published_scores

    judges = list(dict.fromkeys(["offline", *(name for each in judge or [] for name in words(each) or ())]))
    ratings = asyncio.run(published_scores.rate(the_store(), judges, embedder=embedder, only=only))
    table = published_scores.published_table(ratings)
    repetition = published_scores.repetition_table(ratings)
    agreement = published_scores.agreement_table(ratings)
    origin = ratings.cases[0].origin
    if as_json:
        print_json(
            {
                "origin": origin,
                "judges": list(ratings.judges),
                "embedder": ratings.embedder,
                "scores": rows_of(table),
                "repetition": rows_of(repetition),
                "agreement": rows_of(agreement),
                "provenance": ratings.provenance,
            }
        )
        return
    if as_csv:
        mark = "published" if origin == "appendix" else "invented"
        sys.stdout.write(csv_bytes(table, [f"{mark} scores beside our judges'"]).decode())
        return
    _print_published(ratings, table, repetition, agreement)


@book.command("list")
def book_list_command(as_json: Json = False) -> None:
    """List the case books, newest first."""
    rows = cases.list_books(the_store())
    if as_json:
        print_json([asdict(row) for row in rows])
    elif not rows:
        say("There is no case book yet. Make one: opbench case book make NAME CASE…")
    else:
        frame = pd.DataFrame(
            {
                "id": [row.id for row in rows],
                "name": [row.name for row in rows],
                "made": [_day(row.made_at) for row in rows],
                "maker": [row.maker for row in rows],
                "cases": [len(row.cases) for row in rows],
                "gone": [row.gone for row in rows],
            }
        )
        print_table(frame, {name: name for name in frame.columns})
    _damages([row.damage for row in rows])


@book.command("show")
def book_show_command(name: Book, as_json: Json = False) -> None:
    """Show what is in a book, in order."""
    store = the_store()
    found = cases.load_book(store, cases.find_book(store, name))
    if as_json:
        entries = [
            {"id": each.id, "name": None if each.case is None else each.case.name, "problem": each.problem}
            for each in found.entries
        ]
        head = {"id": found.id, "name": found.name, "note": found.note, "maker": found.maker, "made_at": found.made_at}
        print_json({**head, "entries": entries})
        return
    say(f"{found.name}  ({found.id}, made by {found.maker}, {_day(found.made_at)})")
    if found.note:
        say(found.note)
    for number, entry in enumerate(found.entries, 1):
        told = entry.problem if entry.case is None else f"{entry.id}  {entry.case.name}"
        say(f"{number:>3}. {told}")


@book.command("make")
def book_make_command(
    name: Annotated[str, typer.Argument(help="The book's name.")],
    wanted: Cases,
    note: Annotated[str, typer.Option(help="A note.")] = "",
) -> None:
    """Put saved cases together into a book; prints its id."""
    store = the_store()
    ids = [cases.find_case(store, each) for each in wanted]
    say(cases.save_book(store, name=name, note=note, cases=ids, maker=getpass.getuser()))


@book.command("set")
def book_set_command(name: Book, wanted: Cases) -> None:
    """Set a book's cases, in order: to add, to take out, to move. Cases that are gone may stay, by their id."""
    store = the_store()
    book_id = cases.find_book(store, name)
    there = {case for row in cases.list_books(store) if row.id == book_id for case in row.cases}
    cases.set_book(store, book_id, [each if each in there else cases.find_case(store, each) for each in wanted])


@book.command("rename")
def book_rename_command(name: Book, new: NewName, note: Note = None) -> None:
    """Give a book another name; its id stays."""
    store = the_store()
    cases.rename_book(store, cases.find_book(store, name), new, note=note)


@book.command("delete")
def book_delete_command(name: Book, yes: Yes = False) -> None:
    """Delete a book; its cases stay."""
    store = the_store()
    book_id = cases.find_book(store, name)
    if not yes:
        typer.confirm(f"Delete case book {book_id}? Its cases stay.", abort=True)
    cases.delete_book(store, book_id)


def _print_published(ratings: Ratings, table: pd.DataFrame, repetition: pd.DataFrame, agreement: pd.DataFrame) -> None:
    from opbench.cases import published_scores

    single = table[table["subtype"] != "repetition"]
    heads = {"id": "case", "subtype": "subtype", "method": "method", "text": "text", "published": "published"}
    for judge in ratings.judges:
        heads |= {judge: judge, f"{judge} − published": f"{judge} − published"}
    missing = [
        f"{row['id']} ({row['text']}): {judge}: {row[f'{judge}: missing']}"
        for judge in ratings.judges
        for _, row in single[single[judge].isna()].iterrows()
    ]
    say(f"{counted(ratings.cases)}. {ABOUT[ratings.cases[0].origin]}")
    print_table(single, heads, title="Scores, 0 to 1", notes=[published_scores.SEEN, LISTED, *missing])
    if len(repetition):
        heads = {name: name for name in ("case", "user", "method", "text", "n", "ours")}
        heads["published"] = "published, one a response"
        missing = [
            f"{row['case']} ({row['text']}): {row['missing']}" for _, row in repetition.iterrows() if row["missing"]
        ]
        title = f"Repetition, by {ratings.embedder}"
        print_table(repetition, heads, title=title, notes=[published_scores.NOT_THE_SAME, *missing])
    print_table(
        agreement.rename(columns={"mean_absolute_error": "error"}),
        {"judge": "judge", "of": "of", "n": "n", "missing": "missing", "spearman": "Spearman", "pearson": "Pearson"}
        | {"error": "mean absolute error", "separated": "fitting above", "pairs": "of pairs"},
        title="Agreement with the published scores (without repetition)",
    )


def _either(store: Store, what: str) -> tuple[SavedCase | None, str]:
    """The case, or else the id of the book, that `what` names."""
    found: dict[str, str] = {}
    faults: list[UsageError] = []
    for kind, find in (("case", cases.find_case), ("book", cases.find_book)):
        try:
            found[kind] = find(store, what)
        except UsageError as error:
            faults.append(error)
    if len(found) == 2:
        raise UsageError(f"'{what}' is case {found['case']} and book {found['book']}: give the id.")
    if not found:
        raise UsageError(" ".join(str(fault) for fault in faults))
    if "case" in found:
        return cases.load_case(store, found["case"]), ""
    return None, found["book"]


def _scores(row: CaseRow) -> str:
    return " ".join("–" if score is None else f"{score:.2f}" for score in row.scores) or "–"


def _day(made_at: float) -> str:
    return datetime.fromtimestamp(made_at, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _problems(problems: Sequence[str | None]) -> None:
    for problem in problems:
        if problem is not None:
            say(f"opbench: {problem}", err=True)


def _damages(damages: Sequence[str | None]) -> None:
    """A line for each row that can't be read, and then exit code 1."""
    _problems(damages)
    if any(damages):
        raise typer.Exit(1)


def _write(file: Path, content: bytes) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    except OSError as error:
        raise UsageError(f"{file}: can't be written ({error.strerror}).") from error
