"""`opbench run` and `opbench status`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from opbench.analysis.ingested import thin_memories
from opbench.commands.display import Display
from opbench.commands.options import print_json, print_table, say, the_store, words
from opbench.errors import UsageError
from opbench.judges import is_rule_judge
from opbench.plugins import load_plugins
from opbench.running import interpreter
from opbench.running.budget import register
from opbench.running.crew import Crew
from opbench.running.engine import Progress
from opbench.running.ingestion import Standing
from opbench.running.ingestion_quote import IngestionLine
from opbench.running.local_crew import LocalCrew
from opbench.running.prepare import Prepared, prepare
from opbench.running.quote import Quote, quote
from opbench.running.worker import execute
from opbench.store.database import PATIENCE_OF_A_RUN_S, Store
from opbench.store.reading import RunStatus, failures, find_run, run_ids, run_status
from opbench.store.runs import run_study
from opbench.store.writing import set_request
from opbench.study import Study, make_study, read_study

_LINE_EVERY_S = 10.0
#: Ingestions that are named in a line of progress.
_NAMED = 3


def add(app: typer.Typer) -> None:
    app.command("run")(run_command)
    app.command("status")(status_command)


def run_command(
    study_file: Annotated[Path | None, typer.Argument(metavar="[STUDY.toml]", help="A study file.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the study, for people.")] = None,
    models: Annotated[str | None, typer.Option(help="Model names, comma-separated (opbench models).")] = None,
    memories: Annotated[str | None, typer.Option(help="Memory systems: base,rag,mem0,memu,memos,…")] = None,
    mitigations: Annotated[str | None, typer.Option(help="Post-processors: none,reminder,self-critic,…")] = None,
    benchmarks: Annotated[str | None, typer.Option(help="op,locomo.")] = None,
    users: Annotated[str | None, typer.Option(help="User ids such as conv-26/Caroline; default all.")] = None,
    subtypes: Annotated[str | None, typer.Option(help="OP-Bench subtypes and LoCoMo categories; default all.")] = None,
    limit: Annotated[int | None, typer.Option(help="Instances a benchmark, spread over users and subtypes.")] = None,
    seed: Annotated[int | None, typer.Option(help="Which instances --limit takes.")] = None,
    adversarial: Annotated[bool, typer.Option("--adversarial", help="Ask LoCoMo's category 5 too.")] = False,
    exclude: Annotated[str | None, typer.Option(help="Exclusion lists to leave out (opbench data exclusions).")] = None,
    k: Annotated[int | None, typer.Option(help="Memories a query (5).")] = None,
    temperature: Annotated[float | None, typer.Option(help="0 is greedy (0).")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Longest response in tokens (512).")] = None,
    judge: Annotated[str | None, typer.Option(help="offline, or the name of a model as judge.")] = None,
    judge_pack: Annotated[str | None, typer.Option(help="Judge prompts: auto, own or official.")] = None,
    embedder: Annotated[str | None, typer.Option(help="Embedder of RAG and of repetition (minilm).")] = None,
    extractor: Annotated[
        str | None, typer.Option(help="The model that memory systems extract with; default the study's only one.")
    ] = None,
    protocol: Annotated[str | None, typer.Option(help="How LoCoMo is asked and scored: uniform or memos.")] = None,
    data: Annotated[
        str | None,
        typer.Option(help="auto, sample for the bundled one, or build:ID:DIGEST (opbench build respond)."),
    ] = None,
    latency_probe: Annotated[bool, typer.Option("--latency-probe", help="Concurrency 1, no reuse of calls.")] = False,
    concurrency: Annotated[int, typer.Option(min=1, help="Instances at a time, of all workers together.")] = 8,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes that share the run (1).")] = None,
    ray: Annotated[
        str | None, typer.Option(help="Workers on a Ray cluster: auto, local, HOST:PORT or ray://HOST:PORT.")
    ] = None,
    budget: Annotated[float | None, typer.Option(help="US dollars by list price; nothing is begun beyond.")] = None,
    pilot: Annotated[int | None, typer.Option(min=1, help="Do so many records of the study, then stop.")] = None,
    plugin: Annotated[list[Path] | None, typer.Option(help="A Python file with methods of your own.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Tell calls, tokens and cost; run nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
    # A page that starts a run has asked for "go" already; what it asks meanwhile, pause or stop, must stay asked.
    keep_request: Annotated[bool, typer.Option("--keep-request", hidden=True)] = False,
    # For a page that starts a run with plugins, whose code its own process must not load.
    register_only: Annotated[bool, typer.Option("--register-only", hidden=True)] = False,
) -> None:
    """Run a study, or go on with it: the same study again does only what is missing."""
    load_plugins(plugin or [])
    given: dict[str, Any] = {
        "name": name,
        "models": words(models),
        "memories": words(memories),
        "mitigations": words(mitigations),
        "benchmarks": words(benchmarks),
        "users": words(users),
        "subtypes": words(subtypes),
        "limit": limit,
        "seed": seed,
        "adversarial": adversarial or None,
        "exclude": words(exclude),
        "k": k,
        "temperature": temperature,
        "max_tokens": max_tokens,
        "judge": judge,
        "judge_pack": judge_pack,
        "embedder": embedder,
        "extractor": extractor,
        "protocol": protocol,
        "data": data,
        "latency_probe": latency_probe or None,
    }
    study = _study(study_file, {key: value for key, value in given.items() if value is not None})
    store = the_store(patience_s=PATIENCE_OF_A_RUN_S)
    prepared = prepare(study)
    if dry_run:
        _print_quote(store, prepared, concurrency, as_json)
        return
    if register_only:
        register(store, prepared, budget)
        print_json({"run_id": prepared.run_id})
        return
    if not keep_request:
        set_request(store, prepared.run_id, "go")
    team = _Team(workers, ray, plugin or [])
    progress = interpreter.run(_run(store, prepared, concurrency, budget, pilot, team))
    status = run_status(store, prepared.run_id)
    if as_json:
        print_json(status.to_dict())
    else:
        _print_status(status)
        _print_failures(store, status)
    _, provenance = run_study(store, prepared.run_id)
    for sentence in thin_memories(provenance, study.k):
        say(sentence, err=True)
    if status.halted:
        say(status.halted, err=True)
    # A pilot leaves the study incomplete on purpose.
    piloted = pilot is not None and progress.done == progress.to_do and not progress.errors
    if not (status.complete or piloted):
        raise typer.Exit(1)


def _study(file: Path | None, given: dict[str, Any]) -> Study:
    if file is None:
        if "models" not in given:
            raise UsageError("name a study file, or at least --models. 'opbench run --help' lists the flags.")
        return make_study(given, where="opbench run")
    fields = read_study(file).model_dump() | given
    return make_study(fields, where=str(file))


@dataclass(frozen=True, slots=True)
class _Team:
    """Who else is to work on the run."""

    workers: int | None
    ray: str | None
    plugins: Sequence[Path]

    def crew(
        self, store: Store, prepared: Prepared, concurrency: int, piloted: bool, tell: Callable[[str], None]
    ) -> Crew | None:
        """Whoever starts the workers; None for a run of one process.

        Raises:
            UsageError: the Ray cluster can't be used; says why.
        """
        if self.ray is None and (self.workers or 1) == 1:
            return None
        alone = "a latency probe" if prepared.study.latency_probe else "a pilot" if piloted else None
        if alone is not None:
            tell(f"{alone} is one process's work: it runs without further workers")
            return None
        if self.ray is not None:
            if prepared.run_id in run_ids(store) and run_status(store, prepared.run_id).complete:
                return None
            # Only here: Ray takes its time to load.
            from opbench.running.ray_crew import RayCrew

            crew = RayCrew(
                self.ray, store, prepared, concurrency=concurrency, workers=self.workers, plugins=self.plugins
            )
            tell(f"{crew.size} workers of a Ray cluster, on {', '.join(crew.machines)}")
            _tell_of_few_places(prepared, crew.size, tell)
            return crew
        size = min(self.workers or 1, concurrency)
        if size < (self.workers or 1):
            tell(f"at concurrency {concurrency} only {size} workers have something to do")
        _tell_of_few_places(prepared, size, tell)
        return LocalCrew(size, prepared.study, self.plugins, tell)


def _tell_of_few_places(prepared: Prepared, workers: int, tell: Callable[[str], None]) -> None:
    """Say which models get more requests at a time than their entries allow: each worker sends one at least."""
    study = prepared.study
    for name in dict.fromkeys([*study.models, *([] if is_rule_judge(study.judge) else [study.judge])]):
        places = prepared.registry.model(name).concurrency
        if places < workers:
            tell(
                f"{name}: concurrency = {places} in its registry entry, and {workers} workers send it a request each: "
                f"take --workers {places}, or raise its concurrency"
            )


async def _run(
    store: Store, prepared: Prepared, concurrency: int, budget: float | None, pilot: int | None, team: _Team
) -> Progress:
    say(f"run {prepared.run_id}  {len(prepared.instances)} instances × ", err=True, nl=False)
    say(f"{len(prepared.study.configurations())} configurations, data: {prepared.corpus.source}", err=True)
    display = _Display(Console(stderr=True))
    try:
        with display:
            crew = team.crew(store, prepared, concurrency, pilot is not None, display.say)
            return await execute(
                store,
                prepared,
                concurrency=concurrency,
                on_progress=display.show,
                on_stop=lambda: display.say("finishing what is in flight; Ctrl-C again leaves at once"),
                on_news=display.say,
                budget_usd=budget,
                pilot_records=pilot,
                crew=crew,
            )
    finally:
        await prepared.aclose()


class _Display(Display):
    """Progress on standard error: a bar on a terminal, a line now and then in a log."""

    def __init__(self, console: Console) -> None:
        super().__init__(console, "records")
        self._said = 0.0
        self._at = ""
        self._all_said = False

    def show(self, progress: Progress) -> None:
        done = progress.finished_before + progress.done
        waiting = [each for each in progress.ingesting if each.state in ("waiting", "at work")]
        if waiting and not progress.done:
            self._show_ingestion(progress.ingesting)
            return
        left = progress.seconds_left
        errors = f", {progress.errors} errors" if progress.errors else ""
        eta = "" if left is None else f", {timedelta(seconds=round(left))} left"
        text = f"{progress.rate:.2f}/s{eta}{errors}"
        self._bars.update(self._task, description="records", completed=done, total=progress.planned, told=text)
        # Once: users are scored after the last record, and further processes end, which takes its time.
        if not self._all_said:
            self._all_said = progress.done == progress.to_do
            self._say_now_and_then("records", f"{done}/{progress.planned} records, {text}", at_once=self._all_said)

    def _show_ingestion(self, standings: Sequence[Standing]) -> None:
        """Sessions that memory systems have taken in, and who is being worked on."""
        done, planned = sum(each.done for each in standings), sum(each.planned for each in standings)
        users = [f"{each.label} {each.user}" for each in standings if each.state == "at work"]
        text = ", ".join(users[:_NAMED]) + (f" and {len(users) - _NAMED} more" if len(users) > _NAMED else "")
        self._bars.update(self._task, description="ingestion", completed=done, total=planned, told=text)
        self._say_now_and_then("ingestion", f"ingestion: {done}/{planned} sessions" + (f", at {text}" if text else ""))

    def _say_now_and_then(self, phase: str, line: str, *, at_once: bool = False) -> None:
        now = time.monotonic()
        due = now - self._said >= _LINE_EVERY_S or phase != self._at
        if not self._console.is_terminal and (due or at_once):
            self._said, self._at = now, phase
            self.say(line)


def _print_quote(store: Store, prepared: Prepared, concurrency: int, as_json: bool) -> None:
    estimate = quote(store, prepared, concurrency=concurrency)
    if as_json:
        print_json({"run_id": prepared.run_id, **estimate.to_dict()})
        return
    money = "unknown (no price in the registry)" if estimate.cost_usd is None else f"${estimate.cost_usd:,.4f}"
    say(
        f"run {prepared.run_id}: {estimate.to_do:,} of {estimate.planned:,} records to do\n"
        f"calls   at most {estimate.calls:,} (a driver that shares nothing: {estimate.calls_naive:,})\n"
        + "".join(f"saved   {saving.calls:,}: {saving.why}\n" for saving in estimate.saved)
        + f"search  at most {estimate.retrievals:,} of memories (a driver that shares nothing: "
        f"{estimate.retrievals_naive:,})\n"
        f"tokens  about {estimate.prompt_tokens:,} in, {estimate.completion_tokens:,} out\n"
        f"cost    about {money}\n"
        f"time    about {timedelta(seconds=round(estimate.seconds))} at concurrency {concurrency}\n"
        f"basis   {estimate.basis}"
    )
    for line in estimate.ingestion:
        say(f"before  {_ingestion(line)}")
    if estimate.ranges:
        say(f"range   {', '.join(_ranges(estimate))} (95 %)")


def _ingestion(line: IngestionLine) -> str:
    takes = f"{line.label} takes in {line.sessions:,} sessions of {line.users:,} users"
    if line.extractor is None:
        return f"{takes} with its own models: what they take isn't known here, and isn't in the numbers above"
    money = f"${line.cost_usd:,.4f}" if line.cost_usd is not None else f"an unknown cost ({line.reason})"
    return f"{takes}: {line.calls:,} calls, {line.prompt_tokens:,} tokens in, {line.completion_tokens:,} out, {money}"


def _ranges(estimate: Quote) -> Iterator[str]:
    """The estimate's ranges, as `1,200 to 1,900 tokens in`."""
    forms: dict[str, tuple[Callable[[float], str], str]] = {
        "prompt_tokens": (lambda value: f"{value:,.0f}", " tokens in"),
        "completion_tokens": (lambda value: f"{value:,.0f}", " out"),
        "cost_usd": (lambda value: f"${value:,.4f}", ""),
        "seconds": (lambda value: str(timedelta(seconds=round(value))), ""),
    }
    for name, (low, high) in estimate.ranges.items():
        write, unit = forms[name]
        yield f"{write(low)} to {write(high)}{unit}"


def status_command(
    run: Annotated[str | None, typer.Argument(help="Run id or name; default: all runs.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """How far runs are, computed from their records."""
    store = the_store()
    if run is None:
        states = [run_status(store, each) for each in run_ids(store)]
        if as_json:
            print_json([state.to_dict() for state in states])
        elif states:
            for state in states:
                say(_headline(state))
        else:
            say("No run in this store yet. Start one with 'opbench run'.")
        return
    state = run_status(store, find_run(store, run))
    if as_json:
        print_json(state.to_dict())
        return
    _print_status(state)
    _print_failures(store, state)


def _headline(status: RunStatus) -> str:
    ended = "done" if status.complete else "incomplete"
    activity = "working" if status.working else "recorded" if status.recorded else ended
    missing = f", {status.unscored} without a score" if status.unscored else ""
    name = f" ({status.name})" if status.name else ""
    return (
        f"{status.run_id}{name}: {status.done} done, {status.errors} errors, {status.waiting} waiting "
        f"of {status.planned}{missing} [{activity}]"
    )


def _print_status(status: RunStatus) -> None:
    say(_headline(status))
    for each in status.members:
        where = "" if each["pid"] is None else f", process {each['pid']} on {each['host']}"
        again = f", replaced {each['replaced']} times" if each["replaced"] else ""
        say(f"worker {each['number']}: {each['state']}{where}: {each['done']} done, {each['errors']} errors{again}")
    columns = ("model", "memory", "mitigation", "planned", "done", "errors")
    print_table(status.by_configuration, {column: column for column in columns})


def _print_failures(store: Store, status: RunStatus) -> None:
    for kind, count in status.error_kinds.items():
        say(f"errors, {kind}: {count}")
    for reason, count in status.missing_reasons.items():
        say(f"scores missing: {count} × {reason}")
    if status.errors:
        for row in failures(store, status.run_id).head(5).itertuples(index=False):
            say(f"  {row.instance} {row.memory}/{row.mitigation}: {row.reason}")
    if status.errors or status.retriable:
        say("The same command again tries these again.")
