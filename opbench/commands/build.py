"""`opbench build`: make a benchmark of OP-Bench's kind from conversations, filter it, and take it out as files."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import pandas as pd
import typer

from opbench.commands import build_make
from opbench.commands.options import print_json, print_table, rows_of, say, the_store, words
from opbench.store.database import Store

app = typer.Typer(help="Make a benchmark from conversations: build, filter, respond, export.", no_args_is_help=True)
build_make.add(app)

_SIGNS = 200
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_Build = Annotated[str | None, typer.Argument(help="Build id or name; default: the newest.")]


@app.command("list")
def list_command(as_json: _Json = False) -> None:
    """All builds of the store, newest first."""
    from opbench.store.builds import list_builds

    found = list_builds(the_store())
    if as_json:
        print_json(
            [
                {
                    "id": each.id,
                    "name": each.name,
                    "maker": each.maker,
                    "created_at": each.created_at,
                    "working": each.build is not None and each.build.working,
                    "halted": None if each.build is None else each.build.halted,
                    "candidates": dict(each.counts),
                    "damage": each.damage or None,
                }
                for each in found
            ]
        )
        return
    if not found:
        say("No build in this store yet. Make one with 'opbench build run'.")
        return
    rows = [
        {
            "id": each.id,
            "name": each.name,
            "begun": f"{datetime.fromtimestamp(each.created_at, UTC):%Y-%m-%d %H:%M}",
            "state": "damaged" if each.build is None else "working" if each.build.working else "",
            "candidates": sum(each.counts.values()),
            **{state: each.counts.get(state, 0) for state in ("kept", "dropped", "accepted", "rejected")},
        }
        for each in found
    ]
    frame = pd.DataFrame(rows)
    notes = [each.damage for each in found if each.damage]
    print_table(frame, {name: name for name in frame.columns}, notes=notes)


@app.command("status")
def status_command(build: _Build = None, as_json: _Json = False) -> None:
    """How far a build is: work done by stage and model, the funnel, cost and acceptance by generator."""
    from opbench.analysis.builds import failed, work
    from opbench.analysis.funnel import funnel
    from opbench.analysis.generators import generators
    from opbench.store.builds import find_build, load_build, read_units

    store = the_store()
    build_id = find_build(store, build)
    known = load_build(store, build_id)
    units = list(read_units(store, build_id).values())
    tables = {
        "work": work(units),
        "funnel": funnel(store, build_id),
        "generators": generators(store, build_id),
        "failed": failed(units),
    }
    if as_json:
        print_json(
            {
                "id": build_id,
                "name": known.name,
                "worker": known.worker,
                "request": known.request,
                "halted": known.halted,
                "spec": known.spec.model_dump(mode="json"),
                "provenance": known.provenance,
                "runs": _runs(store, build_id),
                **{name: rows_of(frame) for name, frame in tables.items()},
            }
        )
        return
    at_work = f"process {known.worker} is at work" if known.worker else "nobody is at work"
    say(f"{build_id} ({known.name}): {at_work}")
    if known.halted:
        say(known.halted)
    if not units:
        say(f"Nothing is done yet: opbench build run {build_id}")
        return
    hidden = {"done", "untold"}
    print_table(_whole(tables["work"]), {name: _head(name) for name in tables["work"].columns if name not in hidden})
    _print_funnel(tables["funnel"])
    _print_generators(tables["generators"])
    for row in tables["failed"].head(5).itertuples(index=False):
        say(f"  {row.unit}: {row.reason}")
    if len(tables["failed"]):
        say(f"{len(tables['failed'])} units failed. 'opbench build run {build_id}' does again what may go better.")
    for run_id in _runs(store, build_id):
        say(f"responses: run {run_id}")


def _runs(store: Store, build_id: str) -> list[str]:
    from opbench.store.build_runs import runs_of_build

    return runs_of_build(store, build_id)


def _head(name: str) -> str:
    heads = {
        "tokens_in": "tokens in",
        "tokens_out": "out",
        "prompt_tokens": "tokens in",
        "completion_tokens": "out",
        "cost_usd": "cost $",
    }
    return heads.get(name, name.replace("_", " "))


def _whole(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with tokens and seconds, which may be unknown, as whole numbers."""
    amounts = [name for name in frame.columns if "tokens" in name or name == "seconds"]
    written = {name: ["–" if pd.isna(value) else f"{value:,.0f}" for value in frame[name]] for name in amounts}
    return frame.assign(**written)


def _print_funnel(frame: pd.DataFrame) -> None:
    if len(frame):
        columns = {"label": "step", "n": "left", "dropped": "dropped", "undecided": "waiting"}
        print_table(frame, columns, title="From candidates to questions")


def _print_generators(frame: pd.DataFrame) -> None:
    if len(frame):
        columns = ("generator", "subtype", "generated", "dropped", "kept", "reviewed", "accepted", "acceptance")
        costs = ("low", "high", "note", "cost_usd", "prompt_tokens", "completion_tokens", "seconds")
        print_table(_whole(frame), {name: _head(name) for name in (*columns, *costs)}, title="By generator")


@app.command("show")
def show_command(
    build: _Build = None,
    state: Annotated[str | None, typer.Option(help="candidate, kept, dropped, accepted, rejected; a,b.")] = None,
    subtypes: Annotated[str | None, typer.Option(help="OP-Bench subtypes, a,b.")] = None,
    user: Annotated[str | None, typer.Option(help="User id such as conv-26/Caroline.")] = None,
    by: Annotated[str | None, typer.Option(help="What decided: a filter's name, or review.")] = None,
    generator: Annotated[str | None, typer.Option(help="The model that wrote it.")] = None,
    says: Annotated[str, typer.Option(help="Words in question, reason or falsified memory.")] = "",
    profiles: Annotated[bool, typer.Option("--profiles", help="The users' profiles and topics instead.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="Candidates at the most.")] = 20,
    as_json: _Json = False,
) -> None:
    """Read a build's candidates, the dropped ones with why, or its users' profiles."""
    from opbench.analysis.builds import candidate_frame, check_narrowing, narrowed
    from opbench.store.builds import find_build, read_candidates

    store = the_store()
    build_id = find_build(store, build)
    if profiles:
        _show_profiles(store, build_id, as_json)
        return
    whole = candidate_frame(read_candidates(store, build_id))
    chosen: dict[str, Any] = {
        "states": words(state) or (),
        "subtypes": words(subtypes) or (),
        "user": user,
        "decided_by": by,
        "generator": generator,
    }
    check_narrowing(whole, **chosen)
    found = narrowed(whole, **chosen, says=says)
    if as_json:
        print_json({"found": len(found), "of": len(whole), "candidates": rows_of(found.head(limit))})
        return
    say(f"{len(found):,} of {len(whole):,} candidates" + (f", the first {limit}" if len(found) > limit else ""))
    for row in found.head(limit).to_dict("records"):
        kind = f" · {row['kind']}" if row["kind"] else ""
        say(f"\n{row['id']}  {row['user']}  {row['subtype']}{kind}  {row['state']}")
        say(f"  {row['question']}")
        if row["reason"]:
            say(f"  {row['decided_by']}: {row['reason']}")
        if row["falsifies"]:
            say(f"  falsifies: {row['falsifies']}")
        if row["evidence"]:
            say(f"  turns: {', '.join(row['evidence'])}")


def _show_profiles(store: Store, build_id: str, as_json: bool) -> None:
    from opbench.construction.people import read_people

    people = read_people(store, build_id)
    if as_json:
        print_json(
            {
                user: {
                    "profile": each.profile,
                    "topics": None if each.topics is None else list(each.topics),
                    "observations": [{"text": fact.text, "evidence": list(fact.evidence)} for fact in each.facts],
                }
                for user, each in people.items()
            }
        )
        return
    for user, each in people.items():
        say(f"\n{user}\n  profile: {each.profile or 'not made yet'}")
        say(f"  topics: {'not made yet' if each.topics is None else ', '.join(each.topics)}")
        for fact in each.facts:
            say(f"  - {fact.text}" + (f" ({', '.join(fact.evidence)})" if fact.evidence else ""))


@app.command("stop")
def stop_command(build: _Build = None) -> None:
    """Ask the process at work on a build to stop after what it has in hand."""
    from opbench.store.builds import find_build, load_build, request

    store = the_store()
    build_id = find_build(store, build)
    worker = load_build(store, build_id).worker
    request(store, build_id, "stop")
    say(f"{build_id}: process {worker} stops" if worker else f"{build_id}: nobody is at work on it")


@app.command("rename")
def rename_command(
    build: Annotated[str, typer.Argument(help="Build id or name.")],
    name: Annotated[str, typer.Argument(help="The new name.")],
) -> None:
    """Give a build another name."""
    from opbench.store.builds import find_build, rename_build

    store = the_store()
    build_id = find_build(store, build)
    rename_build(store, build_id, name)
    say(f"{build_id}: {' '.join(name.split())}")


@app.command("delete")
def delete_command(
    build: Annotated[str, typer.Argument(help="Build id or name.")],
    yes: Annotated[bool, typer.Option("--yes", help="Don't ask.")] = False,
) -> None:
    """Delete a build with its candidates. The answers of its calls stay in the call store."""
    from opbench.construction.responding import forget_data
    from opbench.store.builds import delete_build, find_build, read_candidates

    store = the_store()
    build_id = find_build(store, build)
    n, runs = len(read_candidates(store, build_id)), _runs(store, build_id)
    say(f"{build_id}: {n:,} candidates with all decisions", err=True)
    if runs:
        say(f"runs {', '.join(runs)} keep what they recorded, but can't go on", err=True)
    if not yes:
        typer.confirm("Delete it?", abort=True, err=True)
    delete_build(store, build_id)
    forget_data(build_id)
    say(f"{build_id} deleted", err=True)


@app.command("export")
def export_command(
    build: Annotated[str, typer.Argument(help="Build id or name.")],
    folder: Annotated[
        Path, typer.Argument(help="A folder of its own; opbench/, locomo/ and provenance.json go there.")
    ],
    which: Annotated[
        Literal["kept", "accepted"], typer.Option(help="accepted by people, or kept by the filters.")
    ] = "accepted",
    as_json: _Json = False,
) -> None:
    """Write the benchmark as files in exactly the public form. `OPBENCH_DATA=FOLDER opbench run …` runs on them."""
    from opbench.construction.export import export
    from opbench.store.builds import find_build

    store = the_store()
    build_id = find_build(store, build)
    made = export(store, build_id, folder, which)
    if as_json:
        print_json(
            {
                "build": build_id,
                "folder": str(folder),
                "conversations": made.conversations,
                "users": made.users,
                "instances": dict(made.instances),
            }
        )
        return
    for subtype, n in made.instances.items():
        say(f"{subtype}: {n:,}")
    say(f"{made.total:,} questions of {made.users} users in {folder}")


@app.command("convert")
def convert_command(
    chats: Annotated[Path, typer.Argument(help="Chats as JSON Lines: conversation, speaker or role, text, time.")],
    output: Annotated[Path, typer.Argument(help="The file to write, in LoCoMo's format (.json).")],
    gap: Annotated[float, typer.Option(help="Hours of silence after which a new session begins.")] = 6.0,
    zone: Annotated[str, typer.Option(help="Time zone of times that name none, e.g. Europe/Berlin.")] = "UTC",
    as_json: _Json = False,
) -> None:
    """Turn plain chats into conversations that 'opbench build run --conversations' takes."""
    from opbench.construction.converting import convert

    made = convert(chats, gap_hours=gap, zone=zone)
    made.write(output)
    told = {
        "file": str(output),
        "conversations": len(made.conversations),
        "sessions": made.sessions,
        "turns": made.turns,
        "left_out": dict(made.left_out),
    }
    if as_json:
        print_json(told)
        return
    say(f"{output}: {told['conversations']} conversations, {made.sessions} sessions, {made.turns:,} turns")
    for why, n in made.left_out.items():
        say(f"left out: {n:,} {why}")
