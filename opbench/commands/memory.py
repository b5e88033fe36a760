"""`opbench memory`: what memory systems there are, what they took in, and what they find in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from opbench.commands import memory_ingest
from opbench.commands.memory_choice import (
    SHORT_DIGEST,
    cost_told,
    kept_by,
    named,
    one_by_one,
    the_ingestion,
    told_apart,
)
from opbench.commands.options import print_json, print_table, say, words
from opbench.errors import OpbenchError, UsageError
from opbench.memories.configured import ServerFactory
from opbench.memories.install import NAMES, install
from opbench.memories.manifest import Manifest, read_manifests, remove
from opbench.memories.registry import (
    BUILT_IN,
    library_factory,
    memory_label,
    memory_names,
    needs_extractor,
)
from opbench.plugins import load_plugins
from opbench.running import keeping
from opbench.running.budget import dollars
from opbench.running.remembering import Found
from opbench.settings import settings
from opbench.sharing.visible import one_line

app = typer.Typer(help="Memory systems: list, install, ingest, search, show, reset.", no_args_is_help=True)
memory_ingest.add(app)

#: Signs of a memory in a table on the terminal.
_MEMORY_SIGNS = 300

_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_Plugin = Annotated[list[Path] | None, typer.Option(help="A Python file with memory systems of your own.")]
_Digest = Annotated[
    str | None, typer.Option(help="Which ingestion, where there are several: the beginning of its digest.")
]


@app.command("list")
def list_command(plugin: _Plugin = None, as_json: _Json = False) -> None:
    """Memory systems, whether they can be used here, and how far their ingestions are."""
    load_plugins(plugin or [])
    systems = [_system(name) for name in memory_names()]
    manifests = read_manifests(settings().kept)
    if as_json:
        print_json({"systems": systems, "ingestions": [_ingestion(each) for each in manifests]})
        return
    frame = pd.DataFrame(systems)
    frame["installed"] = frame["installed"].map({True: "yes", False: "no"})
    frame["extractor"] = frame["needs_extractor"].map({True: "needed", False: ""})
    print_table(
        frame,
        {"name": "memory system", "label": "name", "from": "from", "installed": "installed", "extractor": "extractor"},
    )
    for each in systems:
        if each["mend"]:
            say(f"{each['name']}: {each['mend']}")
    if not manifests:
        say("Nothing is ingested yet: opbench memory ingest SYSTEM --extractor MODEL")
        return
    rows = pd.DataFrame([_row(each) for each in manifests])
    print_table(rows, {column: column for column in rows.columns})
    for manifest in manifests:
        if manifest.failure:
            say(f"{manifest.system}, {manifest.user}: {manifest.failure.error}")


def _system(name: str) -> dict[str, Any]:
    factory = library_factory(name)
    identity: dict[str, str] = {}
    mend = ""
    if factory is not None:
        try:
            identity = factory.library().identity()
        except OpbenchError as error:
            mend = str(error)
    return {
        "name": name,
        "label": memory_label(name),
        "from": "server" if isinstance(factory, ServerFactory) else "workbench" if name in BUILT_IN else "plugin",
        "ingests": factory is not None,
        "needs_extractor": needs_extractor(name),
        "installed": not mend,
        "mend": mend,
        "note": "" if factory is None or mend else factory.library().note,
        "identity": identity,
    }


def _ingestion(manifest: Manifest) -> dict[str, Any]:
    """An ingestion as JSON values, without its single sessions."""
    values = manifest.to_dict()
    return {name: value for name, value in values.items() if name != "sessions"} | {
        "sessions_done": len(manifest.sessions)
    }


def _row(manifest: Manifest) -> dict[str, Any]:
    usage = manifest.usage
    return {
        "system": manifest.system,
        "user": manifest.user,
        "state": manifest.state,
        "sessions": f"{len(manifest.sessions)}/{manifest.sessions_planned}",
        "memories": manifest.memories,
        "empty": f"{manifest.empty}/{manifest.extractions}",
        "calls": f"{usage.calls} ({usage.reused} reused)",
        "tokens in": usage.prompt_tokens,
        "out": usage.completion_tokens,
        "cost": cost_told(manifest.extractor, usage.cost_usd),
        "seconds": round(manifest.seconds),
        "size": _size(manifest.store_bytes),
        "extractor": manifest.extractor or "its own",
        "digest": manifest.digest[:SHORT_DIGEST],
    }


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


@app.command("install")
def install_command(name: Annotated[str, typer.Argument(help=f"Which: {', '.join(NAMES)}.")]) -> None:
    """Make the environment of a memory library that can't share ours. Quick when it is there."""
    install(name, lambda line: say(line, err=True))


@app.command("search")
def search_command(
    systems: Annotated[str, typer.Argument(help="Memory systems, a,b: their answers stand side by side.")],
    user: Annotated[str, typer.Argument(help="User id such as conv-26/Caroline.")],
    query: Annotated[str, typer.Argument(help="What is looked for.")],
    k: Annotated[int, typer.Option(min=1, max=100, help="Memories of each system.")] = 5,
    digest: _Digest = None,
    plugin: _Plugin = None,
    as_json: _Json = False,
) -> None:
    """Search what is ingested of a user. Ingests nothing, and asks no model but the embedder."""
    load_plugins(plugin or [])
    if not query.strip():
        raise UsageError("the query is empty.")
    chosen = [the_ingestion(system, user, digest, complete=True) for system in named(words(systems) or ())]
    try:
        found = keeping.search_in(chosen, query, k)
    finally:
        keeping.close()
    if as_json:
        print_json(
            [
                {"system": each.system, "label": each.label, "digest": each.digest, "user": user} | asdict(answer)
                for each, answer in zip(chosen, found, strict=True)
            ]
        )
    else:
        _print_side_by_side(chosen, found)
    if any(answer.problem for answer in found):
        raise typer.Exit(1)


def _print_side_by_side(chosen: Sequence[Manifest], found: Sequence[Found]) -> None:
    table = Table(box=box.SIMPLE, pad_edge=False, show_lines=True)
    table.add_column("#", justify="right")
    columns = []
    for manifest, answer in zip(chosen, found, strict=True):
        table.add_column(Text(f"{manifest.label}, {answer.milliseconds:,.0f} ms"), ratio=1, overflow="fold")
        told = [_told(memory.text, memory.date, memory.score) for memory in answer.memories]
        columns.append(["(failed)"] if answer.problem else told or ["(nothing)"])
    for place in range(max(map(len, columns), default=0)):
        cells = [column[place] if place < len(column) else "" for column in columns]
        table.add_row(str(place + 1), *(Text(one_line(cell, _MEMORY_SIGNS)) for cell in cells))
    Console().print(table)
    for manifest, answer in zip(chosen, found, strict=True):
        if answer.problem:
            say(f"{manifest.label}: {answer.problem}", err=True)


def _told(text: str, date: str | None, score: float | None = None) -> str:
    similarity = "" if score is None else f"{score:.3f} "
    return f"{similarity}({date}) {text}" if date else f"{similarity}{text}"


@app.command("show")
def show_command(
    system: Annotated[str, typer.Argument(help="Memory system.")],
    user: Annotated[str, typer.Argument(help="User id such as conv-26/Caroline.")],
    digest: _Digest = None,
    plugin: _Plugin = None,
    as_json: _Json = False,
) -> None:
    """All memories of a user with their dates, what each session gave and took, and where it all comes from."""
    load_plugins(plugin or [])
    manifest = the_ingestion(system, user, digest)
    try:
        memories = keeping.memories_of(manifest) if manifest.complete else []
    finally:
        keeping.close()
    if as_json:
        print_json(manifest.to_dict() | {"memories": [asdict(memory) for memory in memories]})
        return
    say(f"{manifest.label}, {user}: {manifest.state}, {manifest.memories} memories")
    for memory in memories:
        say("  " + _told(memory.text, memory.date))
    if manifest.failure:
        say(f"stopped: {manifest.failure.error}")
    if not manifest.complete:
        say("Memories can be read when all sessions are in.")
    sessions = pd.DataFrame(
        [
            {
                "session": each.number,
                "date": each.day,
                "memories": each.added.memories,
                "in all": each.total,
                "empty": f"{each.added.empty}/{each.added.extractions}",
                "calls": f"{each.usage.calls} ({each.usage.reused} reused)",
                "tokens in": each.usage.prompt_tokens,
                "out": each.usage.completion_tokens,
                "cost": cost_told(manifest.extractor, each.usage.cost_usd),
                "seconds": round(each.taken_s, 1),
            }
            for each in manifest.sessions
        ]
    )
    if not sessions.empty:
        print_table(sessions, {column: column for column in sessions.columns})
    if manifest.note:
        say(f"note       {manifest.note}")
    say(f"history    {manifest.history_sha256}")
    say(f"digest     {manifest.digest}")
    say(f"folder     {manifest.path}")
    for key, value in sorted(manifest.identity.items()):
        say(f"{key}: {one_line(value, _MEMORY_SIGNS)}")


@app.command("reset")
def reset_command(
    systems: Annotated[list[str], typer.Argument(help="Memory systems.")],
    users: Annotated[str | None, typer.Option(help="User ids, a,b; default: all that are ingested.")] = None,
    digest: _Digest = None,
    all_versions: Annotated[
        bool, typer.Option("--all-versions", help="Also what was made with other versions, settings or models.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Don't ask.")] = False,
) -> None:
    """Delete ingestions. What their calls cost stays in the call store: made anew the same is free."""
    chosen: list[Manifest] = []
    for system in named(one_by_one(systems)):
        kept = kept_by(system)
        known = list(dict.fromkeys(manifest.user for manifest in kept))
        for user in words(users) or known:
            there = [each for each in kept if each.user == user and each.digest.startswith(digest or "")]
            if not there:
                raise UsageError(f"{system} has taken in nothing of {user}, so there is nothing to delete.")
            if len(there) > 1 and not all_versions:
                raise UsageError(f"{told_apart(system, user, there)} Name one with --digest, or say --all-versions.")
            chosen += there
    if not chosen:
        say("Nothing is ingested there: nothing to delete.")
        return
    for manifest in chosen:
        if manifest.state == "at work":
            raise UsageError(f"{manifest.label} is taking in {manifest.user} at the moment: stop that first.")
        cost = manifest.usage.cost_usd
        say(
            f"{manifest.system}  {manifest.user}  {manifest.digest[:SHORT_DIGEST]}: {manifest.memories} memories of "
            f"{len(manifest.sessions)} sessions, {_size(manifest.store_bytes)}"
            + ("" if not cost else f", {dollars(cost)} by list price"),
            err=True,
        )
        if isinstance(library_factory(manifest.system), ServerFactory):
            say("  what its server holds of this user stays there", err=True)
    if not yes:
        typer.confirm("Delete these?", abort=True, err=True)
    for manifest in chosen:
        remove(manifest)
    say(f"{len(chosen)} ingestions deleted", err=True)
