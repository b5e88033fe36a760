"""`opbench member`: a worker of a run of several, started by its leader (`opbench run --workers`) and not by people."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
from pathlib import Path

import typer

from opbench.commands.options import the_store
from opbench.plugins import load_plugins
from opbench.running.crew import Part
from opbench.running.member import work
from opbench.running.prepare import Prepared, prepare
from opbench.store.database import PATIENCE_OF_A_RUN_S, Store
from opbench.study import make_study


def add(app: typer.Typer) -> None:
    app.command("member", hidden=True)(member_command)


def member_command() -> None:
    """Do a part of a run, told on standard input as JSON: part, study, plugins."""
    orders = json.load(sys.stdin)
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(message)s")
    load_plugins([Path(file) for file in orders["plugins"]])
    part = Part(**orders["part"])
    prepared = prepare(make_study(orders["study"]), share=part.of)
    asyncio.run(_work(the_store(patience_s=PATIENCE_OF_A_RUN_S), prepared, part))


async def _work(store: Store, prepared: Prepared, part: Part) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    try:
        await work(store, prepared, part, stop=stop)
    finally:
        await prepared.aclose()
