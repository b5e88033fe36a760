"""What a worker of a Ray cluster does: shows that its machine would do the study as the leader's, then a part of it.

Nothing here needs Ray: `opbench.running.ray_crew` makes an actor of `Worker`.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from opbench.errors import OpbenchError, StoreError, UsageError
from opbench.plugins import load_plugins
from opbench.running import member
from opbench.running.agreement import differences, fingerprint
from opbench.running.crew import Part
from opbench.running.prepare import Prepared, prepare
from opbench.settings import settings
from opbench.store.database import PATIENCE_OF_A_RUN_S, Store, open_store
from opbench.study import Study


@dataclass(frozen=True, slots=True)
class Orders:
    """What all workers of a run are told. No secrets."""

    study: Mapping[str, Any]
    """As `Study.model_dump` writes it in JSON values."""
    of: int
    """Workers in all."""
    fingerprint: Mapping[str, str]
    """The leader's (`opbench.running.agreement`)."""
    plugins: Sequence[tuple[Path, bytes]]
    """Plugin files: where they are on the leader's machine, and what is in them."""
    seen: str | None
    """Name of a file that the leader put where memory systems keep what they took in; None when none keeps anything."""


@dataclass(frozen=True, slots=True)
class Secrets:
    """What workers need and nobody may read: its repr shows nothing of it."""

    store_url: SecretStr
    environment: Mapping[str, SecretStr]
    """Variables with keys and passwords."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a worker is. `refusal`: why it can't do the study, as a sentence for people."""

    host: str
    pid: int
    refusal: str | None


class Worker:
    """One worker. Its methods raise nothing of ours: an error's traceback would become part of Ray's logs."""

    def __init__(self) -> None:
        self._prepared: Prepared | None = None
        self._store: Store | None = None
        self._stop = asyncio.Event()

    async def ready(self, orders: Orders, secrets: Secrets) -> Place:
        """Get ready for the study, or say why this machine can't do it."""
        refusal = None
        try:
            self._prepare(orders, secrets)
        except OpbenchError as error:
            refusal = str(error)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told in a line
            refusal = _unexpected(error)
        return Place(socket.gethostname(), os.getpid(), refusal)

    async def work(self, part: Part, place: Place) -> str:
        """Do a part of the run, after `ready` said `place`; `""` when it is done, else why it isn't, as a sentence for
        people."""
        said = place.refusal
        if said is None:
            assert self._store is not None
            assert self._prepared is not None
            try:
                await member.work(self._store, self._prepared, part, stop=self._stop)
            except OpbenchError as error:
                said = str(error)
            except Exception as error:  # noqa: BLE001 - as above
                said = _unexpected(error)
            finally:
                await self._prepared.aclose()
                self._store.close()
        return "" if said is None else f"worker {part.number + 1} (process {place.pid} on {place.host}) ended: {said}"

    async def stop(self) -> None:
        """Finish what is in flight, and take up nothing new."""
        self._stop.set()

    def _prepare(self, orders: Orders, secrets: Secrets) -> None:
        os.environ.update({name: value.get_secret_value() for name, value in secrets.environment.items()})
        _load(orders.plugins)
        self._prepared = prepare(Study.model_validate(orders.study), share=orders.of)
        differing = differences(orders.fingerprint, fingerprint(self._prepared))
        if differing:
            raise UsageError(
                f"not the same here as where the run was started: {', '.join(differing)}. All machines of a cluster "
                "need the same version of the workbench and its packages, the same data (OPBENCH_DATA) and the same "
                "registry (OPBENCH_MODELS)."
            )
        if orders.seen is not None and not (settings().kept / orders.seen).exists():
            raise UsageError(
                f"{settings().kept} isn't the folder in which the run's memory systems keep what they took in. Let "
                "OPBENCH_HOME be a folder that all machines of the cluster share."
            )
        try:
            self._store = open_store(secrets.store_url.get_secret_value(), patience_s=PATIENCE_OF_A_RUN_S)
        except StoreError as error:
            raise StoreError(f"{error} OPBENCH_STORE must hold an address by which this machine reaches it.") from None


def _load(plugins: Sequence[tuple[Path, bytes]]) -> None:
    """Load plugin files: those of this machine where they are the same, else copies."""
    with tempfile.TemporaryDirectory(prefix="opbench-plugins-") as folder:
        files = []
        for file, content in plugins:
            if not (file.is_file() and hashlib.sha256(file.read_bytes()).digest() == hashlib.sha256(content).digest()):
                file = Path(folder) / file.name
                file.write_bytes(content)
            files.append(file)
        load_plugins(files)


def _unexpected(error: Exception) -> str:
    """An error that nobody foresaw, without its text, which may hold anything."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = f" ({Path(place.tb_frame.f_code.co_filename).name}, line {place.tb_lineno})" if place is not None else ""
    return f"{type(error).__name__}{where}."
