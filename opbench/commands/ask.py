"""`opbench ask`: one question through several configurations, shown as it comes, taken apart, kept."""

from __future__ import annotations

import getpass
import os
import sys
import time
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from opbench.cases.desk import Desk
from opbench.cases.outcome import Ablation, At
from opbench.cases.session import Session
from opbench.cases.spec import CaseSpec
from opbench.cases.telling import named
from opbench.commands import case_choice as choice
from opbench.commands.case_text import ColumnTeller, remarks, tell_ablation
from opbench.commands.options import print_json, say, the_store
from opbench.errors import UsageError
from opbench.models import load_registry
from opbench.plugins import load_plugins
from opbench.store.cases import save_case
from opbench.store.database import Store

#: Exit code of a command that Ctrl-C ended, as shells have it.
INTERRUPTED = 130
_LOOK_S = 0.05
_PATIENCE_S = 15.0
_MODEL = "smollm2-135m"


def add(app: typer.Typer) -> None:
    app.command("ask")(ask_command)


def ask_command(
    question: Annotated[str | None, typer.Argument(help="What the user says.")] = None,
    user: Annotated[str | None, typer.Option(help="User id such as conv-26/Caroline; default: the first.")] = None,
    instance: Annotated[
        str | None, typer.Option(help="A benchmark instance by its id, in the place of question and user.")
    ] = None,
    published: Annotated[
        str | None, typer.Option(help="A published case by its id ('opbench data cases'), with its memories.")
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option(help=f"Model name; several are possible. Default: {_MODEL}.")
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            help="Columns MEMORY or MEMORY:POST-PROCESSOR, with commas, e.g. rag,rag:reminder. BASE comes too."
        ),
    ] = None,
    memory: Annotated[list[str] | None, typer.Option(help="Memory system, in the place of --columns.")] = None,
    mitigation: Annotated[list[str] | None, typer.Option(help="Post-processor for each --memory.")] = None,
    k: Annotated[int, typer.Option(min=1, max=100, help="Memories.")] = 5,
    temperature: Annotated[float, typer.Option(min=0.0, max=2.0, help="Temperature of the responses.")] = 0.0,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest response in tokens.")] = 512,
    judge: Annotated[str, typer.Option(help="'offline', or the model that judges.")] = "offline",
    embedder: Annotated[str, typer.Option(help="Embedder of RAG, and of what is compared.")] = "minilm",
    extractor: Annotated[
        str | None, typer.Option(help="Model that memory systems extract with; default: each column's own.")
    ] = None,
    subtype: Annotated[
        str | None, typer.Option(help="What the answer is judged as; default: fully-irrelevant.")
    ] = None,
    without: Annotated[
        list[int] | None, typer.Option(min=1, help="Each column once more without memory N; several are possible.")
    ] = None,
    memories_file: Annotated[
        Path | None, typer.Option(help="Each column once more with these memories: a JSON list, or one a line.")
    ] = None,
    prompt: Annotated[
        list[str] | None,
        typer.Option(
            help="SECTION=FILE: a column once more with a section of its post-processor's prompt from a file."
        ),
    ] = None,
    draft: Annotated[
        Path | None, typer.Option(help="One more column: a post-processor whose instructions are the file's text.")
    ] = None,
    leave_one_out: Annotated[
        bool, typer.Option("--leave-one-out", help="Then ask each column without each of its memories in turn.")
    ] = False,
    at: Annotated[
        At, typer.Option(help="Where a memory is left out: before post-processing, or after it.")
    ] = "retrieval",
    save: Annotated[str | None, typer.Option(help="Save the case under this name; see 'opbench case'.")] = None,
    note: Annotated[str, typer.Option(help="A note for the saved case.")] = "",
    sample: Annotated[bool, typer.Option("--sample", help="Take the bundled sample's users.")] = False,
    plugin: Annotated[list[Path] | None, typer.Option(help="A Python file with methods of your own.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Ask one question of several configurations: memories, what the post-processor kept, responses, scores, times.

    BASE is always a column. On a terminal the answers are printed as they come. Ctrl-C stops the calls.
    """
    load_plugins(plugin or [])
    asked = choice.whom_and_what(question, user, instance, published, "sample" if sample else "auto")
    if subtype is not None and "subtype" in asked.fields:
        raise UsageError("--subtype goes with a QUESTION: an instance and a published case have their own.")
    if save is not None and not save.strip():
        raise UsageError("--save: the name is empty.")
    models = model or [_MODEL]
    choice.known_models([*models, *([extractor] if extractor else [])], judge)
    chosen = choice.configurations(columns or [], memory or [], mitigation or [])
    spec = choice.make_case(
        choice.all_columns(
            models,
            chosen if columns or memory or mitigation else asked.configured,
            given=asked.given,
            draft=None if draft is None else choice.read_draft(draft),
            instead=None if memories_file is None else choice.read_given(memories_file),
            without=without or (),
            prompts=choice.read_sections(prompt or []),
        ),
        {
            **asked.fields,
            "k": k,
            "temperature": temperature,
            "max_tokens": max_tokens,
            "judge": judge,
            "embedder": embedder,
            "extractor": extractor,
            **({} if subtype is None else {"subtype": subtype}),
        },
    )
    _ask(the_store(), spec, loo=at if leave_one_out else None, save=save, note=note, as_json=as_json)


def _ask(store: Store, spec: CaseSpec, *, loo: At | None, save: str | None, note: str, as_json: bool) -> None:
    labels = {name: entry.label for name, entry in load_registry().models.items()}
    place = Desk()
    try:
        session = place.open(store, spec)
        try:
            _follow(session, labels, live=not as_json and sys.stdout.isatty(), quiet=as_json)
            if session.error is not None:
                raise UsageError(session.error)
            if loo is not None:
                _leave_one_out(session, loo, labels, quiet=as_json)
        except KeyboardInterrupt:
            session.cancel()
            session.wait(_PATIENCE_S)
            say("\nopbench: cancelled; what was finished is in the call store.", err=True)
            _leave()
    finally:
        place.close()
    outcomes, ablations = session.outcomes(), list(session.ablations().values())
    saved = None
    if save is not None:
        saved = save_case(
            store,
            name=save,
            note=note,
            spec=spec,
            outcomes=outcomes,
            ablations=ablations,
            provenance=session.provenance,
            maker=getpass.getuser(),
        )
    if as_json:
        print_json(
            {
                "spec": spec.model_dump(mode="json"),
                "outcomes": [outcome.model_dump(mode="json") for outcome in outcomes],
                "ablations": [ablation.model_dump(mode="json") for ablation in ablations],
                "provenance": session.provenance,
                "saved": saved,
            }
        )
    else:
        say(remarks(spec, bool(session.provenance.get("comparable"))))
        if saved is not None:
            say(f"saved as {saved}: opbench case show {saved}")
    faults = _faults(session, labels)
    for fault in faults:
        say(f"opbench: {fault}", err=True)
    if faults:
        raise typer.Exit(1)


def _leave() -> NoReturn:
    """End the process now. Python's own end waits for threads that still load a library or an embedder, and nobody
    needs what they load."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(INTERRUPTED)


def _follow(session: Session, labels: dict[str, str], *, live: bool, quiet: bool) -> None:
    """Print the columns one after the other: as they come, or each when all are over."""
    spec = session.spec
    tellers = [ColumnTeller(spec, number, name) for number, name in enumerate(named(spec, labels))]
    number, begun = 0, False
    while number < len(tellers):
        over = session.over
        outcomes = session.outcomes()
        if over and session.error is not None:
            return
        if not quiet and not begun and (over or live) and any(each.state != "waiting" for each in outcomes):
            say(f"user {spec.user}, judged as {spec.subtype}: {spec.question}\n")
            begun = True
        while begun or quiet or over:
            if not quiet:
                tellers[number].tell(outcomes[number])
            if not (outcomes[number].over or over):
                break
            number += 1
            if number == len(tellers):
                break
        if number < len(tellers):
            time.sleep(_LOOK_S)
    session.wait()


def _leave_one_out(session: Session, at: At, labels: dict[str, str], *, quiet: bool) -> None:
    """One column after the other, each printed when it is over."""
    able = [place for place, outcome in enumerate(session.outcomes()) if outcome.state == "done" and outcome.retrieved]
    if not able:
        raise UsageError("no column was answered with memories: there is none to leave out.")
    for place in able:
        session.leave_one_out(place, at)
        while not session.wait(_LOOK_S):
            pass
        if not quiet:
            tell_ablation(session.spec, session.ablations()[(place, at)], labels)


def _faults(session: Session, labels: dict[str, str]) -> list[str]:
    """A line for each column and each leave-one-out that wasn't answered."""
    names = named(session.spec, labels)
    faults = [] if session.unkept is None else [session.unkept]
    faults += [
        f"{name}: {outcome.error_kind or outcome.state}: {outcome.error or outcome.state}"
        for name, outcome in zip(names, session.outcomes(), strict=True)
        if outcome.state != "done"
    ]
    for ablation in session.ablations().values():
        faults += _missing(ablation, names[ablation.column])
    return faults


def _missing(ablation: Ablation, name: str) -> list[str]:
    return [
        f"{name} without memory {item.number}: {item.outcome.error or item.outcome.state}"
        for item in ablation.items
        if item.outcome.state != "done"
    ]
