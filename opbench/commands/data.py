"""`opbench data fetch` and `opbench data check`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn

from opbench.benchmarks import check, fetch, load

app = typer.Typer(help="The benchmark data: fetch it, check it.", no_args_is_help=True)


@app.command("fetch")
def fetch_command() -> None:
    """Download OP-Bench, LoCoMo and the public judge prompts from their pinned commits, and verify them."""
    with Progress(
        TextColumn("{task.description}"), BarColumn(), DownloadColumn(), console=Console(stderr=True), transient=True
    ) as bars:
        tasks: dict[str, TaskID] = {}

        def show(name: str, done: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(name, total=total)
            bars.update(tasks[name], completed=done, total=total)

        report = fetch(show)
    typer.echo(report.to_text())
    if not report.ok:
        raise typer.Exit(1)


@app.command("check")
def check_command(
    folder: Annotated[Path | None, typer.Argument(help="Data folder; default: where a run would find it.")] = None,
    sample: Annotated[bool, typer.Option("--sample", help="Check the bundled sample.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print counts by category and subtype and every oddity; exit 1 when the counts are not the paper's."""
    report = check(load("sample" if sample else folder))
    typer.echo(json.dumps(report.to_dict(), ensure_ascii=False, indent=2) if as_json else report.to_text())
    if not report.ok:
        raise typer.Exit(1)
