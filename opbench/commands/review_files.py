"""`opbench review export` and `import`: answers and reviews as files."""

from __future__ import annotations

import getpass
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from opbench.commands.options import print_json, say, the_store
from opbench.errors import UsageError
from opbench.store import reviews

if TYPE_CHECKING:
    from opbench.review.interchange import Form

_FORM_HELP = "csv (answers), jsonl (the whole review), argilla or label-studio"
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def add(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("export")(export_command)
    app.command("import")(import_command)


def export_command(
    review: Annotated[str | None, typer.Argument(help="Review id or name; default: the newest.")] = None,
    form: Annotated[str, typer.Option("--form", help=f"{_FORM_HELP}.")] = "csv",
    out: Annotated[Path | None, typer.Option("--out", help="The file to write. Default: its name, here.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
) -> None:
    """Write a review to a file: answers as CSV, the whole as JSON Lines, or items for Argilla or Label Studio.

    All but csv hold the benchmark's texts, which may not be passed on freely.
    """
    from opbench.review.interchange import export_answers, file_name

    store = the_store()
    review_id = reviews.find_review(store, review)
    chosen = _form(form)
    file = out or Path(file_name(store, review_id, chosen))
    if file.exists() and not force:
        raise UsageError(f"{file} is there already: name another with --out, or overwrite it with --force.")
    content = export_answers(store, review_id, chosen)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    except OSError as error:
        raise UsageError(f"{file}: can't be written ({error.strerror}).") from error
    say(str(file))


def import_command(
    file: Annotated[Path, typer.Argument(help="The file.")],
    review: Annotated[str | None, typer.Option("--review", help="Into this review; default: the newest.")] = None,
    form: Annotated[str | None, typer.Option("--form", help=f"{_FORM_HELP}; default: by the file's ending.")] = None,
    new: Annotated[bool, typer.Option("--new", help="Make a new review of a whole one in JSON Lines.")] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="An answer takes the place of what the same person said before.")
    ] = False,
    name: Annotated[
        list[str] | None, typer.Option(help="ID=NAME: whom an id in the file stands for; several are possible.")
    ] = None,
    as_json: _Json = False,
) -> None:
    """Take answers that were made elsewhere into a review. The same file again changes nothing; what contradicts an
    answer that is here is told and left, and then the exit code is 1."""
    from opbench.review.interchange import import_answers, import_review

    store = the_store()
    content = read(file)
    if new:
        review_id = import_review(store, content, file=file.name, maker=getpass.getuser())
        print_json({"review": review_id}) if as_json else say(review_id)
        return
    chosen = _form(form or {".csv": "csv", ".jsonl": "jsonl"}.get(file.suffix.lower(), ""), file)
    pairs = [each.partition("=") for each in name or []]
    if wrong := [each[0] for each in pairs if not each[1] or not each[2]]:
        raise UsageError(f"--name {wrong[0][:80]}: write ID=NAME.")
    names = {known: called for known, _, called in pairs}
    review_id = reviews.find_review(store, review)
    came = import_answers(store, review_id, content, chosen, file=file.name, replace=replace, names=names)
    if as_json:
        print_json(asdict(came))
    else:
        say(f"{came.new:,} new, {came.known:,} here before, {len(came.conflicts):,} conflicts")
        if came.reviewers:
            say(f"new here: {', '.join(came.reviewers)}")
        for conflict in came.conflicts:
            say(f"left: {conflict}", err=True)
    if came.conflicts:
        raise typer.Exit(1)


def read(file: Path) -> bytes:
    """Raises UsageError when the file can't be read."""
    try:
        return file.read_bytes()
    except OSError as error:
        raise UsageError(f"{file}: can't be read ({error.strerror}).") from error


def _form(told: str, file: Path | None = None) -> Form:
    from opbench.review.interchange import FORMS

    found = next((form for form in FORMS if form == told), None)
    if found is None:
        what = f"{file}: say its form with --form" if file and not told else f"form '{told[:40]}' isn't known"
        raise UsageError(f"{what}: {', '.join(FORMS)}.")
    return found
