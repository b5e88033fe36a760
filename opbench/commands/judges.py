"""`opbench judges`: how far a judge is to be trusted."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pandas as pd
import typer

from opbench.commands import judges_probes, judges_sets
from opbench.commands.instances import one_of
from opbench.commands.judges_job import (
    DryRun,
    Json,
    Judges,
    Repeats,
    Temperature,
    choices_of,
    exit_when_incomplete,
    patient_store,
    tell_estimates,
    tell_outcomes,
    work,
)
from opbench.commands.options import print_json, print_table, rows_of, say, the_store, words
from opbench.errors import UsageError

if TYPE_CHECKING:
    from opbench.store.database import Store
    from opbench.store.judgings import JudgingRow
    from opbench.store.rundata import Key

app = typer.Typer(
    help="How far to trust a judge: against people, itself, other judges, and traps.", no_args_is_help=True
)
app.add_typer(judges_sets.app, name="sets")
judges_probes.add(app)

_SHOWN = {
    "spearman": "Spearman [95 %]",
    "pearson": "Pearson [95 %]",
    "error": "error [95 %]",
    "absolute_error": "absolute error [95 %]",
}
_TOOK = {"cost_usd": "USD", "seconds": "seconds"}


@app.command("list")
def list_command(
    run: Annotated[str | None, typer.Option(help="Only of this run.")] = None,
    wanted: Annotated[str | None, typer.Option("--set", help="Only of this set.")] = None,
    as_json: Json = False,
) -> None:
    """What was judged: judges over sets of responses and over runs, with what they took."""
    from opbench.store.judgings import find_set, judging_list
    from opbench.store.reading import find_run

    store = the_store()
    rows = judging_list(
        store,
        run_id=None if run is None else find_run(store, run),
        set_id=None if wanted is None else find_set(store, wanted).id,
    )
    if as_json:
        print_json([asdict(row) for row in rows])
        return
    if not rows:
        say("Nothing was judged yet. 'opbench judges calibrate published --judge offline' begins.")
        return
    frame = pd.DataFrame([asdict(row) for row in rows])
    frame["of"] = [f"set {row.set_id}" if row.set_id else f"run {row.run_id}" for row in rows]
    columns = {"id": "judging", "of": "of", "label": "judge", "repeats": "repeats", "judgements": "judgements"}
    print_table(_measured(frame), columns | {"missing": "without score"} | _TOOK)


@app.command("calibrate")
def calibrate_command(
    wanted: Annotated[
        str | None, typer.Argument(metavar="[SET]", help="A set, or published: the paper's cases; default: the newest.")
    ] = None,
    judges: Judges = None,
    repeats: Repeats = 1,
    temperature: Temperature = 0.0,
    by: Annotated[Literal["subtype", "kind"] | None, typer.Option(help="A row for each of these.")] = None,
    cluster: Annotated[Literal["pair", "user"], typer.Option(help="What intervals draw anew.")] = "pair",
    worst: Annotated[int, typer.Option(min=0, help="Responses of largest disagreement to print.")] = 0,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Set judges against people on the same responses: correlations, errors, cost and time, with 95 % intervals.

    Without --judge: what was judged before. The same command again goes on where it was left.
    """
    from opbench.calibration.estimating import estimate_set
    from opbench.calibration.judging import judge_set

    store = patient_store()
    row = judges_sets.the_set(store, wanted)
    choices = choices_of(judges, repeats, temperature)
    if dry_run:
        estimates = asyncio.run(estimate_set(store, row.id, choices))
        print_json([asdict(each) for each in estimates]) if as_json else tell_estimates(estimates)
        return
    outcomes = []
    if choices:
        outcomes = work(lambda stopping, told: judge_set(store, row.id, choices, on_progress=told, stopping=stopping))
        tell_outcomes(outcomes)
    _tell_calibration(
        store, row.id, f"{row.name} ({row.id})", [each.judging for each in outcomes], by, cluster, worst, as_json
    )
    exit_when_incomplete(outcomes)


@app.command("rescore")
def rescore_command(
    run: Annotated[str | None, typer.Argument(help="Run id or name; default: the newest.")] = None,
    judges: Judges = None,
    repeats: Repeats = 1,
    temperature: Temperature = 0.0,
    configurations: Annotated[
        str | None, typer.Option(help="MEMORY/MITIGATION or MODEL/MEMORY/MITIGATION, comma-separated; default all.")
    ] = None,
    subtypes: Annotated[str | None, typer.Option(help="Subtypes and LoCoMo categories, a,b; default all.")] = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Have other judges or prompts score a run's stored responses, which aren't made again. 'opbench judges stability'
    tells what becomes of the order of configurations."""
    from opbench.calibration.estimating import estimate_rescore
    from opbench.calibration.judging import rescore
    from opbench.store.judgings import judging_list
    from opbench.store.reading import find_run

    store = patient_store()
    run_id = find_run(store, run)
    choices = choices_of(judges, repeats, temperature)
    keys = _configurations(store, run_id, words(configurations) or ())
    kinds = words(subtypes) or ()
    if dry_run:
        estimates = asyncio.run(estimate_rescore(store, run_id, choices, configurations=keys, subtypes=kinds))
        print_json([asdict(each) for each in estimates]) if as_json else tell_estimates(estimates)
        return
    outcomes = work(
        lambda stopping, told: rescore(
            store, run_id, choices, configurations=keys, subtypes=kinds, on_progress=told, stopping=stopping
        )
    )
    tell_outcomes(outcomes)
    made = {each.judging for each in outcomes}
    rows = [asdict(row) for row in judging_list(store, run_id=run_id) if row.id in made]
    if as_json:
        print_json(rows)
    else:
        columns = {"id": "judging", "label": "judge", "judgements": "judgements", "missing": "without score"}
        print_table(_measured(pd.DataFrame(rows)), columns | _TOOK, title=f"run {run_id}")
    exit_when_incomplete(outcomes)


@app.command("delete")
def delete_command(judging: Annotated[str, typer.Argument(help="Its id, as 'opbench judges list' tells it.")]) -> None:
    """Delete a judging; its calls stay, so that the same one pays for none again."""
    from opbench.store.judgings import delete_judging, find_judging

    store = the_store()
    row = find_judging(store, judging)
    delete_judging(store, row.id)
    say(f"deleted judging {row.id} ({row.label})")


@app.command("share")
def share_command(
    run: Annotated[str, typer.Argument(help="Run id or name.")],
    file: Annotated[Path, typer.Argument(help="The file to write, .judgings.jsonl.")],
) -> None:
    """Write a run's judgings as a file without texts, to be read beside the run's bundle."""
    from opbench.calibration.recorded import export_judgings
    from opbench.store.reading import find_run

    store = the_store()
    n = export_judgings(store, find_run(store, run), file)
    say(f"{file}: {n:,} judgements")


@app.command("take")
def take_command(file: Annotated[Path, typer.Argument(help="A file of 'opbench judges share'.")]) -> None:
    """Read judgings of a run that is here, imported from its bundle or made here; what is there already stays."""
    from opbench.calibration.recorded import import_judgings

    say(f"{file}: {import_judgings(the_store(), file):,} new judgements")


def _tell_calibration(
    store: Store,
    set_id: str,
    title: str,
    judgings: list[str],
    by: Literal["subtype", "kind"] | None,
    cluster: Literal["pair", "user"],
    worst: int,
    as_json: bool,
) -> None:
    from opbench.calibration.pairs import paired
    from opbench.calibration.sets import INVENTED, INVENTED_NOTE, PUBLISHED_NOTE
    from opbench.calibration.statistics import agreement_with_people, verdict
    from opbench.calibration.statistics import worst as furthest
    from opbench.store.judgings import find_set, judging_list

    pairs = paired(store, set_id, judgings)
    if pairs.empty:
        raise UsageError(f"{title} was judged by nobody yet: name judges with --judge.")
    table = agreement_with_people(pairs, by, cluster)
    took: dict[str, JudgingRow] = {row.id: row for row in judging_list(store, set_id=set_id)}
    for name in _TOOK:
        table[name] = pd.Series([getattr(took[each], name) for each in table["judging"]], dtype="float64")
    sentences = [] if by else [verdict(row) for _, row in table.iterrows()]
    known = find_set(store, set_id)
    if not by and known.kind == "published":
        invented = known.source.get("origin") == INVENTED
        sentences.append(INVENTED_NOTE if invented else f"{PUBLISHED_NOTE} (--by kind)")
    apart = {each: furthest(pairs, each, worst) for each in table["judging"].unique()} if worst else {}
    if as_json:
        told: dict[str, Any] = {"set": set_id, "judges": rows_of(table), "says": sentences}
        if worst:
            told["worst"] = {name: rows_of(frame) for name, frame in apart.items()}
        print_json(told)
        return
    shown = table.assign(
        **{name: [_with_interval(row, name) for _, row in table.iterrows()] for name in _SHOWN},
    )
    columns = {"label": "judge", **({"group": by} if by else {}), "n": "n", "missing": "missing", **_SHOWN}
    print_table(shown, columns | (_TOOK if not by else {}), title=title, notes=sentences)
    for frame in apart.values():
        for _, row in frame.iterrows():
            say(f"\n{row['label']}  {row['item']}: people {row['people']:.2f}, judge {row['value']:.2f}")
            say(f"  asked: {row['question']}\n  response: {row['response']}\n  judge: {row['raw'] or 'by rule'}")


def _with_interval(row: pd.Series, name: str) -> str:
    value, low, high = (row[f"{name}{end}"] for end in ("", "_low", "_high"))
    if pd.isna(value):
        return "–"
    return f"{value:.2f}" + ("" if pd.isna(low) else f" [{low:.2f}, {high:.2f}]")


def _measured(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.astype(dict.fromkeys(_TOOK, "float64"))


def _configurations(store: Store, run_id: str, told: tuple[str, ...]) -> list[Key]:
    """Raises UsageError: the run has none of that name."""
    from opbench.analysis.grids import configuration_keys
    from opbench.store.reading import read_run

    if not told:
        return []
    known = configuration_keys(read_run(store, run_id))
    found = []
    for each in told:
        parts: list[str | None] = [*each.rsplit("/", 2)]
        if len(parts) == 1:
            raise UsageError(f"'{each}': write a configuration as MEMORY/MITIGATION or MODEL/MEMORY/MITIGATION.")
        found.append(one_of(known, [*[None] * (3 - len(parts)), *parts], "Write one as MODEL/MEMORY/MITIGATION"))
    return found
