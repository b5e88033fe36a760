"""`opbench table`, `audit`, `export` and `import`."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from opbench.analysis import audit
from opbench.analysis.aggregate import RULES, Rule
from opbench.analysis.latency import latency, spending
from opbench.analysis.locomo import METRICS, locomo_table
from opbench.analysis.op import op_table
from opbench.commands.options import print_json, print_table, rows_of, the_store
from opbench.errors import UsageError
from opbench.store.bundle import SUFFIX, export_run, import_run
from opbench.store.reading import find_run, read_run
from opbench.store.rundata import RunData


class TableKind(StrEnum):
    op = "op"
    locomo = "locomo"
    latency = "latency"
    cost = "cost"


_COLUMNS = {
    TableKind.op: {
        "model": "model",
        "memory": "memory",
        "mitigation": "mitigation",
        "fully_irrelevant": "fully",
        "baiting": "baiting",
        "repetition": "repet.",
        "fact_level": "fact",
        "value_level": "value",
        "memory_level": "memory-l.",
        "op": "OP",
        "op_change_points": "Δ points",
        "op_change_relative": "Δ %",
        "gap_closed": "gap closed",
        "n_scored": "n",
        "n_planned": "of",
    },
    TableKind.locomo: {
        "model": "model",
        "memory": "memory",
        "mitigation": "mitigation",
        "multi-hop": "multi-hop",
        "temporal": "temporal",
        "open-domain": "open",
        "single-hop": "single-hop",
        "overall": "LoCoMo",
        "change_points": "Δ points",
        "change_relative": "Δ %",
        "n_scored": "n",
        "n_planned": "of",
    },
    TableKind.latency: {
        "model": "model",
        "memory": "memory",
        "mitigation": "mitigation",
        "stage": "stage",
        "mean_ms": "mean ms",
        "std_ms": "std",
        "median_ms": "median",
        "p95_ms": "p95",
        "n": "n",
        "n_reused": "reused",
        "concurrency": "conc.",
    },
    TableKind.cost: {
        "model": "model",
        "memory": "memory",
        "mitigation": "mitigation",
        "post_prompt_tokens": "post in",
        "post_completion_tokens": "post out",
        "response_prompt_tokens": "resp. in",
        "response_completion_tokens": "resp. out",
        "cost_usd": "$",
        "n_done": "n",
    },
}


def add(app: typer.Typer) -> None:
    app.command("table")(table_command)
    app.command("audit")(audit_command)
    app.command("export")(export_command)
    app.command("import")(import_command)


def table_command(
    run: Annotated[str | None, typer.Argument(help="Run id or name; default: the newest.")] = None,
    of: Annotated[TableKind, typer.Option("--of", help="Which table.")] = TableKind.op,
    aggregate: Annotated[str, typer.Option(help=f"Rule of the OP average: {', '.join(RULES)}.")] = RULES[0],
    metric: Annotated[str | None, typer.Option(help="LoCoMo: correct, f1, bleu1 or rougeL.")] = None,
    first_only: Annotated[bool, typer.Option("--first-only", help="First speakers only, as the paper's BASE.")] = False,
    fresh_only: Annotated[bool, typer.Option("--fresh-only", help="Latency: leave out reused calls.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
) -> None:
    """A run's results: scores in points (0 to 100), times in milliseconds."""
    rule = _rule(aggregate)
    store = the_store()
    data = read_run(store, find_run(store, run))
    if metric is not None and metric not in METRICS:
        raise UsageError(f"no metric '{metric}'. There are: {', '.join(METRICS)}.")
    frame = _frame(data, of, rule, metric, first_only, fresh_only)
    if as_csv:
        # What the notes say must not be lost where a file goes on alone.
        marked = frame.assign(run=data.run_id, judge=data.study.judge).assign(
            comparable=data.comparable, recorded=data.recorded
        )
        typer.echo(marked.to_csv(index=False), nl=False)
        return
    notes = _notes(data, of, rule, first_only)
    if as_json:
        print_json(
            {
                "run": data.run_id,
                "of": of.value,
                "rule": rule if of is TableKind.op else None,
                "first_only": first_only,
                "judge": data.study.judge,
                "comparable": data.comparable,
                "recorded": data.recorded,
                "notes": notes,
                "rows": rows_of(frame),
            }
        )
        return
    print_table(frame, _COLUMNS[of], title=f"run {data.run_id} {data.name}".rstrip(), notes=notes)


def _rule(name: str) -> Rule:
    for rule in RULES:
        if rule == name:
            return rule
    raise UsageError(f"no rule '{name}'. There are: {', '.join(RULES)}.")


def _frame(
    data: RunData, of: TableKind, rule: Rule, metric: str | None, first_only: bool, fresh_only: bool
) -> pd.DataFrame:
    if of is TableKind.op:
        return op_table(data, rule, first_only)
    if of is TableKind.locomo:
        return locomo_table(data, metric, first_only)
    if of is TableKind.latency:
        return latency(data, fresh_only)
    return spending(data)


def _notes(data: RunData, of: TableKind, rule: Rule, first_only: bool) -> list[str]:
    notes = []
    if of is TableKind.op:
        notes.append(f"OP by rule {rule}; changes are paired, against the same memory system without post-processor.")
    if of in (TableKind.op, TableKind.locomo) and not data.comparable:
        notes.append(f"Judge {data.study.judge}: not comparable with the paper.")
    if first_only:
        notes.append("First speakers only.")
    if data.recorded:
        notes.append("Recorded elsewhere and imported.")
    return notes


def audit_command(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Recompute the published averages under each rule, and say which rule fits each row."""
    if as_json:
        print_json(rows_of(audit.audit()))
    else:
        typer.echo(audit.to_text())


def export_command(
    run: Annotated[str, typer.Argument(help="Run id or name.")],
    file: Annotated[Path | None, typer.Argument(help=f"The bundle; default RUN{SUFFIX} here.")] = None,
    no_texts: Annotated[
        bool, typer.Option("--no-texts", help="Leave out questions, memories and responses (ids and numbers stay).")
    ] = False,
) -> None:
    """Write a run as one bundle file. Benchmark sentences may not be passed on: see --no-texts."""
    store = the_store()
    run_id = find_run(store, run)
    stem = run_id if run_id.startswith(run) else slug(run)
    typer.echo(str(export_run(store, run_id, file or Path(f"{stem}{SUFFIX}"), texts=not no_texts)))


def slug(name: str) -> str:
    """A run's name as a file name."""
    return re.sub(r"[^\w.-]+", "-", name).strip("-") or "run"


def import_command(file: Annotated[Path, typer.Argument(help="A bundle that 'opbench export' wrote.")]) -> None:
    """Read a bundle into the store; prints the id that the run has here."""
    typer.echo(import_run(the_store(), file))
