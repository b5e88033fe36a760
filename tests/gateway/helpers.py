"""A gateway in this process, and what a memory library does with it: OpenAI's SDK in a thread."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import openai
from pydantic import SecretStr

from opbench.gateway.lease import Lease
from opbench.gateway.server import Gateway
from opbench.models import ModelClient, Registry, cost, get_embedder, load_registry
from opbench.running.calls import CallStore
from opbench.store.database import Store, open_store
from tests.scripted_endpoint import ScriptedEndpoint

T = TypeVar("T")
KEY = "sk-upstream-Abcdef0123456789"


@dataclass
class Bench:
    """The parts behind a gateway."""

    gateway: Gateway
    calls: CallStore
    client: ModelClient
    store: Store
    registry: Registry

    async def ask(self, lease: Lease, do: Callable[[openai.OpenAI], T]) -> T:
        """What `do` gives with the SDK as libraries make it, retries included."""

        def work() -> T:
            with openai.OpenAI(base_url=lease.base_url, api_key=lease.key) as sdk:
                return do(sdk)

        return await asyncio.to_thread(work)


@contextlib.asynccontextmanager
async def bench_of(registry: Registry, folder: Path, embedder: str = "scripted") -> AsyncIterator[Bench]:
    """A gateway over `registry`, its call store in `folder`: benches of one folder share what they keep."""
    store = open_store(f"sqlite:///{folder / 'gateway.sqlite3'}")
    try:
        async with ModelClient(registry, keys={"UPSTREAM_KEY": SecretStr(KEY)}) as client:
            calls = CallStore(
                store,
                client.complete,
                cache(lambda name: registry.model(name).identity()),
                lambda name, tokens_in, tokens_out: cost(registry.model(name), tokens_in, tokens_out),
                lambda name: registry.model(name).concurrency,
            )
            gateway = Gateway(registry, client, get_embedder(embedder, registry, client))
            gateway.connect(calls)
            try:
                yield Bench(gateway, calls, client, store, registry)
            finally:
                await gateway.aclose()
    finally:
        store.close()


def registry_of(endpoint: ScriptedEndpoint, folder: Path, **fields: Any) -> Registry:
    """A registry with the model and embedder `scripted` at the endpoint, which is given a key."""
    file = folder / "registry.toml"
    file.write_text(endpoint.registry_toml(**{"key_env": "UPSTREAM_KEY"} | fields), encoding="utf-8")
    return load_registry(file)


def say(sdk: openai.OpenAI, text: str = "How are you?", **fields: Any) -> Any:
    """A chat call as libraries make it."""
    model = fields.pop("model", "scripted")
    return sdk.chat.completions.create(model=model, messages=[{"role": "user", "content": text}], **fields)
