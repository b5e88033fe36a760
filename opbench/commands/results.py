"""`opbench table`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import pandas as pd
import typer

from opbench.analysis.aggregate import RULES, Rule
from opbench.analysis.compare import Kind
from opbench.analysis.gap import gap_table
from opbench.analysis.ingested import memory_notes, thin_memories
from opbench.analysis.judge_runs import RUN_COLUMNS
from opbench.analysis.latency import latency, retrieval_note, spending
from opbench.analysis.locomo import locomo_notes, locomo_table
from opbench.analysis.op import op_table
from opbench.analysis.postprocessing import failures
from opbench.analysis.prices import with_prices
from opbench.analysis.tradeoff import UNITS, tradeoff
from opbench.commands.options import Exclude, leave_out, print_json, print_table, rows_of, the_store, words
from opbench.errors import UsageError
from opbench.figures.answers import answers, failed_sentence, gap_answers
from opbench.protocol import METRICS
from opbench.sharing.marks import remarks
from opbench.sharing.tables import csv_bytes
from opbench.store.reading import find_run, read_run
from opbench.store.rundata import RunData
from opbench.types import OP_SUBTYPES, Benchmark


class TableKind(StrEnum):
    op = "op"
    locomo = "locomo"
    tradeoff = "tradeoff"
    gap = "gap"
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
    TableKind.tradeoff: {
        "model": "model",
        "memory": "memory",
        "mitigation": "mitigation",
        "op_change": "Δ OP",
        "op_low": "from",
        "op_high": "to",
        "op_p_holm": "p (Holm)",
        "op_verdict": "OP is",
        "op_n": "n",
        "op_users": "users",
        "locomo_change": "Δ LoCoMo",
        "locomo_low": "from",
        "locomo_high": "to",
        "locomo_p_holm": "p (Holm)",
        "locomo_verdict": "LoCoMo is",
        "locomo_n": "n",
        "locomo_users": "users",
        "pareto": "front",
        "locomo_per_op": "LoCoMo/OP",
        "seconds": "post s",
        "seconds_per_op": "s/OP",
        "usd_per_op": "$/OP",
        "price_note": "remark",
    },
    TableKind.gap: {
        "model": "model",
        "memory": "memory",
        "mitigation": "mitigation",
        "op": "OP",
        "gap_closed": "gap closed",
        "gap_low": "from",
        "gap_high": "to",
        "gap_p_holm": "p (Holm)",
        "gap_users": "users",
        "gap_n": "paired n",
        "n_scored": "n",
        "n_planned": "of",
        "words": "in words",
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
        "n_priced": "priced",
    },
}


#: What LoCoMo's table has besides by protocol memos.
_OF_MEMOS = {
    **dict(zip(RUN_COLUMNS, ("runs mean", "± std", "run 1", "run 2", "run 3", "unread"), strict=True)),
    "context_tokens": "context",
}
BENCHMARKS: tuple[Benchmark, ...] = ("op", "locomo")
_BY_RULE = (TableKind.op, TableKind.tradeoff, TableKind.gap)


def add(app: typer.Typer) -> None:
    app.command("table")(table_command)


def table_command(
    run: Annotated[str | None, typer.Argument(help="Run id or name; default: the newest.")] = None,
    of: Annotated[TableKind, typer.Option("--of", help="Which table.")] = TableKind.op,
    aggregate: Annotated[str, typer.Option(help=f"Rule of the OP average: {', '.join(RULES)}.")] = RULES[0],
    metric: Annotated[
        str | None, typer.Option(help="LoCoMo: correct, f1, bleu1, rougeL; by protocol memos memos_f1 and others.")
    ] = None,
    first_only: Annotated[bool, typer.Option("--first-only", help="First speakers only, as the paper's BASE.")] = False,
    kind: Annotated[str, typer.Option(help=f"Trade-off: changes in {' or '.join(UNITS)}.")] = "points",
    subtype: Annotated[str | None, typer.Option(help="Gap: of one subtype instead of the average.")] = None,
    fresh_only: Annotated[bool, typer.Option("--fresh-only", help="Latency: leave out reused calls.")] = False,
    benchmark: Annotated[str | None, typer.Option(help="Latency and cost: op or locomo; default: both.")] = None,
    exclude: Exclude = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
) -> None:
    """A run's results: scores in points (0 to 100), times in milliseconds."""
    rule = _rule(aggregate)
    store = the_store()
    without = words(exclude) or ()
    data = leave_out(read_run(store, find_run(store, run)), without)
    part = _benchmark(benchmark)
    if metric is not None and metric not in (known := METRICS[data.study.protocol]):
        raise UsageError(f"no metric '{metric}' by protocol {data.study.protocol}. There are: {', '.join(known)}.")
    in_unit = _kind(kind)
    if subtype is not None and subtype not in OP_SUBTYPES:
        raise UsageError(f"no subtype '{subtype}'. There are: {', '.join(OP_SUBTYPES)}.")
    if of is TableKind.tradeoff:
        changes = tradeoff(data, rule, in_unit, first_only, metric)
        frame = with_prices(changes, latency(data, fresh_only), spending(data))
    elif of is TableKind.gap:
        frame = gap_table(data, rule, first_only, subtype)
    else:
        frame = _frame(data, of, rule, metric, first_only, fresh_only, part)
    if as_csv:
        # What the notes say must not be lost where a file goes on alone.
        marked = frame.assign(run=data.run_id, judge=data.study.judge, protocol=data.study.protocol).assign(
            comparable=data.comparable, recorded=data.recorded
        )
        typer.echo(csv_bytes(marked).decode(), nl=False)
        return
    notes = [*_notes(data, of, rule, first_only), *_of_a_part(frame, of), *_answers(frame, of)]
    if of is TableKind.tradeoff and (said := failed_sentence(frame, failures(data.records_with("state")))):
        notes.append(said)
    notes += [f"Left out: {', '.join(without)}."] if without else []
    if as_json:
        print_json(
            {
                "run": data.run_id,
                "of": of.value,
                "rule": rule if of in _BY_RULE else None,
                "first_only": first_only,
                "exclude": without,
                "judge": data.study.judge,
                "protocol": data.study.protocol,
                "comparable": data.comparable,
                "recorded": data.recorded,
                "notes": notes,
                "rows": rows_of(frame),
            }
        )
        return
    columns = _COLUMNS[of] | {name: head for name, head in _OF_MEMOS.items() if name in frame}
    print_table(frame, columns, title=f"run {data.run_id} {data.name}".rstrip(), notes=notes)


def _of_a_part(frame: pd.DataFrame, of: TableKind) -> list[str]:
    """What LoCoMo's number is, and which parts of the benchmarks the slice has none of."""
    notes = []
    metric = {TableKind.locomo: "metric_label", TableKind.tradeoff: "locomo_metric"}.get(of)
    if metric:
        notes += [f"LoCoMo: {each}." for each in dict.fromkeys(frame[metric])]
    if "left_out" in frame and (gone := ", ".join(dict.fromkeys(each for each in frame["left_out"] if each))):
        notes.append(f"The slice has none of: {gone}; averages are over the rest.")
    return notes


def _benchmark(name: str | None) -> Benchmark | None:
    if name is None:
        return None
    for benchmark in BENCHMARKS:
        if name == benchmark:
            return benchmark
    raise UsageError(f"no benchmark '{name}'. There are: op, locomo.")


def _kind(name: str) -> Kind:
    for kind in UNITS:
        if kind == name:
            return kind
    raise UsageError(f"no kind '{name}' of change. There are: {', '.join(UNITS)}.")


def _answers(frame: pd.DataFrame, of: TableKind) -> list[str]:
    """What the table comes to, in words, as its page says it."""
    if of is TableKind.tradeoff:
        said = answers(frame)
    elif of is TableKind.gap:
        said = gap_answers(frame)
    else:
        return []
    return [f"{answer.head}: {' '.join(answer.sentences)}" for answer in said]


def _rule(name: str) -> Rule:
    for rule in RULES:
        if rule == name:
            return rule
    raise UsageError(f"no rule '{name}'. There are: {', '.join(RULES)}.")


def _frame(
    data: RunData,
    of: TableKind,
    rule: Rule,
    metric: str | None,
    first_only: bool,
    fresh_only: bool,
    benchmark: Benchmark | None,
) -> pd.DataFrame:
    if of is TableKind.op:
        return op_table(data, rule, first_only)
    if of is TableKind.locomo:
        return locomo_table(data, metric, first_only)
    if of is TableKind.latency:
        return latency(data, fresh_only, benchmark)
    return spending(data, benchmark)


def _notes(data: RunData, of: TableKind, rule: Rule, first_only: bool) -> list[str]:
    notes = []
    if of in _BY_RULE:
        notes.append(f"OP by rule {rule}; changes are paired, against the same memory system without post-processor.")
    if of in (TableKind.tradeoff, TableKind.gap):
        notes.append(
            "95 % intervals and p: paired bootstrap over users; verdicts after Holm's correction (docs/scores.md)."
        )
    if of in (*_BY_RULE, TableKind.locomo) and not data.comparable:
        notes.append(f"Judge {data.study.judge}: not comparable with the paper.")
    if of in (TableKind.locomo, TableKind.tradeoff):
        notes += locomo_notes(data)
    if of is TableKind.latency and (note := retrieval_note(data)):
        notes.append(note)
    if first_only:
        notes.append("First speakers only.")
    if data.recorded:
        notes.append("Recorded elsewhere and imported.")
    notes += [f"{mark}." for mark in remarks(data.provenance)]
    notes += [*thin_memories(data.provenance, data.study.k), *memory_notes(data.provenance)]
    return notes
