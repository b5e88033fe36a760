"""`opbench plugins`: what plugin files bring."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from opbench.commands.options import print_json
from opbench.plugins import plugin_files, plugin_folder, what_they_bring


def add(app: typer.Typer) -> None:
    app.command("plugins")(plugins_command)


def plugins_command(
    files: Annotated[
        list[Path] | None, typer.Argument(help="Plugin files; default: those in the plugin folder.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Load plugin files and tell which methods, memory systems and judges they bring."""
    chosen = files or plugin_files()
    brought = {str(file): what_they_bring([file]) for file in chosen}
    if as_json:
        print_json(brought)
        return
    if not chosen:
        typer.echo(f"No plugin file in {plugin_folder()}. Put one there, or name it: opbench plugins FILE.py")
    for file, groups in brought.items():
        names = ", ".join(f"{group} {' '.join(names)}" for group, names in groups.items() if names)
        typer.echo(f"{file}: {names or 'nothing'}")
