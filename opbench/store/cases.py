"""Saved cases and case books: put into the store, read back, listed, renamed, deleted.

A row that can't be read any more, damaged or written by a newer version, is told in a sentence of its own; it never
hides the others. A book names its cases; one that was deleted since is shown as gone.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import SecretStr, TypeAdapter, ValidationError
from sqlalchemy import ColumnElement, Connection, Row, Table, Text, cast, delete, select, update

from opbench.cases.outcome import Ablation, Outcome
from opbench.cases.saved import Book, BookRow, CaseRow, Entry, SavedCase, column_label, key_free, to_keep, wrong_place
from opbench.cases.spec import CaseSpec
from opbench.errors import StoreError, UsageError
from opbench.store import schema as s
from opbench.store.database import Store
from opbench.store.finding import the_one

LONGEST_NAME = 120
LONGEST_NOTE = 10_000
MOST_CASES_IN_A_BOOK = 200
_JSON = ("spec", "outcomes", "ablations", "provenance")
_IDS = TypeAdapter(tuple[str, ...])
_WHAT = {"cases": "saved case", "case_books": "case book"}


def save_case(
    store: Store,
    *,
    name: str,
    note: str = "",
    spec: CaseSpec,
    outcomes: Sequence[Outcome],
    ablations: Sequence[Ablation] = (),
    provenance: Mapping[str, Any],
    maker: str,
    keys: Mapping[str, SecretStr] | None = None,
) -> str:
    """Keep a case as it is; returns its id. No key goes into it: neither of this process nor of `keys`.

    Raises:
        UsageError: no name, one that is too long, a column is still at work, or the parts don't belong together.
    """
    if any(not outcome.over for outcome in outcomes):
        raise UsageError("the case is still at work. Wait until every column is over, or cancel it; then save it.")
    values = to_keep(spec, outcomes, ablations, provenance, keys or {})
    row = {**_head(name, note, maker, keys or {}), **values}
    try:
        _case_of(row)
    except ValidationError as error:
        raise UsageError(f"the case can't be kept, since it couldn't be read back: {wrong_place(error)}.") from None
    with store.begin() as connection:
        connection.execute(s.cases.insert().values(**row))
    return str(row["id"])


def load_case(store: Store, case_id: str) -> SavedCase:
    """A saved case.

    Raises:
        UsageError: there is none of that id.
        StoreError: it can't be read any more; says where, and the mend.
    """
    with store.begin() as connection:
        rows = _case_rows(connection, s.cases.c.id == case_id)
    if not rows:
        raise UsageError(f"no saved case '{case_id[:40]}'. It was deleted, or is in another store.")
    return _read(rows[0])


def list_cases(store: Store) -> list[CaseRow]:
    """All saved cases, newest first."""
    with store.begin() as connection:
        rows = _case_rows(connection)
    return [_listed(row) for row in rows]


def rename_case(store: Store, case_id: str, name: str, *, note: str | None = None) -> None:
    """Give a case another name, and another note where one is given.

    Raises:
        UsageError: no such case, no name, or one that is too long.
    """
    _rename(store, s.cases, case_id, name, note)


def delete_case(store: Store, case_id: str) -> None:
    """Delete a case. Books that name it show it as gone; its calls stay in the call store.

    Raises:
        UsageError: no such case.
    """
    _delete(store, s.cases, case_id)


def find_case(store: Store, wanted: str) -> str:
    """The id of the case whose id begins with, or whose name is, `wanted`.

    Raises:
        UsageError: none, or more than one.
    """
    return _find(store, s.cases, wanted)


def save_book(store: Store, *, name: str, note: str = "", cases: Sequence[str], maker: str) -> str:
    """Make a book of cases, by their ids in order; returns its id.

    Raises:
        UsageError: no name, one that is too long, no case, too many, or one that isn't there.
    """
    ids = _ordered(cases)
    row = {**_head(name, note, maker, {}), "cases": ids}
    with store.begin() as connection:
        _must_be_there(connection, ids, ())
        connection.execute(s.case_books.insert().values(**row))
    return str(row["id"])


def load_book(store: Store, book_id: str) -> Book:
    """A book with its cases in order; a case that is gone or damaged is an entry with its problem.

    Raises:
        UsageError: there is none of that id.
        StoreError: it can't be read any more.
    """
    with store.begin() as connection:
        rows = _book_rows(connection, s.case_books.c.id == book_id)
        if not rows:
            raise UsageError(f"no case book '{book_id[:40]}'. It was deleted, or is in another store.")
        row = rows[0]
        ids = _ids(row)
        found = {case.id: case for case in _case_rows(connection, s.cases.c.id.in_(ids))}
    entries = tuple(_entry(each, found.get(each)) for each in ids)
    return Book(row.id, row.name, row.note, row.maker, row.made_at, entries)


def list_books(store: Store) -> list[BookRow]:
    """All case books, newest first."""
    with store.begin() as connection:
        rows = _book_rows(connection)
        there = set(connection.scalars(select(s.cases.c.id)))
    books = []
    for row in rows:
        head = (row.id, row.name, row.note, row.maker, row.made_at)
        try:
            ids = _ids(row)
            books.append(BookRow(*head, ids, sum(each not in there for each in ids)))
        except StoreError as error:
            books.append(BookRow(*head, damage=str(error)))
    return books


def rename_book(store: Store, book_id: str, name: str, *, note: str | None = None) -> None:
    """Give a book another name, and another note where one is given.

    Raises:
        UsageError: no such book, no name, or one that is too long.
    """
    _rename(store, s.case_books, book_id, name, note)


def set_book(store: Store, book_id: str, cases: Sequence[str]) -> None:
    """Set a book's cases, by their ids in order. Those that it had and that are gone may stay in it.

    Raises:
        UsageError: no such book, no case, too many, or a new one that isn't there.
    """
    ids = _ordered(cases)
    with store.begin() as connection:
        rows = _book_rows(connection, s.case_books.c.id == book_id)
        if not rows:
            raise UsageError(f"no case book '{book_id[:40]}'. It was deleted meanwhile.")
        try:
            had = _ids(rows[0])
        except StoreError:
            # A new list mends a damaged one.
            had = ()
        _must_be_there(connection, ids, had)
        connection.execute(update(s.case_books).where(s.case_books.c.id == book_id).values(cases=ids))


def delete_book(store: Store, book_id: str) -> None:
    """Delete a book; its cases stay.

    Raises:
        UsageError: no such book.
    """
    _delete(store, s.case_books, book_id)


def find_book(store: Store, wanted: str) -> str:
    """The id of the book whose id begins with, or whose name is, `wanted`.

    Raises:
        UsageError: none, or more than one.
    """
    return _find(store, s.case_books, wanted)


def _head(name: str, note: str, maker: str, keys: Mapping[str, SecretStr]) -> dict[str, Any]:
    clear = key_free(keys)
    return {
        "id": secrets.token_hex(8),
        "name": _name(clear(name)),
        "note": _note(clear(note)),
        "maker": _line(clear(maker))[:LONGEST_NAME],
        "made_at": time.time(),
    }


def _line(text: str) -> str:
    return " ".join(text.split())


def _name(text: str) -> str:
    line = _line(text)
    if not line:
        raise UsageError("the name is empty: give one.")
    if len(line) > LONGEST_NAME:
        raise UsageError(f"the name has {len(line):,} signs; at most {LONGEST_NAME}.")
    return line


def _note(text: str) -> str:
    if len(text) > LONGEST_NOTE:
        raise UsageError(f"the note has {len(text):,} signs; at most {LONGEST_NOTE:,}.")
    return text.strip()


def _ordered(cases: Sequence[str]) -> list[str]:
    ids = list(dict.fromkeys(cases))
    if not ids:
        raise UsageError("a case book needs at least one case.")
    if len(ids) > MOST_CASES_IN_A_BOOK:
        raise UsageError(f"{len(ids):,} cases in one book; at most {MOST_CASES_IN_A_BOOK}.")
    return ids


def _must_be_there(connection: Connection, ids: Sequence[str], had: Sequence[str]) -> None:
    there = {*connection.scalars(select(s.cases.c.id).where(s.cases.c.id.in_(ids))), *had}
    for each in ids:
        if each not in there:
            raise UsageError(f"no saved case '{each[:40]}'. See 'opbench case list'.")


def _rename(store: Store, table: Table, wanted: str, name: str, note: str | None) -> None:
    clear = key_free({})
    values = {"name": _name(clear(name))} | ({} if note is None else {"note": _note(clear(note))})
    with store.begin() as connection:
        if not connection.execute(update(table).where(table.c.id == wanted).values(**values)).rowcount:
            raise UsageError(f"no {_WHAT[table.name]} '{wanted[:40]}'. It was deleted meanwhile.")


def _delete(store: Store, table: Table, wanted: str) -> None:
    with store.begin() as connection:
        if not connection.execute(delete(table).where(table.c.id == wanted)).rowcount:
            raise UsageError(f"no {_WHAT[table.name]} '{wanted[:40]}'. It was deleted meanwhile.")


def _find(store: Store, table: Table, wanted: str) -> str:
    with store.begin() as connection:
        rows = connection.execute(select(table.c.id, table.c.name).order_by(table.c.made_at.desc(), table.c.id)).all()
    return the_one(rows, wanted, _WHAT[table.name])


def _case_rows(connection: Connection, *where: ColumnElement[bool]) -> Sequence[Row[Any]]:
    c = s.cases.c
    # As text: one value that isn't JSON would else fail the whole answer.
    texts = [cast(c[name], Text).label(name) for name in _JSON]
    query = select(c.id, c.name, c.note, c.maker, c.made_at, *texts).where(*where)
    return connection.execute(query.order_by(c.made_at.desc(), c.id)).all()


def _book_rows(connection: Connection, *where: ColumnElement[bool]) -> Sequence[Row[Any]]:
    c = s.case_books.c
    query = select(c.id, c.name, c.note, c.maker, c.made_at, cast(c.cases, Text).label("cases")).where(*where)
    return connection.execute(query.order_by(c.made_at.desc(), c.id)).all()


def _read(row: Row[Any]) -> SavedCase:
    place = ""
    try:
        fields = dict(row._mapping)
        for place in _JSON:
            fields[place] = json.loads(fields[place])
        return _case_of(fields)
    except ValidationError as error:
        told = wrong_place(error)
    except (ValueError, TypeError, RecursionError):
        told = f"{place} isn't JSON"
    raise StoreError(
        f"saved case {row.id} '{row.name[:40]}' can't be read: {told[:200]}. It is damaged, or a newer version wrote "
        f"it: update the workbench, or delete it with 'opbench case delete {row.id}'."
    ) from None


def _case_of(fields: Mapping[str, Any]) -> SavedCase:
    return SavedCase.model_validate(dict(fields))


def _listed(row: Row[Any]) -> CaseRow:
    head = (row.id, row.name, row.note, row.maker, row.made_at)
    try:
        case = _read(row)
    except StoreError as error:
        return CaseRow(*head, damage=str(error))
    spec = case.spec
    return CaseRow(
        *head,
        question=spec.question,
        user=spec.user,
        instance=spec.instance,
        published=spec.published,
        columns=tuple(column_label(spec, number) for number in range(len(spec.columns))),
        scores=tuple(outcome.score for outcome in case.outcomes),
        left_one_out=len(case.ablations),
        marks=case.marks,
    )


def _ids(row: Row[Any]) -> tuple[str, ...]:
    try:
        return _IDS.validate_json(row.cases)
    except ValidationError as error:
        raise StoreError(
            f"case book {row.id} '{row.name[:40]}' can't be read: cases: {wrong_place(error)[:200]}. Set its cases "
            f"again, or delete it with 'opbench case book delete {row.id}'."
        ) from None


def _entry(case_id: str, row: Row[Any] | None) -> Entry:
    if row is None:
        return Entry(case_id, None, f"case {case_id} was deleted")
    try:
        return Entry(case_id, _read(row))
    except StoreError as error:
        return Entry(case_id, None, str(error))
