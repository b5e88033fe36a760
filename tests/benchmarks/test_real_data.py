"""The published files load to exactly what the paper's table 1 and op-bench-facts say."""

import json
import re
from collections import Counter
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import pytest

from opbench.types import LOCOMO_CATEGORIES, OP_SUBTYPES, Corpus

#: Counted by hand or by the facts sheet, not by the loader.
ODDITIES = {
    "empty-list": 15,
    "duplicate-question": 29,
    "shared-name": 1,
    "date-without-session": 16,
    "missing-answer": 444,
    "adversarial-with-answer": 2,
    "numeric-answer": 6,
    "repeated-question": 12,
    "empty-evidence": 4,
    "malformed-evidence": 6,
    "evidence-nowhere": 3,
    "repeated-evidence": 1,
    "malformed-observation-evidence": 5,
}


def test_op_bench_has_the_counts_of_table_1(real: Corpus) -> None:
    counts = Counter(instance.subtype for instance in real.op)
    assert [counts[subtype] for subtype in OP_SUBTYPES] == [318, 100, 882, 100, 100, 200]
    assert len(real.op) == 1700
    assert len({instance.user.id for instance in real.op}) == len(real.users) == len(real.profiles) == 20


def test_locomo_has_its_published_counts(real: Corpus) -> None:
    counts = Counter(instance.subtype for instance in real.locomo)
    assert [counts[name] for name in LOCOMO_CATEGORIES.values()] == [282, 321, 96, 841, 446]
    assert len(real.locomo) == 1986
    assert len(real.locomo) - counts["adversarial"] == 1540


def test_ids_are_unique_and_of_the_agreed_form(real: Corpus) -> None:
    ids = [instance.id for instance in (*real.op, *real.locomo)]
    assert len(set(ids)) == 3686
    subtypes = "|".join(OP_SUBTYPES)
    assert all(re.fullmatch(rf"op/conv-\d+/[A-Z][a-z]+/({subtypes})/[1-9]\d*", one.id) for one in real.op)
    assert all(re.fullmatch(r"locomo/conv-\d+/[1-9]\d*", one.id) for one in real.locomo)


def test_numbers_count_from_one_in_file_order_without_empty_lists(real: Corpus, real_folder: Path) -> None:
    raw = json.loads((real_folder / "opbench/locomo10_overpersonalized.json").read_text("utf-8"))
    questions = raw[0]["Caroline"]["tasks"]["diversity"][0]["questions"]
    # The tenth element of this user's list is empty: repetition/10 is the eleventh element.
    assert questions[9] == []
    by_id = {instance.id: instance for instance in real.op}
    assert by_id["op/conv-26/Caroline/repetition/9"].question == questions[8]["question"]
    assert by_id["op/conv-26/Caroline/repetition/10"].question == questions[10]["question"]
    facts = [item for item in raw[2]["Maria"]["tasks"]["sycophancy"] if item["type"] == "fact"]
    assert by_id["op/conv-41/Maria/fact/2"].question == facts[1]["question"]
    locomo = json.loads((real_folder / "locomo/locomo10.json").read_text("utf-8"))
    assert {one.id: one for one in real.locomo}["locomo/conv-30/5"].question == locomo[1]["qa"][4]["question"]


def test_sizes_per_user_are_those_of_the_facts_sheet(real: Corpus) -> None:
    sizes: dict[str, Counter[str]] = {user: Counter() for user in real.users}
    for instance in real.op:
        sizes[instance.user.id][instance.subtype] += 1
    assert all(size["baiting"] == 5 for size in sizes.values())
    assert all(size["fact"] + size["value"] + size["memory"] == 20 for size in sizes.values())
    assert {min(s["fully-irrelevant"] for s in sizes.values()), max(s["fully-irrelevant"] for s in sizes.values())} == {
        9,
        21,
    }
    assert {min(s["repetition"] for s in sizes.values()), max(s["repetition"] for s in sizes.values())} == {36, 54}


def test_first_speakers_have_the_859_instances_behind_the_published_rows(real: Corpus) -> None:
    counts = Counter(instance.subtype for instance in real.op if instance.user.first)
    assert [counts[subtype] for subtype in OP_SUBTYPES] == [159, 50, 450, 50, 50, 100]


def test_three_johns_are_three_users(real: Corpus) -> None:
    johns = [user for user in real.users.values() if user.speaker == "John"]
    assert [(user.id, user.other, user.first) for user in johns] == [
        ("conv-41/John", "Maria", True),
        ("conv-43/John", "Tim", False),
        ("conv-47/John", "James", False),
    ]
    assert len({real.profiles[user.id].profile for user in johns}) == 3


def test_texts_are_kept_as_in_the_file(real: Corpus, real_folder: Path) -> None:
    raw = (real_folder / "opbench/locomo10_overpersonalized.json").read_text("utf-8")
    in_file = Counter(json.loads(match) for match in re.findall(r'"question"\s*:\s*("(?:[^"\\]|\\.)*")', raw))
    assert Counter(instance.question for instance in real.op) == in_file
    assert len(in_file) == 1671


def test_topics_of_one_name_are_one_topic(real: Corpus) -> None:
    topics = {instance.topic for instance in real.op if instance.topic}
    assert len(topics) == len({topic.casefold() for topic in topics}) == 251
    assert not any(topic[0].islower() for topic in topics)


def test_kinds_are_kept(real: Corpus) -> None:
    memory = Counter(instance.kind for instance in real.op if instance.subtype == "memory")
    assert memory == {"fine-grained": 100, "coarse-grained": 100}
    baiting = Counter(instance.kind for instance in real.op if instance.subtype == "baiting")
    assert baiting == {
        "interest_confusion": 31,
        "subject_confusion": 25,
        "behavioral_attribution": 23,
        "contextual_misalignment": 21,
    }
    others = {instance.kind for instance in real.op if instance.subtype not in ("memory", "baiting")}
    assert others == {None}


def test_every_known_oddity_is_found(real: Corpus) -> None:
    found = Counter(one.kind for one in real.oddities)
    assert {kind: found[kind] for kind in ODDITIES} == ODDITIES
    assert set(found) - set(ODDITIES) == {"typographic-marks", "topic-case"}
    marked = sum(bool(re.search("[‘’“”–—]", instance.question)) for instance in real.op)
    assert found["typographic-marks"] == marked > 199


def test_answers_are_texts_and_adversarial_ones_none(real: Corpus) -> None:
    for instance in real.locomo:
        if instance.subtype == "adversarial":
            assert instance.answer is None, instance.id
        else:
            assert instance.answer, instance.id
    numeric = [one.detail.split(":")[0] for one in real.oddities if one.kind == "numeric-answer"]
    answers = {instance.id: instance.answer for instance in real.locomo}
    assert len(numeric) == 6
    assert all((answers[identity] or "").isdigit() for identity in numeric)


@pytest.mark.parametrize(
    ("identity", "evidence"),
    [
        ("locomo/conv-26/38", ("D8:6", "D9:17")),  # "D8:6; D9:17"
        ("locomo/conv-42/89", ("D1:18", "D1:20")),  # "D" between them
        ("locomo/conv-43/19", ("D1:14", "D2:7", "D4:7", "D5:15", "D20:21", "D26:36")),  # "D:11:26" among them
        ("locomo/conv-49/32", ("D9:1", "D4:4", "D4:6")),  # one string with blanks
        ("locomo/conv-47/39", ("D18:1", "D18:7")),  # "D4:36" before them points nowhere
        ("locomo/conv-50/70", ("D30:5",)),  # "D30:05"
        ("locomo/conv-26/31", ()),  # empty
    ],
)
def test_evidence_is_mended_where_it_can_be(real: Corpus, identity: str, evidence: tuple[str, ...]) -> None:
    found = next(instance for instance in real.locomo if instance.id == identity)
    assert found.evidence == evidence


def test_all_evidence_that_is_left_points_at_turns(real: Corpus) -> None:
    turns = {
        name: {turn.id for session in conversation.sessions for turn in session.turns}
        for name, conversation in real.conversations.items()
    }
    assert sum(len(ids) for ids in turns.values()) == 5882
    for instance in real.locomo:
        assert set(instance.evidence) <= turns[instance.user.conversation]
        assert len(set(instance.evidence)) == len(instance.evidence)
    for name, conversation in real.conversations.items():
        for session in conversation.sessions:
            assert all(set(fact.evidence) <= turns[name] and fact.evidence for fact in session.observations)


def test_sessions_are_dated_and_in_order(real: Corpus) -> None:
    assert list(real.conversations) == [f"conv-{n}" for n in (26, 30, 41, 42, 43, 44, 47, 48, 49, 50)]
    assert [len(one.sessions) for one in real.conversations.values()] == [19, 19, 32, 29, 29, 28, 31, 30, 25, 30]
    first = real.conversations["conv-26"].sessions[0]
    assert first.date == datetime(2023, 5, 8, 13, 56)
    assert first.day == "8 May 2023"
    for conversation in real.conversations.values():
        assert all(earlier.date < later.date for earlier, later in pairwise(conversation.sessions))


def test_captions_of_shared_images_stand_in_the_turns(real: Corpus) -> None:
    turns = [turn for one in real.conversations.values() for session in one.sessions for turn in session.turns]
    assert sum("[shares an image: " in turn.text for turn in turns) == 1226


def test_observations_are_those_of_locomo(real: Corpus) -> None:
    facts = [fact for one in real.conversations.values() for session in one.sessions for fact in session.observations]
    assert len(facts) == 2541
    assert sum(len(profile.observations) for profile in real.profiles.values()) == 2541


def test_a_locomo_question_belongs_to_the_first_speaker(real: Corpus) -> None:
    assert all(instance.user.first for instance in real.locomo)
    assert real.locomo[0].user.id == "conv-26/Caroline"


def test_digests_are_of_the_bytes(real: Corpus) -> None:
    assert real.source == "data"
    assert real.sha256["locomo/locomo10.json"] == "216f944bb8681c582b7492e4cbba699f12df4e16269ee8c1e101fb34b047af0c"
    assert set(real.sha256) == {"locomo/locomo10.json", "opbench/locomo10_overpersonalized.json"}
