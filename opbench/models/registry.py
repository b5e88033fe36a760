"""The model registry: models.toml, and the user's own file on top of it."""

from __future__ import annotations

import difflib
import json
import math
import re
import tomllib
from pathlib import Path
from typing import Any, Literal, Self, TypeVar
from urllib.parse import urlsplit, urlunsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from opbench.errors import UsageError
from opbench.settings import ROOT, settings

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


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
    """Requests under way at once from one client; further ones wait, outside of the measured duration."""
    extra_body: dict[str, Any] = Field(default_factory=dict)
    """Further fields of each request's body, e.g. the switch that turns thinking off."""
    note: str | None = None
    """What a user should know before choosing it."""

    @field_validator("base_url")
    @classmethod
    def _http(cls, value: str) -> str:
        parts = urlsplit(value)
        if value and (parts.scheme not in ("http", "https") or not parts.hostname):
            raise ValueError("is no address: write it like https://host/v1")
        return value

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.kind == "endpoint" and not self.base_url:
            raise ValueError('has no base_url: add one, or kind = "embedded"')
        if self.kind == "embedded" and self.base_url:
            raise ValueError("is embedded and has a base_url: leave one of the two out")
        for field in ("label", "served"):
            if not getattr(self, field):
                object.__setattr__(self, field, self.name)
        return self

    @property
    def shown_url(self) -> str:
        """`base_url` without user, password and query: fit for messages, records and hashes."""
        parts = urlsplit(self.base_url)
        host = parts.netloc.rpartition("@")[2]
        return urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))

    @property
    def local(self) -> bool:
        """Whether the endpoint is on this machine, so that no proxy lies between."""
        host = urlsplit(self.base_url).hostname or ""
        return self.kind == "embedded" or host in ("localhost", "::1") or host.startswith("127.")

    def identity(self) -> dict[str, str]:
        """What determines its answers, for hashing: endpoint, served name, further body; of an embedded one the
        digest of its weights and the versions of what computes with them. No secrets.

        Raises UsageError when an embedded one isn't installed.
        """
        extra = json.dumps(self.extra_body, sort_keys=True, ensure_ascii=False)
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
    near = _nearest(name, entries)
    hint = f" Did you mean {near}?" if near else f" There are: {', '.join(entries) or 'none'}."
    raise UsageError(f"No {what} is named {name!r}.{hint} Your own go into {settings().models_file}.")


def _nearest(word: str, words: Any) -> str | None:
    lowered = {str(w).lower(): str(w) for w in words}
    found = difflib.get_close_matches(word.lower(), lowered, n=1, cutoff=0.5)
    return lowered[found[0]] if found else None


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
        content = _read(file)
        for key in content:
            if key not in ("models", "embedders"):
                near = _nearest(key, ("models", "embedders"))
                mend = f"Did you mean {near}?" if near else "Write [models.NAME] or [embedders.NAME]."
                raise UsageError(f"{file}: unknown table [{key}]. {mend}")
        models |= _entries(file, "models", content.get("models", {}), ModelSpec)
        embedders |= _entries(file, "embedders", content.get("embedders", {}), EmbedderSpec)
    return Registry(models=models, embedders=embedders)


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{file}: can't be read ({error.strerror}). Check the path and its rights.") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{file}: isn't UTF-8 (byte {error.start}). Save it as UTF-8.") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{file}: no valid TOML: {error}. Mend that line.") from error


def _entries(file: Path, group: str, table: Any, spec: type[S]) -> dict[str, S]:
    if not isinstance(table, dict):
        raise UsageError(f"{file}: {group} must be tables. Write [{group}.NAME].")
    return {name: _entry(file, group, name, value, spec) for name, value in table.items()}


def _entry(file: Path, group: str, name: str, value: Any, spec: type[S]) -> S:
    place = f"{file}: [{group}.{name if '.' not in name else json.dumps(name)}]"
    if not isinstance(value, dict):
        raise UsageError(f"{place} must be a table. Write [{group}.{name}] and its fields below.")
    if not _NAME.fullmatch(name):
        raise UsageError(f"{place}: a name is made of letters, digits, dots, dashes and underscores. Rename it.")
    if any(isinstance(field, dict) for key, field in value.items() if key != "extra_body"):
        raise UsageError(f'{place} holds another table. A name with a dot needs quotes: [{group}."{name}.…"].')
    if "name" in value:
        raise UsageError(f"{place}: unknown key name. The entry's name is in its heading; for people, set label.")
    # TOML writes 60 where Python would write 60.0.
    numbers = {k: float(v) if type(v) is int and _is_float(spec, k) else v for k, v in value.items()}
    try:
        return spec.model_validate({"name": name, **numbers})
    except ValidationError as error:
        raise UsageError(f"{place}: {_explain(error, value, spec)}") from error


def _is_float(spec: type[Spec], key: str) -> bool:
    field = spec.model_fields.get(key)
    return field is not None and field.annotation in (float, float | None)


def _explain(error: ValidationError, value: dict[str, Any], spec: type[Spec]) -> str:
    first = error.errors(include_url=False)[0]
    key = str(first["loc"][0]) if first["loc"] else ""
    if first["type"] == "extra_forbidden":
        near = _nearest(key, [f for f in spec.model_fields if f != "name"])
        mend = f"Did you mean {near}?" if near else f"Known: {', '.join(f for f in spec.model_fields if f != 'name')}."
        return f"unknown key {key}. {mend}"
    message = first["msg"].removeprefix("Value error, ")
    if not key:
        return f"{message}."
    given = value.get(key)
    shown = "" if key == "base_url" or (isinstance(given, float) and math.isnan(given)) else f" = {given!r}"
    return f"{key}{shown}: {message}."
