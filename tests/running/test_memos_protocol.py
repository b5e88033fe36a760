"""LoCoMo by protocol memos: what is asked of the model and the judge, and what is kept of it."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from mitigations.base import Line, Memory
from opbench.analysis.locomo import locomo_table
from opbench.errors import UsageError
from opbench.running import response_prompts
from opbench.running.prepare import prepare
from opbench.running.quote import quote
from opbench.running.response_prompts import (
    answer_messages,
    answer_system,
    answer_temperature,
    memory_blocks,
    response_messages,
)
from opbench.store import schema as s
from opbench.store.database import Store, open_store
from opbench.store.reading import read_run
from opbench.study import Study, make_study
from opbench.types import Instance, User
from tests.scripted_endpoint import ScriptedEndpoint

from .study import STUDY, run_here, use_endpoint

ROSA = User("conv-x", "Rosa", "Ben", True)
QUESTION = Instance("locomo/conv-x/1", "locomo", ROSA, "temporal", "When did Rosa {first} keep bees?", "In 2022")
OP = Instance("op/conv-x/Rosa/fact/1", "op", ROSA, "fact", "Bees can't sting, can they?")
BY_MEMOS = Study(models=("m",), protocol="memos", temperature=0.7)
UNIFORM = Study(models=("m",), temperature=0.7)
FOUND = [
    Memory("Rosa: Keeps bees since last year.", "8 May 2023", 0.9),
    Memory("Rosa: Her {hives} stand on the roof.", None, 0.4),
    Memory("Ben: Ben is afraid of bees.", "9 May 2023", 0.8),
]
BLOCKS = """\
Memories of Rosa:
- (8 May 2023) Keeps bees since last year.
- Her {hives} stand on the roof.

Memories of Ben:
- (9 May 2023) Ben is afraid of bees."""


def asked(memory: str, context: list[Memory | Line] | list[Memory]) -> str:
    """The prompt by protocol memos: all of it is one message in the system role."""
    messages = answer_messages(BY_MEMOS, memory, QUESTION, context)
    assert [message.role for message in messages] == ["system"]
    return messages[0].content


def test_memories_stand_in_two_blocks_headed_by_the_speakers_names() -> None:
    assert memory_blocks(QUESTION, FOUND) == BLOCKS
    alone = memory_blocks(QUESTION, FOUND[2:])
    assert alone == "Memories of Rosa:\n(none)\n\nMemories of Ben:\n- (9 May 2023) Ben is afraid of bees."


def test_lines_that_a_post_processor_rewrote_still_make_a_prompt() -> None:
    mixed = [Line("Ben: Ben is afraid of bees.", "9 May 2023"), Line("Rosa keeps bees, which Ben fears.", altered=True)]
    assert memory_blocks(QUESTION, mixed) == (
        "Memories of Rosa:\n(none)\n\nMemories of Ben:\n- (9 May 2023) Ben is afraid of bees.\n\n"
        "Memories of Rosa and Ben together:\n- Rosa keeps bees, which Ben fears."
    )
    assert memory_blocks(QUESTION, mixed[1:]) == (
        "Memories of Rosa and Ben together:\n- Rosa keeps bees, which Ben fears."
    )


@pytest.mark.parametrize("memory", ["memu", "memos", "memos-tree", "rag", "mem0", "mem0-graph"])
def test_each_memory_system_gets_its_instructions_then_the_memories_then_the_question(memory: str) -> None:
    prompt = asked(memory, FOUND)
    assert prompt.endswith(f"\n\n{BLOCKS}\n\nQuestion: When did Rosa {{first}} keep bees?\n\nAnswer:")
    instructions = prompt.removesuffix(f"\n\n{BLOCKS}\n\nQuestion: When did Rosa {{first}} keep bees?\n\nAnswer:")
    assert instructions == answer_system(BY_MEMOS, memory, QUESTION)
    assert "Fewer than five or six words" in instructions
    of_mem0 = memory.startswith("mem0")
    assert ("know of the world" in instructions) is not of_mem0, "all but Mem0 may use what they know of the world"
    assert ("by the memories alone" in instructions) is of_mem0


def test_base_and_an_empty_retrieval_get_the_same_prompt_without_memories() -> None:
    prompt = asked("base", [])
    assert prompt == asked("mem0", []) == asked("rag", [])
    assert "Rosa and Ben" in prompt
    assert "Question: When did Rosa {first} keep bees?" in prompt
    assert "Memories of" not in prompt


def test_what_a_method_adds_stands_before_and_after() -> None:
    messages = answer_messages(BY_MEMOS, "rag", QUESTION, FOUND, "A note.", "A preface.")
    assert messages[0].content.startswith("A preface.\n\nYou help")
    assert messages[0].content.endswith("\n\nAnswer:\n\nA note.")


@pytest.mark.parametrize("study", [BY_MEMOS, UNIFORM])
def test_op_bench_is_asked_as_ever(study: Study) -> None:
    assert answer_messages(study, "mem0", OP, FOUND) == response_messages("op", OP.question, FOUND)
    assert answer_system(study, "mem0", OP) == response_messages("op", OP.question, FOUND)[0].content
    assert answer_temperature(study, OP) == 0.7


def test_the_uniform_protocol_is_as_ever() -> None:
    assert answer_messages(UNIFORM, "mem0", QUESTION, FOUND) == response_messages("locomo", QUESTION.question, FOUND)
    assert answer_messages(UNIFORM, "mem0", QUESTION, FOUND) == answer_messages(UNIFORM, "rag", QUESTION, FOUND)
    assert answer_temperature(UNIFORM, QUESTION) == 0.7
    assert answer_temperature(BY_MEMOS, QUESTION) == 0.0


def test_the_protocols_prompts_belong_to_studies_by_it_alone() -> None:
    # As it was before there was another protocol: over the six files of the folder, and nothing below it.
    digest = hashlib.sha256()
    folder = Path(response_prompts.__file__).parent / "prompts"
    names = [
        f"{benchmark}_{part}" for benchmark in ("locomo", "op") for part in ("system", "with_memory", "without_memory")
    ]
    for name in names:
        file = folder / f"{name}.txt"
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    assert response_prompts.prompts_sha256() == digest.hexdigest()


def test_category_5_is_not_asked() -> None:
    for fields in ({"adversarial": True}, {"subtypes": ["adversarial"]}):
        with pytest.raises(UsageError, match="categories 1 to 4 only"):
            make_study({"models": ["m"], "protocol": "memos", **fields})


# A run against the scripted endpoint.

RUN: dict[str, Any] = {
    "memories": ("base", "rag"),
    "mitigations": ("none", "self-critic"),
    "limit": 4,
    "protocol": "memos",
    "temperature": 0.7,
}
JUDGE_MARK = "<reference>"


def reply(body: dict[str, Any]) -> str:
    """An answer of five words, OP-Bench's scores, and labels that differ from question to question."""
    text = body["messages"][-1]["content"]
    if JUDGE_MARK in text:
        return json.dumps({"reason": "So it is.", "label": "CORRECT" if len(text) % 2 else "WRONG"})
    return "Score: 0.5" if "score" in text.lower() and "0" in text else "The seventh of May 2024"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(f"sqlite:///{tmp_path / 's.sqlite3'}")


async def test_a_run_by_the_protocol(store: Store, tmp_path: Path) -> None:
    with ScriptedEndpoint(reply=reply) as endpoint:
        use_endpoint(tmp_path, endpoint)
        prepared = prepare(Study(**STUDY | RUN))
        expected = quote(store, prepared, concurrency=6)
        await prepared.aclose()
        progress, run_id, _ = await run_here(store, **RUN)
        assert (progress.done, progress.errors) == (3 * 8, 0)  # BASE, and RAG with two methods, on four of each

        bodies = [body for body in endpoint.ledger.bodies if "messages" in body]
        judged = Counter(
            json.dumps(body["messages"]) for body in bodies if JUDGE_MARK in body["messages"][-1]["content"]
        )
        assert set(judged.values()) == {3}, "three requests for each answer that is judged"
        # Of an OP-Bench record one call, of a LoCoMo record three, whatever is shared.
        assert (
            sum(line.calls_naive for line in expected.lines if line.stage == "judge")
            == sum(
                3 if instance.benchmark == "locomo" else int(instance.subtype != "repetition")
                for instance in prepared.instances
            )
            * 3
        )
        answered = [body for body in bodies if body["messages"][0]["content"].startswith("You help with questions")]
        alone = [body for body in answered if [message["role"] for message in body["messages"]] == ["system"]]
        assert len(alone) == 2 * 4, "BASE and RAG on four questions; the draft that is revised is RAG's own answer"
        assert {body["temperature"] for body in answered} == {0.0}
        assert {body["temperature"] for body in bodies} == {0.0, 0.7}, "OP-Bench is answered at the study's temperature"

        requests = endpoint.ledger.total
        await run_here(store, **RUN)
        assert endpoint.ledger.total == requests, "nothing is left to do, and no call is made twice"

    data = read_run(store, run_id)
    assert set(data.scores.loc[data.scores["metric"] != "score", "metric"]) == {
        "memos_correct",
        "memos_correct_run1",
        "memos_correct_run2",
        "memos_correct_run3",
        "memos_f1",
        "memos_rouge1",
        "memos_rouge2",
        "memos_rougeL",
        "memos_bleu1",
        "memos_bleu2",
        "memos_bleu3",
        "memos_bleu4",
        "memos_meteor",
    }
    table = locomo_table(data).set_index(["memory", "mitigation"])
    tokens = table["context_tokens"].to_dict()
    assert tokens[("base", "none")] == 0
    assert tokens[("rag", "none")] == tokens[("rag", "self-critic")] > 10
    assert (table["run_std"] == 0).all(), "an endpoint that answers the same thrice"
    assert (table["run_mean"] == table["overall"]).all()
    assert data.provenance["protocol"]["name"] == "memos"
    with store.begin() as connection:
        uses = connection.execute(
            select(s.record_calls.c.record_id, s.record_calls.c.call_key)
            .join(s.records, s.records.c.id == s.record_calls.c.record_id)
            .where(s.record_calls.c.stage == "judge", s.records.c.instance_id.like("locomo/%"))
        ).all()
    assert set(Counter(row.record_id for row in uses).values()) == {3}
    assert {
        len({row.call_key for row in uses if row.record_id == record}) for record in {row.record_id for row in uses}
    } == {3}


async def test_the_protocol_makes_another_run_and_leaves_the_old_ones_ids(tmp_path: Path) -> None:
    with ScriptedEndpoint() as endpoint:
        use_endpoint(tmp_path, endpoint)
        prepared = [prepare(Study(**STUDY | {"protocol": protocol})) for protocol in ("uniform", "memos")]
        for each in prepared:
            await each.aclose()
    uniform, memos = prepared
    assert uniform.run_id != memos.run_id
    assert "protocol" not in uniform.provenance
    same = {name for name in uniform.provenance if uniform.provenance[name] == memos.provenance[name]}
    assert same == set(uniform.provenance), "the protocol is told beside all else: OP-Bench's scores don't depend on it"
