"""The map of responses, its dispersion, alike pairs and recurring memories: placed and counted by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from opbench.analysis import response_map as response_map_module
from opbench.analysis.intervals import Interval
from opbench.analysis.recurring import recurring
from opbench.analysis.response_map import alike, dispersion_changes, dispersions, response_map
from opbench.errors import UsageError
from opbench.judges.repetition import repetition_score
from opbench.store.rundata import RunData
from tests.analysis.conftest import BASE, MARAG, RAG, REMINDER, MakeRun


def at(degrees: float) -> np.ndarray:
    return np.array([math.cos(math.radians(degrees)), math.sin(math.radians(degrees)), 0.0], dtype=np.float32)


#: User A's three responses and user B's two: with memory 60 and 0 degrees apart, without it farther.
DEGREES = {
    RAG: {"re-A1": 0, "re-A2": 60, "re-A3": 120, "re-B1": 10, "re-B2": 10},
    BASE: {"re-A1": 0, "re-A2": 90, "re-A3": 180, "re-B1": 0, "re-B2": 120},
}


@pytest.fixture
def placed(run: RunData, changed: MakeRun) -> RunData:
    """The run with embeddings, and the repetition scores that follow from them."""
    vectors = {(*key, name): at(angle) for key, angles in DEGREES.items() for name, angle in angles.items()}
    scores = run.user_scores.copy()
    # 1 − mean cosine. A with memory: (0.5 + 0.5 − 0.5) / 3; without: (0 + 0 − 1) / 3. B: 1, and −0.5.
    for key, values in ((RAG, (1 - 0.5 / 3, 0.0)), (BASE, (1 + 1 / 3, 1.5))):
        mine = (scores[["model", "memory", "mitigation"]] == list(key)).all(axis=1)
        scores.loc[mine, "value"] = values
    return changed(vectors=vectors, user_scores=scores)


def texts(key: tuple[str, str, str], **rows: dict[str, Any]) -> pd.DataFrame:
    """Rows as `read_texts` gives them; names are instances with _ for -."""
    return pd.DataFrame(
        [
            {
                "model": key[0],
                "memory": key[1],
                "mitigation": key[2],
                "instance": name.replace("_", "-"),
                "user": name[3],
                "subtype": "repetition",
                "question": f"Question {name}?",
                "response": f"Response {name}.",
                "retrieved": [],
                "context": [],
            }
            | given
            for name, given in rows.items()
        ]
    )


def test_all_configurations_stand_in_one_map_that_keeps_distances_in_a_plane(placed: RunData) -> None:
    found = response_map(placed, [RAG, BASE])
    assert found.n == 10
    assert found.dimensions == 3
    assert found.missing == 0
    assert sum(found.explained) == pytest.approx(1.0), "all lie in a plane"
    assert found.explained[0] >= found.explained[1]
    points: Any = found.points.set_index(["memory", "instance"])[["x", "y"]]
    apart = np.linalg.norm(points.loc["base", "re-A1"] - points.loc["base", "re-A3"])
    assert apart == pytest.approx(2.0), "opposite ends of a circle of radius 1"
    assert np.linalg.norm(points.loc["rag", "re-B1"] - points.loc["rag", "re-B2"]) == pytest.approx(0.0, abs=1e-6)
    assert points.to_numpy().mean(axis=0) == pytest.approx([0.0, 0.0], abs=1e-6)


def test_a_map_may_be_of_some_users_and_tells_what_is_missing(placed: RunData) -> None:
    found = response_map(placed, [RAG, REMINDER], ["A"])
    assert set(found.points["user"]) == {"A"}
    assert (found.n, found.missing) == (3, 3)


def test_responses_that_are_all_alike_have_no_variance_to_explain(placed: RunData) -> None:
    found = response_map(placed, [RAG], ["B"])
    assert [math.isnan(share) for share in found.explained] == [True, True]
    assert found.points[["x", "y"]].to_numpy() == pytest.approx(np.zeros((2, 2)), abs=1e-6)


def test_more_responses_than_dimensions_are_placed_as_exactly(placed: RunData, changed: MakeRun) -> None:
    # Ten in three dimensions, and the same in thirteen, where another way of working it out is taken.
    few = response_map(placed, [RAG, BASE])
    vectors = {name: np.pad(vector, (0, 10)) for name, vector in (placed.vectors or {}).items()}
    many = response_map(changed(vectors=vectors), [RAG, BASE])
    assert (few.dimensions, many.dimensions) == (3, 13)
    assert few.explained == pytest.approx(many.explained, abs=1e-9)
    assert np.abs(few.points[["x", "y"]].to_numpy()) == pytest.approx(
        np.abs(many.points[["x", "y"]].to_numpy()), abs=1e-6
    )


def test_one_response_makes_no_map(placed: RunData, changed: MakeRun) -> None:
    with pytest.raises(UsageError, match="0 responses to repetition questions have embeddings"):
        response_map(placed, [MARAG])


def test_runs_without_embeddings_say_why(run: RunData, changed: MakeRun) -> None:
    with pytest.raises(UsageError, match="no repetition question has been answered yet"):
        response_map(run, [RAG])
    with pytest.raises(UsageError, match="came without texts"):
        alike(changed(text_left_out=True), texts(RAG, re_A1={}), RAG, "A")


def test_the_dispersion_is_the_repetition_score(placed: RunData) -> None:
    told: Any = dispersions(placed).set_index(["memory", "mitigation", "user"]).loc
    assert told[("rag", "none", "A"), "dispersion"] == pytest.approx(100 * (1 - 0.5 / 3))
    assert told[("rag", "none", "B"), "dispersion"] == pytest.approx(0.0)
    assert told[("rag", "reminder", "B"), "n"] == 1
    assert math.isnan(told[("rag", "reminder", "B"), "dispersion"])
    assert told[("rag", "reminder", "B"), "reason"]
    score = repetition_score(np.stack([at(degrees) for name, degrees in DEGREES[RAG].items() if name[3] == "A"]))
    assert score is not None
    assert told[("rag", "none", "A"), "dispersion"] == pytest.approx(100 * score, abs=1e-5)


def test_changes_are_paired_by_user(placed: RunData) -> None:
    frame = dispersion_changes(placed)
    first = frame[(frame["mitigation"] == "none") & (frame["against_memory"] == "base")].iloc[0]
    assert first["dispersion"] == pytest.approx(100 * (1 - 0.5 / 3) / 2)
    assert first["against"] == pytest.approx(100 * (4 / 3 + 3 / 2) / 2)
    assert first["change"] == pytest.approx(first["dispersion"] - first["against"])
    assert (first["users"], first["closer"], first["responses"], first["unequal"]) == (2, 2, 5, 0)
    assert math.isnan(first["low"])
    assert first["reason"] == "2 users, an interval needs 5"


def test_a_user_without_a_score_on_one_side_is_left_out(run: RunData) -> None:
    frame = dispersion_changes(run)
    row = frame[(frame["mitigation"] == "reminder") & (frame["against_memory"] == "rag")].iloc[0]
    assert row["users"] == 1
    assert row["change"] == pytest.approx(50.0 - 40.0)


def test_changes_of_some_users_are_theirs_alone(placed: RunData) -> None:
    frame = dispersion_changes(placed, users=["B"])
    first = frame[(frame["mitigation"] == "none") & (frame["against_memory"] == "base")].iloc[0]
    # B's two responses with memory are one, without it 120 degrees apart.
    assert (first["dispersion"], first["against"], first["change"]) == pytest.approx((0.0, 150.0, -150.0))
    assert (first["users"], first["closer"], first["responses"], first["unequal"]) == (1, 1, 2, 0)
    assert set(dispersions(placed, users=["B"])["user"]) == {"B"}


def test_several_changes_are_corrected_together(placed: RunData, monkeypatch: pytest.MonkeyPatch) -> None:
    chances = iter([0.01, 0.03, 0.02, 0.04])
    pairs = [(RAG, BASE), (REMINDER, BASE), (REMINDER, RAG), (MARAG, BASE)]
    monkeypatch.setattr(response_map_module, "comparisons", lambda data: pairs)
    monkeypatch.setattr(
        response_map_module, "paired_difference", lambda a, b, users: Interval(-2.0, -1.0, next(chances), 9)
    )
    frame = dispersion_changes(placed)
    # Holm over four: 0.01 · 4, 0.02 · 3, 0.03 · 2, 0.04 · 1, never falling.
    assert frame["p_holm"].tolist() == pytest.approx([0.04, 0.06, 0.06, 0.06])
    assert frame["tests"].tolist() == [4, 4, 4, 4]


def test_pairs_are_most_alike_first_with_the_cosine_of_the_other_side(placed: RunData) -> None:
    frame = alike(placed, texts(RAG, re_A1={}, re_A2={}, re_A3={}), RAG, "A", BASE)
    assert frame["cosine"].tolist() == pytest.approx([0.5, 0.5, -0.5], abs=1e-6)
    assert frame["cosine_against"].tolist() == pytest.approx([0.0, 0.0, -1.0], abs=1e-6)
    assert (frame["instance_a"][0], frame["instance_b"][0]) == ("re-A1", "re-A2")
    assert (frame["question_b"][0], frame["response_a"][0]) == ("Question re_A2?", "Response re_A1.")
    assert len(alike(placed, texts(RAG, re_A1={}, re_A2={}, re_A3={}), RAG, "A", most=1)) == 1
    assert alike(placed, texts(RAG, re_A1={}, re_A2={}), RAG, "A")["cosine_against"].isna().all()


def memory(text: str) -> dict[str, Any]:
    return {"text": text, "date": "8 May 2023", "score": 0.5}


def line(text: str, *sources: int) -> dict[str, Any]:
    return {"text": text, "date": "8 May 2023", "sources": list(sources)}


def test_recurring_memories_count_questions_what_went_on_and_what_shows() -> None:
    kayak, piano = "I paddled my kayak through the gorge at Brantome.", "I practise Chopin nocturnes every evening."
    frame = recurring(
        texts(
            RAG,
            re_A1={
                "retrieved": [memory(kayak), memory(piano)],
                "context": [line(kayak, 1), line(piano, 2)],
                "response": "You could paddle your kayak through the gorge at Brantome again.",
            },
            re_A2={"retrieved": [memory(kayak), memory(kayak)], "context": [line(kayak, 1)], "response": "Rest a bit."},
            re_A3={
                "retrieved": [memory(kayak)],
                "context": [],
                "response": "You could paddle your kayak through the gorge at Brantome.",
            },
            re_B1={"retrieved": [memory(piano)], "context": [line(piano, 1)]},
        ),
        RAG,
        "A",
    )
    assert frame["memory"].tolist() == [kayak, piano]
    first, second = frame.to_dict("records")
    assert first["questions"] == 3
    assert first["retrieved"] == 3, "twice in one record is one question"
    assert first["went_on"] == 2, "the third context is empty: nothing of it was seen"
    assert first["shows"] == 1, "wording of a memory that the model didn't see isn't from it"
    assert first["instances"] == "re-A1, re-A2, re-A3"
    assert (second["retrieved"], second["went_on"], second["shows"]) == (1, 1, 0)


def test_base_and_empty_retrievals_have_no_recurring_memory() -> None:
    assert len(recurring(texts(BASE, re_A1={"retrieved": None, "context": None}), BASE, "A")) == 0
    assert len(recurring(texts(RAG, re_A1={}), RAG, "nobody")) == 0
