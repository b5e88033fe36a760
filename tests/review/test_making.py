"""Reviews of a run: which items, what reviewers see of them, and spot checks among them."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from sqlalchemy import delete, update

from opbench.benchmarks import load
from opbench.errors import UsageError
from opbench.review.assigning import next_task
from opbench.review.checks import default_checks, read_checks
from opbench.review.deciding import items_frame, progress
from opbench.review.making import create, pairs_of, plan
from opbench.review.rated import rated
from opbench.store import schema as s
from opbench.store.database import Store
from opbench.store.record import sha256_of
from opbench.store.review_answers import answers_frame
from opbench.store.reviews import find_review, get_review, item_content, rename_review, review_list
from tests.review.made import BASE, RAG, RUN, SPEC, make_review, people, say, write_run

FACT = "op/sample-1/Ottilie/fact/1"


def test_an_item_shows_profile_and_memories_with_the_retrieved_ones_first(lite: Store) -> None:
    review = make_review(lite)
    content = item_content(lite, review, FACT)
    known = load("sample").profiles["sample-1/Ottilie"]
    assert (content.profile, content.topics) == (known.profile, known.topics)
    assert (content.base, content.memory) == (f"plain {FACT}", f"personal {FACT}")
    first, *others = content.memories
    assert (first.text, first.date, first.relevant, first.fact) == (
        "memory of sample-1/Ottilie",
        "9 May 2024",
        True,
        False,
    )
    assert tuple(each.text for each in others) == known.observations
    assert all(each.fact and not each.relevant for each in others)
    assert content.context == ("a kept line",)
    assert content.memory_sha256 == sha256_of(f"personal {FACT}")


def test_a_review_outlives_its_run(lite: Store) -> None:
    review = make_review(lite)
    with lite.begin() as connection:
        connection.execute(delete(s.runs))
    (ann,) = people(lite, review, "ann")
    assert say(lite, ann)[0].content.base.startswith("plain")


def test_what_has_no_pair_or_no_words_is_left_out_and_said(lite: Store) -> None:
    write_run(lite, skip=(FACT,))
    other = "op/sample-1/Ottilie/fact/2"
    r = s.records.c
    with lite.begin() as connection:
        empty = (r.instance_id == other, r.response.startswith("plain"))
        connection.execute(update(s.records).where(*empty).values(response="<think>hm</think>"))
    made = plan(lite, RUN, SPEC)
    assert len(made.items) == 56
    assert made.left_out == {"a configuration has no response to it": 1, "a response is empty": 1}
    assert made.build_id is None


def test_a_limit_is_spread_over_users_and_subtypes(lite: Store) -> None:
    write_run(lite)
    items = plan(lite, RUN, SPEC.model_copy(update={"limit": 12})).items
    assert max(Counter((item.user, item.subtype) for item in items).values()) <= 2
    assert {item.subtype for item in plan(lite, RUN, SPEC.model_copy(update={"subtypes": ("fact",)})).items} == {"fact"}


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"memory": BASE}, "sets BASE against a memory system"),
        ({"memory": ("m", "mem0", "none")}, "has no configuration m · mem0 · none"),
        ({"subtypes": ("facts",)}, "no subtype 'facts'"),
    ],
)
def test_settings_that_cant_be(lite: Store, fields: dict[str, object], fault: str) -> None:
    write_run(lite)
    with pytest.raises(UsageError, match=fault):
        plan(lite, RUN, SPEC.model_copy(update=fields))


def test_a_run_of_other_data_is_refused(lite: Store) -> None:
    write_run(lite)
    with lite.begin() as connection:
        connection.execute(update(s.runs).values(provenance={"data": {"opbench/x.json": "0"}}))
    with pytest.raises(UsageError, match="OPBENCH_DATA"):
        plan(lite, RUN, SPEC)


def test_pairs_of_a_run(lite: Store) -> None:
    write_run(lite)
    assert pairs_of(lite, RUN) == [(BASE, RAG)]


def test_reviews_are_found_by_id_its_beginning_and_name(lite: Store) -> None:
    with pytest.raises(UsageError, match="no review in this store yet"):
        find_review(lite, None)
    review = make_review(lite)
    assert {find_review(lite, wanted) for wanted in (None, review, review[:5], "first look")} == {review}
    rename_review(lite, review, " second  look ")
    assert get_review(lite, review).name == "second look"
    with pytest.raises(UsageError, match="no review 'first look'"):
        find_review(lite, "first look")
    (row,) = review_list(lite)
    assert (row.items, row.checks, row.spec.memory) == (58, 0, RAG)


def test_spot_checks_come_one_in_so_many_and_decide_nothing(lite: Store) -> None:
    """Of 16 items that somebody is given at one in four, four are spot checks, one in each four."""
    write_run(lite)
    spec = SPEC.model_copy(update={"check_every": 4})
    review = create(lite, RUN, spec, name="r", maker="ed", checks=default_checks())
    assert (get_review(lite, review).items, get_review(lite, review).checks) == (58, 8)
    checks = {check.item: check.known for check in default_checks()}
    crowd = people(lite, review, "ann", "bob", "cat")
    for who in crowd:
        given = [say(lite, who)[0].item in checks for _ in range(16)]
        assert [sum(given[n : n + 4]) for n in range(0, 16, 4)] == [1, 1, 1, 1]
    said = answers_frame(lite, review)
    assert (
        dict(zip(said["item"], said["known"], strict=True)).items()
        >= {item: known for item, known in checks.items() if item in set(said["item"])}.items()
    )
    state = progress(lite, review)
    assert (state.items, state.answers, state.checks) == (58, 36, 12)
    assert items_frame(lite, review).query("known.notna()")["decision"].isna().all()
    # All three may answer the same spot check.
    assert said[said["known"].notna()].groupby("item")["reviewer"].nunique().max() >= 2


def test_a_spot_check_looks_like_any_item(lite: Store) -> None:
    checks = default_checks()
    assert Counter(check.known for check in checks) == {"memory": 5, "neither": 3}
    for check in checks:
        assert check.item.startswith("op/")
        assert check.content.profile
        assert check.content.memories


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("{", "checks.jsonl, line 2: no JSON"),
        (json.dumps({"item": "x"}), "checks.jsonl, line 2: known: Field required"),
        (json.dumps({"item": "x", "known": "perhaps"}), "line 2: known"),
    ],
)
def test_a_damaged_file_of_spot_checks_is_told_by_its_line(line: str, fault: str) -> None:
    with pytest.raises(UsageError, match=fault):
        read_checks("\n" + line, "checks.jsonl")


def test_scores_become_what_judges_are_set_against(lite: Store) -> None:
    write_run(lite)
    spec = SPEC.model_copy(update={"limit": 2, "check_every": 2})
    review = create(lite, RUN, spec, name="r", maker="ed", checks=default_checks())
    for who, score in zip(people(lite, review, "ann", "bob"), (0.25, 0.75), strict=True):
        while next_task(lite, who) is not None:
            say(lite, who, base_score=1.0, memory_score=score)
    found = rated(lite, review)
    assert len(found) == 4
    base, memory = found[:2]
    assert base.response.pair == memory.response.pair == items_frame(lite, review)["item"][0]
    assert (base.people, memory.people) == (1.0, 0.5)
    assert memory.human == (("ann", 0.25), ("bob", 0.75))
    assert (base.response.memories, base.response.context) == ((), ())
    assert memory.response.context == ("a kept line",)
    assert memory.response.facts == load("sample").profiles[memory.response.user].observations
