"""Each oddity in a small file of its own: what is kept, what is noted."""

from pathlib import Path
from typing import Any

import pytest

from opbench.benchmarks import load
from opbench.benchmarks.oddities import oddity
from opbench.benchmarks.shape import Node
from opbench.types import Instance

from .conftest import LOCOMO, OP, Change


def kinds(folder: Path) -> list[tuple[str, str]]:
    """Kind and JSON place of the oddities, without those that the sample always has."""
    return [(one.kind, one.place.split(": ")[1]) for one in load(folder).oddities if one.kind != "missing-answer"]


def locomo(folder: Path, number: int) -> Instance:
    return next(one for one in load(folder).locomo if one.id == f"locomo/sample-1/{number}")


def test_empty_lists_among_the_questions_and_around_them(change: Change) -> None:
    def how(data: Any) -> None:
        diversity = data[0]["Ottilie"]["tasks"]["diversity"]
        diversity[0]["questions"].insert(2, [])
        diversity.insert(0, [])

    folder = change(OP, how)
    assert kinds(folder) == [
        ("empty-list", "[0].Ottilie.tasks.diversity[0]"),
        ("empty-list", "[0].Ottilie.tasks.diversity[1].questions[2]"),
    ]
    ids = [one.id for one in load(folder).op if one.user.speaker == "Ottilie" and one.subtype == "repetition"]
    assert ids == [f"op/sample-1/Ottilie/repetition/{n}" for n in range(1, 11)]


def test_the_same_text_twice_is_two_instances(change: Change) -> None:
    def how(data: Any) -> None:
        first = data[0]["Ottilie"]["tasks"]["irrelevance_easy"]
        first[1]["question"] = first[0]["question"]
        data[0]["Corvin"]["tasks"]["irrelevance_easy"][3]["question"] = first[0]["question"]

    folder = change(OP, how)
    assert kinds(folder) == [
        ("duplicate-question", "[0].Ottilie.tasks.irrelevance_easy[1].question"),
        ("duplicate-question", "[0].Corvin.tasks.irrelevance_easy[3].question"),
    ]
    details = [one.detail for one in load(folder).oddities if one.kind == "duplicate-question"]
    assert details[1] == ("op/sample-1/Corvin/fully-irrelevant/4: same text as op/sample-1/Ottilie/fully-irrelevant/1")
    assert len({one.id for one in load(folder).op}) == 58


def test_topics_are_read_in_one_spelling_and_questions_as_they_are(change: Change) -> None:
    def how(data: Any) -> None:
        easy = data[0]["Ottilie"]["tasks"]["irrelevance_easy"]
        easy[0] = {"topic": "work-life balance", "question": "Isn’t it — well — “odd”?"}
        easy[1]["topic"] = easy[2]["topic"] = "Work-Life Balance"

    folder = change(OP, how)
    first, second, third = [one for one in load(folder).op if one.subtype == "fully-irrelevant"][:3]
    assert first.topic == second.topic == third.topic == "Work-life balance"
    assert first.question == "Isn’t it — well — “odd”?"
    assert kinds(folder) == [
        ("typographic-marks", "[0].Ottilie.tasks.irrelevance_easy[0].question"),
        ("topic-case", "[0].Ottilie.tasks.irrelevance_easy[0].topic"),
        ("topic-case", "[0].Ottilie.tasks.irrelevance_easy[1].topic"),
    ]


def test_explanations_may_be_absent(change: Change) -> None:
    folder = change(OP, lambda data: data[0]["Ottilie"]["tasks"]["irrelevance_hard"][0].pop("explanation") and None)
    baiting = [one for one in load(folder).op if one.subtype == "baiting"]
    assert baiting[0].explanation is None
    assert baiting[1].explanation


def test_a_date_without_a_session(change: Change) -> None:
    def how(data: Any) -> None:
        data[0]["conversation"]["session_33_date_time"] = "1:00 pm on 1 March, 2025"

    folder = change(LOCOMO, how)
    assert kinds(folder) == [("date-without-session", "[0].conversation.session_33_date_time")]
    assert len(load(folder).conversations["sample-1"].sessions) == 9


@pytest.mark.parametrize(("value", "text"), [(1204, "1204"), (58.5, "58.5"), (0, "0")])
def test_numbers_as_answers(change: Change, value: float, text: str) -> None:
    folder = change(LOCOMO, lambda data: data[0]["qa"][4].update(answer=value))
    assert kinds(folder) == [("numeric-answer", "[0].qa[4].answer")]
    assert locomo(folder, 5).answer == text


def test_an_adversarial_question_with_an_answer(change: Change) -> None:
    folder = change(LOCOMO, lambda data: data[0]["qa"][30].update(answer="No"))
    assert kinds(folder) == [("adversarial-with-answer", "[0].qa[30].answer")]
    assert locomo(folder, 31).answer is None


def test_a_question_twice_in_a_conversation(change: Change) -> None:
    folder = change(LOCOMO, lambda data: data[0]["qa"].append(dict(data[0]["qa"][0])))
    assert kinds(folder) == [("repeated-question", "[0].qa[31].question")]
    assert locomo(folder, 32).question == locomo(folder, 1).question


@pytest.mark.parametrize(
    ("written", "read", "odd"),
    [
        ([], (), ["empty-evidence"]),
        (["D1:1", "D2:3"], ("D1:1", "D2:3"), []),
        (["D"], (), ["malformed-evidence"]),
        (["D:11:26", "D1:1"], ("D1:1",), ["malformed-evidence"]),
        (["D8:6; D9:7"], ("D8:6", "D9:7"), ["malformed-evidence"]),
        (["D1:1 D2:2, D3:3"], ("D1:1", "D2:2", "D3:3"), ["malformed-evidence"]),
        ([""], (), ["malformed-evidence"]),
        (["D1:99"], (), ["evidence-nowhere"]),
        (["D1:05"], ("D1:5",), ["evidence-nowhere"]),
        (["D1:1", "D1:1"], ("D1:1",), ["repeated-evidence"]),
        (["D8:6; D9:70"], ("D8:6",), ["malformed-evidence", "evidence-nowhere"]),
    ],
)
def test_evidence(change: Change, written: list[str], read: tuple[str, ...], odd: list[str]) -> None:
    folder = change(LOCOMO, lambda data: data[0]["qa"][0].update(evidence=written))
    assert locomo(folder, 1).evidence == read
    assert [kind for kind, _ in kinds(folder)] == odd


@pytest.mark.parametrize(
    ("written", "read", "odd"),
    [("D1:3", ("D1:3",), 0), (["D1:3", "D1:4"], ("D1:3", "D1:4"), 0), ("D1:3, D1:4", ("D1:3", "D1:4"), 1), ("", (), 1)],
)
def test_evidence_of_observations(change: Change, written: Any, read: tuple[str, ...], odd: int) -> None:
    def how(data: Any) -> None:
        data[0]["observation"]["session_1_observation"]["Corvin"][0][1] = written

    folder = change(LOCOMO, how)
    facts = load(folder).conversations["sample-1"].sessions[0].observations
    assert next(fact for fact in facts if fact.speaker == "Corvin").evidence == read
    place = "[0].observation.session_1_observation.Corvin[0][1]"
    assert kinds(folder) == [("malformed-observation-evidence", place)] * odd


def test_images(change: Change) -> None:
    def how(data: Any) -> None:
        turns = data[0]["conversation"]["session_1"]
        turns[0]["blip_caption"] = "a lake"
        turns[1] |= {"text": "", "blip_caption": "a loaf"}

    turns = load(change(LOCOMO, how)).conversations["sample-1"].sessions[0].turns
    assert turns[0].text.endswith("Is the bakery on fire? [shares an image: a lake]")
    assert turns[1].text == "[shares an image: a loaf]"


@pytest.mark.parametrize(
    ("written", "hour"), [("12:05 am", 0), ("1:05 am", 1), ("12:05 pm", 12), ("1:05 pm", 13), ("11:05 pm", 23)]
)
def test_hours(change: Change, written: str, hour: int) -> None:
    def how(data: Any) -> None:
        data[0]["conversation"]["session_1_date_time"] = f"{written} on 29 February, 2020"

    date = load(change(LOCOMO, how)).conversations["sample-1"].sessions[0].date
    assert (date.year, date.month, date.day, date.hour, date.minute) == (2020, 2, 29, hour, 5)


def test_sessions_are_put_in_order_of_date(change: Change) -> None:
    def how(data: Any) -> None:
        talk = data[0]["conversation"]
        talk["session_1_date_time"], talk["session_9_date_time"] = (
            talk["session_9_date_time"],
            talk["session_1_date_time"],
        )

    sessions = load(change(LOCOMO, how)).conversations["sample-1"].sessions
    assert [session.number for session in sessions] == [9, 2, 3, 4, 5, 6, 7, 8, 1]


def test_speakers_of_an_entry_may_stand_in_either_order(change: Change) -> None:
    folder = change(OP, lambda data: [{name: data[0][name] for name in ("Corvin", "Ottilie")}])
    assert list(load(folder).users) == ["sample-1/Ottilie", "sample-1/Corvin"]
    assert load(folder).op[0].user.speaker == "Ottilie"


def test_a_kind_without_a_description_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        oddity("something-new", Node(tmp_path, None), "")
