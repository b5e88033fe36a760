"""A memory library driven through a real gateway at a scripted endpoint, without the ingestion around it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opbench.benchmarks import load
from opbench.gateway.lease import Lease
from opbench.gateway.server import Gateway
from opbench.memories.library import Library, UserStore
from opbench.models import ModelClient, Registry, cost, get_embedder, load_registry
from opbench.running.calls import CallStore
from opbench.settings import settings
from opbench.store.database import open_store
from opbench.types import User
from tests.scripted_endpoint import ScriptedEndpoint, bag_of_words

CORPUS = load("sample")
USER = CORPUS.users["sample-1/Ottilie"]
OTHER = CORPUS.users["sample-1/Corvin"]
HISTORY = CORPUS.conversations["sample-1"].sessions


class Desk:
    """A gateway with its call store. `open` gives a library's store and the lease that it was opened with."""

    def __init__(self, gateway: Gateway, calls: CallStore) -> None:
        self.gateway = gateway
        self.calls = calls

    async def lease(self, model: str = "scripted") -> Lease:
        return await self.gateway.lease("test", model)

    @asynccontextmanager
    async def open(
        self, library: Library, folder: Path, user: User = USER, *, phase: str = "ingest"
    ) -> AsyncIterator[tuple[UserStore, Lease]]:
        lease = await self.lease()
        if phase == "search":
            lease.phase = "search"
        store = await library.open(folder, user, lease)
        try:
            yield store, lease
        finally:
            await store.aclose()
            await self.gateway.release(lease)


def _registry(endpoint: ScriptedEndpoint, home: Path, json_schema: bool) -> Registry:
    home.mkdir(parents=True, exist_ok=True)
    text = endpoint.registry_toml(attempts=1)
    if json_schema:
        text = text.replace('[models."scripted"]', '[models."scripted"]\njson_schema = true')
    file = home / "models.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPBENCH_MODELS", str(file))
        settings.cache_clear()
        known = load_registry()
    settings.cache_clear()
    return known


@asynccontextmanager
async def desk(endpoint: ScriptedEndpoint, home: Path, *, json_schema: bool = False) -> AsyncIterator[Desk]:
    """A desk in `home`; a second one there finds what the first one's calls answered."""
    known = _registry(endpoint, home, json_schema)
    store = open_store(f"sqlite:///{home / 'store.sqlite3'}")
    async with ModelClient(known) as client:
        calls = CallStore(
            store,
            client.complete,
            # The endpoint's port is another one in each test.
            lambda name: {"name": name},
            lambda name, tokens_in, tokens_out: cost(known.model(name), tokens_in, tokens_out),
            lambda name: 4,
        )
        gateway = Gateway(known, client, get_embedder("scripted", known, client))
        gateway.connect(calls)
        try:
            yield Desk(gateway, calls)
        finally:
            await gateway.aclose()
            store.close()


def cosine(one: str, other: str) -> float:
    """Of the vectors that the scripted endpoint gives for two texts."""
    a, b = (np.array(bag_of_words(text)) for text in (one, other))
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


@contextlib.contextmanager
def only_loopback() -> Iterator[list[Any]]:
    """Refuse, and list, every connection and name look-up that would leave this machine."""
    tried: list[Any] = []
    connect, look_up = socket.socket.connect, socket.getaddrinfo

    def local(address: Any) -> bool:
        return not isinstance(address, tuple) or str(address[0]) in ("127.0.0.1", "::1", "localhost")

    def guarded(self: socket.socket, address: Any) -> None:
        if not local(address):
            tried.append(address)
            raise OSError("tests don't leave this machine")
        connect(self, address)

    def guarded_look_up(host: Any, *args: Any, **named: Any) -> Any:
        if not local((host,)):
            tried.append(host)
            raise OSError("tests don't leave this machine")
        return look_up(host, *args, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", guarded)
        patch.setattr(socket, "getaddrinfo", guarded_look_up)
        yield tried


def facts_reply(key: str, entry: Callable[[int, str], Any], count: int = 3) -> Callable[[dict[str, Any]], str]:
    """Answers with JSON whose list `key` holds the first `count` dialogue lines of what it was sent."""

    def reply(body: dict[str, Any]) -> str:
        dialogue = str(body["messages"][-1]["content"])
        lines = re.findall(r"\(\d+ \w+ \d{4}\) (\w+: [^\n]+)", dialogue.split("## New Messages")[-1])[:count]
        return json.dumps({key: [entry(number, line) for number, line in enumerate(lines)]})

    return reply


def open_files(folder: Path) -> list[str]:
    """Files below a folder that this process holds open."""
    held = [os.path.realpath(file) for file in Path("/proc/self/fd").iterdir()]
    return [file for file in held if file.startswith(f"{folder}/")]


async def goes_on_from_a_copy(make: Callable[[], Library], endpoint: ScriptedEndpoint, folder: Path) -> None:
    """A copy made while the store is open, as ingestion makes it, finds the same and goes on alike."""
    async with desk(endpoint, folder) as at:
        async with at.open(make(), folder / "s") as (store, _):
            for session in HISTORY[:2]:
                await store.add(session)
            shutil.copytree(folder / "s", folder / "copy")
            expected = await store.search("Mildred the starter", 5)
            await store.add(HISTORY[2])
            whole = await store.memories()
        async with at.open(make(), folder / "copy") as (store, lease):
            assert await store.search("Mildred the starter", 5) == expected
            await store.add(HISTORY[2])
            assert await store.memories() == whole
            assert lease.usage.reused == 1
