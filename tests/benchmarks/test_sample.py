"""The bundled sample: a small data set of the project's own, in the public formats."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from opbench.benchmarks import SAMPLE, load
from opbench.benchmarks.op_bench import BAITING_KINDS
from opbench.types import OP_SUBTYPES, Corpus


@pytest.fixture(scope="module")
def sample() -> Corpus:
    return load("sample")


def test_both_speakers_have_every_subtype(sample: Corpus) -> None:
    for user in ("sample-1/Ottilie", "sample-1/Corvin"):
        mine = [instance for instance in sample.op if instance.user.id == user]
        counts = Counter(instance.subtype for instance in mine)
        assert [counts[subtype] for subtype in OP_SUBTYPES] == [4, 5, 10, 3, 3, 4]
        assert {one.kind for one in mine if one.subtype == "baiting"} == set(BAITING_KINDS)
        assert Counter(one.kind for one in mine if one.subtype == "memory") == {"fine-grained": 2, "coarse-grained": 2}
        assert sample.profiles[user].topics
        assert len(sample.profiles[user].observations) > 10
    assert all(one.explanation for one in sample.op if one.subtype not in ("fully-irrelevant", "repetition"))


def test_locomo_questions_cover_the_five_categories(sample: Corpus) -> None:
    counts = Counter(instance.subtype for instance in sample.locomo)
    assert counts == {"multi-hop": 6, "temporal": 8, "open-domain": 4, "single-hop": 9, "adversarial": 4}
    assert all(one.evidence for one in sample.locomo)
    assert all((one.answer is None) == (one.subtype == "adversarial") for one in sample.locomo)


def test_the_conversation_is_long_enough_to_search(sample: Corpus) -> None:
    sessions = sample.conversations["sample-1"].sessions
    assert len(sessions) >= 8
    assert all(len(session.turns) >= 8 for session in sessions)
    assert all({fact.speaker for fact in session.observations} == {"Ottilie", "Corvin"} for session in sessions)
    assert all(fact.evidence for session in sessions for fact in session.observations)
    assert all(turn.id.startswith(f"D{session.number}:") for session in sessions for turn in session.turns)


def test_nothing_is_odd_but_what_adversarial_questions_are_like(sample: Corpus) -> None:
    assert Counter(one.kind for one in sample.oddities) == {"missing-answer": 4}


def test_weekdays_fit_what_is_said(sample: Corpus) -> None:
    """Corvin's free night is a Sunday; 6 June 2024 was the Thursday of the broadcast, 12 October the night before."""
    days = [session.date.strftime("%a") for session in sample.conversations["sample-1"].sessions]
    assert days == ["Sun", "Fri", "Sat", "Sat", "Sat", "Sun", "Sun", "Sun", "Sun"]


def test_it_has_the_keys_of_the_public_files() -> None:
    locomo = json.loads((SAMPLE / "locomo/sample.json").read_text("utf-8"))[0]
    assert set(locomo) == {"qa", "conversation", "event_summary", "observation", "session_summary", "sample_id"}
    assert len(locomo["session_summary"]) == len(locomo["event_summary"]) == 9
    op = json.loads((SAMPLE / "opbench/sample_overpersonalized.json").read_text("utf-8"))[0]
    assert list(op) == ["Ottilie", "Corvin"]
    assert all(set(one) == {"topics", "profile", "observation", "tasks"} for one in op.values())


def test_it_shares_no_question_and_no_turn_with_the_benchmarks(sample: Corpus, real: Corpus) -> None:
    def words(text: str) -> set[tuple[str, ...]]:
        tokens = re.findall(r"[a-z']+", text.lower())
        return {tuple(tokens[i : i + 8]) for i in range(len(tokens) - 7)}

    def texts(corpus: Corpus) -> list[str]:
        turns = [t.text for c in corpus.conversations.values() for s in c.sessions for t in s.turns]
        return [one.question for one in (*corpus.op, *corpus.locomo)] + turns

    published = set().union(*(words(text) for text in texts(real)))
    assert not set().union(*(words(text) for text in texts(sample))) & published


def test_its_people_are_in_no_benchmark(real_folder: Path) -> None:
    for path in real_folder.rglob("*.json*"):
        assert not re.search(r"Ottilie|Corvin|\bIlo\b", path.read_text("utf-8")), path
