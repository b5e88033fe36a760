"""`opbench export`, `import`, `report`, `rename` and `delete`: studies come, go, and are shown to others."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from opbench.analysis.aggregate import RULES, Rule
from opbench.commands.options import Exclude, leave_out, the_store, words
from opbench.errors import DataError, UsageError
from opbench.protocol import headline_metric
from opbench.sharing.html import view_html
from opbench.sharing.naming import file_stem
from opbench.sharing.public_export import public_files
from opbench.sharing.public_import import PublicPart, configuration, import_public
from opbench.sharing.public_shapes import MAX_BYTES
from opbench.sharing.report import report_sheet
from opbench.store.bundle import SUFFIX, export_run, import_run
from opbench.store.database import Store
from opbench.store.exchange import answers, configurations_of
from opbench.store.reading import find_run, read_run, run_status
from opbench.store.rundata import RunData
from opbench.store.studies import delete_run, rename_run
from opbench.types import Benchmark


class Format(StrEnum):
    bundle = "bundle"
    public = "public"


def add(app: typer.Typer) -> None:
    app.command("export")(export_command)
    app.command("import")(import_command)
    app.command("report")(report_command)
    app.command("rename")(rename_command)
    app.command("delete")(delete_command)


def export_command(
    run: Annotated[str, typer.Argument(help="Run id or name.")],
    file: Annotated[
        Path | None, typer.Argument(help=f"The bundle (default RUN{SUFFIX} here), or the folder of the public files.")
    ] = None,
    no_texts: Annotated[
        bool, typer.Option("--no-texts", help="Leave out questions, memories and responses (ids and numbers stay).")
    ] = False,
    form: Annotated[
        Format, typer.Option("--format", help="One bundle file, or the public evaluator's JSON in a folder.")
    ] = Format.bundle,
) -> None:
    """Write a run as one bundle file, or as the public evaluator's responses and judged files.

    Benchmark sentences may not be passed on freely: see --no-texts.
    """
    store = the_store()
    run_id = find_run(store, run)
    stem = run_id if run_id.startswith(run) else file_stem(run)
    if form is Format.bundle:
        typer.echo(str(export_run(store, run_id, file or Path(f"{stem}{SUFFIX}"), texts=not no_texts)))
        return
    if no_texts:
        raise UsageError("the public evaluator's files are made of texts: --no-texts goes with bundles only.")
    folder = file or Path(f"{stem}-public")
    for name, content in public_files(store, run_id):
        _write(folder / name, content)
        typer.echo(str(folder / name))


def import_command(
    files: Annotated[
        list[Path], typer.Argument(help="A bundle, or JSON of the public evaluator (one file a configuration).")
    ],
    model: Annotated[str | None, typer.Option(help="JSON: the model that answered.")] = None,
    memory: Annotated[str | None, typer.Option(help="JSON: memory system, or one a file: base,mem0.")] = None,
    mitigation: Annotated[str | None, typer.Option(help="JSON: post-processor, or one a file: none,marag.")] = None,
    judge: Annotated[str | None, typer.Option(help="JSON: the model that judged, if it is known.")] = None,
    name: Annotated[str | None, typer.Option(help="JSON: a name for the study.")] = None,
) -> None:
    """Read bundles, or the public evaluator's results, into the store; prints the id that the run has here."""
    store = the_store()
    public = [file for file in files if _is_json(file)]
    given_names = {"model": model, "memory": memory, "mitigation": mitigation}
    if public and len(public) < len(files):
        raise UsageError("give bundles and JSON files apart: JSON files together make one run.")
    if not public:
        for file in files:
            typer.echo(import_run(store, file))
        return
    named = [_one_a_file(flag, given, len(public)) for flag, given in given_names.items()]
    parts = [PublicPart(_read(file), str(file), configuration(*of)) for file, *of in zip(public, *named, strict=True)]
    imported = import_public(store, parts, judge=judge or "", name=name or "")
    typer.echo(imported.run_id)
    for note in imported.notes:
        typer.echo(f"{note}.", err=True)


def report_command(
    run: Annotated[str, typer.Argument(help="Run id or name.")],
    file: Annotated[Path, typer.Argument(help="The HTML file to write.")],
    rule: Annotated[str, typer.Option(help=f"Rule of the OP average: {', '.join(RULES)}.")] = RULES[0],
    first_only: Annotated[bool, typer.Option("--first-only", help="First speakers only, as the paper's BASE.")] = False,
    exclude: Exclude = None,
    with_texts: Annotated[
        bool, typer.Option("--with-texts", help="Add every question and response; they may not be passed on freely.")
    ] = False,
) -> None:
    """Write a study's main tables and figures as one HTML file that opens offline."""
    store = the_store()
    data = read_run(store, find_run(store, run))
    if with_texts and data.text_left_out:
        raise UsageError(f"run {data.run_id} came without texts: leave --with-texts out.")
    texts = _answers(store, data) if with_texts else None
    without = words(exclude) or ()
    sheet = report_sheet(leave_out(data, without), _rule(rule), first_only, texts)
    sheet.marks += [f"without {name}" for name in without]
    _write(file, view_html(sheet, with_texts=with_texts).encode())
    typer.echo(str(file))


def rename_command(
    run: Annotated[str, typer.Argument(help="Run id or name.")],
    name: Annotated[str, typer.Argument(help="The new name.")],
) -> None:
    """Give a run another name; its id stays."""
    store = the_store()
    rename_run(store, find_run(store, run), name)


def delete_command(
    run: Annotated[str, typer.Argument(help="Run id or name.")],
    yes: Annotated[bool, typer.Option("--yes", help="Don't ask.")] = False,
) -> None:
    """Delete a run with its records and scores. The call store keeps what was paid for."""
    store = the_store()
    run_id = find_run(store, run)
    status = run_status(store, run_id)
    if not yes:
        typer.confirm(f"Delete run {run_id} {status.name} with {status.done + status.errors:,} records?", abort=True)
    typer.echo(f"{delete_run(store, run_id):,} records deleted.")


def _rule(name: str) -> Rule:
    for rule in RULES:
        if rule == name:
            return rule
    raise UsageError(f"no rule '{name}'. There are: {', '.join(RULES)}.")


def _answers(store: Store, data: RunData) -> pd.DataFrame:
    metrics: dict[Benchmark, str] = {"op": "score", "locomo": headline_metric(data.study)}
    configurations = configurations_of(store, data.run_id)
    parts = [answers(store, data.run_id, each, data.study.judge, metrics) for each in configurations]
    return pd.concat(parts, ignore_index=True)


def _one_a_file(flag: str, given: str | None, files: int) -> list[str]:
    names = list(words(given) or ("",))
    if len(names) not in (1, files):
        raise UsageError(f"--{flag} names {len(names)} for {files} files: give one for all, or one a file.")
    return names * files if len(names) == 1 else names


def _is_json(file: Path) -> bool:
    """Whether it isn't a zip: told by its first bytes, not by its name."""
    try:
        with file.open("rb") as opened:
            return opened.read(2) != b"PK" and not file.name.endswith(".zip")
    except OSError as error:
        raise DataError(f"{file}: can't be read ({error.strerror}).") from error


def _read(file: Path) -> bytes:
    try:
        if file.stat().st_size > MAX_BYTES:
            raise DataError(f"{file}: larger than the {MAX_BYTES:,} bytes that are read.")
        return file.read_bytes()
    except OSError as error:
        raise DataError(f"{file}: can't be read ({error.strerror}).") from error


def _write(file: Path, content: bytes) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    except OSError as error:
        raise UsageError(f"{file}: can't be written ({error.strerror}).") from error
