"""`opbench serve`: an open model of the registry, served with vLLM on this machine."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
from typing import Annotated

import typer

from opbench.commands.options import say
from opbench.errors import UsageError
from opbench.models.registry import ModelSpec, load_registry
from opbench.serving import checks, command, fleet

_KEY_VARIABLE = "VLLM_API_KEY"


def add(app: typer.Typer) -> None:
    app.command("serve")(serve_command)


def serve_command(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Name of a model whose entry has a vllm command.")],
    flags: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- FLAGS]", help="Further flags for vLLM, e.g. -- --max-model-len 8192."),
    ] = None,
    servers: Annotated[
        int | None, typer.Option(min=1, max=64, help="Servers on ports next to each other, each on GPUs of its own.")
    ] = None,
    python: Annotated[str | None, typer.Option(help="Python that vLLM is installed in.")] = None,
    every: Annotated[float, typer.Option(min=1, help="Seconds between lines of throughput.")] = 5.0,
    start_limit: Annotated[float, typer.Option(min=1, help="Seconds that the servers may take to start.")] = 1800.0,
) -> None:
    """Serve an open model with vLLM at its entry's address, and show its throughput, until Ctrl-C."""
    spec = load_registry().model(model)
    order = command.order(spec, flags or [], servers)
    key = _key(spec)
    checks.check_ports(order)
    install = checks.look(checks.serving_python(python))
    checks.check_gpus(order, install)
    say(f"vLLM {install.version} on {install.device}: {shlex.join([order.model, *order.flags])}")
    for warning in command.warnings(order):
        say(f"note: {warning}")
    dead = asyncio.run(_serve(order, install, key, every, start_limit))
    if dead:
        raise typer.Exit(1)


async def _serve(
    order: command.Order, install: checks.Install, key: str | None, every: float, start_limit: float
) -> int:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for number in numbers:
        loop.add_signal_handler(number, ended.set)
    try:
        return await fleet.serve(order, install, key, ended, say, every_s=every, start_limit_s=start_limit)
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


def _key(spec: ModelSpec) -> str | None:
    """The key that clients will send, which the server gets in its environment.

    Raises:
        UsageError: its variable isn't set, or vLLM would ask for a key that no client sends.
    """
    if spec.key_env is None:
        if os.environ.get(_KEY_VARIABLE):
            raise UsageError(
                f"{spec.name}: {_KEY_VARIABLE} is set, so the server would ask for a key, and its registry entry has "
                f'none to send. Add key_env = "{_KEY_VARIABLE}", or unset the variable.'
            )
        return None
    key = os.environ.get(spec.key_env, "").strip()
    if not key:
        raise UsageError(f"{spec.name}: no key. Set {spec.key_env} (environment) and try again.")
    return key
