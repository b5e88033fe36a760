"""`opbench build run`, `filter` and `respond`: questions are made, filtered, and answered with and without memory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pandas as pd
import typer
from rich.console import Console

from opbench.commands.display import Display
from opbench.commands.options import print_json, print_table, say, the_store, words
from opbench.errors import UsageError
from opbench.running.budget import dollars
from opbench.store.database import PATIENCE_OF_A_RUN_S, Store

if TYPE_CHECKING:
    from opbench.construction.filtering import FilterReport
    from opbench.construction.loading import Source
    from opbench.construction.progress import Progress
    from opbench.construction.spec import BuildSpec
    from opbench.store.builds import Unit

_LINE_EVERY_S = 10.0
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def add(app: typer.Typer) -> None:
    app.command("run")(run_command)
    app.command("filter")(filter_command)
    app.command("respond")(respond_command)


def run_command(
    build: Annotated[
        str | None,
        typer.Argument(metavar="[BUILD|BUILD.toml]", help="A build to go on with, or a file with what to make."),
    ] = None,
    conversations: Annotated[
        str | None,
        typer.Option(
            help="A file or folder in LoCoMo's format, sample for the bundled sample, or auto: the benchmark data."
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the build, for people.")] = None,
    users: Annotated[str | None, typer.Option(help="User ids such as conv-26/Caroline; default all.")] = None,
    subtypes: Annotated[str | None, typer.Option(help="OP-Bench subtypes, a,b; default all six.")] = None,
    generators: Annotated[str | None, typer.Option(help="Models that write questions, a,b: each writes all.")] = None,
    extractor: Annotated[str | None, typer.Option(help="Model of summaries, profiles, topics, observations.")] = None,
    similarity: Annotated[str | None, typer.Option(help="Model that says which topics are none of a user's.")] = None,
    checker: Annotated[str | None, typer.Option(help="Model that checks false memories and need.")] = None,
    embedder: Annotated[str | None, typer.Option(help="Embedder that near-duplicates are found with.")] = None,
    rounds: Annotated[int | None, typer.Option(help="How often each generator writes everything (1).")] = None,
    topics: Annotated[int | None, typer.Option(help="Topics of a user (5).")] = None,
    irrelevant: Annotated[int | None, typer.Option(help="Fully irrelevant questions a general topic (3).")] = None,
    baiting: Annotated[int | None, typer.Option(help="Baiting questions a user (5).")] = None,
    fact: Annotated[int | None, typer.Option(help="Fact-level questions a user (5).")] = None,
    value: Annotated[int | None, typer.Option(help="Value-level questions a user (5).")] = None,
    fine: Annotated[int | None, typer.Option(help="Memory-level questions with a false detail, a user (5).")] = None,
    coarse: Annotated[int | None, typer.Option(help="Memory-level questions of a false event, a user (5).")] = None,
    subtopics: Annotated[int | None, typer.Option(help="Subtopics a topic, for repetition (3).")] = None,
    repetition: Annotated[int | None, typer.Option(help="Repetition questions a subtopic (3).")] = None,
    fewest_words: Annotated[int | None, typer.Option(help="A shorter question is dropped (4).")] = None,
    most_words: Annotated[int | None, typer.Option(help="A longer question is dropped (80).")] = None,
    cosine: Annotated[float | None, typer.Option(help="Near-duplicates from this cosine on (0.85).")] = None,
    template_share: Annotated[float | None, typer.Option(help="Questions with one beginning, at most (0.10).")] = None,
    template_words: Annotated[int | None, typer.Option(help="Words of a beginning (4).")] = None,
    template_fewest: Annotated[int | None, typer.Option(help="So many with one beginning may always be (5).")] = None,
    check_memories: Annotated[bool | None, typer.Option(help="Check false memories against the history.")] = None,
    check_need: Annotated[bool | None, typer.Option(help="Ask whether irrelevant questions need the user.")] = None,
    temperature: Annotated[float | None, typer.Option(help="Of generators (0.7).")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Longest answer in tokens (1024).")] = None,
    seed: Annotated[int | None, typer.Option(help="Another one gives other questions (0).")] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="Requests at a time.")] = 8,
    again: Annotated[
        bool, typer.Option("--again", help="Ask again where an answer was unusable, under another seed.")
    ] = False,
    filtered: Annotated[bool, typer.Option("--filter/--no-filter", help="Filter at the end.")] = True,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Tell calls, tokens and cost; make nothing.")] = False,
    as_json: _Json = False,
    # A page that starts a build has asked for "go" already; a stop that it asks meanwhile must stay asked.
    keep_request: Annotated[bool, typer.Option("--keep-request", hidden=True)] = False,
) -> None:
    """Make questions from conversations, or go on: the same build again does only what is missing."""
    given: dict[str, Any] = {
        "name": name,
        "users": words(users),
        "subtypes": words(subtypes),
        "generators": words(generators),
        "extractor": extractor,
        "similarity": similarity,
        "checker": checker,
        "embedder": embedder,
        "rounds": rounds,
        "topics": topics,
        "irrelevant": irrelevant,
        "baiting": baiting,
        "fact": fact,
        "value": value,
        "fine": fine,
        "coarse": coarse,
        "subtopics": subtopics,
        "repetition": repetition,
        "fewest_words": fewest_words,
        "most_words": most_words,
        "cosine": cosine,
        "template_share": template_share,
        "template_words": template_words,
        "template_fewest": template_fewest,
        "check_memories": check_memories,
        "check_need": check_need,
        "temperature": temperature,
        "max_tokens": max_tokens,
        "seed": seed,
    }
    given = {key: each for key, each in given.items() if each is not None}
    store = the_store(patience_s=PATIENCE_OF_A_RUN_S)
    plan_only = _Plan(concurrency, as_json) if dry_run else None
    build_id = _the_build(store, build, conversations, given, plan_only)
    if build_id is None:
        return
    progress = _made(store, build_id, concurrency, again, keep_request)
    report = None
    if filtered and progress.halted is None and sum(progress.candidates.values()) > 0:
        # A stop that was asked for since the last question counts.
        report = _filtered(store, build_id, concurrency, keep_request=True)
    _tell(store, build_id, progress, report, as_json)
    if progress.halted:
        say(progress.halted, err=True)
    if progress.failed or progress.halted or (report is not None and report.undecided):
        say(f"'opbench build run {build_id}' goes on.", err=True)
        raise typer.Exit(1)


@dataclass(frozen=True, slots=True)
class _Plan:
    """A dry run: what is told, and how."""

    concurrency: int
    as_json: bool

    def tell(self, store: Store, spec: BuildSpec, source: Source, units: Mapping[str, Unit]) -> None:
        _print_plan(store, spec, source, units, self.concurrency, self.as_json)


def _the_build(
    store: Store, wanted: str | None, conversations: str | None, given: dict[str, Any], dry_run: _Plan | None
) -> str | None:
    """The build to work on, made or found; None after a dry run.

    Raises:
        UsageError, DataError: what is asked for can't be made.
    """
    from opbench.construction.command import make_spec, read_spec
    from opbench.construction.loading import read_source, source_of
    from opbench.construction.starting import find_or_start, find_same
    from opbench.store.builds import find_build, load_build, read_units

    if wanted is not None and not wanted.endswith(".toml"):
        build_id = find_build(store, wanted)
        if given or conversations:
            flag = next(iter(given), "conversations").replace("_", "-")
            raise UsageError(
                f"--{flag}: what build {build_id} makes was settled when it was begun. Leave the flag out, or begin "
                "another build without naming this one: answers that are there already cost nothing."
            )
        if dry_run is not None:
            known = load_build(store, build_id)
            done = read_units(store, build_id)
            dry_run.tell(store, known.spec, source_of(known.provenance), done)
            return None
        return build_id
    fields = given if wanted is None else {**read_spec(Path(wanted)), **given}
    if wanted is not None:
        conversations = conversations or fields.pop("conversations", None)
    spec = make_spec(fields, where=wanted or "opbench build run")
    source = read_source(_where(conversations))
    if dry_run is not None:
        same = find_same(store, spec, source)
        done = {} if same is None else read_units(store, same)
        dry_run.tell(store, spec, source, done)
        return None
    build_id, there = find_or_start(store, spec, source)
    say(f"build {build_id}: {'goes on' if there else 'begun'}, conversations: {source.name}", err=True)
    return build_id


def _where(conversations: str | None) -> Path | Literal["sample"] | None:
    if conversations in (None, "auto"):
        return None
    return "sample" if conversations == "sample" else Path(str(conversations))


def _made(store: Store, build_id: str, concurrency: int, again: bool, keep_request: bool) -> Progress:
    from opbench.construction.building import build

    display = _Display(Console(stderr=True))
    with display:
        return asyncio.run(
            build(
                store,
                build_id,
                concurrency=concurrency,
                again=again,
                keep_request=keep_request,
                on_progress=display.show,
                on_stop=display.stopping,
            )
        )


def _filtered(store: Store, build_id: str, concurrency: int, keep_request: bool) -> FilterReport:
    from opbench.construction.filtering import run_filters

    display = _Display(Console(stderr=True))
    with display:
        return asyncio.run(
            run_filters(
                store,
                build_id,
                concurrency=concurrency,
                keep_request=keep_request,
                on_progress=display.show_filter,
                on_stop=display.stopping,
            )
        )


class _Display(Display):
    """Progress on standard error: a bar on a terminal, a line now and then in a log."""

    def __init__(self, console: Console) -> None:
        super().__init__(console, "units")
        self._said = 0.0
        self._last = ""

    def stopping(self) -> None:
        self.say("finishing what is in hand; Ctrl-C again leaves at once")

    def show(self, progress: Progress) -> None:
        finished = progress.done + progress.failed
        made = sum(progress.candidates.values())
        left = progress.seconds_left
        told = f"{made:,} candidates" + ("" if left is None else f", {timedelta(seconds=round(left))} left")
        self._bars.update(self._task, completed=finished, total=progress.planned, told=told)
        self._now_and_then(progress.line(), at_once=finished >= progress.planned)

    def show_filter(self, name: str, done: int, planned: int) -> None:
        self._bars.update(self._task, description=f"filter {name}", completed=done, total=planned, told="")
        self._now_and_then(f"filter {name}: {done:,} of {planned:,}", at_once=done >= planned)

    def _now_and_then(self, line: str, *, at_once: bool) -> None:
        now = time.monotonic()
        if not self._console.is_terminal and (at_once or now - self._said >= _LINE_EVERY_S) and line != self._last:
            self._said, self._last = now, line
            self.say(line)


def _tell(store: Store, build_id: str, progress: Progress, report: FilterReport | None, as_json: bool) -> None:
    if as_json:
        print_json(
            {"id": build_id, "progress": asdict(progress), "filters": None if report is None else asdict(report)}
        )
        return
    say(f"build {build_id}: {progress.line()}")
    for reason, n in progress.failures.items():
        say(f"  {n} × {reason}")
    if report is not None:
        _print_report(report)
    if report is not None and report.kept:
        say(f"next: opbench build respond {build_id} --models MODEL --memories rag")


def _print_report(report: FilterReport) -> None:
    from opbench.construction.filtering import FILTERS

    say(f"{report.generated:,} candidates")
    for name in FILTERS:
        if n := report.dropped.get(name, 0):
            say(f"  −{n:,} {name}")
    say(f"{report.kept:,} kept" + (f", {report.undecided:,} undecided" if report.undecided else ""))


def filter_command(
    build: Annotated[str | None, typer.Argument(help="Build id or name; default: the newest.")] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="Questions that the checker is asked at a time.")] = 8,
    as_json: _Json = False,
    keep_request: Annotated[bool, typer.Option("--keep-request", hidden=True)] = False,
) -> None:
    """Filter a build's candidates, or go on filtering. What is dropped stays, with the reason."""
    from opbench.store.builds import find_build

    store = the_store(patience_s=PATIENCE_OF_A_RUN_S)
    build_id = find_build(store, build)
    report = _filtered(store, build_id, concurrency, keep_request)
    if as_json:
        print_json({"id": build_id, **asdict(report)})
    else:
        _print_report(report)
    if report.undecided:
        say(f"'opbench build filter {build_id}' asks again about the undecided.", err=True)
        raise typer.Exit(1)


def respond_command(
    build: Annotated[str, typer.Argument(help="Build id or name.")],
    models: Annotated[str, typer.Option(help="Models that respond, a,b.")],
    memories: Annotated[str, typer.Option(help="Memory systems beside BASE, a,b.")] = "rag",
    which: Annotated[
        Literal["kept", "accepted"], typer.Option(help="What filters kept, or what people accepted.")
    ] = "kept",
    mitigations: Annotated[str, typer.Option(help="Post-processors, a,b.")] = "none",
    judge: Annotated[str | None, typer.Option(help="offline, or the name of a model as judge.")] = None,
    k: Annotated[int | None, typer.Option(help="Memories a query (5).")] = None,
    embedder: Annotated[str | None, typer.Option(help="Embedder of RAG and of repetition (minilm).")] = None,
    extractor: Annotated[str | None, typer.Option(help="The model that memory systems extract with.")] = None,
    limit: Annotated[int | None, typer.Option(help="So many questions, spread over users and subtypes.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the study, for people.")] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="Instances at a time.")] = 8,
    budget: Annotated[float | None, typer.Option(help="US dollars by list price; nothing is begun beyond.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Tell calls, tokens and cost; run nothing.")] = False,
    as_json: _Json = False,
) -> None:
    """Have BASE and a memory system respond to a build's questions: an ordinary run, for judges and reviewers."""
    from opbench.commands.run import run_command as run_study_command
    from opbench.construction.responding import data_of
    from opbench.store.builds import find_build, load_build
    from opbench.study import BASE

    store = the_store()
    build_id = find_build(store, build)
    known = load_build(store, build_id)
    data = data_of(store, build_id, which)
    store.close()
    run_study_command(
        name=name or f"Responses to {known.name}",
        models=models,
        memories=",".join([BASE, *(words(memories) or ())]),
        mitigations=mitigations,
        benchmarks="op",
        limit=limit,
        k=k,
        judge=judge,
        embedder=embedder,
        extractor=extractor,
        data=data,
        concurrency=concurrency,
        budget=budget,
        dry_run=dry_run,
        as_json=as_json,
    )


def _print_plan(
    store: Store, spec: BuildSpec, source: Source, units: Mapping[str, Unit], concurrency: int, as_json: bool
) -> None:
    from opbench.construction.planning import plan
    from opbench.models import load_registry

    found = plan(store, spec, source, load_registry(), units=units, concurrency=concurrency)
    if as_json:
        print_json({**asdict(found), "calls": found.calls})
        return
    asked = sum(found.candidates.values())
    say(f"{source.name}: {found.users} users, {asked:,} questions asked for, at most")
    rows = [
        {
            "role": line.role,
            "model": line.model,
            "calls": f"{line.units:,}",
            "tokens in": f"{line.prompt_tokens:,}",
            "out": f"{line.completion_tokens:,}",
            "cost": "unknown" if line.cost_usd is None else dollars(line.cost_usd),
        }
        for line in found.lines
    ]
    money = "unknown (no price in the registry)" if found.cost_usd is None else f"about {dollars(found.cost_usd)}"
    notes = [
        f"calls  {found.calls:,}, and a second one for each answer that has to be repaired",
        f"cost   {money}",
        f"time   about {timedelta(seconds=round(found.seconds))} at concurrency {concurrency}",
        f"basis  {found.basis}",
    ]
    if not rows:
        say("All of it is made already.")
        return
    frame = pd.DataFrame(rows)
    print_table(frame, {name: name for name in frame.columns}, notes=notes)
