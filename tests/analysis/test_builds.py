"""What a build's work took, and its candidates by what they are; expected values are counted by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from opbench.analysis.builds import candidate_frame, check_narrowing, failed, narrowed, work
from opbench.errors import UsageError
from opbench.store.builds import Candidate, Unit


def unit(name: str, **more: Any) -> Unit:
    values: dict[str, Any] = {
        "unit": name,
        "stage": name.partition("/")[0],
        "user_id": "u/A",
        "status": "done",
        "reason": None,
        "output": {},
        "role": "generator",
        "model": "big",
        "prompt_sha256": "0" * 64,
        "calls": ("k",),
        "prompt_tokens": 100,
        "completion_tokens": 10,
        "cost_usd": 0.5,
        "duration_ms": 2000.0,
    }
    return Unit(**{**values, **more})


def candidate(place: int, **more: Any) -> Candidate:
    values: dict[str, Any] = {
        "id": f"c{place}",
        "ordinal": place,
        "unit": "tasks/u/A/fact/1",
        "user_id": "u/A",
        "subtype": "fact",
        "kind": None,
        "topic": None,
        "subtopic": None,
        "question": f"Question {place}?",
        "explanation": None,
        "falsifies": None,
        "evidence": (),
        "generator": "big",
        "prompt_sha256": "0" * 64,
    }
    return Candidate(**{**values, **more})


def test_work_is_summed_by_stage_role_and_model_and_what_is_unknown_is_told() -> None:
    frame = work(
        [
            unit("tasks/1", repaired=True, calls=("a", "b")),
            unit("tasks/2", status="failed", cost_usd=None),
            unit("tasks/3", model="free", cost_usd=None, prompt_tokens=None),
            unit("profiles/1", role="extractor", model="small"),
            # It asked nobody: there is no cost to know.
            unit("filtering/1", role="embedder", calls=(), cost_usd=None, duration_ms=None),
        ]
    )
    rows = {(row["stage"], row["role"], row["model"]): row for row in frame.to_dict("records")}
    assert list(rows) == [
        ("profiles", "extractor", "small"),
        ("tasks", "generator", "big"),
        ("tasks", "generator", "free"),
        ("filtering", "embedder", "big"),
    ]
    big = rows["tasks", "generator", "big"]
    assert (big["units"], big["done"], big["failed"], big["repaired"], big["calls"]) == (2, 1, 1, 1, 3)
    assert (big["tokens_in"], big["tokens_out"], big["cost_usd"], big["seconds"]) == (200, 20, 0.5, 4.0)
    assert big["untold"] == 1
    free = rows["tasks", "generator", "free"]
    assert math.isnan(free["cost_usd"])
    assert math.isnan(free["tokens_in"])
    assert free["untold"] == 1
    embedder = rows["filtering", "embedder", "big"]
    assert math.isnan(embedder["seconds"])
    assert embedder["untold"] == 0
    assert work([]).empty


def test_failed_units_say_whether_the_next_start_does_them_again() -> None:
    frame = failed(
        [
            unit("tasks/1"),
            unit("tasks/2", status="failed", reason="no answer in 60 s", output={"retriable": True}),
            unit("tasks/3", status="failed", reason="not JSON", output={"retriable": False}),
        ]
    )
    assert frame.to_dict("records") == [
        {"unit": "tasks/2", "model": "big", "again": "yes", "reason": "no answer in 60 s"},
        {"unit": "tasks/3", "model": "big", "again": "no", "reason": "not JSON"},
    ]


def test_candidates_are_narrowed_by_what_they_are_and_say() -> None:
    frame = candidate_frame(
        [
            candidate(0, state="kept"),
            candidate(1, state="dropped", decided_by="length", reason="2 words", user_id="u/B"),
            candidate(2, state="dropped", decided_by="duplicate", reason="cosine 0.91 to “(Tea)”", subtype="memory"),
            candidate(3, subtype="memory", falsifies="Drinks TEA.", generator="small"),
        ]
    )

    def ids(**asked: Any) -> list[str]:
        return list(narrowed(frame, **asked)["id"])

    assert ids() == ["c0", "c1", "c2", "c3"]
    assert ids(states=["dropped"]) == ["c1", "c2"]
    assert ids(states=["dropped", "kept"], user="u/A") == ["c0", "c2"]
    assert ids(subtypes=["memory"]) == ["c2", "c3"]
    assert ids(decided_by="duplicate") == ["c2"]
    assert ids(generator="small") == ["c3"]
    # Signs of a pattern are signs; the falsified memory is looked through too.
    assert ids(says="(tea)") == ["c2"]
    assert ids(says="tea") == ["c2", "c3"]
    assert ids(says="question 1") == ["c1"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"states": ["lost"]}, "no state 'lost'; there are candidate, kept, dropped, accepted, rejected"),
        ({"subtypes": ["facts"]}, "no subtype 'facts'; there are fully-irrelevant"),
        ({"user": "u/C"}, "no candidate's user is 'u/C'; there are u/A"),
        ({"decided_by": "length"}, "no candidate's decided by is 'length'; there are none"),
    ],
)
def test_what_cant_be_asked_for_is_said(asked: dict[str, Any], said: str) -> None:
    frame = candidate_frame([candidate(0)])
    with pytest.raises(UsageError, match=said):
        check_narrowing(frame, **asked)
    check_narrowing(frame, states=["dropped"], subtypes=["memory"], user="u/A", generator="big")
