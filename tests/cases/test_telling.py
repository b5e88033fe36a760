"""Cases in words: names of columns, and which memory is named, when, and with what reserve."""

from __future__ import annotations

import math

import pytest

from opbench.cases.outcome import Ablation, Judged, LeftOut, Outcome
from opbench.cases.spec import Column
from opbench.cases.telling import ablation_table, differences, named, parent_of, verdict
from tests.cases.made import ABLATION, BASE, BOAT, BREAD, DRAFT, EDITED, RAG, REMINDER, SPEC, left_out


def ablation(*items: LeftOut, over: bool = True) -> Ablation:
    return Ablation(column=1, base=RAG, items=items, over=over)


def unscored(number: int, similarity: float) -> LeftOut:
    outcome = RAG.model_copy(update={"scores": (Judged(metric="score", value=None, reason="no number"),)})
    return LeftOut(number=number, text=BREAD, outcome=outcome, similarity=similarity, same=False)


def test_columns_are_called_by_system_and_post_processor_and_by_model_where_there_are_several() -> None:
    assert named(SPEC, {"m": "Model M"}) == ["BASE", "RAG", "RAG + Reminder"]
    several = SPEC.model_copy(update={"columns": (*SPEC.columns, Column(model="n"))})
    assert named(several, {"m": "Model M"}) == [
        "Model M: BASE",
        "Model M: RAG",
        "Model M: RAG + Reminder",
        "n: BASE",
    ]


def test_what_is_changed_in_a_column_is_in_its_name_and_no_two_names_are_the_same() -> None:
    names = named(EDITED, {})
    assert "k 3" in names[1]
    assert "temperature 0.7" in names[1]
    assert "without 2" in names[1]
    assert names[2].startswith("RAG + Mine (draft)")
    assert "draw 2" in names[2]
    twice = SPEC.model_copy(update={"columns": (*SPEC.columns, SPEC.columns[1])})
    assert named(twice, {})[3] == "RAG [2]"


def test_a_changed_column_belongs_beside_the_one_it_came_from() -> None:
    rag, reminder = SPEC.columns[1], SPEC.columns[2]
    columns = (
        *SPEC.columns,
        reminder.model_copy(update={"prompts": {"closing": "Be brief."}}),
        rag.model_copy(update={"without": (2,)}),
        Column(model="m", memory="rag", mitigation=DRAFT.name, draft=DRAFT),
        Column(model="other", memory="rag", k=2),
    )
    spec = SPEC.model_copy(update={"columns": columns})
    assert [parent_of(spec, place) for place in range(7)] == [None, None, None, 2, 1, 4, None]


def test_the_table_has_a_row_a_memory_in_rank_order_and_the_control_last() -> None:
    control = left_out(0, "", 0.25, 1.0, same=True)
    frame = ablation_table(ablation(left_out(2, BOAT, 0.0, 0.9), control, left_out(1, BREAD, 1.0, 0.5)))
    assert frame["left_out"].tolist() == ["memory 1", "memory 2", "none (control)"]
    assert frame["memory"].tolist() == [BREAD, BOAT, None]
    assert frame["score_with"].tolist() == [0.25, 0.25, 0.25]
    assert frame["score_without"].tolist() == [1.0, 0.0, 0.25]
    assert frame["score_change"].tolist() == [0.75, -0.25, 0.0]
    assert frame["response_change"].tolist() == pytest.approx([0.5, 0.1, 0.0])
    assert frame["missing"].tolist() == [None, None, None]


def test_what_is_not_known_is_missing_with_its_reason_and_never_nought() -> None:
    failed = LeftOut(number=1, text=BREAD, outcome=Outcome(state="failed", error_kind="timeout", error="no answer"))
    waiting = LeftOut(number=2, text=BOAT, outcome=Outcome())
    frame = ablation_table(ablation(failed, waiting, unscored(3, 0.8), over=False))
    for column in ("score_change", "score_without"):
        assert all(math.isnan(value) for value in frame[column])
    assert [math.isnan(value) for value in frame["response_change"]] == [True, True, False]
    assert frame["missing"].tolist() == ["no answer", "not there yet", "no number"]


def test_an_ablation_without_memories_has_an_empty_table_with_its_columns() -> None:
    empty = ablation()
    assert ablation_table(empty).empty
    assert "score_change" in ablation_table(empty)
    assert verdict(empty) == "There is no memory to leave out."


def test_the_memory_that_raises_the_score_most_did_it() -> None:
    assert verdict(ABLATION) == "Memory 1 did it: without it the score rises from 0.25 to 1.00."
    assert verdict(ABLATION.model_copy(update={"over": False})) == ""


def test_of_several_memories_that_do_as_much_none_is_named_alone() -> None:
    tied = (left_out(1, BREAD, 1.0, 0.5), left_out(2, BOAT, 1.0, 0.4), left_out(3, BREAD, 0.5, 0.1))
    told = verdict(ablation(*tied))
    assert told.startswith("No single memory did it: without any one of 1 or 2 the score rises from 0.25 to 1.00.")
    # Of those that raise it as much, not of all.
    assert "changes most without memory 2" in told


def test_where_no_score_rises_the_response_that_changes_most_is_told_and_nobody_is_blamed() -> None:
    said = verdict(ablation(left_out(1, BREAD, 0.25, 0.9), left_out(2, BOAT, 0.0, 0.6)))
    assert "did it" not in said
    assert said.startswith("No memory left out raises the score.")
    assert "without memory 2 (cosine 0.60" in said
    said = verdict(ablation(unscored(1, 0.7), unscored(2, 0.8)))
    assert said.startswith("There are no two scores to compare.")
    assert "without memory 1" in said


def test_nothing_changes() -> None:
    same = ablation(left_out(1, BREAD, 0.25, 1.0, same=True), left_out(2, BOAT, 0.25, 1.0, same=True))
    assert verdict(same) == ("Leaving out any one memory changes nothing: the response stays the same, word for word.")


def test_a_response_that_changed_by_an_unknown_measure_is_no_response_that_stays() -> None:
    # The embedder failed: both responses are others, and nobody knows by how much.
    unknown = [left_out(n, BREAD, 0.0, 0.5).model_copy(update={"similarity": None}) for n in (1, 2)]
    said = verdict(ablation(*unknown))
    assert "changes nothing" not in said
    assert said == (
        "No memory left out raises the score. How much the response changes isn't known for 2 of 2: not embedded."
    )
    said = verdict(ablation(left_out(1, BREAD, 0.25, 0.9), unknown[1]))
    assert "without memory 1 (cosine 0.90" in said
    assert said.endswith("How much the response changes isn't known for 1 of 2: not embedded.")


def test_a_score_that_is_missing_is_told_beside_the_memory_that_did_it() -> None:
    said = verdict(ablation(left_out(1, BREAD, 1.0, 0.5), unscored(2, 0.1)))
    assert said.startswith("Memory 1 did it: without it the score rises from 0.25 to 1.00.")
    assert said.endswith("There is no score to compare for 1 of 2 answers.")


def test_rounding_raises_no_score_and_parts_no_tie() -> None:
    rounding = left_out(1, BREAD, 0.25, 0.95).model_copy(update={"score_change": 1e-16})
    said = verdict(ablation(rounding, left_out(2, BOAT, 0.25, 0.4)))
    assert said.startswith("No memory left out raises the score. The response changes most without memory 2")
    tied = left_out(1, BREAD, 1.0, 0.9).model_copy(update={"score_change": 0.75 + 1e-16})
    higher = left_out(2, BOAT, 1.0, 0.4).model_copy(update={"score_change": 0.75 - 2e-16})
    assert "The response changes most without memory 2" in verdict(ablation(tied, higher))


def test_what_was_stopped_didnt_fail() -> None:
    stopped = LeftOut(number=2, text=BOAT, outcome=Outcome(state="cancelled"))
    said = verdict(ablation(left_out(1, BREAD, 1.0, 0.5), stopped))
    assert "1 answer of 2 stopped, and can't be compared." in said
    assert "failed" not in said


def test_what_failed_is_counted_in_the_sentence() -> None:
    failed = LeftOut(number=2, text=BOAT, outcome=Outcome(state="failed", error="gone"))
    assert "1 answer of 2 failed" in verdict(ablation(left_out(1, BREAD, 1.0, 0.5), failed))
    assert verdict(ablation(failed)).startswith("No answer without a memory came")


def test_a_change_that_drawing_again_makes_as_well_names_no_memory() -> None:
    raised = left_out(1, BREAD, 1.0, 0.5)
    said = verdict(ablation(raised, left_out(0, "", 1.0, 0.4)))
    assert said.startswith("No memory can be named")
    assert "drawing again" in said
    said = verdict(ablation(raised, left_out(0, "", 0.25, 0.9)))
    assert said.startswith("Memory 1 did it")
    assert "Control: drawn again with all memories, score unchanged" in said
    # By the response alone, too.
    said = verdict(ablation(left_out(1, BREAD, 0.25, 0.8), left_out(0, "", 0.25, 0.7)))
    assert "changes no more without any memory" in said


def test_the_difference_of_two_columns() -> None:
    frame = differences(RAG, BASE).set_index("what")
    told = {name: row.tolist() for name, row in frame.iterrows()}
    assert told["score (0–1)"] == [0.25, 1.0, 0.75]
    assert told["response, ms"] == [200.0, 120.0, -80.0]
    # BASE retrieves nothing: that is no retrieval of 0 ms.
    assert [math.isnan(each) for each in told["memory retrieval, ms"]] == [False, True, True]
    assert told["tokens in"] == [60.0, 20.0, -40.0]
    assert "post-processing, ms" not in told
    score = differences(RAG, REMINDER).iloc[0].tolist()
    assert score[:2] == ["score (0–1)", 0.25]
    assert math.isnan(score[3])


@pytest.mark.parametrize(
    ("items", "number"),
    [
        # Without 1 the score rises by 0.5, without 2 by 0.25.
        ((left_out(1, BREAD, 0.5, 0.6), left_out(2, BOAT, 0.25, 0.2)), 1),
        # Both raise it alike: the other one did as much.
        ((left_out(1, BREAD, 0.5, 0.6), left_out(2, BOAT, 0.5, 0.2)), None),
        # Drawing again raises it as much, or less.
        ((left_out(0, "", 0.5, 0.9), left_out(1, BREAD, 0.5, 0.6)), None),
        ((left_out(0, "", 0.0, 0.9), left_out(1, BREAD, 0.5, 0.6)), 1),
        # Whether drawing again raises it isn't known.
        ((unscored(0, 0.9), left_out(1, BREAD, 0.5, 0.6)), None),
    ],
)
def test_a_memory_is_the_culprit_only_where_it_can_be_named(items: tuple[LeftOut, ...], number: int | None) -> None:
    found = ablation(*items)
    assert (None if found.culprit is None else found.culprit.number) == number
    assert f"Memory {number} did it" in verdict(found) if number else " did it: without it" not in verdict(found)
