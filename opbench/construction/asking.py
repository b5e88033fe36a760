"""Asking a model for JSON of a schema: enforced where the endpoint can, validated always, repaired at most once.

Endpoints differ in what they enforce. Each model is asked with the schema first; one that refuses that with a 400 is
asked for any JSON object, then without any such field, and it is remembered how it takes it.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from opbench.errors import ModelError, ModelErrorKind
from opbench.judges.text import strip_thinking
from opbench.models.failures import storable
from opbench.models.registry import Registry
from opbench.running.call_keys import canonical
from opbench.running.calls import CallStore
from opbench.store.writing import CallRow
from opbench.types import ChatRequest, Message

T = TypeVar("T")
_FORMS = ("schema", "object", "plain")
#: These would fail the same way again.
_FINAL: frozenset[ModelErrorKind] = frozenset({"too_long", "content_filter", "bad_request"})
_FENCED = re.compile(r"```(?:json)?\s*(.*?)```", re.DOTALL | re.IGNORECASE)
#: Characters of a wrong answer that the model is shown again.
_SHOWN = 4_000


class Wrong(Exception):
    """An answer that isn't what was asked for; the message says what is wrong with it, to people and to the model."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What an answer must look like: a JSON schema of an object."""

    name: str
    schema: Mapping[str, Any]


@dataclass(slots=True)
class Asked(Generic[T]):
    """What came of asking. `value` is None when nothing usable did; `fault` says why then."""

    value: T | None = None
    fault: str | None = None
    retriable: bool = False
    """Whether asking another time may help: the call failed, not the answer."""
    repaired: bool = False
    rows: list[CallRow] = field(default_factory=list)
    """The calls in order: the first, and the repair."""

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(row.key for row in self.rows)


class Asker:
    """Asks through the call store. Belongs to one event loop."""

    def __init__(self, calls: CallStore, registry: Registry) -> None:
        self.calls = calls
        self._registry = registry
        self._forms: dict[str, int] = {}
        self._first: dict[str, asyncio.Lock] = {}

    async def ask(
        self,
        model: str,
        messages: Sequence[Message],
        shape: Shape,
        read: Callable[[Any], T],
        *,
        temperature: float = 0.0,
        max_tokens: int = 1024,
        repeat: int = 0,
    ) -> Asked[T]:
        """Ask, and once again when the answer is wrong, showing what is wrong with it.

        `read` turns the parsed JSON into a value, or raises `Wrong`. Calls are in the store or at hand to be written
        with the unit (`calls.unwritten(asked.keys)`); the first one of two is written before the second is made.

        Raises:
            StoreError: the store can't be read or written.
        """
        asked: Asked[T] = Asked()
        told: tuple[Message, ...] = tuple(messages)
        for attempt in (1, 2):
            try:
                row = await self._call(model, told, shape, temperature, max_tokens, repeat)
            except ModelError as error:
                asked.fault, asked.retriable = str(error), error.kind not in _FINAL
                return asked
            asked.rows.append(row)
            asked.repaired = attempt == 2
            try:
                asked.value, asked.fault = read(parsed(row.response, row.finish_reason)), None
                return asked
            except Wrong as wrong:
                asked.fault = str(wrong)
            if attempt == 1:
                # It is paid for: a process that is killed now must not pay it again.
                await self.calls.keep(asked.keys)
                told = (*told, Message("assistant", row.response[:_SHOWN] or "(nothing)"), _mend(asked.fault))
        return asked

    async def _call(
        self,
        model: str,
        messages: Sequence[Message],
        shape: Shape,
        temperature: float,
        max_tokens: int,
        repeat: int,
    ) -> CallRow:
        def request(form: str) -> ChatRequest:
            return ChatRequest(
                model, tuple(messages), temperature, max_tokens, repeat, further=self._further(model, shape, form)
            )

        if model not in self._forms:
            # One at a time until it is known how the model takes it: else each of many would be refused.
            async with self._first.setdefault(model, asyncio.Lock()):
                if model not in self._forms:
                    return await self._down(model, request)
        return await self._down(model, request)

    async def _down(self, model: str, request: Callable[[str], ChatRequest]) -> CallRow:
        for form in range(self._forms.get(model, 0), len(_FORMS)):
            try:
                row, _ = await self.calls.chat(request(_FORMS[form]))
            except ModelError as error:
                if error.kind != "bad_request" or form == len(_FORMS) - 1:
                    raise
                continue
            self._forms[model] = max(form, self._forms.get(model, 0))
            return row
        raise AssertionError("the last form raises or answers")

    def _further(self, model: str, shape: Shape, form: str) -> str:
        if form == "plain":
            return ""
        if form == "object":
            return canonical({"response_format": {"type": "json_object"}})
        embedded = self._registry.model(model).kind == "embedded"
        # Hosted models refuse schemas that bound the length of texts; what runs on until it is cut off needs the bound.
        schema = shape.schema if embedded else unbounded(shape.schema)
        named = {"name": shape.name, "strict": True, "schema": schema}
        return canonical({"response_format": {"type": "json_schema", "json_schema": named}})


def parsed(text: str, finish_reason: str | None = None) -> Any:
    """The JSON object in an answer, also between thinking, fences or other words.

    Raises:
        Wrong: there is none.
    """
    plain = strip_thinking(text)
    if not plain:
        raise Wrong("the answer is empty")
    fenced = _FENCED.search(plain)
    inner = fenced[1] if fenced else plain
    begin, end = inner.find("{"), inner.rfind("}")
    try:
        value = json.loads(inner[begin : end + 1] if 0 <= begin < end else inner)
    except (ValueError, RecursionError):
        if finish_reason == "length":
            raise Wrong("the answer was cut off before the JSON ended; make it shorter") from None
        raise Wrong("the answer isn't JSON") from None
    if not isinstance(value, dict):
        raise Wrong("the answer is JSON, but no object")
    return _storable(value)


def unbounded(schema: Any) -> Any:
    """A schema without bounds on the lengths of texts."""
    if isinstance(schema, Mapping):
        left_out = ("minLength", "maxLength") if schema.get("type") == "string" else ()
        return {key: unbounded(value) for key, value in schema.items() if key not in left_out}
    if isinstance(schema, list | tuple):
        return [unbounded(value) for value in schema]
    return schema


def _storable(value: Any) -> Any:
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, dict):
        return {storable(key): _storable(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_storable(each) for each in value]
    return value


def _mend(fault: str) -> Message:
    return Message(
        "user",
        f"That can't be used: {fault}. Answer the task above again with one JSON object in the shape that was asked "
        "for, and nothing else.",
    )
