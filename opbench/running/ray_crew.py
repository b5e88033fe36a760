"""A run's members as workers of a Ray cluster, or of a Ray that is started here for the run.

Ray brings the workers to their machines and tells when one is gone; what is to do and what is done they learn from the
store, as all members do. So nothing is asked of Ray's own retries: a worker that dies is replaced by the leader.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import signal
import socket
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import SecretStr

from opbench.errors import UsageError
from opbench.running.agreement import fingerprint
from opbench.running.crew import Part
from opbench.running.prepare import Prepared
from opbench.running.ray_local import LocalRay
from opbench.running.ray_worker import Orders, Place, Secrets, Worker
from opbench.settings import settings
from opbench.store.database import Store

#: Seconds within which a cluster's workers must be there, and somebody must answer at its address.
READY_WITHIN_S, ANSWERS_WITHIN_S = 180.0, 5.0
#: Passwords that PostgreSQL's library takes from the environment rather than from the store's address.
_PASSWORDS = ("PGPASSWORD",)
#: Never among what a local Ray's processes are started with.
_OURS_ALONE = ("OPBENCH_STORE", "OPBENCH_GATEWAY_KEY", *_PASSWORDS)


class RayCrew:
    """Workers that are there, ready and found to be set up like this process."""

    def __init__(
        self,
        address: str,
        store: Store,
        prepared: Prepared,
        *,
        concurrency: int,
        workers: int | None = None,
        keys: Mapping[str, SecretStr] | None = None,
        plugins: Sequence[Path] = (),
    ) -> None:
        """`address` is `auto` (the cluster that this machine is part of, else a Ray of its own), `local` (always a Ray
        of its own), `HOST:PORT` or `ray://HOST:PORT`. `workers`: as many as the cluster has CPUs free by default, and
        never more than `concurrency`, the run's instances at a time.

        `keys` (by environment variable) and those of the environment that the registry names go to the workers in a
        message of their own.

        Raises:
            UsageError: Ray isn't installed or isn't reached, the store is a file, a machine is set up otherwise, or
                there is no room for so many workers; says what mends it.
        """
        _refuse_a_file(store)
        self._closing = contextlib.ExitStack()
        see_that_ray_is_installed()
        if address == "auto":
            address = _cluster_here() or "local"
        try:
            secret = _secret_environment(prepared, keys or {})
            self._ray = self._connect(address, min(workers or os.cpu_count() or 1, concurrency), [*secret])
            free = int(self._ray.available_resources().get("CPU", 0))
            self.size = min(workers or max(1, free), concurrency)
            self._make = self._ray.remote(Worker).options(num_cpus=1, scheduling_strategy="SPREAD", max_restarts=0)
            with _seen(prepared) as seen:
                study = prepared.study.model_dump(mode="json")
                files = [(file.resolve(), file.read_bytes()) for file in plugins]
                # On this machine the workbench is the same, though somebody may be at work on its files.
                wanted = fingerprint(prepared, code=address != "local")
                self._orders = Orders(study, self.size, wanted, files, seen)
                self._secrets = Secrets(SecretStr(settings().store_url), secret)
                self._waiting = [self._hire() for _ in range(self.size)]
                self.machines = self._all_ready()
        except BaseException:
            self.close()
            raise

    def start(self, part: Part) -> RayMember:
        worker = self._waiting.pop() if self._waiting else self._hire()
        return RayMember(self._ray, part, worker)

    def close(self) -> None:
        self._closing.close()

    def _connect(self, address: str, workers: int, secret: Sequence[str]) -> ModuleType:
        """Ray, connected to a cluster or to a Ray of our own with room for so many workers."""
        # Ray looks at its environment when it is loaded.
        self._closing.enter_context(_environment({"RAY_USAGE_STATS_ENABLED": "0"}))
        if address == "local":
            kept_back = {*secret, *_OURS_ALONE}
            local = LocalRay(workers, {name: value for name, value in os.environ.items() if name not in kept_back})
            self._closing.callback(local.close)
            self._closing.enter_context(_environment(local.environment))
            address = local.address
        else:
            _see_that_somebody_answers(address)
        ray = importlib.import_module("ray")
        self._closing.callback(ray.shutdown)
        try:
            with _sigterm_left_alone():
                ray.init(address, log_to_driver=False, configure_logging=False, logging_level="ERROR")
        except (ConnectionError, RuntimeError, ValueError, ImportError, ray.exceptions.RayError) as error:
            raise _not_reached(address, error) from error
        return ray

    def _hire(self) -> _Hired:
        actor = self._make.remote()
        return _Hired(actor, actor.ready.remote(self._orders, self._secrets))

    def _all_ready(self) -> list[str]:
        """Wait until all workers are there; the machines that they are on."""
        waiting = [worker.ready for worker in self._waiting]
        there, missing = self._ray.wait(waiting, num_returns=len(waiting), timeout=READY_WITHIN_S)
        places: list[Place] = []
        for ready in there:
            try:
                places.append(self._ray.get(ready))
            except self._ray.exceptions.RayError as error:
                raise UsageError(f"--ray: a worker {_became(self._ray, error)}") from error
        refusals = sorted({f"worker on {place.host}: {place.refusal}" for place in places if place.refusal})
        if refusals:
            more = f" (and {len(refusals) - 1} more)" if len(refusals) > 1 else ""
            raise UsageError(f"--ray: {refusals[0]}{more}")
        if missing:
            cpus = int(self._ray.cluster_resources().get("CPU", 0))
            raise UsageError(
                f"--ray: {len(there)} of {self.size} workers were there after {READY_WITHIN_S:.0f} s. Each takes a CPU "
                f"of the cluster's {cpus}, and other jobs may hold some: give --workers {max(1, len(there))}, or make "
                "room."
            )
        return sorted({place.host for place in places})


@dataclass(frozen=True, slots=True)
class _Hired:
    """A worker, and the reference of what its `ready` says."""

    actor: Any
    ready: Any


class RayMember:
    """A worker with its part. Belongs to the thread that started it."""

    def __init__(self, ray: ModuleType, part: Part, worker: _Hired) -> None:
        self._ray = ray
        self._part = part
        self._actor = worker.actor
        self._ready = worker.ready
        # With what `ready` says, so that it is over by then: messages may overtake each other.
        self._work = worker.actor.work.remote(part, worker.ready)
        self._ended: str | None = None

    @property
    def part(self) -> Part:
        return self._part

    def ended(self) -> str | None:
        if self._ended is None and self._ray.wait([self._work], timeout=0)[0]:
            try:
                self._ended = str(self._ray.get(self._work))
            except self._ray.exceptions.RayError as error:
                self._ended = f"worker {self._part.number + 1}{self._where()} {_became(self._ray, error)}"
        return self._ended

    def stop(self) -> None:
        self._actor.stop.remote()

    def kill(self) -> None:
        self._ray.kill(self._actor, no_restart=True)

    def _where(self) -> str:
        if self._ray.wait([self._ready], timeout=0)[0]:
            with contextlib.suppress(self._ray.exceptions.RayError):
                place: Place = self._ray.get(self._ready)
                return f" (process {place.pid} on {place.host})"
        return ""


def see_that_ray_is_installed() -> None:
    """Without loading it, which takes time and looks at the environment.

    Raises:
        UsageError: it isn't.
    """
    if importlib.util.find_spec("ray") is None:
        raise UsageError(
            "--ray needs Ray, which isn't installed: pip install -r requirements-ray.txt, here and on all machines of "
            "the cluster. For several processes on this machine --workers needs nothing more."
        )


def _refuse_a_file(store: Store) -> None:
    if store.engine.dialect.name != "postgresql":
        raise UsageError(
            f"--ray needs a store that all machines reach at once, and {store.label} is a file of this one, whose "
            "locks hold nobody off elsewhere. Set OPBENCH_STORE=postgresql+psycopg://user@host/database ('opbench "
            "export' and 'import' move what was done so far), or use --workers for processes on this machine."
        )


def _secret_environment(prepared: Prepared, keys: Mapping[str, SecretStr]) -> dict[str, SecretStr]:
    """The variables with keys that the registry names, and with passwords: the given ones first."""
    registry = prepared.registry
    named = {spec.key_env for spec in (*registry.models.values(), *registry.embedders.values()) if spec.key_env}
    found = {name: SecretStr(os.environ[name]) for name in (*named, *_PASSWORDS) if os.environ.get(name)}
    return found | dict(keys)


@contextlib.contextmanager
def _seen(prepared: Prepared) -> Iterator[str | None]:
    """The name of a file in the folder where memory systems keep what they took in; None when none of them does."""
    if not prepared.ingesting:
        yield None
        return
    file = settings().kept / f".seen-{uuid.uuid4().hex}"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    try:
        yield file.name
    finally:
        file.unlink(missing_ok=True)


def _cluster_here() -> str | None:
    """The address of the cluster that this machine is part of: `RAY_ADDRESS`, else what `ray start` noted. Ray itself
    would also take one that another run has for itself."""
    named = os.environ.get("RAY_ADDRESS")
    if named and named != "auto":
        return named
    folder = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"
    with contextlib.suppress(OSError, UsageError):
        noted = (Path(folder) / "ray" / "ray_current_cluster").read_text(encoding="utf-8").strip()
        # The note of one that was killed stays.
        _see_that_somebody_answers(noted)
        return noted
    return None


def _see_that_somebody_answers(address: str) -> None:
    """Ray itself tries for a long time, with a page of warnings.

    Raises:
        UsageError: it is no address, or nobody is there.
    """
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise UsageError(f"--ray {address}: write auto, local, HOST:PORT or ray://HOST:PORT.")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWERS_WITHIN_S).close()
    except (OSError, OverflowError) as error:
        raise _not_reached(address, error) from error


def _not_reached(address: str, error: BaseException) -> UsageError:
    lines = [" ".join(line.split()) for line in str(error).splitlines() if line.strip()]
    said = lines[-1][:200].rstrip(". ") if lines else type(error).__name__
    return UsageError(
        f"--ray {address}: no cluster is reached there ({said}). Is its head up ('ray start --head'), of the same Ray "
        "and Python as here? Does it want a token (RAY_AUTH_MODE=token, RAY_AUTH_TOKEN_PATH)? HOST:PORT is for the "
        "cluster's own machines (usually port 6379), ray://HOST:PORT for others (10001)."
    )


def _became(ray: ModuleType, error: BaseException) -> str:
    """What became of a worker, as the end of a sentence; Ray's own words are a page."""
    said = str(error)
    if isinstance(error, ray.exceptions.OutOfMemoryError) or "OutOfMemory" in said or "running low on memory" in said:
        return "was ended by Ray: its machine's memory was full. Use fewer --workers."
    if isinstance(error, ray.exceptions.NodeDiedError) or "node has died" in said or "node died" in said:
        return "is gone with its machine."
    if "No module named" in said:
        package = said.split("No module named", 1)[1].split()[0].strip("'\"")
        return (
            f"can't start: its machine has no Python package {package}. Install the workbench there as here, and "
            "requirements-ray.txt."
        )
    if isinstance(error, ray.exceptions.RayActorError):
        return "was killed."
    return f"failed: {' '.join(said.split())[:200]}"


@contextlib.contextmanager
def _environment(variables: Mapping[str, str | None]) -> Iterator[None]:
    """The environment with these variables, and without those that are None."""
    before = {name: os.environ.get(name) for name in variables}
    _set(variables)
    try:
        yield
    finally:
        _set(before)


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@contextlib.contextmanager
def _sigterm_left_alone() -> Iterator[None]:
    """Ray takes SIGTERM for itself; who ends a run asks for what is in flight to be finished."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
