"""`opbench gateway`: registry models and an embedder on loopback, for memory systems of people's own."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable
from typing import Annotated

import typer

from opbench.commands.options import say, the_store, words
from opbench.errors import UsageError
from opbench.gateway.lease import Lease, Usage
from opbench.gateway.server import Gateway
from opbench.models import ModelClient, get_embedder, load_registry
from opbench.running.budget import dollars
from opbench.running.prepare import call_store
from opbench.settings import settings
from opbench.store.database import Store

_SHORTEST_KEY = 16


def add(app: typer.Typer) -> None:
    app.command("gateway")(gateway_command)


def gateway_command(
    label: Annotated[str, typer.Option(help="Who asks, for the lines about its use.")] = "gateway",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 takes a free one.")] = 0,
    models: Annotated[str | None, typer.Option(help="Models to serve, a,b; default: all of the registry.")] = None,
    embedder: Annotated[str, typer.Option(help="Embedder to serve.")] = "minilm",
    every: Annotated[float, typer.Option(min=1, help="Seconds between lines about what was used.")] = 60.0,
) -> None:
    """Serve models and an embedder to a memory system of your own: cached, counted, until Ctrl-C."""
    asyncio.run(_serve(the_store(), label, port, words(models), embedder, every))


async def _serve(
    store: Store, label: str, port: int, models: tuple[str, ...] | None, embedder_name: str, every: float
) -> None:
    key = _key()
    registry = load_registry()
    names = tuple(registry.models) if models is None else models
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    async with ModelClient(registry) as client:
        gateway = Gateway(registry, client, get_embedder(embedder_name, registry, client), port=port)
        gateway.connect(call_store(store, registry, client, lambda name: registry.model(name).concurrency))
        try:
            lease = await gateway.lease(label, None, further_models=names, key=key)
            say(f"base URL  {lease.base_url}")
            say(f"token     {'as in OPBENCH_GATEWAY_KEY' if key else lease.key}")
            say(f"models    {', '.join(names) or 'none'}")
            say(f"embedder  {lease.embedder} ({lease.dimensions} dimensions)")
            say("Ctrl-C ends it.")
            await _report(lease, every, ended, say)
        finally:
            await gateway.aclose()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)


async def _report(lease: Lease, every: float, ended: asyncio.Event, tell: Callable[[str], None]) -> None:
    """A line whenever something was used or went wrong since the last, and one at the end, about all of it."""
    told = 0
    while not ended.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), every)
        if lease.failure is not None:
            tell(f"{lease.label}: failed: {lease.failure}")
            lease.failure = None
        used = lease.usage.calls + lease.usage.embedding_calls
        if used != told or ended.is_set():
            tell(f"{lease.label}: {usage_line(lease.usage)}")
            told = used


def usage_line(usage: Usage) -> str:
    """What was used, for people."""
    paid = dollars(usage.spent_usd)
    price = f"an unknown price, {paid} known to be paid now" if usage.cost_usd is None else None
    price = price or f"{dollars(usage.cost_usd or 0.0)} by list price, {paid} paid now"
    return (
        f"{usage.calls:,} calls ({usage.reused:,} reused), {usage.prompt_tokens:,} tokens in, "
        f"{usage.completion_tokens:,} out; {usage.embedding_calls:,} embedding requests, "
        f"{usage.embedded_texts:,} texts ({usage.embedded_reused:,} reused); {price}"
    )


def _key() -> str | None:
    """The token from the environment, where it is set."""
    held = settings().gateway_key
    if held is None:
        return None
    key = held.get_secret_value()
    if len(key) < _SHORTEST_KEY or not (key.isascii() and key.isprintable()) or " " in key:
        raise UsageError(f"OPBENCH_GATEWAY_KEY: give {_SHORTEST_KEY} signs or more, ASCII, without spaces.")
    return key
