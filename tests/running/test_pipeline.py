"""One instance through the three stages, with a scripted model: what reaches it, what is booked where."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

import mitigations
from mitigations import Line, Memory, Processed
from opbench.benchmarks import load
from opbench.errors import ModelError
from opbench.judges.base import Evidence
from opbench.memories.none import NoMemory
from opbench.running.calls import CallStore
from opbench.running.pipeline import Pipeline, Tools
from opbench.running.retrieval import Retrieval
from opbench.store.database import Store, open_store
from opbench.store.reading import read_run, run_status
from opbench.store.writing import FinishedRecord, create_run, save_records
from opbench.study import Configuration, Study
from opbench.types import ChatRequest, ChatResult, Complete, Instance, Score, Session, User

MEMORIES = [Memory("Mara keeps bees.", "2 Feb 2024", 0.9), Memory("Mara is allergic to walnuts.", "14 Mar 2024", 0.4)]


class FixedMemory:
    name, label = "fixed", "Fixed"

    def __init__(self, found: Sequence[Memory]) -> None:
        self.found, self.searches = list(found), 0

    def identity(self) -> dict[str, str]:
        return {"memory": "fixed"}

    async def ingest(self, user: User, history: Sequence[Session]) -> None:
        pass

    async def search(self, user: User, query: str, k: int) -> list[Memory]:
        self.searches += 1
        return self.found[:k]

    async def aclose(self) -> None:
        pass


class LengthJudge:
    """Scores a response by its length, so that every judged response has a known number."""

    name, comparable = "length", False

    def provenance(self) -> dict[str, str]:
        return {}

    async def score(self, evidence: Evidence, complete: Complete) -> list[Score]:
        return [Score("score", min(1.0, len(evidence.response) / 100))]


class Model:
    """Answers by what stands in the last message; every call takes 100 ms as far as the record knows."""

    def __init__(self, **replies: str) -> None:
        self.replies = replies
        self.requests: list[ChatRequest] = []

    async def __call__(self, request: ChatRequest) -> ChatResult:
        self.requests.append(request)
        await asyncio.sleep(0.01)
        text = request.messages[-1].content
        reply = next((answer for key, answer in self.replies.items() if key in text), "An answer.")
        if reply == "FAIL":
            raise ModelError("m: no answer in time", kind="timeout", model="m")
        return ChatResult(reply, "stop", 50, 7, 100.0)


class Bench:
    """A pipeline over the sample with one scripted model."""

    def __init__(self, store: Store, model: Model, found: Sequence[Memory] = MEMORIES, **study: Any) -> None:
        self.study = Study(
            models=("m",),
            memories=("base", "fixed"),
            mitigations=("none", "reminder", "self-critic", "reminder-original", "empty", "abstain"),
            **study,
        )
        self.corpus = load("sample")
        self.instance = self.corpus.op[0]
        self.memory = FixedMemory(found)
        self.store = store
        self.ids = create_run(store, "r", self.study, "h", {}, [*self.corpus.op, *self.corpus.locomo])
        self.calls = CallStore(
            store, model, lambda name: {"name": name}, lambda name, i, o: (i or 0) * 0.001, lambda name: 3
        )
        self.pipeline = Pipeline(
            Tools(
                self.study,
                self.corpus,
                self.calls,
                Retrieval(
                    self.study,
                    self.corpus,
                    {"base": NoMemory(), "fixed": self.memory},
                    dict.fromkeys(self.corpus.conversations, "sha"),
                ),
                {name: mitigations.get(name) for name in self.study.mitigations},
                LengthJudge(),
                4,
                "r",
            )
        )

    async def run(self, memory: str, mitigation: str, instance: Instance | None = None) -> FinishedRecord:
        configuration = Configuration("m", memory, mitigation)
        return await self.pipeline.record(self.ids[configuration], configuration, instance or self.instance)


@pytest.fixture
def store(tmp_path: Any) -> Store:
    return open_store(f"sqlite:///{tmp_path / 's.sqlite3'}")


async def test_base_sees_no_memory_and_has_one_stage(store: Store) -> None:
    model = Model()
    record = await Bench(store, model).run("base", "none")
    assert record.values["status"] == "done"
    assert record.values["response"] == "An answer."
    assert "memories" not in model.requests[0].messages[-1].content.lower()
    assert record.values["retrieved"] is None
    assert "retrieval_ms" not in record.values
    assert "post_ms" not in record.values
    assert 100 <= record.values["response_ms"] < 110  # the call's own 100 ms, not the 10 ms that it took here
    assert record.values["cost_usd"] == pytest.approx(0.05)
    assert [score.value for score in record.scores] == [0.1]


async def test_memories_come_with_their_dates(store: Store) -> None:
    model = Model()
    await Bench(store, model).run("fixed", "none")
    prompt = model.requests[0].messages[-1].content
    assert "- (2 Feb 2024) Mara keeps bees." in prompt
    assert "- (14 Mar 2024) Mara is allergic to walnuts." in prompt


async def test_an_empty_retrieval_is_the_no_memory_prompt(store: Store) -> None:
    model = Model()
    bench = Bench(store, model, found=[])
    base = await bench.run("base", "none")
    empty = await bench.run("fixed", "none")
    assert len(model.requests) == 1, "the very same call"
    assert empty.values["response_reused"]
    assert empty.values["response"] == base.values["response"]
    filtered = await bench.run("fixed", "reminder")
    assert len(model.requests) == 1, "no memories, no filter call"
    assert filtered.values["state"] == "nothing"
    assert "post_ms" not in filtered.values


async def test_nothing_kept_is_the_no_memory_prompt(store: Store) -> None:
    bench = Bench(store, model := Model(**{"[1]": "NONE"}))
    record = await bench.run("fixed", "reminder")
    assert record.values["state"] == "nothing"
    assert record.values["context"] == []
    assert "Mara" not in model.requests[-1].messages[-1].content


async def test_kept_lines_are_the_context(store: Store) -> None:
    bench = Bench(store, model := Model(**{"[1]": "[2] Mara is allergic to walnuts."}))
    record = await bench.run("fixed", "reminder")
    prompt = model.requests[-1].messages[-1].content
    assert record.values["state"] == "kept"
    assert "(14 Mar 2024) Mara is allergic to walnuts." in prompt
    assert "bees" not in prompt
    assert (record.values["post_prompt_tokens"], record.values["response_prompt_tokens"]) == (50, 50)
    assert record.values["cost_usd"] == pytest.approx(0.10)


async def test_a_failed_filter_looks_like_no_filter(store: Store) -> None:
    bench = Bench(store, model := Model(**{"[1]": "Sure! Heat pumps move warmth around your home."}))
    plain = await bench.run("fixed", "none")
    failed = await bench.run("fixed", "reminder")
    assert failed.values["state"] == "failed"
    assert failed.values["response"] == plain.values["response"]
    assert failed.values["response_reused"]
    assert not plain.values["response_reused"]
    assert len(model.requests) == 2, "the filter's call and one response for both"


async def test_self_critic_books_draft_as_response_and_critique_as_post(store: Store) -> None:
    reply = "Critique: It drags in bees.\nRevised answer: Better."
    bench = Bench(store, model := Model(**{"An answer.": reply}))
    plain = await bench.run("fixed", "none")
    revised = await bench.run("fixed", "self-critic")
    assert revised.values["draft"] == plain.values["response"] == "An answer."
    assert revised.values["response"] == "Better."
    assert "bees" in revised.values["critique"]
    assert revised.values["state"] == "revised"
    assert revised.values["response_reused"], "the draft is the plain response's call"
    assert 100 <= revised.values["post_ms"] < 115
    assert 100 <= revised.values["response_ms"] < 115
    assert len(model.requests) == 2


async def test_one_retrieval_serves_all_post_processors(store: Store) -> None:
    bench = Bench(store, Model())
    records = [await bench.run("fixed", name) for name in ("none", "reminder", "self-critic")]
    assert bench.memory.searches == 1
    assert [record.values["retrieval_reused"] for record in records] == [False, True, True]
    assert len({record.values["retrieval_ms"] for record in records}) == 1


async def test_the_same_call_at_the_same_time_is_made_once(store: Store) -> None:
    bench = Bench(store, model := Model())
    records = await asyncio.gather(*(bench.run("base", "none") for _ in range(5)))
    assert len(model.requests) == 1
    assert sorted(record.values["response_reused"] for record in records) == [False, True, True, True, True]


async def test_calls_outlive_the_process(store: Store) -> None:
    first = Bench(store, Model())
    record = await first.run("base", "none")
    save_records(store, "r", [record])
    second = Bench(store, model := Model())
    again = await second.run("base", "none")
    assert model.requests == []
    assert again.values["response_reused"]
    # A reused call keeps the latency that it had; only the lookup's own code is new.
    assert again.values["response_ms"] == pytest.approx(record.values["response_ms"], abs=10)


async def test_a_probe_reuses_nothing(store: Store) -> None:
    bench = Bench(store, model := Model(), latency_probe=True)
    plain = await bench.run("fixed", "none")
    critic = await bench.run("fixed", "self-critic")
    assert not plain.values["response_reused"]
    assert not critic.values["response_reused"]
    assert len(model.requests) == 3


async def test_an_error_is_a_record_with_its_reason_and_keeps_what_was_paid(store: Store) -> None:
    bench = Bench(store, Model(**{"[1]": "[1] Mara keeps bees.", "- (2 Feb 2024)": "FAIL"}))
    record = await bench.run("fixed", "reminder")
    assert (record.values["status"], record.values["error_kind"]) == ("error", "timeout")
    assert record.values["error"] == "m: no answer in time"
    assert record.values["response"] is None
    assert record.scores == []
    assert [call.kind for call in record.calls] == ["retrieval", "chat"]


async def test_a_blank_answer_is_asked_again_and_then_an_error(store: Store) -> None:
    bench = Bench(store, model := Model(**{bench_question(): "  "}))
    record = await bench.run("base", "none")
    assert len(model.requests) == 3
    assert (record.values["status"], record.values["error_kind"]) == ("error", "empty")


async def test_an_original_variant_adds_its_note_to_the_prompt(store: Store) -> None:
    bench = Bench(store, model := Model())
    await bench.run("fixed", "none")
    await bench.run("fixed", "reminder-original")
    plain, noted = (request.messages[-1].content for request in model.requests)
    assert noted.startswith(plain)
    assert len(noted) > len(plain)


async def test_an_empty_memory_is_bases_own_call(store: Store) -> None:
    bench = Bench(store, model := Model())
    base = await bench.run("base", "none")
    empty = await bench.run("fixed", "empty")
    assert len(model.requests) == 1, "never paid twice"
    assert (empty.values["state"], empty.values["context"]) == ("nothing", [])
    assert empty.values["response"] == base.values["response"]
    assert (empty.values["response_reused"], empty.values["retrieval_reused"]) == (True, False)
    assert "post_ms" not in empty.values, "it asks nobody"
    assert [use.key for use in empty.uses if use.stage == "response"] == [base.uses[0].key]


async def test_an_abstention_asks_no_model_and_is_judged_like_any_other(store: Store) -> None:
    bench = Bench(store, model := Model())
    record = await bench.run("fixed", "abstain")
    assert model.requests == []
    values = record.values
    assert (values["status"], values["response"]) == ("done", "I don't have enough information to answer that.")
    assert (values["finish_reason"], values["concurrency"]) == (None, None)
    assert not {"response_ms", "response_reused", "post_ms"} & set(values), "these stages didn't happen"
    assert values["retrieval_ms"] >= 0
    assert (values["response_prompt_tokens"], values["response_completion_tokens"], values["cost_usd"]) == (0, 0, 0)
    assert [score.value for score in record.scores] == [0.47]  # 47 signs, by the length judge
    save_records(store, "r", [record, await bench.run("base", "none")])
    data = read_run(store, "r")
    stored: Any = data.records.set_index("mitigation")
    assert pd.isna(stored.loc["abstain", "response_ms"])
    assert stored.loc["abstain", "response_prompt_tokens"] == 0


class Answers:
    """A plugin's method that answers itself."""

    name, label, family, revises, calls, prompt_sha256 = "answers", "Answers", "filter", False, 1, "x"

    def __init__(self, state: Any, answer: str) -> None:
        self.state, self.answer = state, answer

    async def process(self, question: str, memories: Any, ask: Any, search: Any = None) -> Processed:
        await ask([("user", "hm?")])
        lines = tuple(Line(memory.text, memory.date) for memory in memories)
        return Processed(self.state, lines, tuple(memories), called=True, answer=self.answer)


async def test_the_calls_of_a_method_that_answers_itself_are_its_own_stage(store: Store) -> None:
    bench = Bench(store, model := Model())
    bench.pipeline.tools.mitigations["reminder"] = Answers("kept", "Mine.")  # type: ignore[assignment]
    record = await bench.run("fixed", "reminder")
    assert (len(model.requests), record.values["response"]) == (1, "Mine.")
    assert (record.values["post_prompt_tokens"], record.values["response_prompt_tokens"]) == (50, 0)
    assert record.values["cost_usd"] == pytest.approx(0.05)


async def test_a_failed_method_has_no_answer_and_a_blank_one_is_an_error(store: Store) -> None:
    bench = Bench(store, Model())
    bench.pipeline.tools.mitigations["reminder"] = Answers("failed", "Mine.")  # type: ignore[assignment]
    assert (await bench.run("fixed", "reminder")).values["response"] == "An answer."
    bench.pipeline.tools.mitigations["reminder"] = Answers("kept", " ")  # type: ignore[assignment]
    blank = (await bench.run("fixed", "reminder")).values
    assert (blank["status"], blank["error_kind"]) == ("error", "empty")
    assert blank["error"] == "the post-processor answers answered nothing."


async def test_braces_and_prompts_in_memories_stay_text(store: Store) -> None:
    bench = Bench(store, model := Model(), found=[Memory("He wrote {question} and {memories}.", None, 0.5)])
    await bench.run("fixed", "none")
    assert "- He wrote {question} and {memories}." in model.requests[0].messages[-1].content


async def test_locomo_asks_for_a_short_answer(store: Store) -> None:
    bench = Bench(store, model := Model())
    await bench.run("fixed", "none", bench.corpus.locomo[0])
    system, user = (message.content for message in model.requests[0].messages)
    assert "briefly" in system
    assert user.endswith("Short answer:")


async def test_the_stored_request_has_what_was_asked(store: Store) -> None:
    bench = Bench(store, Model())
    record = await bench.run("base", "none")
    request = json.loads(json.dumps(record.calls[0].request))
    assert request["temperature"] == 0.0
    assert request["max_tokens"] == 512
    assert request["messages"][0]["role"] == "system"


def bench_question() -> str:
    return load("sample").op[0].question


class BrokenJudge(LengthJudge):
    def __init__(self, fault: Exception) -> None:
        self.fault = fault

    async def score(self, evidence: Evidence, complete: Complete) -> list[Score]:
        raise self.fault


@pytest.mark.parametrize(
    ("fault", "reason", "again"),
    [
        (ModelError("j: refused", kind="rate_limit", model="j"), "judge: rate_limit: j: refused", True),
        (KeyError("score"), "judge: internal: KeyError: 'score'", False),
    ],
)
async def test_a_judge_that_fails_costs_the_score_and_not_the_answer(
    store: Store, fault: Exception, reason: str, again: bool
) -> None:
    bench = Bench(store, Model())
    bench.pipeline.tools = replace(bench.pipeline.tools, judge=BrokenJudge(fault))
    record = await bench.run("base", "none")
    assert (record.values["status"], record.values["response"]) == ("done", "An answer.")
    (score,) = record.scores
    assert (score.value, score.reason, bool(score.details.get("transport"))) == (None, reason, again)
    save_records(store, "r", [record])
    status = run_status(store, "r")
    assert status.retriable == int(again)


async def test_a_fault_in_a_method_is_the_records_error_and_keeps_what_was_paid(store: Store) -> None:
    class Asks:
        name, label, family, revises, calls, prompt_sha256 = "asks", "Asks", "filter", False, 1, "x"

        async def process(self, question: str, memories: Any, ask: Any, search: Any = None) -> Any:
            await ask([("user", "hm?")])
            raise ZeroDivisionError("oh")

    bench = Bench(store, Model())
    bench.pipeline.tools.mitigations["reminder"] = Asks()  # type: ignore[assignment]
    record = await bench.run("fixed", "reminder")
    assert (record.values["status"], record.values["error_kind"]) == ("error", "internal")
    assert record.values["error"] == "ZeroDivisionError: oh"
    assert [call.kind for call in record.calls] == ["retrieval", "chat"]


async def test_the_concurrency_is_that_of_the_call(store: Store) -> None:
    record = await Bench(store, Model()).run("base", "none")
    assert record.values["concurrency"] == 3, "what the model got at a time, not the run's 4"
