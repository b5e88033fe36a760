"""A record's prompt as it was sent, with its segments: which part of it was memory, and which the user's question."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import and_, select

from mitigations.base import Line
from opbench.mechanism.spans import Turn, Unreadable
from opbench.running.response_prompts import response_pieces
from opbench.store import schema as s
from opbench.store.database import Store
from opbench.types import Benchmark

_SEGMENTS = {"memories": "memory", "question": "query", "": "instructions"}
_BETWEEN = "\n\n"
GONE = "made again meanwhile"


@dataclass(frozen=True, slots=True)
class Read:
    """What a reading model is given of a record."""

    turns: tuple[Turn, ...]
    response: str
    """What came of this prompt: of a method that revises it is the draft."""
    told_tokens: int | None
    """Tokens of the prompt as the endpoint counted them."""
    answered_by: str | None
    """Head of the digest of the weights that answered, where the endpoint tells one."""
    finished_at: float
    """When the record was finished, Unix seconds: one that was made again may have the same id."""

    @property
    def text_sha256(self) -> str:
        """SHA-256 (hex) of all of the text and its segments."""
        told = [[[turn.role, turn.pieces] for turn in self.turns], self.response]
        canonical = json.dumps(told, ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()


def read_prompt(store: Store, record: int) -> Read:
    """The prompt and the response of a done record, from the call that made it.

    Raises:
        Unreadable: the record is gone, it was answered without a call, its texts aren't kept, or its prompt has another
            form.
    """
    r, i, c, u = s.records.c, s.instances.c, s.calls.c, s.record_calls.c
    of_record = (
        select(r.context, r.finished_at, i.benchmark, i.question)
        .join(s.instances, and_(i.run_id == r.run_id, i.instance_id == r.instance_id))
        .where(r.id == record)
    )
    of_call = (
        select(c.request, c.response, c.prompt_tokens)
        .join(s.record_calls, u.call_key == c.key)
        .where(u.record_id == record, u.stage == "response")
        .order_by(u.ordinal.desc())
    )
    with store.begin() as connection:
        row = connection.execute(of_record).first()
        call = connection.execute(of_call).first()
    if row is None:
        raise Unreadable(GONE)
    if call is None:
        raise Unreadable("answered without a call to a model")
    if not call.request or not call.response or row.question is None:
        raise Unreadable("its texts aren't kept")
    messages = call.request["messages"]
    turns = turns_of(messages, row.benchmark, row.question, row.context or ())
    answered_by = call.request.get("endpoint", {}).get("sha256")
    return Read(tuple(turns), call.response, call.prompt_tokens, answered_by, row.finished_at)


def turns_of(
    messages: Sequence[Mapping[str, str]], benchmark: Benchmark, question: str, context: Sequence[Mapping[str, Any]]
) -> list[Turn]:
    """The messages with their segments. `context` are the lines that the response model saw (`schema.records`).

    The last message is the user's; what a method has put before or after it is instructions.

    Raises:
        Unreadable: the last message isn't what this version makes of question and context.
    """
    lines = [Line(line["text"], line.get("date")) for line in context]
    pieces = response_pieces(benchmark, question, lines)
    own = "".join(text for _, text in pieces)
    *others, last = messages
    content = last["content"]
    starts = [
        start
        for start in range(len(content) - len(own) + 1)
        if content.startswith(own, start)
        and (start == 0 or content.endswith(_BETWEEN, 0, start))
        and (start + len(own) == len(content) or content.startswith(_BETWEEN, start + len(own)))
    ]
    if last["role"] != "user" or len(starts) != 1:
        raise Unreadable("its prompt has another form than this version's (or is of protocol memos)")
    before, after = content[: starts[0]], content[starts[0] + len(own) :]
    parts = [("instructions", before), *((_SEGMENTS[name], text) for name, text in pieces), ("instructions", after)]
    turns = [Turn(message["role"], (("instructions", message["content"]),)) for message in others]
    return [*turns, Turn("user", tuple(part for part in parts if part[1]))]
