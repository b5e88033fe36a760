"""Looking on: the call store tells texts as they come, the pipeline its stages; and a run is what it was."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import mitigations
from mitigations.base import Line, Memory
from opbench.benchmarks import load
from opbench.errors import UsageError
from opbench.judges.base import Evidence
from opbench.memories import MemorySystem
from opbench.memories.none import NoMemory
from opbench.running.calls import CallStore
from opbench.running.pipeline import Pipeline, Tools
from opbench.running.retrieval import Retrieval
from opbench.running.speaking import Speech
from opbench.running.trace import Trace
from opbench.running.watching import Stage
from opbench.store.database import Store, open_store
from opbench.study import Configuration, Study
from opbench.types import ChatRequest, ChatResult, Complete, Message, Score
from tests.running.test_pipeline import MEMORIES, FixedMemory


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(f"sqlite:///{tmp_path / 's.sqlite3'}")


class Talker:
    """A model that speaks when it is told to: `say` gives the next piece, `end` the answer."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.requests: list[ChatRequest] = []
        self.listened: list[bool] = []
        self.go = asyncio.Event()
        self.begun = asyncio.Event()
        self.cancelled = 0

    async def __call__(
        self,
        request: ChatRequest,
        on_text: Callable[[str], None] | None = None,
        on_anew: Callable[[], None] | None = None,
    ) -> ChatResult:
        self.requests.append(request)
        self.listened.append(on_text is not None)
        text = self.answers.pop(0) if self.answers else "An answer."
        if on_text is not None:
            on_text(text[:2])
        self.begun.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if on_text is not None:
            on_text(text[2:])
        return ChatResult(text, "stop", 50, 7, 100.0)


def call_store(store: Store, model: Talker) -> CallStore:
    return CallStore(store, model, lambda name: {"name": name}, lambda name, i, o: 0.0, lambda name: 1, model)


class Heard:
    def __init__(self) -> None:
        self.events: list[str] = []

    def on_text(self, piece: str) -> None:
        self.events.append(piece)

    def on_anew(self) -> None:
        self.events.append("<anew>")


REQUEST = ChatRequest("m", (Message("user", "Hi"),))


async def test_two_who_wait_for_one_call_both_hear_it(store: Store) -> None:
    model, first, second, silent = Talker("Hello."), Heard(), Heard(), None
    calls = call_store(store, model)
    one = asyncio.create_task(calls.chat(REQUEST, on_text=first.on_text, on_anew=first.on_anew))
    await model.begun.wait()
    two = asyncio.create_task(calls.chat(REQUEST, on_text=second.on_text, on_anew=second.on_anew))
    three = asyncio.create_task(calls.chat(REQUEST, on_text=silent))
    await asyncio.sleep(0)
    model.go.set()
    rows = [await task for task in (one, two, three)]
    assert [(row.response, reused) for row, reused in rows] == [("Hello.", False), ("Hello.", True), ("Hello.", True)]
    assert first.events == second.events == ["He", "llo."]
    assert len(model.requests) == 1


async def test_a_stored_answer_comes_in_one_piece(store: Store) -> None:
    model, at_hand, stored = Talker("Hello."), Heard(), Heard()
    model.go.set()
    calls = call_store(store, model)
    row, _ = await calls.chat(REQUEST)
    assert await calls.chat(REQUEST, on_text=at_hand.on_text) == (row, True)
    await calls.keep_all()
    kept, reused = await call_store(store, model).chat(REQUEST, on_text=stored.on_text)
    assert (kept.key, reused) == (row.key, True)
    assert at_hand.events == stored.events == ["Hello."]
    assert model.listened == [False]


async def test_who_joins_a_silent_call_hears_its_answer(store: Store) -> None:
    model, heard = Talker("Hello."), Heard()
    calls = call_store(store, model)
    one = asyncio.create_task(calls.chat(REQUEST))
    await model.begun.wait()
    two = asyncio.create_task(calls.chat(REQUEST, on_text=heard.on_text))
    await asyncio.sleep(0)
    model.go.set()
    await one
    await two
    assert heard.events == ["Hello."]


async def test_a_blank_answer_is_asked_anew(store: Store) -> None:
    model, heard = Talker("  \n ", "Hello."), Heard()
    model.go.set()
    row, _ = await call_store(store, model).chat(REQUEST, on_text=heard.on_text, on_anew=heard.on_anew)
    assert row.response == "Hello."
    assert heard.events == ["  ", "\n ", "<anew>", "He", "llo."]


async def test_one_who_leaves_hears_nothing_more_and_takes_nothing_from_the_other(store: Store) -> None:
    model, first, second = Talker("Hello."), Heard(), Heard()
    calls = call_store(store, model)
    one = asyncio.create_task(calls.chat(REQUEST, on_text=first.on_text))
    await model.begun.wait()
    two = asyncio.create_task(calls.chat(REQUEST, on_text=second.on_text))
    await asyncio.sleep(0)
    one.cancel()
    await asyncio.gather(one, return_exceptions=True)
    model.go.set()
    assert (await two)[0].response == "Hello."
    assert (first.events, second.events) == (["He"], ["He", "llo."])
    assert model.cancelled == 0


async def test_closing_cancels_what_is_under_way_and_keeps_what_is_finished(store: Store) -> None:
    model = Talker("Done.", "Never.")
    calls = call_store(store, model)
    model.go.set()
    done, _ = await calls.chat(REQUEST)
    model.go.clear()
    model.begun.clear()
    other = asyncio.create_task(calls.chat(ChatRequest("m", (Message("user", "Other"),))))
    await model.begun.wait()
    await calls.aclose()
    assert model.cancelled == 1
    with pytest.raises(asyncio.CancelledError):
        await other
    await calls.keep_all()
    assert list(await calls.find([done.key])) == [done.key]
    with store.begin() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM calls").scalar_one() == 1


# --- the texts of a stage ------------------------------------------------------------------------------------------


class Looker:
    """A watch that writes down what it is told."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []

    def begun(self, stage: Stage) -> None:
        self.events.append(("begun", stage))

    def retrieved(self, memories: Sequence[Memory]) -> None:
        self.events.append(("retrieved", [memory.text for memory in memories]))

    def processed(self, context: Sequence[Memory | Line], state: str | None, reason: str | None) -> None:
        self.events.append(("processed", [line.text for line in context], state))

    def text(self, stage: Stage, piece: str) -> None:
        self.events.append((stage, piece))

    def anew(self, stage: Stage) -> None:
        self.events.append(("anew", stage))

    def said(self, stage: Stage) -> str:
        text = ""
        for event in self.events:
            text = "" if event == ("anew", stage) else text + event[1] if event[0] == stage else text
        return text


def test_calls_side_by_side_dont_get_mixed() -> None:
    looker = Looker()
    speech = Speech(looker, "post")
    one, two, three = speech.voice(), speech.voice(), speech.voice()
    two.text("se")
    one.text("fir")
    three.text("third")
    three.end()
    one.text("st")
    assert looker.events == [("post", "fir"), ("post", "st")]
    one.end()
    two.text("cond")
    two.end()
    assert looker.said("post") == "first\n\nsecond\n\nthird"


def test_a_call_that_begins_anew_takes_back_only_its_own() -> None:
    looker = Looker()
    speech = Speech(looker, "post")
    one, two = speech.voice(), speech.voice()
    two.text("not yet told")
    two.anew()
    assert looker.events == []
    one.text("first")
    one.end()
    two.text("wrong")
    two.anew()
    assert looker.said("post") == "first"
    two.text("right")
    two.end()
    assert looker.said("post") == "first\n\nright"


# --- the pipeline --------------------------------------------------------------------------------------------------


class NoJudge:
    name = "none"
    comparable = False

    def __init__(self) -> None:
        self.saw: list[Evidence] = []

    def provenance(self) -> dict[str, str]:
        return {}

    async def score(self, evidence: Evidence, complete: Complete) -> list[Score]:
        self.saw.append(evidence)
        return []


class Bench:
    """The pipeline over the sample with two memories: `Mara keeps bees.` and `Mara is allergic to walnuts.`"""

    def __init__(self, store: Store, model: Any, mitigation: str = "none", **study: Any) -> None:
        corpus = load("sample")
        self.instance = corpus.op[0]
        self.memory = FixedMemory(MEMORIES)
        self.model = model
        self.judge = NoJudge()
        made = Study(models=("m",), memories=("base", "fixed"), mitigations=("none", mitigation), **study)
        memories: dict[str, MemorySystem] = {"base": NoMemory(), "fixed": self.memory}
        retrieval = Retrieval(made, corpus, memories, dict.fromkeys(corpus.conversations, "sha"))
        methods = {name: mitigations.get(name) for name in made.mitigations}
        self.calls = call_store(store, model)
        self.pipeline = Pipeline(Tools(made, corpus, self.calls, retrieval, methods, self.judge, 1, "r"))

    async def respond(self, mitigation: str = "none", memory: str = "fixed", **more: Any) -> tuple[Trace, Looker]:
        trace, looker = Trace(), Looker()
        await self.pipeline.respond(Configuration("m", memory, mitigation), self.instance, trace, looker, **more)
        return trace, looker


def talking(*answers: str) -> Talker:
    model = Talker(*answers)
    model.go.set()
    return model


BEES, WALNUTS = MEMORIES[0].text, MEMORIES[1].text


async def test_the_stages_are_told_as_they_happen(store: Store) -> None:
    bench = Bench(store, talking(f"1. {BEES}", "Lovely."), "reminder")
    _, looker = await bench.respond("reminder")
    assert looker.events == [
        ("begun", "retrieval"),
        ("retrieved", [BEES, WALNUTS]),
        ("begun", "post"),
        ("post", "1."),
        ("post", f" {BEES}"),
        ("processed", [BEES], "kept"),
        ("begun", "response"),
        ("response", "Lo"),
        ("response", "vely."),
    ]


async def test_base_and_none_have_their_stages(store: Store) -> None:
    bench = Bench(store, talking("One.", "Two."), "reminder")
    _, base = await bench.respond(memory="base")
    assert base.events == [("begun", "response"), ("response", "On"), ("response", "e.")]
    _, plain = await bench.respond()
    assert plain.events[:4] == [
        ("begun", "retrieval"),
        ("retrieved", [BEES, WALNUTS]),
        ("processed", [BEES, WALNUTS], None),
        ("begun", "response"),
    ]


async def test_a_revision_is_the_post_stage(store: Store) -> None:
    bench = Bench(store, talking("Draft.", "Critique: fine\nFinal: Better."), "self-critic")
    _, looker = await bench.respond("self-critic")
    assert [event[1] for event in looker.events if event[0] == "begun"] == ["retrieval", "response", "post"]
    assert looker.said("response") == "Draft."
    assert looker.said("post") == "Critique: fine\nFinal: Better."


async def test_a_run_isnt_streamed_and_has_the_same_calls(store: Store) -> None:
    bench = Bench(store, talking("One."))
    trace = Trace()
    await bench.pipeline.respond(Configuration("m", "fixed", "none"), bench.instance, trace)
    assert bench.model.listened == [False]
    looked, _ = await bench.respond()
    assert [use.key for use in looked.uses] == [use.key for use in trace.uses]
    assert all(use.reused for use in looked.uses)


async def test_given_memories_stand_in_for_the_retrieval(store: Store) -> None:
    bench = Bench(store, talking("One."))
    trace, looker = await bench.respond(given=[Memory("Mara sings.", "1 May 2024")])
    assert "retrieval_ms" not in trace.values
    assert ("retrieved", ["Mara sings."]) in looker.events
    prompt = bench.model.requests[0].messages[-1].content
    assert "- (1 May 2024) Mara sings." in prompt
    assert BEES not in prompt


async def test_no_memories_given_is_the_no_memory_prompt(store: Store) -> None:
    bench = Bench(store, talking("One."))
    await bench.respond(given=[])
    base, _ = await bench.respond(memory="base")
    assert [use.reused for use in base.uses] == [True]


async def test_what_is_left_out_is_in_no_prompt_and_known_to_the_judge(store: Store) -> None:
    bench = Bench(store, talking(f"1. {WALNUTS}", "One."), "reminder")
    trace, looker = await bench.respond("reminder", without=[1])
    assert ("retrieved", [WALNUTS]) in looker.events
    assert [memory.text for memory in trace.found] == [BEES, WALNUTS]
    assert all(BEES not in message.content for request in bench.model.requests for message in request.messages)
    await bench.pipeline.judge(bench.instance, "One.", trace)
    assert bench.judge.saw[0].memories == (BEES, WALNUTS)


@pytest.mark.parametrize("number", [0, 3, -1])
async def test_a_memory_that_isnt_there_cant_be_left_out(store: Store, number: int) -> None:
    with pytest.raises(UsageError, match=f"no memory {number} .* there are 2"):
        await Bench(store, talking()).respond(without=[number])


async def test_another_draw_is_another_call_where_it_can_differ(store: Store) -> None:
    for temperature, repeats in ((0.0, [0]), (0.7, [0, 1])):
        bench = Bench(store, talking(), temperature=temperature)
        for repeat in (0, 1):
            await bench.respond(repeat=repeat)
        assert [request.repeat for request in bench.model.requests] == repeats


class Seeker:
    """A method that searches by itself."""

    name, family, label, calls, revises, prompt_sha256 = "seeker", "filter", "Seeker", 0, False, "s"

    async def process(self, question: str, memories: Any, ask: Any, search: Any = None) -> mitigations.Processed:
        found = await search("more", 5)
        return mitigations.Processed("kept", tuple(Line(m.text) for m in found), tuple(found))

    async def revise(self, *arguments: Any, **more: Any) -> Any:
        raise AssertionError


async def test_what_is_left_out_isnt_found_again_by_the_method(store: Store) -> None:
    mitigations.register(Seeker())  # type: ignore[arg-type]
    bench = Bench(store, talking(), "seeker")
    trace, _ = await bench.respond("seeker", without=[2])
    assert [line.text for line in trace.context] == [BEES]
    # With given memories the memory system is opened when the method asks for it.
    trace, _ = await bench.respond("seeker", given=[Memory("Mara sings.")])
    assert [line.text for line in trace.context] == [BEES, WALNUTS]
    # Where there is no memory system, the given ones are all there is.
    systems = bench.pipeline.tools.retrieval._memories
    assert isinstance(systems, dict)
    del systems["fixed"]
    trace, _ = await bench.respond("seeker", given=MEMORIES, without=[1])
    assert [line.text for line in trace.context] == [WALNUTS]


async def test_counts_that_arent_told_are_noted(store: Store) -> None:
    class Mute(Talker):
        async def __call__(self, request: ChatRequest, *listen: Any) -> ChatResult:
            return ChatResult("One.", "stop", None, 3, 1.0)

    trace, _ = await Bench(store, Mute()).respond()
    assert trace.untold
