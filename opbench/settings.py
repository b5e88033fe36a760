"""Where things are, from the environment (prefix `OPBENCH_`); every variable is listed in docs/settings.md."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Literal

from platformdirs import user_data_path
from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from opbench.errors import UsageError

ROOT = Path(__file__).resolve().parent.parent
"""The project's folder: `models.toml` and `results/` stand in it."""


class Settings(BaseSettings):
    """Settings of one process. Empty variables count as not set."""

    model_config = SettingsConfigDict(env_prefix="OPBENCH_", env_ignore_empty=True, frozen=True)

    data: Path | None = Field(
        None, description="Folder that holds `opbench/` and `locomo/` with the public benchmark files."
    )
    home: Path = Field(
        default_factory=lambda: user_data_path("opbench-workbench", appauthor=False),
        description="Folder for the store, the fetched data, the caches and the logs.",
    )
    store: SecretStr | None = Field(
        None,
        description="Store as an SQLAlchemy URL, e.g. postgresql+psycopg://user@host/db. Default: SQLite in `home`.",
    )
    models: Path | None = Field(
        None, description="Your own model registry file. Default: models.local.toml beside models.toml."
    )
    memories: Path | None = Field(
        None, description="Your own memory servers. Default: memories.local.toml beside models.toml."
    )
    memos_python: Path | None = Field(
        None, description="Python of an environment with MemOS. Default: the one that `opbench memory install` makes."
    )
    vllm_python: Path | None = Field(
        None, description="Python that vLLM is installed in, for `opbench serve`. Default: the one that runs it."
    )
    gateway_key: SecretStr | None = Field(
        None, description="Token that `opbench gateway` asks for. Default: a random one, printed at its start."
    )
    open: Literal["viewer", "editor"] | None = Field(
        None, description="Serve the dashboard without sign-in at any address; everybody who reaches it is this."
    )
    sign_in: Literal["required"] | None = Field(
        None, description="Demand sign-in on loopback too, e.g. behind a reverse proxy of the same machine."
    )
    editors: str = Field("", description="Who may launch and write: e-mail addresses or @domains, with commas.")
    viewers: str = Field("", description="Who may read and download: e-mail addresses or @domains, with commas.")
    host: str = Field("", description="Names by which people reach the dashboard, with commas.")
    session_hours: int = Field(12, ge=1, le=720, description="Hours that a sign-in lasts.")

    @property
    def cache(self) -> Path:
        """Folder of what can be made again: indexes, embedded server's state."""
        return self.home / "cache"

    @property
    def kept(self) -> Path:
        """Folder of what memory systems took in, which costs money to make again."""
        return self.home / "memories"

    @property
    def builds(self) -> Path:
        """Folder of the questions that builds made, as runs read them; by build id."""
        return self.home / "builds"

    @property
    def fetched(self) -> Path:
        """Folder of the benchmark files that `opbench data fetch` downloads; same layout as `data`."""
        return self.home / "data"

    @property
    def store_url(self) -> str:
        """The store's URL, password included: for opening it, never for showing it."""
        if self.store is not None:
            return self.store.get_secret_value()
        return f"sqlite:///{self.home / 'store.sqlite3'}"

    @property
    def models_file(self) -> Path:
        return self.models if self.models is not None else ROOT / "models.local.toml"

    @property
    def memories_file(self) -> Path:
        return self.memories if self.memories is not None else ROOT / "memories.local.toml"


@lru_cache(maxsize=1)
def settings() -> Settings:
    """The settings of this process, read once. Tests clear it with `settings.cache_clear()`.

    Raises:
        UsageError: a variable holds what it can't.
    """
    try:
        return Settings()
    except ValidationError as error:
        wrong = error.errors(include_input=False, include_url=False)[0]
        raise UsageError(f"OPBENCH_{str(wrong['loc'][0]).upper()}: {wrong['msg'].lower()}") from None
