"""Saved cases and books in a store: what goes in comes out, on both databases, and one damaged row hides no other."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from opbench.cases.outcome import Outcome
from opbench.errors import StoreError, UsageError
from opbench.store.cases import (
    LONGEST_NAME,
    LONGEST_NOTE,
    delete_book,
    delete_case,
    find_book,
    find_case,
    list_books,
    list_cases,
    load_book,
    load_case,
    rename_book,
    rename_case,
    save_book,
    save_case,
    set_book,
)
from opbench.store.database import Store, open_store
from tests.cases.made import ABLATION, OUTCOMES, PROVENANCE, QUESTION, SPEC, USER


def save(store: Store, name: str = "Bread", note: str = "") -> str:
    return save_case(
        store,
        name=name,
        note=note,
        spec=SPEC,
        outcomes=OUTCOMES,
        ablations=(ABLATION,),
        provenance=PROVENANCE,
        maker="ann",
    )


def damage(store: Store, table: str, column: str, value: str, row: str) -> None:
    with store.begin() as connection:
        connection.execute(text(f"UPDATE {table} SET {column} = :v WHERE id = :id"), {"v": value, "id": row})


def test_a_case_comes_back_as_it_was(store: Store) -> None:
    case = load_case(store, save(store, "  Bread,\n again ", "why ★ it matters"))
    assert (case.name, case.note, case.maker) == ("Bread, again", "why ★ it matters", "ann")
    assert (case.spec, case.outcomes, case.ablations, case.provenance) == (SPEC, OUTCOMES, (ABLATION,), PROVENANCE)
    assert case.made_at > 1_600_000_000


def test_the_list_is_newest_first_with_scores_and_columns(store: Store) -> None:
    first, second = save(store, "first"), save(store, "second")
    rows = list_cases(store)
    assert [row.id for row in rows] == [second, first]
    assert (rows[0].question, rows[0].user, rows[0].left_one_out) == (QUESTION, USER, 1)
    assert rows[0].columns == ("m · base", "m · rag", "m · rag · reminder")
    assert rows[0].scores == (1.0, 0.25, None)
    assert rows[0].damage is None


@pytest.mark.parametrize(
    ("name", "note", "message"),
    [
        (" \n", "", "the name is empty"),
        ("x" * (LONGEST_NAME + 1), "", "121 signs; at most 120"),
        ("x", "y" * (LONGEST_NOTE + 1), "10,001 signs; at most 10,000"),
    ],
)
def test_a_name_is_asked_for_and_nothing_is_too_long(store: Store, name: str, note: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        save(store, name, note)
    assert list_cases(store) == []


def test_a_case_at_work_is_not_saved(store: Store) -> None:
    outcomes = (*OUTCOMES[:2], Outcome(state="response"))
    with pytest.raises(UsageError, match="still at work"):
        save_case(store, name="x", spec=SPEC, outcomes=outcomes, provenance={}, maker="ann")
    with pytest.raises(UsageError, match="2 outcomes for 3 columns"):
        save_case(store, name="x", spec=SPEC, outcomes=OUTCOMES[:2], provenance={}, maker="ann")


def test_names_change_and_cases_go(store: Store) -> None:
    case = save(store, note="old")
    rename_case(store, case, "Loaf")
    assert (load_case(store, case).name, load_case(store, case).note) == ("Loaf", "old")
    rename_case(store, case, "Loaf", note="new")
    assert load_case(store, case).note == "new"
    delete_case(store, case)
    assert list_cases(store) == []
    with pytest.raises(UsageError, match="deleted meanwhile"):
        delete_case(store, case)
    with pytest.raises(UsageError, match="deleted meanwhile"):
        rename_case(store, case, "x")
    with pytest.raises(UsageError, match="no saved case"):
        load_case(store, case)


def test_a_case_is_found_by_id_name_or_the_beginning_of_its_id(store: Store) -> None:
    with pytest.raises(UsageError, match="no saved case in this store yet"):
        find_case(store, "Bread")
    one, two = save(store, "Bread"), save(store, "Boat")
    assert (find_case(store, one), find_case(store, "Boat")) == (one, two)
    assert find_case(store, two[:15]) == two
    with pytest.raises(UsageError, match=f"There are: {two}, {one}"):
        find_case(store, "Bred")
    three = save(store, "Boat")
    with pytest.raises(UsageError, match=f"fits 2 saved cases: {three}, {two}"):
        find_case(store, "Boat")


@pytest.mark.parametrize("column", ["spec", "outcomes", "ablations", "provenance"])
def test_a_damaged_case_is_one_line_and_the_others_stay(store: Store, column: str) -> None:
    bad, good = save(store, "bad"), save(store, "good")
    damage(store, "cases", column, '{"surprise": 1}' if column != "provenance" else "[1]", bad)
    rows = {row.id: row for row in list_cases(store)}
    assert rows[good].damage is None
    said = rows[bad].damage or ""
    assert said.startswith(f"saved case {bad} 'bad' can't be read: {column}")
    assert said.count("\n") == 0
    assert f"opbench case delete {bad}" in said
    with pytest.raises(StoreError, match="can't be read"):
        load_case(store, bad)
    delete_case(store, bad)
    assert [row.id for row in list_cases(store)] == [good]


def test_text_that_is_no_json_hides_nothing() -> None:
    """Only SQLite takes such a value."""
    store = open_store("sqlite://")
    bad, good = save(store, "bad"), save(store, "good")
    book = save_book(store, name="both", cases=[bad, good], maker="ann")
    damage(store, "cases", "outcomes", '[{"state": ', bad)
    rows = {row.id: row.damage for row in list_cases(store)}
    assert rows[good] is None
    assert "outcomes isn't JSON" in (rows[bad] or "")
    assert [entry.problem is None for entry in load_book(store, book).entries] == [False, True]
    damage(store, "case_books", "cases", "[", book)
    assert "can't be read" in (list_books(store)[0].damage or "")
    with pytest.raises(StoreError, match=f"opbench case book delete {book}"):
        load_book(store, book)
    set_book(store, book, [good])
    assert [entry.id for entry in load_book(store, book).entries] == [good]


def test_a_book_keeps_its_order_and_shows_what_is_gone(store: Store) -> None:
    one, two, three = (save(store, name) for name in ("one", "two", "three"))
    book = save_book(store, name="For the meeting", note="in this order", cases=[three, one, three], maker="ann")
    assert [entry.id for entry in load_book(store, book).entries] == [three, one]
    set_book(store, book, [two, one, three])
    delete_case(store, one)
    read = load_book(store, book)
    assert (read.name, read.note, read.maker) == ("For the meeting", "in this order", "ann")
    assert [(entry.id, entry.problem) for entry in read.entries] == [
        (two, None),
        (one, f"case {one} was deleted"),
        (three, None),
    ]
    assert [case.name for case in read.cases] == ["two", "three"]
    (row,) = list_books(store)
    assert (row.cases, row.gone) == ((two, one, three), 1)
    # What is gone may stay where it stood, and isn't taken up anew.
    set_book(store, book, [one, two])
    set_book(store, book, [two])
    with pytest.raises(UsageError, match=f"no saved case '{one}'"):
        set_book(store, book, [one, two])


def test_books_are_named_found_and_deleted_without_their_cases(store: Store) -> None:
    case = save(store)
    with pytest.raises(UsageError, match="at least one case"):
        save_book(store, name="x", cases=[], maker="ann")
    with pytest.raises(UsageError, match="no saved case 'zzz'"):
        save_book(store, name="x", cases=[case, "zzz"], maker="ann")
    book = save_book(store, name="x", cases=[case], maker="ann")
    rename_book(store, book, "y", note="z")
    assert find_book(store, "y") == book
    assert (load_book(store, book).name, load_book(store, book).note) == ("y", "z")
    delete_book(store, book)
    assert list_books(store) == []
    assert [row.id for row in list_cases(store)] == [case]
    for gone in (
        lambda: load_book(store, book),
        lambda: delete_book(store, book),
        lambda: rename_book(store, book, "q"),
        lambda: set_book(store, book, [case]),
    ):
        with pytest.raises(UsageError, match="no case book"):
            gone()
