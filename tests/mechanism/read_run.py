"""A run whose records' prompts and responses are written by hand, for reading them."""

from __future__ import annotations

from typing import Any

from mitigations.base import Line
from opbench.running.response_prompts import response_messages
from opbench.store.database import Store
from opbench.store.writing import CallRow, CallUse, FinishedRecord, create_run, save_records
from opbench.study import Configuration, Study
from opbench.types import Instance, User

RUN = "r1"
ANA, BO = User("c1", "Ana", "Bo", True), User("c1", "Bo", "Ana", False)
INSTANCES = [
    Instance(f"op/c1/{user.speaker}/{subtype}/{n}", "op", user, subtype, f"{user.speaker} asks {subtype} {n}?")
    for user in (ANA, BO)
    for subtype in ("fact", "value")
    for n in (1, 2)
]
STUDY = Study(models=("m",), memories=("base", "rag"), mitigations=("none", "few-shot-cot", "abstain"))
BASE, RAG, COT, ABSTAIN = (
    Configuration("m", *rest)
    for rest in (("base", "none"), ("rag", "none"), ("rag", "few-shot-cot"), ("rag", "abstain"))
)
MEMORIES = [
    {"text": "likes tea", "date": "9 May 2024", "score": 0.4},
    {"text": "has a dog", "date": None, "score": 0.3},
]


def write(store: Store, *, without: tuple[str, ...] = (), digest: str = "0" * 16) -> None:
    """All configurations answer all instances but `without`, to which BASE doesn't. Few-Shot-CoT failed on each n = 1
    and kept the first memory of each n = 2; abstain asks no model. `digest` is of the weights that answered."""
    ids = create_run(store, RUN, STUDY, "hash", {"comparable": False}, INSTANCES)
    records = []
    for instance in INSTANCES:
        failed = instance.id.endswith("/1")
        if instance.id not in without:
            records.append(record(ids[BASE], instance, "Good day.", None, digest))
        records.append(record(ids[RAG], instance, "Have tea.", MEMORIES, digest))
        if failed:
            records.append(record(ids[COT], instance, "Have tea.", MEMORIES, digest, state="failed"))
        else:
            records.append(record(ids[COT], instance, "Tea?", MEMORIES[:1], digest, state="kept"))
        values = {"status": "done", "response": "I can't say.", "context": [], "state": "nothing", "finished_at": 1.0}
        records.append(FinishedRecord(ids[ABSTAIN], instance.id, values))
    save_records(store, RUN, records)


def record(
    configuration: int, instance: Instance, response: str, context: Any, digest: str, state: str | None = None
) -> FinishedRecord:
    lines = [Line(line["text"], line["date"]) for line in context or ()]
    messages = [
        {"role": each.role, "content": each.content} for each in response_messages("op", instance.question, lines)
    ]
    request = {"endpoint": {"kind": "embedded", "sha256": digest}, "messages": messages, "temperature": 0.0}
    key = f"{instance.id}|{len(lines)}|{response}"
    values = {
        "status": "done",
        "response": response,
        "context": context,
        "state": state,
        "finished_at": 1.0,
        # As the tiny reader's tokeniser has it: a byte is a token, and a sign of the template is one.
        "response_prompt_tokens": sum(len(f"{each['role']}\n{each['content']}".encode()) + 2 for each in messages) + 11,
        "response_completion_tokens": len(response),
    }
    call = CallRow(key, "chat", "m", request, response, "stop", values["response_prompt_tokens"], 9, 0.0, 1.0, 1, 1.0)
    return FinishedRecord(configuration, instance.id, values, calls=[call], uses=[CallUse(key, "response", False)])
