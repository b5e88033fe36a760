"""A judge that is held to the answer's form: what is asked for, and what comes of it."""

import json

import pytest

from opbench.calibration.choosing import choose, parse_choice
from opbench.errors import ModelError, UsageError
from opbench.judges.forced import ForcedJudge
from opbench.judges.llm import LLMJudge
from opbench.judges.packs import load_pack
from opbench.models import load_registry
from tests.judges.helpers import FakeModel, evidence, locomo, op

FREE = LLMJudge("m", load_pack("brief"))
BAITING = evidence(op("baiting", "How do bees find their way?"), "By the sun.")


async def test_a_score_is_one_of_eleven() -> None:
    model = FakeModel('{"score": 0.3}')
    (score,) = await ForcedJudge(FREE).score(BAITING, model)
    assert (score.metric, score.value) == ("score", 0.3)
    form = json.loads(model.requests[0].further)["response_format"]["json_schema"]
    assert form["schema"]["properties"]["score"]["enum"] == [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
    assert form["schema"]["required"] == ["score"]
    assert model.requests[0].max_tokens < 100


async def test_a_locomo_answer_gets_a_verdict() -> None:
    for reply, value in (('{"label": "CORRECT"}', 1.0), ('{"label": "WRONG"}', 0.0)):
        model = FakeModel(reply)
        asked = evidence(locomo("single-hop", "What won a prize?", "rye bread"), "The rye bread.")
        scores = await ForcedJudge(FREE).score(asked, model)
        assert {score.metric: score.value for score in scores}["correct"] == value
        assert json.loads(model.requests[0].further)["response_format"]["json_schema"]["schema"]["properties"] == {
            "label": {"enum": ["CORRECT", "WRONG"]}
        }


async def test_an_endpoint_that_refuses_the_form_leaves_the_score_missing() -> None:
    refusing = FakeModel(ModelError("m: no schemas here", kind="bad_request"))
    (score,) = await ForcedJudge(FREE).score(BAITING, refusing)
    assert score.value is None
    assert "no schemas here" in str(score.reason)


async def test_what_is_cut_off_before_its_end_is_missing() -> None:
    (score,) = await ForcedJudge(FREE).score(BAITING, FakeModel('{"score": 0', "length"))
    assert score.value is None


def test_it_is_another_judge_than_the_free_one() -> None:
    forced = ForcedJudge(FREE)
    assert forced.name == "m"
    assert not forced.comparable
    assert forced.provenance().items() > FREE.provenance().items()


def test_it_is_chosen_by_a_word_behind_the_pack() -> None:
    registry = load_registry()
    choice = parse_choice("smollm2-135m@brief+schema")
    assert (choice.judge, choice.pack, choice.forced) == ("smollm2-135m", "brief", True)
    chosen = choose(choice, registry)
    assert chosen.label == "smollm2-135m · brief · by schema"
    assert isinstance(chosen.judge(0), ForcedJudge)
    free = choose(parse_choice("smollm2-135m@brief"), registry)
    assert not isinstance(free.judge(0), ForcedJudge)
    assert free.provenance != chosen.provenance
    with pytest.raises(UsageError, match="judges by rule: name it without"):
        choose(parse_choice("offline+schema"), registry)
