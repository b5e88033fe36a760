"""A worker of a run of several: a program that a leader (`opbench run --workers`) starts, and no command for people.

Not a part of the command line, so that it needn't load all other commands.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path

from opbench.commands.options import say, the_store
from opbench.errors import OpbenchError
from opbench.models.secrets import log_without_keys
from opbench.plugins import load_plugins
from opbench.running import interpreter
from opbench.running.crew import Part
from opbench.running.member import work
from opbench.running.prepare import Prepared, prepare
from opbench.store.database import PATIENCE_OF_A_RUN_S, Store
from opbench.study import make_study


def main() -> None:
    """Do a part of a run, told on standard input as JSON: part, study, plugins."""
    orders = json.load(sys.stdin)
    log_without_keys()
    # Asked to end before there is anything in hand.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        load_plugins([Path(file) for file in orders["plugins"]])
        part = Part(**orders["part"])
        prepared = prepare(make_study(orders["study"]), share=part.of)
        interpreter.run(_work(the_store(patience_s=PATIENCE_OF_A_RUN_S), prepared, part))
    except OpbenchError as error:
        say(f"opbench: {error}", err=True)
        sys.exit(1)


async def _work(store: Store, prepared: Prepared, part: Part) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    try:
        await work(store, prepared, part, stop=stop)
    finally:
        await prepared.aclose()


if __name__ == "__main__":
    main()
