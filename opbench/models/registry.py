"""The model registry: models.toml, and the user's own file on top of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from opbench import addresses
from opbench.entries import entry, nearest, read_groups
from opbench.errors import UsageError
from opbench.models.secrets import without_keys
from opbench.settings import ROOT, settings


class Spec(BaseModel):
    """What models and embedders have in common."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)

    name: str
    """Name in the registry: what studies, flags and records say."""
    kind: Literal["endpoint", "embedded"] = "endpoint"
    """`endpoint`: an OpenAI-compatible HTTP API. `embedded`: comes with the project and runs on this machine."""
    label: str = ""
    """Name for people, e.g. `GPT-4o-mini`. Default: the name."""
    base_url: str = ""
    """The API's address up to and including its version, e.g. `https://api.openai.com/v1`."""
    served: str = ""
    """The model's name at the endpoint. Default: the name."""
    key_env: str | None = None
    """Environment variable that holds the key; none when the endpoint takes no key."""
    price_in: float | None = Field(None, ge=0, allow_inf_nan=False)
    """USD per million prompt tokens; none when unknown."""
    timeout_s: float = Field(120.0, gt=0, allow_inf_nan=False)
    """Seconds that one request may take in all."""
    connect_timeout_s: float = Field(10.0, gt=0, allow_inf_nan=False)
    """Seconds that connecting may take."""
    attempts: int = Field(6, ge=1, le=20)
    """Requests that are sent for one answer before it counts as failed."""
    first_wait_s: float = Field(1.0, gt=0, allow_inf_nan=False)
    """Seconds before the second attempt; doubles with each further one, with jitter."""
    max_wait_s: float = Field(60.0, gt=0, allow_inf_nan=False)
    """Most seconds between two attempts, also when `Retry-After` asks for more."""
    concurrency: int = Field(8, ge=1, le=1024)
    """Most requests under way at once, over all replicas; further ones wait, outside of the measured duration. The
    client begins with fewer and comes as far as the endpoint bears."""
    requests_per_minute: float | None = Field(None, gt=0, allow_inf_nan=False)
    """Most requests a minute; none when the endpoint sets no such limit, or tells it in its answers."""
    tokens_per_minute: float | None = Field(None, gt=0, allow_inf_nan=False)
    """Most tokens a minute, of prompts and answers together; none as above."""
    replicas: list[str] = Field(default_factory=list)
    """Further addresses that serve the same model under the same name and take the same key: each request goes to
    the least busy one, and a server that is down is left out for a while. No part of the identity."""
    extra_body: dict[str, Any] = Field(default_factory=dict)
    """Further fields of each request's body, e.g. the switch that turns thinking off."""
    note: str | None = None
    """What a user should know before choosing it."""

    @field_validator("base_url")
    @classmethod
    def _http(cls, value: str) -> str:
        return addresses.checked(value, "https://host/v1") if value else value

    @field_validator("replicas")
    @classmethod
    def _all_http(cls, value: list[str]) -> list[str]:
        return [addresses.checked(url, "http://host:8001/v1") for url in value]

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.kind == "endpoint" and not self.base_url:
            raise ValueError('has no base_url: add one, or kind = "embedded"')
        if self.kind == "embedded" and self.base_url:
            raise ValueError("is embedded and has a base_url: leave one of the two out")
        if self.kind == "embedded" and self.replicas:
            raise ValueError("is embedded and has replicas: leave one of the two out")
        if len(set(self.servers)) < len(self.servers):
            raise ValueError("names the same server twice in base_url and replicas: write each address once")
        for field in ("label", "served"):
            if not getattr(self, field):
                object.__setattr__(self, field, self.name)
        return self

    @property
    def servers(self) -> tuple[str, ...]:
        """The addresses that serve it: `base_url`, then the replicas."""
        return (self.base_url, *self.replicas)

    @property
    def shown_url(self) -> str:
        """`base_url` without user, password and query: fit for messages, records and hashes."""
        return addresses.shown(self.base_url)

    @property
    def local(self) -> bool:
        """Whether the endpoint is on this machine, so that no proxy lies between."""
        return self.kind == "embedded" or addresses.local(self.base_url)

    def identity(self) -> dict[str, str]:
        """What determines its answers, for hashing: endpoint, served name, further body; of an embedded one the
        digest of its weights and the versions of what computes with them. No secrets.

        Raises UsageError when an embedded one isn't installed.
        """
        extra = json.dumps(without_keys(self.extra_body), sort_keys=True, ensure_ascii=False)
        if self.kind == "embedded":
            return {**self._embedded_identity(), "extra_body": extra}
        return {"kind": "endpoint", "base_url": self.shown_url, "served": self.served, "extra_body": extra}

    def _embedded_identity(self) -> dict[str, str]:
        raise NotImplementedError


class ModelSpec(Spec):
    """A language model."""

    price_out: float | None = Field(None, ge=0, allow_inf_nan=False)
    """USD per million completion tokens; none when unknown."""
    limit_parameter: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """What the endpoint calls the limit of new tokens; OpenAI's reasoning models want the second."""
    vllm: str | None = None
    """The command that serves an open model at `base_url`."""
    json_schema: bool = False
    """Whether the endpoint enforces `response_format` of type `json_schema`: memory systems' extractions then ask for
    their shape. No part of the identity: it changes requests, not what a request is answered with."""

    @property
    def start(self) -> str | None:
        """The command of ours that starts its server; None when we can't."""
        return f"opbench serve {self.name}" if self.vllm else None

    def _embedded_identity(self) -> dict[str, str]:
        from opbench.models.embedded import identity

        return identity()


class EmbedderSpec(Spec):
    """An embedding model."""

    batch: int = Field(128, ge=1, le=2048)
    """Texts in one request."""

    def _embedded_identity(self) -> dict[str, str]:
        from opbench.models.embeddings import identity

        return identity()


def cost(spec: Spec, prompt_tokens: int | None, completion_tokens: int | None) -> float | None:
    """USD for so many tokens at `spec`'s prices; 0 when embedded, None when a price or a needed count is unknown."""
    if spec.kind == "embedded":
        return 0.0
    price_out = spec.price_out if isinstance(spec, ModelSpec) else 0.0
    total = 0.0
    for price, tokens in ((spec.price_in, prompt_tokens), (price_out, completion_tokens)):
        if price == 0:
            continue
        if price is None or tokens is None:
            return None
        total += price * tokens / 1_000_000
    return total


class Registry(BaseModel):
    """All models and embedders by name, in file order."""

    model_config = ConfigDict(frozen=True)

    models: dict[str, ModelSpec]
    """Language models."""
    embedders: dict[str, EmbedderSpec]
    """Embedding models."""

    def model(self, name: str) -> ModelSpec:
        """The model of that name. Raises UsageError, with the nearest name, when there is none."""
        return _find("model", name, self.models)

    def embedder(self, name: str) -> EmbedderSpec:
        """The embedder of that name. Raises UsageError, with the nearest name, when there is none."""
        return _find("embedder", name, self.embedders)


S = TypeVar("S", bound=Spec)


def _find(what: str, name: str, entries: dict[str, S]) -> S:
    if name in entries:
        return entries[name]
    near = nearest(name, entries)
    hint = f" Did you mean {near}?" if near else f" There are: {', '.join(entries) or 'none'}."
    raise UsageError(f"No {what} is named {name!r}.{hint} Your own go into {settings().models_file}.")


def load_registry(*files: Path) -> Registry:
    """The registry from `files`, a later one's entry replacing an earlier one's of the same name.

    Without arguments: models.toml and, where it exists, the user's own file (`OPBENCH_MODELS`, else
    models.local.toml). Raises UsageError that names file, place and mend.
    """
    if not files:
        files = (ROOT / "models.toml",)
        user = settings().models_file
        if user.exists():
            files += (user,)
        elif settings().models is not None:
            raise UsageError(f"{user}: no such file. OPBENCH_MODELS names it; write it, or unset the variable.")
    models: dict[str, ModelSpec] = {}
    embedders: dict[str, EmbedderSpec] = {}
    for file in files:
        groups = read_groups(file, ("models", "embedders"))
        models |= {name: entry(file, "models", name, value, ModelSpec) for name, value in groups["models"].items()}
        embedders |= {
            name: entry(file, "embedders", name, value, EmbedderSpec) for name, value in groups["embedders"].items()
        }
    return Registry(models=models, embedders=embedders)
