"""A registry entry's `vllm` command as what one or several servers of it are started with."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

import tomli_w

from opbench import addresses
from opbench.errors import UsageError
from opbench.models.registry import ModelSpec

LOOPBACK = "127.0.0.1"
_LAST_PORT = 65535
_SHORT = {
    "-tp": "--tensor-parallel-size",
    "-pp": "--pipeline-parallel-size",
    "-dp": "--data-parallel-size",
    "-dpl": "--data-parallel-size-local",
}
#: What a server is asked for unless the entry or the user says otherwise: vLLM takes the last of several.
_DEFAULTS = ("--host", LOOPBACK, "--enable-prefix-caching", "--seed", "0")
_ANY = {"0.0.0.0": LOOPBACK, "::": "::1"}
"""Addresses that mean all of this machine's, and where it reaches itself then."""


@dataclass(frozen=True, slots=True)
class Order:
    """Servers of one model, all with the same flags, on ports of this machine."""

    spec: ModelSpec
    model: str
    """What vLLM loads: a name at the Hugging Face hub, or a folder."""
    flags: tuple[str, ...]
    """For every server; the port not included."""
    host: str
    """Address that the servers listen at."""
    ports: tuple[int, ...]
    """One a server, the first that of the entry's `base_url`."""
    gpus: int
    """GPUs that one server takes: tensor × pipeline × data parallel."""

    @property
    def urls(self) -> tuple[str, ...]:
        """The servers' addresses as clients name them, with the host of `base_url`."""
        host = urlsplit(self.spec.base_url).hostname or LOOPBACK
        return tuple(f"http://{_bracketed(host)}:{port}/v1" for port in self.ports)

    def here(self, port: int) -> str:
        """Where this machine asks the server on that port; without a path."""
        return f"http://{_bracketed(_ANY.get(self.host, self.host))}:{port}"

    def arguments(self, port: int) -> list[str]:
        """The flags of the server on that port."""
        return [*self.flags, "--port", str(port)]

    def entry(self) -> str | None:
        """The registry entry (TOML) that puts all these servers behind the model's name; None when it does already."""
        known = [addresses.shown(url) for url in self.spec.servers]
        if set(self.urls) <= set(known):
            return None
        fields = self.spec.model_dump(exclude_unset=True, exclude={"name"}) | {
            "base_url": self.spec.shown_url,
            "replicas": list(dict.fromkeys([*known[1:], *self.urls[1:]])),
        }
        return tomli_w.dumps({"models": {self.spec.name: fields}}).strip()


def order(spec: ModelSpec, further: Sequence[str] = (), servers: int | None = None) -> Order:
    """What to start for a model: its entry's `vllm` command, then the flags `further`, of which the last one counts.

    `servers` None: as many as the entry names addresses (`base_url` and `replicas`) at that host.

    Raises:
        UsageError: the entry has no such command, or its parts contradict each other; says the mend.
    """
    words = _words(spec)
    flags = [*_DEFAULTS, *words[1:], *further]
    _check_address(spec)
    if _values(flags, "--api-key") is not None:
        raise UsageError(
            f"{spec.name}: --api-key would show the key to everybody on this machine. Take it out, set key_env in the "
            "registry entry and the key in that variable."
        )
    ports = _ports(spec, servers)
    port = _values(flags, "--port")
    if port is not None and port != [str(ports[0])]:
        raise UsageError(
            f"{spec.name}: its vllm command says --port {' '.join(port)}, its base_url {ports[0]}. Take --port out."
        )
    names = _values(flags, "--served-model-name")
    if names is not None and spec.served not in names:
        raise UsageError(
            f"{spec.name}: its vllm command serves it as {' '.join(names)}, its entry asks for {spec.served}. "
            "Take --served-model-name out, or mend served."
        )
    host = (_values(flags, "--host") or [""])[-1]
    if not host:
        raise UsageError(f"{spec.name}: --host names no address. Write --host {LOOPBACK}.")
    parallel = [_number(spec, flags, name) for name in ("--tensor-parallel-size", "--pipeline-parallel-size")]
    local = _number(spec, flags, "--data-parallel-size-local", _number(spec, flags, "--data-parallel-size"))
    served = [] if names is not None else ["--served-model-name", spec.served]
    kept = (*_without(flags, "--port"), *served)
    return Order(spec, words[0], kept, host, ports, parallel[0] * parallel[1] * local)


def warnings(made: Order) -> list[str]:
    """What to know before the servers start: who can't reach them, and who can."""
    told = []
    open_to_others = not addresses.local(f"http://{_bracketed(made.host)}")
    if not made.spec.local and not open_to_others:
        told.append(
            f"base_url names {urlsplit(made.spec.base_url).hostname}, but {made.host} is reached from this machine "
            f"alone. To let others in: opbench serve {made.spec.name} -- --host 0.0.0.0"
        )
    if open_to_others and made.spec.key_env is None:
        told.append(
            f"everybody who reaches {made.host} can use this server. Set key_env in its registry entry and a key in "
            "that variable."
        )
    return told


def _words(spec: ModelSpec) -> list[str]:
    """The model and the flags of the entry's command."""
    if spec.kind == "embedded":
        raise UsageError(f"{spec.name} is embedded: it starts by itself, there is nothing to serve.")
    if spec.vllm is None:
        raise UsageError(
            f"{spec.name}: its registry entry has no vllm command. For an open model add: "
            f'vllm = "vllm serve ORGANISATION/MODEL"; others are served at {spec.shown_url}.'
        )
    try:
        words = shlex.split(spec.vllm)
    except ValueError as error:
        raise UsageError(f"{spec.name}: vllm can't be read as a command ({error}). Mend its quotes.") from None
    if words[:2] != ["vllm", "serve"] or len(words) < 3 or words[2].startswith("-"):
        raise UsageError(
            f'{spec.name}: vllm isn\'t of the form "vllm serve MODEL [FLAGS]". Write it so, or start it by hand.'
        )
    return words[2:]


def _check_address(spec: ModelSpec) -> None:
    for url in (spec.base_url, *_beside(spec)):
        parts = urlsplit(url)
        if parts.scheme != "http" or parts.path.rstrip("/") != "/v1":
            raise UsageError(
                f"{spec.name}: {addresses.shown(url)} is no address of a vLLM server, which answers plain http below "
                "/v1. Write it like http://127.0.0.1:8000/v1, or start vLLM by hand behind what answers there."
            )


def _beside(spec: ModelSpec) -> list[str]:
    """Replicas at the host of `base_url`."""
    host = urlsplit(spec.base_url).hostname
    return [url for url in spec.replicas if urlsplit(url).hostname == host]


def _ports(spec: ModelSpec, servers: int | None) -> tuple[int, ...]:
    known = [urlsplit(url).port or 80 for url in (spec.base_url, *_beside(spec))]
    wanted = len(known) if servers is None else servers
    further = range(max(known) + 1, max(known) + 1 + wanted - len(known))
    ports = (*known[:wanted], *further)
    if max(ports) > _LAST_PORT:
        raise UsageError(
            f"{spec.name}: {wanted} servers from port {known[0]} on go beyond {_LAST_PORT}. Lower that of base_url."
        )
    return ports


def _name(flag: str) -> str | None:
    """The flag's name without its value, written with dashes; None when it is a value (a negative number is one)."""
    if not flag.startswith("-") or flag[1:2].isdigit():
        return None
    name = flag.partition("=")[0]
    return _SHORT.get(name, name.replace("_", "-"))


def _values(flags: Sequence[str], name: str) -> list[str] | None:
    """The values of the flag's last occurrence; None when there is none."""
    found: list[str] | None = None
    current: str | None = None
    for flag in flags:
        its = _name(flag)
        if its is not None:
            current = its
            if current == name:
                found = [flag.partition("=")[2]] if "=" in flag else []
        elif current == name and found is not None:
            found.append(flag)
    return found


def _without(flags: Sequence[str], name: str) -> list[str]:
    kept: list[str] = []
    current: str | None = None
    for flag in flags:
        current = _name(flag) or current
        if current != name:
            kept.append(flag)
    return kept


def _number(spec: ModelSpec, flags: Sequence[str], name: str, default: int = 1) -> int:
    values = _values(flags, name)
    if values is None:
        return default
    if len(values) != 1 or not values[0].isdecimal() or int(values[0]) < 1:
        raise UsageError(f"{spec.name}: {name} {' '.join(values)}: takes one number from 1 on.")
    return int(values[0])


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
