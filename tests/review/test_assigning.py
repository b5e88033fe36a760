"""Who gets which item: two independent places, balance, giving back, and many people at once."""

from __future__ import annotations

import threading
from collections import Counter

import pytest
from sqlalchemy import select, update

from opbench.errors import UsageError
from opbench.review.answering import answer, undo
from opbench.review.assigning import next_task, outlook, release
from opbench.review.deciding import items_frame, progress
from opbench.review.links import leave, renew, set_role
from opbench.review.spec import Said
from opbench.store import schema as s
from opbench.store.database import Store
from opbench.store.review_answers import answers_frame
from opbench.store.reviews import close_review, delete_review, get_review, reopen_review
from tests.review.made import make_review, people, press, say


def _held(store: Store) -> Counter[str]:
    g = s.review_assignments.c
    with store.begin() as connection:
        return Counter(connection.scalars(select(g.item).where(g.released_at.is_(None))))


def test_what_is_in_hand_comes_again_until_it_is_answered(lite: Store) -> None:
    (ann,) = people(lite, make_review(lite), "ann")
    first, again = next_task(lite, ann), next_task(lite, ann)
    assert first is not None
    assert again is not None
    assert (first.item, first.a, first.b) == (again.item, again.a, again.b)
    assert first.press != again.press
    press(lite, ann, again)
    following = next_task(lite, ann)
    assert following is not None
    assert following.item != first.item


def test_two_people_answer_every_item_and_nobody_the_same_twice(lite: Store) -> None:
    review = make_review(lite, limit=6)
    ann, bob, cat = people(lite, review, "ann", "bob", "cat")
    for _ in range(4):
        for who in (ann, bob, cat):
            say(lite, who)
    assert [next_task(lite, who) for who in (ann, bob, cat)] == [None, None, None]
    frame = answers_frame(lite, review)
    assert len(frame) == 12
    assert set(frame.groupby("item")["reviewer"].nunique()) == {2}
    assert (progress(lite, review).accepted, progress(lite, review).missing) == (6, 0)


@pytest.mark.parametrize("people_at_once", [12])
def test_many_people_at_once_lose_nothing_and_share_nothing(store: Store, people_at_once: int) -> None:
    """12 people press as fast as they can, each answer twice with one mark; every answer is there once, and no item has
    more or fewer than its two places."""
    review = make_review(store, limit=30)
    crowd = people(store, review, *(f"p{n}" for n in range(people_at_once)))
    given: list[tuple[str, str]] = []
    faults: list[BaseException] = []
    start = threading.Barrier(people_at_once)

    def work(who: str) -> None:
        try:
            start.wait()
            while (task := next_task(store, who)) is not None:
                said = Said(verdict="memory", seconds=1.0)
                first = answer(store, who, task.item, task.press, said)
                again = answer(store, who, task.item, task.press, said)
                assert (first.repeated, again.repeated) == (False, True)
                given.append((who, task.item))
        except BaseException as fault:  # noqa: BLE001 - told below, in the test's own thread
            faults.append(fault)

    threads = [threading.Thread(target=work, args=(who,)) for who in crowd]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    assert len(given) == len(set(given)) == 2 * 30
    assert set(Counter(item for _, item in given).values()) == {2}
    assert len(answers_frame(store, review)) == 60
    assert progress(store, review).accepted == 30


def test_one_press_that_arrives_in_many_threads_is_one_answer(store: Store) -> None:
    review = make_review(store)
    (ann,) = people(store, review, "ann")
    task = next_task(store, ann)
    assert task is not None
    start, told = threading.Barrier(8), []

    def work() -> None:
        start.wait()
        told.append(press(store, ann, task).repeated)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(told) == [False] + [True] * 7
    assert len(answers_frame(store, review)) == 1


def test_one_person_in_many_tabs_gets_one_item(store: Store) -> None:
    (ann,) = people(store, make_review(store), "ann")
    start, told = threading.Barrier(8), []

    def work() -> None:
        start.wait()
        told.append(next_task(store, ann))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert None not in told
    assert len({task.item for task in told if task}) == 1
    assert sum(_held(store).values()) == 1


def test_each_persons_items_have_the_reviews_proportions(lite: Store) -> None:
    """The sample has 20 repetition questions of 58 and 29 questions of each user: of somebody's first 29 items 10 are
    repetition and 14 or 15 each user's; a tenth of the way is as balanced."""
    review = make_review(lite, per_item=1)
    ann, bob = people(lite, review, "ann", "bob")
    for _ in range(29):
        for who in (ann, bob):
            say(lite, who)
    frame = answers_frame(lite, review)
    for _, own in frame.groupby("reviewer"):
        assert Counter(own["subtype"])["repetition"] == pytest.approx(10, abs=1)
        assert Counter(own["user"])["sample-1/Ottilie"] == pytest.approx(14.5, abs=1.5)
        assert own["subtype"].iloc[:8].nunique() == 6


def test_a_leavers_unfinished_item_returns_and_their_answers_stay(store: Store) -> None:
    review = make_review(store, limit=3)
    ann, bob, cat = people(store, review, "ann", "bob", "cat")
    say(store, ann)
    held = next_task(store, ann)
    assert held is not None
    assert leave(store, ann) == 1
    assert leave(store, ann) == 0
    with pytest.raises(UsageError, match="ann has left"):
        next_task(store, ann)
    with pytest.raises(UsageError, match="ann has left"):
        press(store, ann, held)
    with pytest.raises(UsageError, match="ann has left"):
        undo(store, ann)
    for who in (bob, cat):
        while next_task(store, who) is not None:
            say(store, who)
    state = progress(store, review)
    assert (state.accepted, state.answers, state.in_hand) == (3, 6, 0)
    assert set(answers_frame(store, review).groupby("item").size()) == {2}


def test_what_is_held_too_long_goes_to_the_next_and_a_late_answer_counts_beside_theirs(store: Store) -> None:
    review = make_review(store, limit=1, hours=1.0)
    ann, bob, cat = people(store, review, "ann", "bob", "cat")
    task = next_task(store, ann)
    assert task is not None
    say(store, bob)
    assert next_task(store, cat) is None
    assert outlook(store, cat).elsewhere == 1
    g = s.review_assignments.c
    with store.begin() as connection:
        connection.execute(
            update(s.review_assignments).where(g.reviewer_id == ann).values(assigned_at=g.assigned_at - 3601)
        )
    assert (progress(store, review).in_hand, progress(store, review).stale) == (1, 1)
    say(store, cat)
    assert progress(store, review).accepted == 1
    assert press(store, ann, task, task.choice("neither")).decision == "disputed"
    assert list(answers_frame(store, review)["verdict"]) == ["memory", "memory", "neither"]
    assert progress(store, review).answers == 3


def test_who_comes_back_late_keeps_the_item_where_nobody_took_it(lite: Store) -> None:
    review = make_review(lite, limit=1, hours=1.0)
    (ann,) = people(lite, review, "ann")
    task = next_task(lite, ann)
    assert task is not None
    with lite.begin() as connection:
        connection.execute(update(s.review_assignments).values(assigned_at=s.review_assignments.c.assigned_at - 3601))
    again = next_task(lite, ann)
    assert again is not None
    assert again.item == task.item
    assert progress(lite, review).stale == 0


def test_what_was_given_back_comes_last(lite: Store) -> None:
    review = make_review(lite, limit=3)
    (ann,) = people(lite, review, "ann")
    passed = next_task(lite, ann)
    assert passed is not None
    assert release(lite, ann) == 1
    items = []
    while (task := next_task(lite, ann)) is not None:
        press(lite, ann, task)
        items.append(task.item)
    assert len(items) == 3
    assert items[-1] == passed.item


def test_the_order_of_the_responses_is_random_by_item_and_reviewer(lite: Store) -> None:
    review = make_review(lite, limit=40, per_item=2)
    ann, bob = people(lite, review, "ann", "bob")
    shown: dict[tuple[str, str], bool] = {}
    for who in (ann, bob):
        for _ in range(40):
            task, _ = say(lite, who)
            assert {task.a, task.b} == {task.content.base, task.content.memory}
            shown[who, task.item] = task.a == task.content.base
    of_each = [sum(shown[who, item] for who_, item in shown if who_ == who) for who in (ann, bob)]
    # 40 throws of a coin are between 8 and 32 but in one of 20,000 cases.
    assert all(8 <= n <= 32 for n in of_each)
    agreeing = sum(shown[ann, item] == shown[bob, item] for who, item in shown if who == ann)
    assert 8 <= agreeing <= 32


def test_the_choice_between_a_and_b_becomes_the_verdict_and_the_scores_follow(lite: Store) -> None:
    review = make_review(lite, limit=6)
    (ann,) = people(lite, review, "ann")
    sides = set()
    while (task := next_task(lite, ann)) is not None:
        base_first = task.a == task.content.base
        sides.add(base_first)
        answer(lite, ann, task.item, task.press, task.saying("b", a=0.25, b=0.75))
        row = answers_frame(lite, review).iloc[-1]
        assert row["verdict"] == ("memory" if base_first else "base")
        assert (row["base_score"], row["memory_score"]) == ((0.25, 0.75) if base_first else (0.75, 0.25))
        assert row["first"] == ("base" if base_first else "memory")


def test_a_closed_review_gives_and_takes_nothing_and_opens_again(store: Store) -> None:
    review = make_review(store, limit=2)
    (ann,) = people(store, review, "ann")
    task = next_task(store, ann)
    assert task is not None
    close_review(store, review)
    closed = get_review(store, review).closed_at
    close_review(store, review)
    assert get_review(store, review).closed_at == closed
    with pytest.raises(UsageError, match="is closed"):
        next_task(store, ann)
    with pytest.raises(UsageError, match="is closed"):
        press(store, ann, task)
    reopen_review(store, review)
    press(store, ann, task)
    delete_review(store, review)
    with pytest.raises(UsageError, match="don't take part in this review any more"):
        next_task(store, ann)
    with store.begin() as connection:
        assert connection.execute(select(s.review_answers)).all() == []


def test_an_item_that_was_never_given_cant_be_answered_nor_anothers_press_be_used(lite: Store) -> None:
    review = make_review(lite)
    ann, bob = people(lite, review, "ann", "bob")
    task = next_task(lite, ann)
    assert task is not None
    with pytest.raises(UsageError, match="wasn't given to you"):
        press(lite, bob, task)
    press(lite, ann, task)
    own = next_task(lite, bob)
    assert own is not None
    with pytest.raises(UsageError, match="belongs to another answer"):
        answer(lite, bob, own.item, task.press, Said(verdict="memory"))
    with pytest.raises(UsageError, match="say which response"):
        answer(lite, bob, own.item, own.press, Said(verdict=None))


def test_undo_takes_the_newest_answer_back_and_the_item_comes_first_with_what_was_said(store: Store) -> None:
    review = make_review(store)
    (ann,) = people(store, review, "ann")
    first, _ = say(store, ann)
    second, _ = say(store, ann, "neither", comment="hm", memory_score=0.5, seconds=40.0)
    waiting = next_task(store, ann)
    assert waiting is not None
    assert undo(store, ann, second.item) == second.item
    assert undo(store, ann, second.item) is None
    again = next_task(store, ann)
    assert again is not None
    assert again.item == second.item
    # With the seconds that it took: the time goes on from there.
    assert again.said == Said(verdict="neither", comment="hm", memory_score=0.5, seconds=40.0)
    assert len(answers_frame(store, review)) == 1
    press(store, ann, again)
    assert undo(store, ann) == second.item
    assert undo(store, ann) == first.item
    assert undo(store, ann) is None
    assert answers_frame(store, review).empty
    items: set[str] = set()
    while (task := next_task(store, ann)) is not None and len(items) < 4:
        items.add(task.item)
        press(store, ann, task)
    assert {first.item, second.item, waiting.item} < items


def test_the_senior_gets_what_is_disputed_and_nothing_that_they_reviewed(store: Store) -> None:
    review = make_review(store, limit=4)
    ann, bob = people(store, review, "ann", "bob")
    sue, sid = people(store, review, "sue", "sid", role="senior")
    assert next_task(store, sue) is None
    assert outlook(store, sue).elsewhere == 4
    for _ in range(4):
        say(store, ann, "memory", comment="A is too warm")
        say(store, bob, "neither")
    assert outlook(store, sue).free == 4
    task = next_task(store, sue)
    assert task is not None
    assert task.senior
    (note,) = task.notes
    said = answers_frame(store, review).query("item == @task.item and reviewer == 'ann'").iloc[0]
    assert (note.comment, note.flagged, note.swapped) == ("A is too warm", False, said["first"] != task.first)
    other = next_task(store, sid)
    assert other is not None
    assert other.item != task.item
    assert press(store, sue, task, task.choice("memory")).decision == "accepted"
    assert press(store, sid, other, other.choice("both")).decision == "rejected"
    with pytest.raises(UsageError, match="the adjudicator has decided"):
        undo(store, ann, task.item)
    assert undo(store, sue) == task.item
    assert items_frame(store, review).set_index("item")["decision"][task.item] == "disputed"
    set_role(store, bob, "senior")
    assert next_task(store, bob) is None


def test_what_isnt_disputed_any_more_leaves_the_seniors_hand(lite: Store) -> None:
    review = make_review(lite, limit=1)
    ann, bob = people(lite, review, "ann", "bob")
    (sue,) = people(lite, review, "sue", role="senior")
    say(lite, ann, "memory")
    say(lite, bob, "neither")
    assert next_task(lite, sue) is not None
    undo(lite, bob)
    assert next_task(lite, sue) is None
    say(lite, bob, "memory")
    assert next_task(lite, sue) is None
    assert progress(lite, review).accepted == 1


def test_who_is_made_senior_gives_back_what_they_had_and_cant_answer_it(lite: Store) -> None:
    review = make_review(lite)
    (ann,) = people(lite, review, "ann")
    task = next_task(lite, ann)
    assert task is not None
    set_role(lite, ann, "senior")
    assert progress(lite, review).in_hand == 0
    with pytest.raises(UsageError, match="another adjudicator"):
        press(lite, ann, task)


def test_who_left_can_come_back(lite: Store) -> None:
    review = make_review(lite, limit=2)
    (ann,) = people(lite, review, "ann")
    done, _ = say(lite, ann)
    leave(lite, ann)
    assert renew(lite, ann)
    task = next_task(lite, ann)
    assert task is not None
    assert task.item != done.item
