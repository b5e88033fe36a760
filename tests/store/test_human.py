"""Scores that people give: added, never overwritten, tied to the response that was read."""

from __future__ import annotations

import threading

import pytest

from opbench.errors import UsageError
from opbench.store.database import Store
from opbench.store.human import LONGEST_NOTE, history, human_scores, newest, rate
from opbench.store.record import read_record, sha256_of
from tests.store.found_run import BASE, FACT, RAG, REMINDER, RUN, STUDY, WHEN, write
from tests.store.test_search import write_again


@pytest.fixture(autouse=True)
def run(store: Store) -> None:
    write(store)


def test_the_history_keeps_every_entry_and_the_newest_counts(store: Store) -> None:
    rate(store, RUN, BASE, FACT, 0.2, note="first", rater="ann")
    rate(store, RUN, BASE, FACT, 0.7, note="on second thought", rater="ann")
    entries = history(store, RUN, BASE, FACT)
    assert [(entry.value, entry.note, entry.current) for entry in entries] == [
        (0.7, "on second thought", True),
        (0.2, "first", False),
    ]
    assert entries[0].made_at >= entries[1].made_at > 1_600_000_000


def test_withdrawing_is_an_entry_too(store: Store) -> None:
    rate(store, RUN, BASE, FACT, 0.2, rater="ann")
    rate(store, RUN, BASE, FACT, 0.9, rater="bob")
    rate(store, RUN, BASE, FACT, None, rater="ann")
    entries = history(store, RUN, BASE, FACT)
    assert [(entry.rater, entry.value, entry.current) for entry in entries] == [
        ("ann", None, False),
        ("bob", 0.9, True),
        ("ann", 0.2, False),
    ]


def test_scores_of_an_earlier_response_stay_as_such(store: Store) -> None:
    rate(store, RUN, BASE, FACT, 0.2, rater="ann")
    write_again(store)
    (entry,) = history(store, RUN, BASE, FACT)
    assert (entry.of_this_response, entry.current) == (False, False)
    assert entry.response_sha256 == sha256_of("It’s wet.")


def test_a_score_of_a_response_that_is_gone_is_refused(store: Store) -> None:
    read = sha256_of(read_record(store, RUN, BASE, FACT).response or "")
    write_again(store)
    with pytest.raises(UsageError, match="made again since you read it"):
        rate(store, RUN, BASE, FACT, 0.2, rater="ann", response_sha256=read)
    assert history(store, RUN, BASE, FACT) == []


@pytest.mark.parametrize("value", [-0.1, 1.01, float("nan"), float("inf")])
def test_values_outside_0_to_1_are_refused(store: Store, value: float) -> None:
    with pytest.raises(UsageError, match="from 0 to 1"):
        rate(store, RUN, BASE, FACT, value, rater="ann")


@pytest.mark.parametrize(("key", "instance"), [(REMINDER, FACT), (REMINDER, WHEN)])
def test_without_a_response_there_is_nothing_to_score(store: Store, key: tuple[str, str, str], instance: str) -> None:
    with pytest.raises(UsageError, match="no response to score"):
        rate(store, RUN, key, instance, 0.5, rater="ann")


def test_nothing_to_withdraw_no_name_and_a_long_note_are_refused(store: Store) -> None:
    rate(store, RUN, BASE, FACT, 0.5, rater="bob")
    with pytest.raises(UsageError, match="ann has no score here to withdraw"):
        rate(store, RUN, BASE, FACT, None, rater="ann")
    with pytest.raises(UsageError, match="needs a name"):
        rate(store, RUN, BASE, FACT, 0.5, rater=" ")
    with pytest.raises(UsageError, match="at most 2,000"):
        rate(store, RUN, BASE, FACT, 0.5, rater="ann", note="x" * (LONGEST_NOTE + 1))


def test_people_who_score_at_once_lose_nothing(store: Store) -> None:
    failed: list[Exception] = []

    def give(name: str) -> None:
        try:
            for value in (0.1, 0.2, 0.3):
                rate(store, RUN, BASE, FACT, value, rater=name)
        except Exception as error:  # noqa: BLE001  a thread's error would be lost
            failed.append(error)

    threads = [threading.Thread(target=give, args=(f"rater {n}",)) for n in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    entries = history(store, RUN, BASE, FACT)
    assert len(entries) == 15
    assert sorted(entry.rater for entry in entries if entry.current) == [f"rater {n}" for n in range(5)]
    assert {entry.value for entry in entries if entry.current} == {0.3}


def test_the_table_of_a_run_stands_beside_the_judge(store: Store) -> None:
    assert human_scores(store, RUN, STUDY).empty
    assert newest(store, RUN) == 0
    rate(store, RUN, BASE, FACT, 0.5, rater="ann")
    rate(store, RUN, RAG, FACT, 0.1, rater="bob", note="=1+1")
    rate(store, RUN, RAG, FACT, None, rater="bob")
    table = human_scores(store, RUN, STUDY)
    assert table["rater"].tolist() == ["bob", "bob", "ann"]
    assert table["judge_score"].tolist() == [0.2, 0.2, 0.9]
    assert table["current"].tolist() == [False, False, True]
    assert table["value"].isna().tolist() == [True, False, False]
    assert newest(store, RUN) > 0
