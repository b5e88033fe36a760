"""Memory servers from a TOML file: memories.local.toml beside models.toml, or the file that OPBENCH_MEMORIES names.

[memories.mine]
kind = "http"
ingest_url = "http://127.0.0.1:9000/ingest"
search_url = "http://127.0.0.1:9000/search"
version = "1.0"
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from opbench import addresses
from opbench.entries import entry, place, read_groups
from opbench.errors import UsageError
from opbench.memories.library import Library
from opbench.memories.registry import BUILT_IN, LibraryFactory, MemoryFactory
from opbench.memories.systems.http import Http
from opbench.memories.systems.memos_api import MemosApi
from opbench.settings import settings

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_GROUP = "memories"
_ADDRESSES = {"http": ("ingest_url", "search_url"), "memos-api": ("base_url",)}


class MemorySpec(BaseModel):
    """A memory server that the user configured."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)

    name: str
    """Name that studies, flags and records say."""
    kind: Literal["http", "memos-api"]
    """`http`: the workbench's own two requests. `memos-api`: the HTTP API of a MemOS server."""
    label: str = ""
    """Name for people. Default: the name."""
    ingest_url: str = ""
    """http: address that takes in a session."""
    search_url: str = ""
    """http: address that searches."""
    base_url: str = ""
    """memos-api: address of the server, before `/product`."""
    version: str = ""
    """Which version of the server this is. Another one is another ingestion: change it when the server changes."""
    key_env: str | None = None
    """Environment variable that holds the server's key; none when it takes no key."""
    timeout_s: float = Field(120.0, gt=0, allow_inf_nan=False)
    """Seconds that one request may take in all."""

    @field_validator("ingest_url", "search_url", "base_url")
    @classmethod
    def _http(cls, value: str) -> str:
        return addresses.checked(value, "http://host:9000/…") if value else value

    @field_validator("key_env")
    @classmethod
    def _variable(cls, value: str | None) -> str | None:
        if value is not None and not _VARIABLE.fullmatch(value):
            raise ValueError("names no environment variable: write its name, e.g. MINE_KEY, and put the key into it")
        return value

    @model_validator(mode="after")
    def _complete(self) -> Self:
        wanted = _ADDRESSES[self.kind]
        for key in (each for keys in _ADDRESSES.values() for each in keys):
            if key in wanted and not getattr(self, key):
                raise ValueError(f"has no {key}: add it")
            if key not in wanted and getattr(self, key):
                raise ValueError(f'has {key}, which kind = "{self.kind}" doesn\'t use: leave it out')
        if not self.label:
            object.__setattr__(self, "label", self.name)
        return self


class ServerFactory(LibraryFactory):
    """Makes the memory system of a server."""

    def __init__(self, spec: MemorySpec, place: str) -> None:
        """`place` is where its entry stands, for errors: `memories.local.toml: [memories.mine]`."""
        super().__init__(spec.label, self.library)
        self.extracts = False
        self.spec = spec
        self._entry = place

    def library(self) -> Library:
        spec = self.spec
        if spec.kind == "memos-api":
            return MemosApi(
                spec.name,
                spec.label,
                base_url=spec.base_url,
                version=spec.version,
                key_env=spec.key_env,
                timeout_s=spec.timeout_s,
                mend=self._entry,
            )
        return Http(
            spec.name,
            spec.label,
            ingest_url=spec.ingest_url,
            search_url=spec.search_url,
            version=spec.version,
            key_env=spec.key_env,
            timeout_s=spec.timeout_s,
            mend=self._entry,
        )


def configured() -> dict[str, MemoryFactory]:
    """Factories of the user's memory servers by name, in file order; none when there is no file.

    Raises:
        UsageError: names file, key and mend.
    """
    file = settings().memories_file
    try:
        found = file.stat()
    except OSError:
        if settings().memories is not None:
            raise UsageError(
                f"{file}: no such file. OPBENCH_MEMORIES names it; write it, or unset the variable."
            ) from None
        return {}
    return dict(_read(file, found.st_mtime_ns, found.st_size))


@lru_cache(maxsize=4)
def _read(file: Path, changed_ns: int, size: int) -> dict[str, MemoryFactory]:
    """Registries are asked often: a file is read again when it has changed."""
    factories: dict[str, MemoryFactory] = {}
    for name, value in read_groups(file, (_GROUP,))[_GROUP].items():
        where = place(file, _GROUP, name)
        if name in BUILT_IN:
            raise UsageError(f"{where}: {name} is a built-in memory system. Take another name.")
        factories[name] = ServerFactory(entry(file, _GROUP, name, value, MemorySpec), where)
    return factories
