"""What the commands of `opbench judges` that ask judges have in common: options, progress, stopping, outcome."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opbench.commands.options import say, the_store
from opbench.models.secrets import log_without_keys
from opbench.running.budget import dollars
from opbench.store.database import PATIENCE_OF_A_RUN_S, Store

if TYPE_CHECKING:
    from opbench.calibration.estimating import Estimate
    from opbench.calibration.judging import Outcome
    from opbench.calibration.spec import JudgeChoice

Judges = Annotated[
    list[str] | None,
    typer.Option(
        "--judge",
        help="offline, random (the control), or a model as NAME or NAME@PACK; once for each. PACK: own, brief, "
        "official, auto, memos (LoCoMo), or a folder with prompts of yours; PACK+schema holds a "
        "small model to the form of the answer.",
    ),
]
Repeats = Annotated[int, typer.Option(min=1, max=20, help="How often each response is judged.")]
Temperature = Annotated[float, typer.Option(min=0.0, max=2.0, help="Of judging models.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Tell what it would take; ask nobody.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

_LINE_EVERY_S = 5.0

Stopping = Callable[[], bool]
Told = Callable[["Outcome", float], None]


def choices_of(judges: Sequence[str] | None, repeats: int, temperature: float) -> list[JudgeChoice]:
    """Raises UsageError for a judge that isn't written as one."""
    from opbench.calibration.choosing import parse_choice

    return [parse_choice(each, repeats=repeats, temperature=temperature) for each in judges or ()]


def patient_store() -> Store:
    """The store for a job that may last for hours."""
    return the_store(patience_s=PATIENCE_OF_A_RUN_S)


def work(job: Callable[[Stopping, Told], Coroutine[Any, Any, list[Outcome]]]) -> list[Outcome]:
    """Do the job with lines of progress; the first SIGINT or SIGTERM ends it after what it has in hand."""
    from opbench.calibration.launching import progress_line

    told = 0.0

    def show(outcome: Outcome, seconds_left: float) -> None:
        nonlocal told
        if time.monotonic() - told >= _LINE_EVERY_S or not seconds_left:
            told = time.monotonic()
            done = outcome.done + outcome.kept
            say(progress_line(outcome.label, done, outcome.planned, seconds_left), err=True)

    async def run() -> list[Outcome]:
        asked = asyncio.Event()
        loop = asyncio.get_running_loop()

        def stop() -> None:
            asked.set()
            say("stopping after what is in hand; Ctrl-C again leaves at once", err=True)
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop)
        try:
            return await job(asked.is_set, show)
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    log_without_keys()
    return asyncio.run(run())


def tell_outcomes(outcomes: Sequence[Outcome]) -> None:
    """A line a judge, on the error stream: the table that follows is the result."""
    for each in outcomes:
        parts = [f"{each.done:,} judged, {each.kept:,} judged before, of {each.planned:,}"]
        if each.missing:
            parts.append(f"{each.missing:,} without a score")
        if each.retriable:
            parts.append(f"{each.retriable:,} whose call failed: the same command asks again")
        if each.halted:
            parts.append(each.halted)
        say(f"{each.label}: {'; '.join(parts)}", err=True)
    for reason, n in outcomes[0].left_out.items() if outcomes else ():
        say(f"{n:,} not judged: {reason}", err=True)


def exit_when_incomplete(outcomes: Sequence[Outcome]) -> None:
    """Exit code 1 when something is left to ask."""
    if any(not each.complete for each in outcomes):
        raise typer.Exit(1)


def tell_estimates(estimates: Sequence[Estimate]) -> None:
    for each in estimates:
        cost = "cost not known" if each.cost_usd is None else dollars(each.cost_usd)
        pace = "" if each.seconds is None else f", about {each.seconds:.0f} s"
        say(
            f"{each.label}: {each.judgements:,} judgements to make, {each.kept:,} made; {each.calls:,} calls, "
            f"{each.prompt_tokens:,} + {each.completion_tokens:,} tokens, {cost}{pace} ({each.note})"
        )
