"""`opbench judges traps`, `bias`, `consistency`, `ceiling` and `stability`: what a judge does where people needn't be
asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import pandas as pd
import typer

from opbench.commands import judges_sets
from opbench.commands.judges_job import (
    Json,
    Judges,
    Repeats,
    Temperature,
    choices_of,
    exit_when_incomplete,
    patient_store,
    tell_outcomes,
    work,
)
from opbench.commands.options import print_json, print_table, rows_of, say, the_store
from opbench.errors import UsageError

if TYPE_CHECKING:
    from opbench.calibration.judging import Outcome
    from opbench.store.database import Store

_Data = Annotated[str, typer.Option(help="Whose LoCoMo questions: auto, or sample for the bundled sample.")]

_Limit = Annotated[int | None, typer.Option(min=1, help="So many questions, evenly spread; default all.")]


def add(app: typer.Typer) -> None:
    app.command("traps")(traps_command)
    app.command("bias")(bias_command)
    app.command("consistency")(consistency_command)
    app.command("ceiling")(ceiling_command)
    app.command("stability")(stability_command)


def traps_command(
    judges: Judges = None, data: _Data = "auto", limit: _Limit = None, repeats: Repeats = 1, as_json: Json = False
) -> None:
    """How often a LoCoMo judge accepts answers that are wrong on purpose, by how they are wrong."""
    from opbench.calibration.traps import KINDS, acceptance

    store = patient_store()
    set_id, outcomes = _judged(store, "traps", judges, data, limit, repeats)
    table = acceptance(_pairs(store, set_id, outcomes))
    if as_json:
        print_json({"set": set_id, "acceptance": rows_of(table)})
    else:
        shown = table.assign(means=table["kind"].map(KINDS), interval=_intervals(table))
        columns = {"label": "judge", "kind": "answer", "n": "n", "missing": "missing", "rate": "accepted %"}
        print_table(shown, columns | {"interval": "95 %", "note": "note", "means": "what it is"})
    exit_when_incomplete(outcomes)


def bias_command(
    judges: Judges = None, data: _Data = "auto", limit: _Limit = None, repeats: Repeats = 1, as_json: Json = False
) -> None:
    """Whether a LoCoMo judge minds where in an answer the fact stands, and how long the answer is."""
    from opbench.calibration.position import bias

    store = patient_store()
    set_id, outcomes = _judged(store, "bias", judges, data, limit, repeats)
    table = bias(_pairs(store, set_id, outcomes))
    if as_json:
        print_json({"set": set_id, "effects": rows_of(table)})
    else:
        shown = table.assign(interval=_intervals(table))
        columns = {
            "label": "judge",
            "effect": "effect",
            "answers": "answers",
            "n": "n",
            "without": "accepted % without",
        }
        print_table(shown, columns | {"difference": "difference", "interval": "95 %", "note": "note"})
    exit_when_incomplete(outcomes)


def consistency_command(
    wanted: Annotated[
        str | None, typer.Argument(metavar="[SET]", help="A set, or published; default: the newest.")
    ] = None,
    judges: Judges = None,
    repeats: Annotated[int, typer.Option(min=2, max=20, help="How often each response is judged.")] = 3,
    temperature: Temperature = 0.0,
    as_json: Json = False,
) -> None:
    """Whether a judge says the same when it is asked again. Without --judge: of what was judged before."""
    from opbench.calibration.judging import judge_set
    from opbench.calibration.selfconsistency import self_consistency
    from opbench.store.judgings import judging_list, read_judgements

    store = patient_store()
    set_id = judges_sets.the_set(store, wanted).id
    outcomes: list[Outcome] = []
    if choices := choices_of(judges, repeats, temperature):
        outcomes = work(lambda stopping, told: judge_set(store, set_id, choices, on_progress=told, stopping=stopping))
        tell_outcomes(outcomes)
    made = {each.judging for each in outcomes}
    labels = {row.id: row.label for row in judging_list(store, set_id=set_id) if not made or row.id in made}
    if not labels:
        raise UsageError(f"set {set_id} was judged by nobody yet: name judges with --judge.")
    table = self_consistency(read_judgements(store, list(labels)), labels)
    if as_json:
        print_json({"set": set_id, "consistency": rows_of(table)})
    else:
        shown = table.assign(interval=_intervals(table, "same_"))
        columns = {"label": "judge", "n": "n", "repeats": "repeats", "same": "same %", "interval": "95 %"}
        columns |= {"spread": "mean SD", "largest": "largest range", "reliability": "ICC(1)", "missing": "missing"}
        print_table(shown, columns | {"note": "note"})
    exit_when_incomplete(outcomes)


def ceiling_command(data: _Data = "auto", as_json: Json = False) -> None:
    """The highest score that LoCoMo's wrong gold answers leave to a perfect system, by category."""
    from opbench.benchmarks.built import corpus_of
    from opbench.calibration.ceiling import LIST, ceiling

    corpus = corpus_of(data)
    table = ceiling(corpus)
    if as_json:
        print_json({"list": LIST, "data": corpus.source, "categories": rows_of(table)})
        return
    if table.empty:
        say("There is no LoCoMo question with a gold answer in these data.")
        return
    columns = {"category": "category", "questions": "questions", "wrong_gold": "wrong gold", "ceiling": "ceiling %"}
    columns |= {"without_debatable": "% if the debatable stand", "kinds": "faults"}
    notes = [f"By the list {LIST} (one public audit). Assumes that a right answer to such a question is judged wrong."]
    if table["ceiling"].isna().all():
        notes = [f"The list {LIST} is of the real LoCoMo file and names none of these questions: no ceiling is known."]
    print_table(table, columns, notes=notes)


def stability_command(
    run: Annotated[str | None, typer.Argument(help="Run id or name; default: the newest.")] = None,
    as_json: Json = False,
) -> None:
    """Whether the order of a run's configurations survives the choice of judge, prompts and averaging rule, of those
    that 'opbench judges rescore' has asked."""
    from opbench.analysis.flips import flip_table, meaning
    from opbench.analysis.stability import correlation_table, order_table, views
    from opbench.calibration.random_judge import NAME
    from opbench.store.judgings import judging_list, run_scores
    from opbench.store.reading import find_run, read_run

    store = the_store()
    run_id = find_run(store, run)
    judgings = judging_list(store, run_id=run_id)
    judged = {row.label: run_scores(store, row.id) for row in judgings}
    found = views(read_run(store, run_id), judged, controls=[row.label for row in judgings if row.judge == NAME])
    orders, correlations, flips = order_table(found), correlation_table(found), flip_table(found)
    sentence = meaning(found, flips, correlations)
    if as_json:
        told: dict[str, Any] = {"run": run_id, "orders": rows_of(orders), "correlations": rows_of(correlations)}
        print_json(told | {"flips": rows_of(flips), "meaning": sentence, "left_out": dict(found.left_out)})
        return
    columns = {"label": "judge", "rule": "rule", "model": "model", "memory": "memory", "mitigation": "post-processor"}
    print_table(orders, columns | {"op": "OP", "place": "place"}, title=f"run {run_id}", notes=[sentence])
    print_table(
        correlations,
        {
            "first_label": "judge",
            "first_rule": "rule",
            "second_label": "judge",
            "second_rule": "rule",
            "tau": "Kendall's tau",
        }
        | {
            "tau_low": "low",
            "tau_high": "high",
            "spearman": "Spearman",
            "kept": "pairs kept",
            "pairs": "of",
            "note": "note",
        },
    )


def _judged(
    store: Store, kind: str, judges: list[str] | None, data: str, limit: int | None, repeats: int
) -> tuple[str, list[Outcome]]:
    from opbench.calibration.judging import judge_set

    set_id = judges_sets.make_set(store, kind, None, data, limit)
    outcomes: list[Outcome] = []
    if choices := choices_of(judges, repeats, 0.0):
        outcomes = work(lambda stopping, told: judge_set(store, set_id, choices, on_progress=told, stopping=stopping))
        tell_outcomes(outcomes)
    return set_id, outcomes


def _pairs(store: Store, set_id: str, outcomes: list[Outcome]) -> pd.DataFrame:
    from opbench.calibration.pairs import paired

    pairs = paired(store, set_id, [each.judging for each in outcomes])
    if pairs.empty:
        raise UsageError("nobody has judged these answers yet: name judges with --judge.")
    return pairs


def _intervals(table: pd.DataFrame, head: str = "") -> list[str]:
    ends = zip(table[f"{head}low"], table[f"{head}high"], strict=True)
    return ["–" if pd.isna(low) else f"{low:.0f} to {high:.0f}" for low, high in ends]
