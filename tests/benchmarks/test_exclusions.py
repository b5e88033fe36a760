"""Named lists of what can be left out: the bundled ones are those of the public audit, and a user's own are checked."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from opbench.benchmarks import exclusions, load, select
from opbench.errors import DataError, UsageError
from opbench.running.prepare import prepare
from opbench.study import Study, make_study, study_hash
from opbench.types import Corpus

WRONG_GOLD, WRONG_EVIDENCE = "locomo-wrong-gold", "locomo-wrong-evidence"
#: The audit's tables: score-corrupting faults by kind and category, by conversation, and wrong citations by category.
BY_KIND = {
    "not in the conversation": {"multi-hop": 20, "temporal": 3, "open-domain": 6, "single-hop": 4},
    "wrong date or duration": {"multi-hop": 1, "temporal": 18, "open-domain": 1, "single-hop": 6},
    "wrong speaker": {"temporal": 2, "single-hop": 22},
    "debatable, or a flawed question": {"multi-hop": 5, "temporal": 3, "open-domain": 2, "single-hop": 3},
    "incomplete answer": {"multi-hop": 2, "single-hop": 1},
}
BY_CONVERSATION = {
    **{"conv-26": 15, "conv-30": 4, "conv-41": 5, "conv-42": 14, "conv-43": 13},
    **{"conv-44": 7, "conv-47": 8, "conv-48": 7, "conv-49": 14, "conv-50": 12},
}
#: Beginning of a study's hash, worked out by the code from before there were lists (commit c36e7ec).
BEFORE = "c329e0ca7484b0f5"
CITATIONS = {"multi-hop": 25, "temporal": 10, "open-domain": 1, "single-hop": 21}


def own(home: Path, name: str, text: str) -> Path:
    file = home / "exclusions" / f"{name}.csv"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def test_the_bundled_lists_are_the_audits() -> None:
    lists = exclusions.lists()
    gold, evidence = lists[WRONG_GOLD], lists[WRONG_EVIDENCE]
    assert len(gold.reasons) == 99
    assert len(evidence.reasons) == 57
    assert not set(gold.reasons) & set(evidence.reasons)
    assert Counter(gold.reasons.values()) == {kind: sum(by.values()) for kind, by in BY_KIND.items()}
    assert Counter(identity.split("/")[1] for identity in gold.reasons) == BY_CONVERSATION
    assert "dial481/locomo-audit" in gold.source
    assert "CC BY-NC 4.0" in gold.source


def test_each_id_is_the_question_that_the_audit_names(real: Corpus) -> None:
    """The audit counts from 0 and we from 1: a shift would break the digests, and the kinds by category."""
    subtypes = {instance.id: instance.subtype for instance in real.locomo}
    gold, evidence = exclusions.get(WRONG_GOLD), exclusions.get(WRONG_EVIDENCE)
    assert len(gold.found_in(real)) == 99
    assert len(evidence.found_in(real)) == 57
    for kind, by_category in BY_KIND.items():
        assert Counter(subtypes[each] for each, reason in gold.reasons.items() if reason == kind) == by_category
    assert Counter(subtypes[each] for each in evidence.reasons) == CITATIONS
    # Facts of single rows, as the audit has them: the year 2022, and nineteen days that are nine.
    answers = {instance.id: instance.answer for instance in real.locomo}
    assert answers["locomo/conv-26/27"] == "2022"
    assert answers["locomo/conv-47/32"] == "19 days"


def test_the_digests_belong_to_the_questions() -> None:
    for each in exclusions.lists().values():
        assert set(each.digests) == set(each.reasons)


def test_a_locomo_file_in_another_order_is_noticed(real: Corpus) -> None:
    questions = list(real.locomo)
    wrong = next(place for place, one in enumerate(questions) if one.id == "locomo/conv-26/3")
    questions[wrong] = replace(questions[wrong], question="Another one?")
    with pytest.raises(DataError, match=r"locomo/conv-26/3 is another question in these data"):
        exclusions.get(WRONG_GOLD).found_in(replace(real, locomo=tuple(questions)))


def test_the_sample_has_none_of_them() -> None:
    assert exclusions.excluded([WRONG_GOLD, WRONG_EVIDENCE], load("sample")) == frozenset()


def test_1441_questions_are_left_without_the_wrong_gold_answers(real: Corpus) -> None:
    left = select(real, ["locomo"], exclude=exclusions.excluded([WRONG_GOLD], real))
    assert len(left) == 1540 - 99
    # Before a limit takes its part: 20 are asked for, 20 come, and none of the list.
    few = select(real, ["locomo"], limit=20, exclude=exclusions.excluded([WRONG_GOLD], real))
    assert len(few) == 20
    assert not {one.id for one in few} & set(exclusions.get(WRONG_GOLD).reasons)


# A user's own ------------------------------------------------------------------------------------------------------


def test_a_users_own_list(home: Path) -> None:
    own(home, "mine", "instance,reason\nlocomo/sample-1/2,I disagree\nop/sample-1/Ottilie/fact/1,\n")
    mine = exclusions.lists()["mine"]
    assert mine.reasons == {"locomo/sample-1/2": "I disagree", "op/sample-1/Ottilie/fact/1": ""}
    sample = load("sample")
    assert mine.found_in(sample) == ["op/sample-1/Ottilie/fact/1", "locomo/sample-1/2"]
    ids = {one.id for one in select(sample, ["op", "locomo"], exclude=exclusions.excluded(["mine"], sample))}
    assert len(ids) == 58 + 27 - 2  # 31 LoCoMo questions, 4 of them adversarial
    assert not ids & set(mine.reasons)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "line 1: no column 'instance'"),
        ("instance\nlocomo/conv-26/1\n", "line 1: no column 'reason'"),
        ("instance,reason\n", "no instance in it"),
        ("instance,reason\nlocomo/conv-26/0,x\n", "line 2: 'locomo/conv-26/0' is no instance id"),
        ("instance,reason\n=HYPERLINK(1),x\n", "line 2: '=HYPERLINK(1)' is no instance id"),
        ("instance,reason\nlocomo/a/1,x\nlocomo/a/1,y\n", "line 3: locomo/a/1 is there twice"),
        ('instance,reason\n"locomo/a/1,x\n', "not CSV"),
    ],
)
def test_a_damaged_list_is_one_line_with_the_file(home: Path, text: str, complaint: str) -> None:
    file = own(home, "mine", text)
    (problem,) = exclusions.problems()
    assert problem.startswith(str(file))
    assert complaint in problem
    assert "\n" not in problem
    # The others can still be had, and the damaged one isn't taken for one that isn't there.
    assert list(exclusions.lists()) == [WRONG_GOLD, WRONG_EVIDENCE]
    with pytest.raises(DataError, match="mine"):
        exclusions.get("mine")


def test_what_is_no_text_or_too_long_is_a_line_too(home: Path) -> None:
    own(home, "mine", "").write_bytes(b"\xff\xfe\x00")
    own(home, "long", "instance,reason\n" + "x" * 1_000_001)
    assert [problem.split(": ", 1)[1] for problem in exclusions.problems()] == [
        "more than 1 MB; a list holds instance ids and short reasons",
        "isn't UTF-8 text; save it as UTF-8",
    ]


def test_a_bundled_name_cannot_be_taken(home: Path) -> None:
    own(home, WRONG_GOLD, "instance,reason\nlocomo/conv-26/1,x\n")
    assert len(exclusions.get(WRONG_GOLD).reasons) == 99
    (problem,) = exclusions.problems()
    assert "give the file another name" in problem


@pytest.mark.parametrize("name", ["nothing", "../secret", ""])
def test_an_unknown_list_names_the_known_ones(home: Path, name: str) -> None:
    (home.parent / "secret.csv").write_text("instance,reason\nlocomo/a/1,x\n")
    with pytest.raises(UsageError, match="locomo-wrong-gold"):
        exclusions.get(name)


# In a study --------------------------------------------------------------------------------------------------------


def test_a_study_without_lists_keeps_its_id() -> None:
    """The digest of a study from before there were lists, worked out then."""
    study = Study(models=("smollm2-135m",))
    assert "exclude" not in study.identity()
    assert study_hash(study, {"data": "x"}).startswith(BEFORE)


def test_lists_belong_to_the_study(home: Path) -> None:
    own(home, "mine", "instance,reason\nlocomo/sample-1/2,x\n")
    plain = {"models": ["smollm2-135m"], "memories": ["base"], "data": "sample"}
    whole = prepare(make_study(plain))
    less = prepare(make_study(plain | {"exclude": ["mine"]}))
    assert len(whole.instances) - len(less.instances) == 1
    assert "exclusions" not in whole.provenance
    assert less.provenance["exclusions"] == {"mine": exclusions.get("mine").sha256}
    assert less.run_id != whole.run_id
    # Another list under the same name is another study.
    own(home, "mine", "instance,reason\nlocomo/sample-1/3,x\n")
    assert prepare(make_study(plain | {"exclude": ["mine"]})).run_id != less.run_id
    with pytest.raises(UsageError, match="no exclusion list 'other'"):
        prepare(make_study(plain | {"exclude": ["other"]}))
