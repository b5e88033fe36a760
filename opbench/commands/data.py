"""`opbench data`: fetch the benchmarks, check them, look into them, and list what can be left out."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn

from opbench.analysis import data_facts, overview
from opbench.analysis.aggregate import RULES
from opbench.analysis.op import SUBSCORE_COLUMNS
from opbench.benchmarks import cases, check, exclusions, fetch, load
from opbench.benchmarks.shape import printable
from opbench.commands.options import print_json, print_table, rows_of
from opbench.errors import UsageError

app = typer.Typer(help="The benchmark data: fetch it, check it, look into it.", no_args_is_help=True)

_Sample = Annotated[bool, typer.Option("--sample", help="Of the bundled sample.")]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


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
    as_json: _Json = False,
) -> None:
    """Print counts by category and subtype and every oddity; exit 1 when the counts are not the paper's."""
    report = check(load("sample" if sample else folder))
    typer.echo(json.dumps(report.to_dict(), ensure_ascii=False, indent=2) if as_json else report.to_text())
    if not report.ok:
        raise typer.Exit(1)


@app.command("users")
def users_command(
    user: Annotated[str | None, typer.Argument(help="One user, e.g. conv-26/Caroline: profile and topics.")] = None,
    sample: _Sample = False,
    as_json: _Json = False,
) -> None:
    """Who is asked: sessions, dates and numbers of questions by user; or what the file says about one of them."""
    corpus = load("sample" if sample else None)
    if user is not None:
        if user not in corpus.profiles:
            raise UsageError(f"no user '{user}'. There are: {', '.join(corpus.users)}.")
        profile = corpus.profiles[user]
        if as_json:
            facts = {"topics": profile.topics, "profile": profile.profile, "observations": profile.observations}
            print_json({"user": user, **facts})
        else:
            typer.echo("\n".join(map(printable, [profile.profile, "", *(f"- {topic}" for topic in profile.topics)])))
        return
    frame = data_facts.users(corpus).merge(data_facts.op_by_user(corpus), on="user")
    if as_json:
        print_json(rows_of(frame))
    else:
        print_table(frame, {str(column): str(column).replace("_", " ") for column in frame.columns})


@app.command("exclusions")
def exclusions_command(
    name: Annotated[str | None, typer.Argument(help="One list: its instances and reasons.")] = None,
    as_json: _Json = False,
) -> None:
    """Named lists of instances that can be left out (opbench run --exclude NAME), your own included."""
    corpus = load()
    if name is not None:
        frame = data_facts.listed(exclusions.get(name), corpus)
        columns = {"instance": "instance", "reason": "reason", "subtype": "subtype"}
    else:
        frame = data_facts.exclusion_lists(exclusions.lists(), corpus)
        columns = {"name": "list", "listed": "listed", "found": "in these data", "title": "what is on it"}
    if as_json:
        print_json(rows_of(frame))
    else:
        notes = exclusions.problems() + [problem for problem in frame.get("problem", []) if problem]
        print_table(frame.astype(object).where(frame.notna(), None), columns, notes=[] if name else notes)


@app.command("published")
def published_command(
    rule: Annotated[str | None, typer.Option(help=f"Recompute the averages: {', '.join(RULES)}.")] = None,
    first_only: Annotated[bool, typer.Option("--first-only", help="With --rule: counts of first speakers.")] = False,
    as_json: _Json = False,
) -> None:
    """The paper's table 2 (four of six models): averages as printed, or recomputed by one rule; points and percent."""
    chosen = next((each for each in RULES if each == rule), None)
    if rule is not None and chosen is None:
        raise UsageError(f"no rule '{rule}'. There are: {', '.join(RULES)}.")
    if first_only and chosen is None:
        raise UsageError("--first-only goes with --rule; the printed averages are as they are")
    frame = overview.published_study("recomputed" if chosen else "printed", chosen or RULES[0], first_only)
    if as_json:
        print_json(rows_of(frame))
        return
    columns = {"model": "model", "memory": "memory", "op": "OP", "drop": "drop %", "rule": "rule"}
    columns |= {column: subtype for subtype, column in SUBSCORE_COLUMNS.items()}
    print_table(frame, columns, notes=["Published. The two further models of table 6 are a picture in the paper."])


@app.command("cases")
def cases_command(as_json: _Json = False) -> None:
    """Worked examples of over-personalisation: the paper's appendix when the data hold it, else invented ones."""
    known = cases.read()
    if as_json:
        print_json({"origin": known.origin, "cases": [asdict(case) for case in known.cases]})
        return
    typer.echo(f"origin: {known.origin}")
    for case in known.cases:
        typer.echo(f"\n{printable(case.id)}: {case.category}, {case.subtype}, {printable(case.method)}")
        for exchange in case.exchanges:
            typer.echo(f"  question  {printable(exchange.question)}")
            for memory in exchange.memories:
                typer.echo(f"  memory    {printable(memory)}")
            typer.echo(f"  reply     {exchange.score:.2f}  {printable(exchange.response)}")
            typer.echo(f"  fitting   {exchange.fitting_score:.2f}  {printable(exchange.fitting)}")
