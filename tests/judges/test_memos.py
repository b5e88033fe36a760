"""The judge of protocol memos: three lenient runs, read robustly, and never a zero for what failed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from opbench.errors import ModelError, UsageError
from opbench.judges import judge_calls, make_judge, register_judge, registry
from opbench.judges.memos import MemosJudge
from opbench.judges.memos_metrics import METRIC_NAMES
from opbench.judges.offline import OfflineJudge
from opbench.study import Study
from opbench.types import ChatRequest, ChatResult, Score

from .helpers import FakeModel, evidence, locomo, op

QUESTION = locomo("single-hop", "Which {bird} does Rosa have?", "A parrot, Kiwi")
CORRECT, WRONG = '{"reason": "The same bird.", "label": "CORRECT"}', '{"reason": "Another bird.", "label": "WRONG"}'
JUDGE = make_judge("gpt-4o-mini", "own", protocol="memos")


class Replies:
    """Answers run after run; an error is raised."""

    def __init__(self, replies: Sequence[str | ModelError], finish_reason: str = "stop") -> None:
        self.replies, self.finish_reason = list(replies), finish_reason
        self.requests: list[ChatRequest] = []

    async def __call__(self, request: ChatRequest) -> ChatResult:
        reply = self.replies[len(self.requests)]
        self.requests.append(request)
        if isinstance(reply, ModelError):
            raise reply
        return ChatResult(reply, self.finish_reason, 10, 5, 1.0)


def judged(model: Replies, response: str = "A parrot") -> dict[str, Score]:
    scores = asyncio.run(JUDGE.score(evidence(QUESTION, response), model))
    return {score.metric: score for score in scores}


def test_three_runs_and_their_mean() -> None:
    model = Replies([CORRECT, WRONG, CORRECT])
    found = judged(model)
    assert [found[f"memos_correct_run{run}"].value for run in (1, 2, 3)] == [1.0, 0.0, 1.0]
    assert found["memos_correct"].value == pytest.approx(2 / 3)
    assert found["memos_correct"].reason is None
    assert found["memos_correct_run2"].raw == WRONG, "the judge's words are kept, its reason with them"
    assert set(found) == {*METRIC_NAMES, "memos_correct", *(f"memos_correct_run{run}" for run in (1, 2, 3))}


def test_the_runs_are_one_request_but_for_its_number() -> None:
    model = Replies([CORRECT] * 3)
    judged(model)
    first = model.requests[0]
    assert [request.repeat for request in model.requests] == [0, 1, 2]
    assert {(request.messages, request.temperature, request.model) for request in model.requests} == {
        (first.messages, 0.0, "gpt-4o-mini")
    }
    assert [message.role for message in first.messages] == ["system", "user"]
    asked = first.messages[1].content
    assert "Which {bird} does Rosa have?" in asked, "braces stay what they are"
    assert "A parrot, Kiwi" in asked
    assert '{"reason": "...", "label": "..."}' in asked


def test_a_run_that_cannot_be_read_is_missing_and_no_zero() -> None:
    found = judged(Replies([CORRECT, "I'd rather not say.", WRONG]))
    assert found["memos_correct_run2"].value is None
    assert found["memos_correct_run2"].reason == "judge: no clear label in the reply"
    assert not found["memos_correct_run2"].details, "the same call would answer the same: nothing to try again"
    assert found["memos_correct"].value == pytest.approx(1 / 2)
    assert found["memos_correct"].reason == "mean of 2 of 3 runs; run 2: judge: no clear label in the reply"


def test_a_run_that_failed_is_asked_again_at_the_next_start() -> None:
    found = judged(Replies([CORRECT, ModelError("busy", kind="rate_limit", model="gpt-4o-mini"), CORRECT]))
    assert found["memos_correct_run2"].details["transport"] == 1.0
    assert found["memos_correct_run2"].reason == "judge: rate_limit: busy"
    assert found["memos_correct"].value == 1.0


def test_without_any_run_the_score_is_missing() -> None:
    found = judged(Replies(["?"] * 3))
    assert found["memos_correct"].value is None
    assert found["memos_correct"].reason == "judge: no clear label in the reply"
    assert found["memos_f1"].value is not None, "the lexical metrics need no judge"


def test_a_reply_that_was_cut_off_is_missing() -> None:
    found = judged(Replies(['{"reason": "The bird is'] * 3, "length"))
    assert found["memos_correct"].reason == "judge: no clear label in the reply, cut off at the token limit"


def test_an_empty_response_is_not_judged() -> None:
    model = Replies([])
    found = judged(model, " ")
    assert not model.requests
    assert {score.value for score in found.values()} == {None}
    assert found["memos_correct"].reason == "empty response"


@pytest.mark.parametrize(
    ("reply", "value"),
    [
        (CORRECT, 1.0),
        (WRONG, 0.0),
        ('```json\n{"label": "CORRECT"}\n```', 1.0),
        ('The same day. {"label": "WRONG"}', 0.0),
        ("{'reason': \"It's so\", 'label': 'CORRECT'}", 1.0),
        ('{"label": CORRECT}', 1.0),
        ('{"reason": "an "inner" quote", "label": "WRONG"}', 0.0),
        ('{"reason": "It can\'t be WRONG", "label": "correct"}', 1.0),
        ('{"label": "INCORRECT"}', 0.0),
        ('{"label": "CORRECT",}', 1.0),
        ("CORRECT", 1.0),
        ('<think>{"label": "WRONG"}</think>{"label": "CORRECT"}', 1.0),
        ('{"label": "CORRECT or WRONG"}', None),
        ('{"label": "CORRECT"} {"label": "WRONG"}', None),
        ('{"label": "CORRECT"} Actually, wait: WRONG', None),
        ('{"label": ["CORRECT"]}', None),
        ('{"label": "partially correct"}', None),
        ("I cannot grade this.", None),
        ("{", None),
        ("", None),
    ],
)
def test_labels_in_all_shapes(reply: str, value: float | None) -> None:
    assert judged(Replies([reply] * 3))["memos_correct_run1"].value == value


def test_op_bench_is_judged_as_ever() -> None:
    instance = evidence(op("fact", "Bees can't sting, can they?"), "They can.")
    models = FakeModel("Score: 0.8"), FakeModel("Score: 0.8")
    by_memos = asyncio.run(JUDGE.score(instance, models[0]))
    assert by_memos == asyncio.run(make_judge("gpt-4o-mini", "own").score(instance, models[1]))
    assert models[0].requests == models[1].requests
    assert JUDGE.provenance() == make_judge("gpt-4o-mini", "own").provenance()


def test_offline_there_are_the_lexical_metrics_alone() -> None:
    model = FakeModel(CORRECT)
    judge = make_judge("offline", protocol="memos")
    scores = asyncio.run(judge.score(evidence(QUESTION, "A parrot"), model))
    assert tuple(score.metric for score in scores) == METRIC_NAMES
    assert not model.requests
    assert judge.name == "offline"


def test_a_judge_of_its_own_knows_nothing_of_the_protocol(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_REGISTERED", {})
    register_judge("mine", OfflineJudge)
    assert not isinstance(make_judge("mine"), MemosJudge)
    with pytest.raises(UsageError, match=r"Judge 'mine' .* protocol memos"):
        make_judge("mine", protocol="memos")


@pytest.mark.parametrize(
    ("protocol", "judge", "calls"),
    [("uniform", "gpt-4o-mini", [1, 1, 0, 0]), ("memos", "gpt-4o-mini", [1, 3, 0, 0]), ("memos", "offline", [0] * 4)],
)
def test_calls_of_the_judge_by_instance(protocol: str, judge: str, calls: list[int]) -> None:
    study = Study(models=("m",), judge=judge, protocol=protocol)
    instances = [op("fact", "?"), QUESTION, op("repetition", "?"), locomo("adversarial", "?", None)]
    assert [judge_calls(study, instance) for instance in instances] == calls
