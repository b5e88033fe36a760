"""The LLM judge with a scripted model: what it asks, and what it makes of each kind of reply."""

from __future__ import annotations

import pytest

from opbench.errors import ModelError
from opbench.judges.llm import LLMJudge
from opbench.judges.packs import load_pack
from opbench.types import Score

from .helpers import FACTS, FakeModel, evidence, locomo, op

JUDGE = LLMJudge("judge-model", load_pack("own"))
QUESTION = op("fully-irrelevant", "How do tides work?")


async def only(model: FakeModel, instance=QUESTION, response="The moon pulls.", **more) -> Score:  # type: ignore[no-untyped-def]
    (score,) = await JUDGE.score(evidence(instance, response, **more), model)
    return score


@pytest.mark.parametrize(
    ("subtype", "words"),
    [
        ("fully-irrelevant", "does not call for any of them"),
        ("baiting", "does not call for any of them"),
        ("fact", "false claim"),
        ("value", "takes the user's side"),
        ("memory", "affirms a memory"),
    ],
)
async def test_one_call_at_temperature_zero_with_the_prompt_of_the_subtype(subtype: str, words: str) -> None:
    model = FakeModel("It stays on the question.\nScore: 0.8")
    score = await only(model, op(subtype, "Why {curly} and é?"), "Because {so}.")
    assert (score.metric, score.value, score.reason) == ("score", 0.8, None)
    assert score.raw == "It stays on the question.\nScore: 0.8"
    (request,) = model.requests
    assert request.model == "judge-model"
    assert request.temperature == 0.0
    text = request.messages[-1].content
    assert words in text
    assert "Why {curly} and é?" in text
    assert "Because {so}." in text


async def test_memory_judge_sees_what_was_retrieved_and_what_is_on_record() -> None:
    model = FakeModel("Score: 1")
    await only(model, op("memory", "Remember my goat?"), "No.", context=("Rosa sold bread.",))
    text = model.requests[0].messages[-1].content
    assert "- Rosa sold bread." in text
    assert all(f"- {fact}" in text for fact in FACTS)
    await only(model, op("memory", "Remember my goat?"), "No.")
    assert "(nothing)" in model.requests[1].messages[-1].content


@pytest.mark.parametrize("subtype", ["fully-irrelevant", "baiting", "fact", "value", "memory"])
@pytest.mark.parametrize(
    ("response", "finish", "reason"),
    [
        ("", None, "empty response"),
        (" \n", "stop", "empty response"),
        ("", "content_filter", "empty response (content_filter)"),
        ("<think>hm", "length", "empty response: only a thinking block"),
    ],
)
async def test_empty_response_is_missing_without_a_call(
    subtype: str, response: str, finish: str | None, reason: str
) -> None:
    model = FakeModel("Score: 1")
    score = await only(model, op(subtype, "Why?"), response, finish_reason=finish)
    assert (score.value, score.reason) == (None, reason)
    assert model.requests == []


async def test_repetition_is_not_judged_by_record() -> None:
    model = FakeModel("Score: 1")
    assert await JUDGE.score(evidence(op("repetition", "Any ideas?"), "Many."), model) == []
    assert model.requests == []


async def test_thinking_of_the_response_is_hidden_from_the_judge() -> None:
    model = FakeModel("Score: 1")
    await only(model, response="<think>secret plan</think>The moon pulls.")
    text = model.requests[0].messages[-1].content
    assert "The moon pulls." in text
    assert "secret plan" not in text


@pytest.mark.parametrize("kind", ["timeout", "server", "rate_limit", "content_filter", "empty"])
async def test_failed_call_is_missing_and_can_be_judged_again(kind: str) -> None:
    score = await only(FakeModel(ModelError("judge-model: no luck", kind=kind, model="judge-model")))  # type: ignore[arg-type]
    assert score.value is None
    assert score.reason == f"judge: {kind}: judge-model: no luck"
    assert score.details["transport"] == 1
    assert score.details["kind"] == kind


@pytest.mark.parametrize(
    ("reply", "finish", "reason"),
    [
        ("I can't judge this.", "stop", "judge: no clear score in the reply"),
        ("Score: between 0.4 and 0.6", "stop", "judge: no clear score in the reply"),
        ("It is a long story", "length", "judge: no clear score in the reply, cut off at the token limit"),
        ("", "stop", "judge: the reply is empty"),
    ],
)
async def test_reply_without_one_score_is_missing_with_the_reply_kept(reply: str, finish: str, reason: str) -> None:
    score = await only(FakeModel(reply, finish))
    assert (score.value, score.reason, score.raw) == (None, reason, reply)
    assert "transport" not in score.details


CUT = "judge: the reply was cut off at the token limit"


@pytest.mark.parametrize(
    ("reply", "value"),
    [
        ("It is off the topic.\nScore: 0", None),  # may have been 0.8
        ("It is off the topic.\nScore: 0.8", None),  # may have been 0.85
        ("<think>hm\nScore: 0.8\n</think>Score: 0.8", None),
        ("Score: 0.7\nReason: it stays on the", 0.7),
        ("Score: 0.7\nNo bees.\nScore: 0.7", 0.7),
        ("Score: 0.7\nActually, Score: 0", None),
    ],
)
async def test_score_in_the_line_that_the_limit_cut_is_missing(reply: str, value: float | None) -> None:
    score = await only(FakeModel(reply, "length"))
    assert (score.value, score.raw) == (value, reply)
    assert (score.reason is None) == (value is not None)
    assert value is not None or "cut off at the token limit" in (score.reason or "")


async def test_the_reason_tells_of_the_cut() -> None:
    assert (await only(FakeModel("Off the topic.\nScore: 0", "length"))).reason == CUT
    assert (await only(FakeModel("Off the topic.\nScore: 0", "stop"))).value == 0.0


@pytest.mark.parametrize(
    ("reply", "value"),
    [
        ("The generated answer would be correct if", None),
        ("Same day.\nLabel: CORRECT", None),  # may have gone on: only if …
        ("Label: WRONG\nIt names another", 0.0),
    ],
)
async def test_verdict_in_the_line_that_the_limit_cut_is_missing(reply: str, value: float | None) -> None:
    instance = locomo("temporal", "When did it rain?", "7 May 2023")
    scores = {s.metric: s for s in await JUDGE.score(evidence(instance, "In May"), FakeModel(reply, "length"))}
    assert scores["correct"].value == value
    assert value is not None or "cut off at the token limit" in (scores["correct"].reason or "")


async def test_other_exceptions_are_not_swallowed() -> None:
    class Broken(FakeModel):
        async def __call__(self, request):  # type: ignore[no-untyped-def]
            raise RuntimeError("a fault of ours")

    with pytest.raises(RuntimeError, match="a fault of ours"):
        await only(Broken(""))


@pytest.mark.parametrize(
    ("reply", "value"), [("Same day.\nLabel: CORRECT", 1.0), ("Other day.\nLabel: WRONG", 0.0), ("Hard to say.", None)]
)
async def test_locomo_correct_beside_the_overlap_metrics(reply: str, value: float | None) -> None:
    model = FakeModel(reply)
    instance = locomo("temporal", "When did it rain?", "7 May 2023")
    scores = {s.metric: s for s in await JUDGE.score(evidence(instance, "On May 7, 2023"), model)}
    assert set(scores) == {"f1", "bleu1", "rougeL", "correct"}
    assert scores["correct"].value == value
    assert (scores["correct"].reason is None) == (value is not None)
    assert "7 May 2023" in model.requests[0].messages[-1].content


async def test_locomo_adversarial_needs_no_call() -> None:
    model = FakeModel("Label: WRONG")
    scores = await JUDGE.score(evidence(locomo("adversarial", "Who?", None), "That is not mentioned."), model)
    assert [(s.metric, s.value) for s in scores] == [("correct", 1.0)]
    assert model.requests == []


async def test_locomo_judge_failure_keeps_the_overlap_metrics() -> None:
    model = FakeModel(ModelError("m: late", kind="timeout"))
    instance = locomo("single-hop", "What pet?", "a parrot")
    scores = {s.metric: s for s in await JUDGE.score(evidence(instance, "A parrot"), model)}
    assert scores["f1"].value == 1.0
    assert scores["correct"].value is None
    assert scores["correct"].reason == "judge: timeout: m: late"
