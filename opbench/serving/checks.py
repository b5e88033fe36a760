"""What must be there before a server is started: a free port, a vLLM, and something that it computes on."""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import httpx2

from opbench.errors import UsageError
from opbench.serving.command import Order
from opbench.settings import ROOT, settings

REQUIREMENTS = ROOT / "requirements-vllm.txt"
_NAMING = "--python or OPBENCH_VLLM_PYTHON"
_LOOK_S = 300.0
_SMI_S = 30.0
_WHO_S = 2.0


@dataclass(frozen=True, slots=True)
class Install:
    """A vLLM that can be started."""

    python: str
    distribution: str
    """Package that it comes from: `vllm`, or another's build of it."""
    version: str
    device: str
    """What it computes on: `cuda`, `rocm`, `cpu`, …; empty when it found nothing."""
    devices: int | None
    """How many GPUs it sees; None when it doesn't say."""
    variable: str
    """Environment variable that chooses among them."""


def check_ports(order: Order) -> None:
    """See that nobody listens where these servers will.

    Raises:
        UsageError: a port is in use, or can't be listened on; says the mend.
    """
    for port in order.ports:
        try:
            families = socket.getaddrinfo(order.host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            family, kind, protocol, _, address = families[0]
            with socket.socket(family, kind, protocol) as trial:
                trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                trial.bind(address)
        except OSError as error:
            raise UsageError(f"{order.spec.name}: {_refused(order, port, error)}") from None


def _refused(order: Order, port: int, error: OSError) -> str:
    place = f"port {port} of {order.host}"
    match error.errno:
        case errno.EADDRINUSE:
            return f"{place} is in use{_who(order, port)}. End what runs there, or write another port into base_url."
        case errno.EACCES:
            return f"{place} is for the system's own servers. Write a port from 1024 on into base_url."
        case _:
            return f"can't listen on {place} ({error.strerror or error}). Name an address of this machine with --host."


def _who(order: Order, port: int) -> str:
    """Which model is served there, if it is one that tells."""
    try:
        with httpx2.Client(trust_env=False, timeout=_WHO_S) as http:
            listed = http.get(f"{order.here(port)}/v1/models").json()["data"]
            return f" by a server of {listed[0]['id']}"
    except (httpx2.HTTPError, ValueError, LookupError, TypeError):
        return ""


def serving_python(named: str | None) -> str:
    """The Python that vLLM is started with: the named one, else OPBENCH_VLLM_PYTHON, else ours.

    Raises:
        UsageError: there is no such program.
    """
    own = settings().vllm_python
    for source, python in (("--python", named), ("OPBENCH_VLLM_PYTHON", str(own) if own else None)):
        if python is not None:
            found = shutil.which(python)
            if found is None:
                raise UsageError(f"{source}: there is no program {python}. Name the Python that vLLM is installed in.")
            # Not resolved: a virtual environment's python is a link to another's.
            return str(Path(found).absolute())
    return sys.executable


def environment() -> dict[str, str]:
    """What vLLM is asked and started with, before what is each server's own: nothing of the folder where the command
    was given is imported, and nothing is told to vLLM's makers."""
    return {"PYTHONSAFEPATH": "1", "VLLM_NO_USAGE_STATS": "1"} | dict(os.environ)


def look(python: str) -> Install:
    """The vLLM of that Python. Takes some seconds.

    Raises:
        UsageError: it has none, or one that can't be imported; says the mend.
    """
    program = Path(__file__).with_name("looked.py").read_text(encoding="utf-8")
    try:
        done = subprocess.run(
            [python, "-c", program], capture_output=True, text=True, timeout=_LOOK_S, env=environment(), check=False
        )
        # vLLM may say something before.
        found = json.loads(done.stdout.strip().rpartition("\n")[2] or "null")
        said = done.stderr.strip().rpartition("\n")[2] or f"code {done.returncode}"
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        found, said = None, str(error)
    if not isinstance(found, dict):
        raise UsageError(f"{python}: can't be asked for vLLM ({said}). Name the Python that has it: {_NAMING}.")
    if not found:
        raise UsageError(
            f"vLLM isn't installed in {python}. Install {REQUIREMENTS.name} in an environment of its own "
            f"(docs/models.md), and name that one's Python: {_NAMING}."
        )
    if "error" in found:
        raise UsageError(
            f"vLLM {found['version']} of {python} can't be used ({found['error']}). Install it anew: "
            f"{python} -m pip install -r {REQUIREMENTS}"
        )
    return Install(
        python, found["distribution"], found["version"], found["device"], found["devices"], found["variable"]
    )


def check_gpus(order: Order, install: Install) -> None:
    """See that there are the GPUs that the servers take; a vLLM for the CPU takes none.

    Raises:
        UsageError: there are none, or too few; says what was seen and the mend.
    """
    if install.device == "cpu":
        return
    where = f"vLLM {install.version} of {install.python}"
    if not install.device or install.devices == 0:
        raise UsageError(
            f"{order.spec.name}: {where} finds no GPU here ({_smi()}). Serve it on a machine with one, "
            "and write its address into base_url."
        )
    servers = len(order.ports)
    needed = order.gpus * servers
    if install.devices is None or install.devices >= needed:
        return
    if servers > 1 and install.devices >= order.gpus:
        fewer = f"--servers {install.devices // order.gpus}"
    else:
        fewer = f"-- --tensor-parallel-size {install.devices}"
    of = f" for {servers} servers of {order.gpus} each" if servers > 1 else ""
    raise UsageError(
        f"{order.spec.name}: {needed} GPUs are needed{of}, {where} sees {install.devices} ({_smi()}). "
        f"Take fewer: opbench serve {order.spec.name} {fewer}"
    )


def _smi() -> str:
    """What NVIDIA's own tool says of GPUs."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return "there is no nvidia-smi: no NVIDIA driver is installed"
    try:
        done = subprocess.run([tool, "-L"], capture_output=True, text=True, timeout=_SMI_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"nvidia-smi: {error}"
    gpus = sum(each.startswith("GPU ") for each in done.stdout.splitlines())
    if done.returncode or not gpus:
        said = (done.stdout + done.stderr).strip().partition("\n")[0]
        return f"nvidia-smi: {said or 'no GPU'}"
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    return f"nvidia-smi shows {gpus}" + (f", CUDA_VISIBLE_DEVICES is {chosen!r}" if chosen is not None else "")


def devices_of(order: Order, install: Install, index: int) -> dict[str, str]:
    """The environment that gives a server its GPUs where several servers share the machine's."""
    if install.device == "cpu" or len(order.ports) == 1:
        return {}
    chosen = [each.strip() for each in os.environ.get(install.variable, "").split(",") if each.strip()]
    numbers = range(index * order.gpus, (index + 1) * order.gpus)
    return {install.variable: ",".join(chosen[n] if chosen else str(n) for n in numbers)}
