"""Which models and embedders answer now."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any

from opbench import addresses
from opbench.errors import ModelError, UsageError
from opbench.models.client import ModelClient
from opbench.models.embeddings import model_folder
from opbench.models.registry import EmbedderSpec, ModelSpec
from opbench.types import ChatRequest, Message


@dataclass(frozen=True, slots=True)
class Availability:
    """Whether a model or embedder answers."""

    name: str
    """Name in the registry."""
    ok: bool
    detail: str
    """What was seen, or what is missing and how to mend it; one line."""
    ms: float | None
    """How long it took to find out; None when nothing was asked."""


async def probe(spec: ModelSpec | EmbedderSpec, client: ModelClient, timeout_s: float = 8.0) -> Availability:
    """Ask whether `spec` answers. Of an endpoint, its list of models, which costs nothing (a quota that is used up
    isn't seen there); the embedded model is started and says one token. Never raises for what the model does."""
    began = time.perf_counter()
    try:
        if spec.kind == "endpoint":
            detail = await _endpoint(spec, client, timeout_s)
        elif isinstance(spec, ModelSpec):
            await client.complete(ChatRequest(spec.name, (Message("user", "Hi"),), max_tokens=1))
            detail = "answers"
        else:
            model_folder()
            detail = "installed"
    except (ModelError, UsageError) as error:
        asked = not (isinstance(error, ModelError) and error.attempts == 0)
        text = str(error).removeprefix(f"{spec.name}: ")
        return Availability(spec.name, False, text, _since(began) if asked else None)
    return Availability(spec.name, True, detail, _since(began))


async def probe_all(client: ModelClient, timeout_s: float = 8.0) -> list[Availability]:
    """`probe` for every model and embedder of the client's registry, side by side, in registry order."""
    specs: list[ModelSpec | EmbedderSpec] = [*client.registry.models.values(), *client.registry.embedders.values()]
    return list(await asyncio.gather(*(probe(spec, client, timeout_s) for spec in specs)))


async def _endpoint(spec: ModelSpec | EmbedderSpec, client: ModelClient, timeout_s: float) -> str:
    """What is seen of the first server, and of its replicas. Raises ModelError when the first doesn't answer."""
    seen = await _server(spec, client, timeout_s, None)
    if not spec.replicas:
        return seen
    told = await asyncio.gather(
        *(_server(spec, client, timeout_s, url) for url in spec.replicas), return_exceptions=True
    )
    silent = [error for error in told if isinstance(error, BaseException)]
    for error in silent:
        if not isinstance(error, ModelError):
            raise error
    if not silent:
        return f"all {len(spec.servers)} servers answer"
    answering = len(spec.servers) - len(silent)
    why = str(silent[0]).removeprefix(f"{spec.name}: ")
    return f"{answering} of {len(spec.servers)} servers answer{'s' if answering == 1 else ''}; {why}"


async def _server(spec: ModelSpec | EmbedderSpec, client: ModelClient, timeout_s: float, url: str | None) -> str:
    try:
        listed = await client.served_models(spec.name, timeout_s, url)
    except ModelError as error:
        if error.kind != "not_found":
            raise
        return "reachable; it has no list of models, so the first request will tell"
    found = next((entry for entry in listed if _matches(entry, spec.served)), None)
    if found is None:
        ids = ", ".join(str(entry.get("id")) for entry in listed[:3]) or "nothing"
        where = spec.shown_url if url is None else addresses.shown(url)
        raise ModelError(
            f"{spec.name}: {where} serves {ids}{' …' if len(listed) > 3 else ''}, not {spec.served}. "
            f"Check served in its registry entry{_start(spec)}.",
            kind="not_found",
            model=spec.name,
        )
    retires = found.get("shutdown_date")
    return f"answers; retires on {retires}" if retires else "answers"


def _matches(entry: dict[str, Any], served: str) -> bool:
    # Gemini lists `models/NAME`.
    return str(entry.get("id", "")).removeprefix("models/") == served


def _start(spec: ModelSpec | EmbedderSpec) -> str:
    return f", or start it: {spec.start}" if isinstance(spec, ModelSpec) and spec.start else ""


def _since(began: float) -> float:
    return (time.perf_counter() - began) * 1000
