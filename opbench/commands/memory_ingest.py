"""`opbench memory ingest`: take users' histories in, or tell what that will take."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bars

from opbench.commands.memory_choice import checked, cost_told, the_users
from opbench.commands.options import print_json, print_table, rows_of, say, the_store, words
from opbench.errors import UsageError
from opbench.memories import Ingesting
from opbench.memories.manifest import remove
from opbench.models.registry import Spec
from opbench.plugins import load_plugins
from opbench.running.budget import Meter, check_prices, dollars
from opbench.running.ingestion import Ingestion, Pair, summary
from opbench.running.ingestion_quote import IngestionLine, basis, by_system, ingestion_quote, seconds_at
from opbench.running.prepare import PreparedMemories, connect, prepare_memories
from opbench.store.database import PATIENCE_OF_A_RUN_S, Store

_LINE_EVERY_S = 10.0
_STOPPED = 130
#: What a quote counts, with its headings.
_AMOUNTS = {
    "sessions": "sessions to do",
    "calls": "calls",
    "prompt_tokens": "tokens in",
    "completion_tokens": "out",
    "embedded_tokens": "embedded",
}


def add(app: typer.Typer) -> None:
    app.command("ingest")(ingest_command)


def ingest_command(
    systems: Annotated[list[str], typer.Argument(help="Memory systems: mem0 memu memos memos-tree, or your own.")],
    users: Annotated[
        str | None,
        typer.Option(help="User ids such as conv-26/Caroline, or conv-26 for both speakers; default: all."),
    ] = None,
    extractor: Annotated[str | None, typer.Option(help="Model that memories are extracted with.")] = None,
    embedder: Annotated[str, typer.Option(help="Embedder that memories are found with.")] = "minilm",
    data: Annotated[str, typer.Option(help="auto, or sample for the bundled sample.")] = "auto",
    concurrency: Annotated[int, typer.Option(min=1, help="Histories at a time.")] = 4,
    budget: Annotated[float | None, typer.Option(help="US dollars by list price; no session is begun beyond.")] = None,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Delete these ingestions first, and make them anew.")
    ] = False,
    plugin: Annotated[list[Path] | None, typer.Option(help="A Python file with memory systems of your own.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Tell calls, tokens and cost; ingest nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Take users' histories in, session by session. The same command again does only what is missing.

    A study's run does this by itself before its first record. Whoever needs both speakers of a conversation, as LoCoMo
    does, names the conversation.
    """
    load_plugins(plugin or [])
    names = checked(systems)
    if data not in ("auto", "sample"):
        raise UsageError(f"--data {data}: say auto or sample.")
    prepared = prepare_memories(names, extractor=extractor, embedder=embedder, data=data)
    chosen = the_users(prepared.corpus, words(users) or ())
    pairs = [(name, user) for user in chosen for name in names]
    store = the_store(patience_s=PATIENCE_OF_A_RUN_S)
    if dry_run:
        at_once = min([concurrency, *(prepared.at_a_time(name, concurrency) for name in _extractors(prepared))])
        _print_quote(ingestion_quote(store, prepared, pairs), at_once, as_json)
        asyncio.run(prepared.aclose())
        return
    if budget is not None:
        _check_budget(prepared, budget)
    if rebuild:
        _remove(prepared, pairs)
    ingestion = Ingestion(prepared.ingesting, prepared.corpus, pairs, concurrency=concurrency)
    halted = asyncio.run(_run(store, prepared, ingestion, concurrency, budget))
    if as_json:
        print_json({"halted": halted, "ingestions": summary(ingestion)})
    else:
        _print_outcome(ingestion)
    if halted:
        say(halted, err=True)
    if not ingestion.complete:
        say("The same command again goes on where it stopped.", err=True)
        raise typer.Exit(1)


def _check_budget(prepared: PreparedMemories, budget: float) -> None:
    if not budget > 0:
        raise UsageError(f"a budget of {dollars(budget)} buys nothing: give more, or leave it out.")
    registry = prepared.registry
    asked: list[tuple[str, Spec]] = [("models", registry.model(name)) for name in _extractors(prepared)]
    check_prices([*asked, ("embedders", registry.embedder(prepared.embedder.name))])


def _extractors(prepared: PreparedMemories) -> set[str]:
    """The models that are asked, by name."""
    return {each.extractor for each in prepared.ingesting.values() if each.extractor}


def _remove(prepared: PreparedMemories, pairs: Sequence[Pair]) -> None:
    found = []
    for name, user in pairs:
        manifest = _memory(prepared, name).manifest(user, prepared.corpus.conversations[user.conversation].sessions)
        if manifest is not None and manifest.state == "at work":
            raise UsageError(f"{manifest.label} is taking in {manifest.user} at the moment: stop that first.")
        if manifest is not None:
            found.append(manifest)
    for manifest in found:
        remove(manifest)
    say(f"{len(found)} ingestions deleted", err=True)


def _memory(prepared: PreparedMemories, name: str) -> Ingesting:
    return prepared.ingesting[name]


async def _run(
    store: Store, prepared: PreparedMemories, ingestion: Ingestion, concurrency: int, budget: float | None
) -> str | None:
    """Ingest until all is in, the budget is spent or somebody stops it; the sentence that says why it ended early."""
    calls = connect(store, prepared, concurrency)
    meter = Meter(prepared, calls.stats, 0.0)
    halted: str | None = None
    display = _Display(Console(stderr=True), ingestion, lambda: meter.spent_usd)

    def interrupted() -> None:
        nonlocal halted
        if halted is not None:
            os._exit(_STOPPED)
        halted = "Stopped."
        display.say("finishing the sessions in flight; Ctrl-C again leaves at once, and they are done again next time")

    async def go_on() -> bool:
        nonlocal halted
        if halted is None and budget is not None:
            halted = meter.reason_to_halt(budget)
        return halted is None

    async def show() -> None:
        display.show()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, interrupted)
    try:
        with display:
            await ingestion.run(go_on, show)
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
        await prepared.aclose()
        store.close()
    return halted


class _Display:
    """Progress on standard error: a bar on a terminal, a line now and then in a log."""

    def __init__(self, console: Console, ingestion: Ingestion, spent: Callable[[], float]) -> None:
        self._console = console
        self._ingestion = ingestion
        self._spent = spent
        self._bars = Bars(
            TextColumn("sessions"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[told]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bars.add_task("sessions", total=None, told="")
        self._said = 0.0
        self._last = ""

    def __enter__(self) -> _Display:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def say(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False)

    def show(self) -> None:
        standings = list(self._ingestion.standings.values())
        done, planned = sum(each.done for each in standings), sum(each.planned for each in standings)
        at_work = [f"{each.label} {each.user}" for each in standings if each.state == "at work"]
        failed = sum(each.state == "failed" for each in standings)
        told = ", ".join(
            [
                f"{sum(each.memories for each in standings):,} memories",
                *([f"{dollars(self._spent())} spent"] if self._spent() else []),
                *([f"{failed} failed"] if failed else []),
                *([f"at work: {', '.join(at_work[:2])}{' …' if len(at_work) > 2 else ''}"] if at_work else []),
            ]
        )
        self._bars.update(self._task, completed=done, total=planned, told=told)
        now = time.monotonic()
        line = f"{done}/{planned} sessions, {told}"
        due = now - self._said >= _LINE_EVERY_S or done == planned
        if not self._console.is_terminal and due and line != self._last:
            self._said, self._last = now, line
            self.say(line)


def _print_outcome(ingestion: Ingestion) -> None:
    frame = pd.DataFrame(summary(ingestion))
    for column, default in (("empty", 0), ("extractions", 0), ("calls", 0), ("reused", 0), ("cost_usd", None)):
        if column not in frame:
            frame[column] = default
    rows = rows_of(frame)
    shown = pd.DataFrame(
        [
            {
                "system": row["system"],
                "user": row["user"],
                "state": row["state"],
                "sessions": f"{row['sessions']}/{row['planned']}",
                "memories": row["memories"],
                "empty": f"{row['empty'] or 0:.0f}/{row['extractions'] or 0:.0f}",
                "calls": f"{row['calls'] or 0:.0f} ({row['reused'] or 0:.0f} reused)",
                "cost": cost_told(ingestion.memories[row["system"]].extractor, row["cost_usd"]),
            }
            for row in rows
        ]
    )
    print_table(shown, {column: column for column in shown.columns})
    for row in rows:
        if row["error"]:
            say(f"{row['system']}, {row['user']}: {row['error']}")


def _print_quote(lines: Sequence[IngestionLine], at_once: int, as_json: bool) -> None:
    systems = by_system(lines)
    costs = [line.cost_usd for line in systems]
    cost_usd = None if None in costs else sum(each for each in costs if each is not None)
    seconds = seconds_at(lines, at_once)
    totals = {name: sum(getattr(line, name) for line in systems) for name in _AMOUNTS}
    if as_json:
        by_user = [line.to_dict() for line in lines]
        print_json(totals | {"cost_usd": cost_usd, "seconds": seconds, "basis": basis(lines), "lines": by_user})
        return
    rows = [
        {"memory system": line.system, "users": str(line.users)}
        | {heading: f"{getattr(line, name):,}" for name, heading in _AMOUNTS.items()}
        | {"cost": cost_told(line.extractor, line.cost_usd)}
        for line in systems
    ]
    rows.append(
        {"memory system": "in all", "users": str(len({line.user for line in lines if line.sessions}))}
        | {heading: f"{totals[name]:,}" for name, heading in _AMOUNTS.items()}
        | {"cost": cost_told("", cost_usd)}
    )
    frame = pd.DataFrame(rows)
    notes = [f"{line.system}: {line.reason}" for line in systems if line.reason]
    if totals["sessions"]:
        notes += [
            f"time   about {timedelta(seconds=round(seconds))}, {at_once} at a time",
            f"basis  {basis(lines)}",
            "At the most: a call that the call store has costs nothing.",
        ]
    else:
        notes.append("All of this is in already.")
    print_table(frame, {column: column for column in frame.columns}, notes=notes)
