"""`opbench mechanism`: why over-personalisation happens, from the records of a run. `attention` measures it."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Event
from typing import Annotated, Any

import typer

from opbench.analysis.grids import configuration_keys
from opbench.commands import mechanism_ratio, mechanism_tables
from opbench.commands.instances import one_of
from opbench.commands.options import print_json, say, the_store, words
from opbench.errors import UsageError
from opbench.mechanism.attention import progress_line
from opbench.mechanism.measuring import LIMIT, Outcome, Plan, measure, plan
from opbench.models.embedded import NAME as EMBEDDED
from opbench.store.attention import read_attention
from opbench.store.database import PATIENCE_OF_A_RUN_S, Store
from opbench.store.reading import find_run, read_run
from opbench.store.rundata import Key

app = typer.Typer(help="Why it happens: retrieval, attention, language and repetition of a run.", no_args_is_help=True)
mechanism_tables.add(app)
mechanism_ratio.add(app)


@app.command("attention")
def attention_command(
    run: Annotated[str | None, typer.Argument(help="Run id or name; default: the newest.")] = None,
    reader: Annotated[
        str, typer.Option(help=f"The reading model: {EMBEDDED}, or a folder with a model of transformers in it.")
    ] = EMBEDDED,
    configurations: Annotated[
        str | None, typer.Option(help="MEMORY/MITIGATION or MODEL/MEMORY/MITIGATION, comma-separated; default all.")
    ] = None,
    subtypes: Annotated[str | None, typer.Option(help="Subtypes and LoCoMo categories; default OP-Bench's.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Instances of each subtype, spread over users.")] = LIMIT,
    everything: Annotated[bool, typer.Option("--all", help="All instances instead of --limit.")] = False,
    texts: Annotated[bool, typer.Option(help="Keep the prompt's words for the heatmap over the text.")] = True,
    again: Annotated[bool, typer.Option("--again", help="Read also what is measured already.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Tell what would be read; read nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Measure where a model's attention goes while it reads a run's prompts and responses, and keep it.

    The same command again goes on where it was left. Ctrl-C stops after the record in hand.
    """
    store = the_store(patience_s=PATIENCE_OF_A_RUN_S)
    run_id = find_run(store, run)
    keys = _configurations(store, run_id, words(configurations) or ())
    chosen = plan(
        store, run_id, configurations=keys, subtypes=words(subtypes) or (), limit=None if everything else limit
    )
    if dry_run:
        _tell_plan(chosen, as_json)
        return
    # torch takes seconds to load, and a plan is told without it.
    from opbench.mechanism.reader import load_reader

    with _stopping() as asked:
        say(f"run {run_id}: loading {reader}", err=True)
        model = load_reader(reader)

        def show(outcome: Outcome, seconds_left: float | None) -> None:
            say(progress_line(outcome.done, outcome.planned, seconds_left), err=True)

        outcome = measure(store, chosen, model, texts=texts, again=again, on_progress=show, stopping=asked.is_set)
    _tell_outcome(store, run_id, model.name, outcome, as_json)
    if outcome.stopped or outcome.done == sum(outcome.skipped.values()):
        raise typer.Exit(1)


def _configurations(store: Store, run_id: str, told: Sequence[str]) -> list[Key]:
    """Raises UsageError: the run has none of that name."""
    data = read_run(store, run_id)
    found = []
    for each in told:
        parts: list[str | None] = [*each.rsplit("/", 2)]
        if len(parts) == 1:
            raise UsageError(f"'{each}': write a configuration as MEMORY/MITIGATION or MODEL/MEMORY/MITIGATION.")
        wanted = [*(None for _ in range(3 - len(parts))), *parts]
        found.append(one_of(configuration_keys(data), wanted, "Write one as MODEL/MEMORY/MITIGATION"))
    return found


@contextmanager
def _stopping() -> Iterator[Event]:
    """An event that the first SIGINT or SIGTERM sets; the second ends the process as it does otherwise."""
    asked = Event()
    before: dict[signal.Signals, Any] = {}

    def stop(number: int, frame: Any) -> None:
        asked.set()
        say("stopping after the record in hand; Ctrl-C again leaves at once", err=True)
        for each, handler in before.items():
            signal.signal(each, handler)

    for each in (signal.SIGINT, signal.SIGTERM):
        before[each] = signal.signal(each, stop)
    try:
        yield asked
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _tell_plan(chosen: Plan, as_json: bool) -> None:
    names, uncalled = ([" · ".join(key) for key in keys] for keys in (chosen.configurations, chosen.uncalled))
    if as_json:
        print_json(
            {
                "run": chosen.run_id,
                "records": len(chosen.records),
                "configurations": names,
                "without_calls": uncalled,
                "instances": chosen.instances,
                "users": chosen.users,
                "not_answered_by_all": chosen.unpaired,
                "tokens": chosen.tokens,
            }
        )
        return
    counts = ", ".join(f"{subtype} {n}" for subtype, n in chosen.instances.items())
    say(f"run {chosen.run_id}: {len(chosen.records):,} records, the same instances of each configuration")
    say(f"configurations  {', '.join(names)}")
    if uncalled:
        say(f"left out        {', '.join(uncalled)}: answered without a call to a model")
    say(f"instances       {counts}, of {chosen.users} users")
    if chosen.unpaired:
        say(f"passed over     {chosen.unpaired:,} instances that a configuration hasn't responded to")
    say(f"tokens          {'not told by the endpoint' if chosen.tokens is None else f'{chosen.tokens:,}'}")


def _tell_outcome(store: Store, run_id: str, reader: str, outcome: Outcome, as_json: bool) -> None:
    known = read_attention(store, run_id, reader).records if outcome.done - sum(outcome.skipped.values()) else None
    own = None if known is None else known[known["own"] & known["told_tokens"].notna()]
    agreeing = 0 if own is None else int((own["prompt_tokens"] == own["told_tokens"]).sum())
    told = {
        "run": run_id,
        "reader": reader,
        "planned": outcome.planned,
        "measured": outcome.measured,
        "same_text": outcome.alike,
        "measured_before": outcome.kept,
        "skipped": dict(outcome.skipped),
        "stopped": outcome.stopped,
        "answered_by_reader": 0 if own is None else len(own),
        "prompt_tokens_agree": agreeing,
    }
    if as_json:
        print_json(told)
        return
    say(
        f"run {run_id}, reader {reader}: {outcome.measured:,} records measured, {outcome.alike:,} of the same text as "
        f"another, {outcome.kept:,} measured before, of {outcome.planned:,}"
    )
    for reason, n in outcome.skipped.most_common():
        say(f"{n:,} not read: {reason}")
    if own is None or not len(own):
        say("None of them was answered by the reading model: this is another model's reading of them.")
    else:
        say(f"Prompt tokens as the endpoint counted them: {agreeing:,} of {len(own):,} records.")
    if outcome.stopped:
        say("Stopped. The same command goes on.")
