"""What a saved case says of itself, and what may not come into one."""

from __future__ import annotations

import json

import pytest
from pydantic import SecretStr, ValidationError

from opbench.cases.outcome import Outcome
from opbench.cases.saved import NOT_COMPARABLE, SavedCase, column_label, edits, key_free, to_keep
from opbench.cases.spec import CaseSpec, Column
from tests.cases.made import ABLATION, EDITED, OUTCOMES, PROVENANCE, RAG, SPEC


def saved(spec: CaseSpec = SPEC, **changes: object) -> SavedCase:
    fields: dict[str, object] = {
        "id": "00ff",
        "name": "Bread",
        "note": "",
        "spec": spec,
        "outcomes": OUTCOMES,
        "ablations": (ABLATION,),
        "provenance": PROVENANCE,
        "maker": "ann",
        "made_at": 1_700_000_000.0,
    }
    return SavedCase.model_validate(fields | changes)


def test_labels_say_what_is_edited() -> None:
    assert [column_label(SPEC, number) for number in range(3)] == ["m · base", "m · rag", "m · rag · reminder"]
    assert edits(EDITED, 0) == ()
    assert edits(EDITED, 1) == ("k 3", "temperature 0.7", "1 given memory", "without 2")
    assert column_label(EDITED, 2) == "m · rag · mine, a draft, draw 2"


def test_an_empty_list_of_given_memories_is_said() -> None:
    spec = SPEC.model_copy(update={"columns": (Column(model="m"), Column(model="m", memory="rag", given=()))})
    assert edits(spec, 1) == ("0 given memories",)


def test_marks_are_those_of_the_judge_the_data_and_the_changes() -> None:
    assert saved().marks == (NOT_COMPARABLE, "bundled sample")
    assert saved(EDITED).marks == (NOT_COMPARABLE, "edited", "bundled sample")
    published = SPEC.model_copy(update={"published": "fig-21", "data": "auto"})
    assert saved(published, provenance={"comparable": True}).marks == ("published case",)
    # What nothing is known of isn't comparable.
    assert saved(published, provenance={}).marks == (NOT_COMPARABLE, "published case")


def test_outcomes_and_columns_belong_together() -> None:
    with pytest.raises(ValidationError, match="2 outcomes for 3 columns"):
        saved(outcomes=OUTCOMES[:2])
    with pytest.raises(ValidationError, match="no such column"):
        saved(ablations=(ABLATION.model_copy(update={"column": 3}),))


def test_no_key_comes_into_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "abcdefgh12345678")
    monkeypatch.setenv("SOME_TOKEN", "tokentoken")
    spec = SPEC.model_copy(update={"question": "abcdefgh12345678?"})
    outcome = RAG.model_copy(update={"error": "refused tokentoken and typedkey99"})
    values = to_keep(
        spec,
        (outcome,),
        (ABLATION.model_copy(update={"base": outcome}),),
        {"a typedkey99": {"deep": ["x abcdefgh12345678 y"]}},
        {"TYPED": SecretStr("typedkey99")},
    )
    text = json.dumps(values)
    for secret in ("abcdefgh12345678", "tokentoken", "typedkey99"):
        assert secret not in text
    assert values["spec"]["question"] == "[key]?"
    assert values["provenance"] == {"a [key]": {"deep": ["x [key] y"]}}
    assert values["ablations"][0]["base"]["error"] == "refused [key] and [key]"


def test_a_key_that_holds_another_goes_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", "longlonglong")
    monkeypatch.setenv("B_KEY", "longlonglong-and-more")
    assert key_free({})("say longlonglong-and-more") == "say [key]"


def test_ordinary_values_of_the_environment_are_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "disabled")
    monkeypatch.setenv("SHORT_KEY", "bread")
    assert key_free({})("bread is disabled") == "bread is disabled"


def test_what_no_database_keeps_is_written_otherwise() -> None:
    outcome = RAG.model_copy(update={"response": "a\0b\ud800c", "total_ms": float("nan")})
    values = to_keep(SPEC, (outcome,), (), {}, {})
    assert "\0" not in values["outcomes"][0]["response"]
    assert values["outcomes"][0]["total_ms"] is None
    json.dumps(values, allow_nan=False).encode()


def test_of_a_leave_one_out_at_work_the_finished_parts_are_kept() -> None:
    at_work = ABLATION.items[1].model_copy(update={"outcome": Outcome(state="response", response="half a sen")})
    values = to_keep(SPEC, OUTCOMES, (ABLATION.model_copy(update={"items": (ABLATION.items[0], at_work)}),), {}, {})
    assert [item["number"] for item in values["ablations"][0]["items"]] == [1]
