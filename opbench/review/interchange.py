"""A review's answers as files, out and in: CSV, JSON Lines, and the forms of Argilla and Label Studio.

CSV holds the answers alone, without texts of the benchmark. JSON Lines hold the whole review, so that it can be made
again elsewhere (`import_review`), texts included. Links and sign-ins are in neither.
"""

from __future__ import annotations

import csv
import io
import json
import re
import uuid
from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args

from pydantic import ValidationError
from sqlalchemy import select, update

from opbench.errors import UsageError
from opbench.review import argilla, label_studio
from opbench.review.entries import Entry, entry_of, flat
from opbench.review.importing import Imported, add, add_in, join
from opbench.review.spec import Content, ReviewSpec
from opbench.store import schema as s
from opbench.store.database import Store, store_time
from opbench.store.review_answers import entries
from opbench.store.reviews import SENIOR_PLACE, ItemRow, get_review, reviewers_of, save_review_in

Form = Literal["csv", "jsonl", "argilla", "label-studio"]
FORMS: tuple[Form, ...] = get_args(Form)
COLUMNS = (
    "item",
    "user",
    "subtype",
    "known",
    "reviewer",
    "role",
    "verdict",
    "base_score",
    "memory_score",
    "comment",
    "flagged",
    "seconds",
    "first",
    "made_at",
    "entry",
)
_NUMBERS = ("base_score", "memory_score", "seconds")
_ENDINGS: dict[Form, str] = {"csv": ".csv", "jsonl": ".jsonl", "argilla": ".zip", "label-studio": ".zip"}
_VERSION = 1
#: What a spreadsheet takes for the beginning of a formula, and what stands for it in a file.
_RISKY = re.compile(r"'*[=+\-@\t\r]")
_QUOTED = re.compile(r"'+[=+\-@\t\r]")
_YES, _NO = ("true", "yes", "1"), ("false", "no", "0", "")


def file_name(store: Store, review_id: str, form: Form) -> str:
    """What an export is called."""
    stem = re.sub(r"[^0-9A-Za-z]+", "-", get_review(store, review_id).name).strip("-").lower() or review_id
    what = {"csv": "answers", "jsonl": "review"}.get(form, form)
    return f"{stem[:60]}-{what}{_ENDINGS[form]}"


def export_answers(store: Store, review_id: str, form: Form) -> bytes:
    """The file. `csv` and `jsonl` hold every entry in order, those taken back too; `argilla` and `label-studio` are
    zips with the items to be answered there, in random order and with A and B for the responses.

    Raises:
        UsageError: no such review.
    """
    review = get_review(store, review_id)
    if form == "argilla":
        return argilla.export(review, _items(store, review_id))
    if form == "label-studio":
        return label_studio.export(review, _items(store, review_id))
    return (_csv(store, review_id) if form == "csv" else _jsonl(store, review_id)).encode()


def import_answers(
    store: Store,
    review_id: str,
    content: bytes,
    form: Form,
    *,
    file: str,
    replace: bool = False,
    names: Mapping[str, str] | None = None,
) -> Imported:
    """Take answers into a review; the same file again changes nothing. `names` are people's names by those in the file:
    Argilla tells ids, Label Studio ids or e-mail addresses.

    Raises:
        UsageError: the file isn't of that form, or names an item that the review doesn't have; one line with file, line
            and mend. Nothing is written then.
    """
    review = get_review(store, review_id)
    if form == "argilla":
        found = argilla.read(content, review.spec.seed, file)
    elif form == "label-studio":
        found = label_studio.read(content, review.spec.seed, file)
    elif form == "csv":
        found = list(_read_csv(_text(content, file), file))
    else:
        found = [entry for kind, entry in _read_jsonl(_text(content, file), file) if kind == "answer"]
    renamed = [
        entry.model_copy(update={"reviewer": (names or {}).get(entry.reviewer, entry.reviewer)}) for entry in found
    ]
    return add(store, review_id, renamed, file=file, replace=replace)


def import_review(store: Store, content: bytes, *, file: str, maker: str) -> str:
    """Make a review again from its JSON Lines; returns its id. People come without links: `opbench review renew` gives
    new ones. Its candidates are told its decisions where their build is in this store.

    Raises:
        UsageError: the file holds no review, or is damaged; one line with file and line. Nothing is written then.
    """
    head: dict[str, Any] | None = None
    items: list[ItemRow] = []
    people: list[dict[str, Any]] = []
    said: list[Entry] = []
    for kind, told in _read_jsonl(_text(content, file), file):
        if kind == "review":
            head = told
        elif kind == "item":
            items.append(told)
        elif kind == "reviewer":
            people.append(told)
        else:
            said.append(told)
    if head is None or not items:
        raise UsageError(
            f"{file}: no review in it, only answers: import these into a review with 'opbench review import'."
        )
    review_id = uuid.uuid4().hex[:12]
    with store.begin() as connection:
        build = head.get("build_id")
        known = build and connection.scalar(select(s.builds.c.id).where(s.builds.c.id == build))
        save_review_in(
            connection,
            review_id,
            name=str(head["name"]),
            run_id=str(head["run_id"]),
            build_id=known or None,
            spec=head["spec"],
            maker=maker,
            items=items,
        )
        now = store_time(connection)
        for number, person in enumerate(people):
            # They came in this order.
            join(connection, review_id, person["name"], person["role"], now + number * 1e-6)
        add_in(connection, review_id, said, file=file)
        closed = now if head.get("closed") else None
        connection.execute(update(s.reviews).where(s.reviews.c.id == review_id).values(closed_at=closed))
    return review_id


def _items(store: Store, review_id: str) -> list[ItemRow]:
    i = s.review_items.c
    query = select(i.item, i.user_id, i.subtype, i.content, i.candidate, i.known).where(i.review_id == review_id)
    with store.begin() as connection:
        rows = connection.execute(query.order_by(i.ordinal)).all()
    return [
        ItemRow(row.item, row.user_id, row.subtype, Content.model_validate(row.content), row.candidate, row.known)
        for row in rows
    ]


def _entries(store: Store, review_id: str) -> list[dict[str, Any]]:
    with store.begin() as connection:
        return [flat(row, row["place"] == SENIOR_PLACE) for row in entries(connection, review_id)]


def _csv(store: Store, review_id: str) -> str:
    items = {item.item: item for item in _items(store, review_id)}
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in _entries(store, review_id):
        of = items[row["item"]]
        row = {**row, "user": of.user, "subtype": of.subtype, "known": of.known, "flagged": str(row["flagged"]).lower()}
        writer.writerow({name: _cell(value) for name, value in row.items()})
    return out.getvalue()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return repr(value)
    return f"'{value}" if _RISKY.match(value) else str(value)


def _jsonl(store: Store, review_id: str) -> str:
    review = get_review(store, review_id)
    head = {
        "kind": "review",
        "version": _VERSION,
        "name": review.name,
        "run_id": review.run_id,
        "build_id": review.build_id,
        "closed": review.closed_at is not None,
        "spec": review.spec.model_dump(mode="json"),
    }
    items = [
        {
            "kind": "item",
            "item": item.item,
            "user": item.user,
            "subtype": item.subtype,
            "candidate": item.candidate,
            "known": item.known,
            "content": item.content.model_dump(mode="json"),
        }
        for item in _items(store, review_id)
    ]
    people = [{"kind": "reviewer", "name": each.name, "role": each.role} for each in reviewers_of(store, review_id)]
    said = [{"kind": "answer", **row} for row in _entries(store, review_id)]
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in (head, *items, *people, *said))


def _text(content: bytes, file: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{file}: isn't in UTF-8. Save it as UTF-8 text.") from None


def _read_csv(text: str, file: str) -> Iterator[Entry]:
    head = text.partition("\n")[0]
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=";" if head.count(";") > head.count(",") else ",")
    missing = [name for name in ("item", "reviewer", "verdict") if name not in (reader.fieldnames or ())]
    if missing:
        raise UsageError(f"{file}, line 1: no column '{missing[0]}'. The columns are {', '.join(COLUMNS)}.")
    try:
        for row in reader:
            place = f"{file}, line {reader.line_num}"
            told: dict[str, Any] = {name: _uncell(value) for name, value in row.items() if name and value}
            told["flagged"] = _flag(row.get("flagged") or "", place)
            for name in _NUMBERS:
                if name in told:
                    told[name] = _number(told[name], f"{place}: {name}")
            yield entry_of(told, place, reader.line_num)
    except csv.Error as error:
        raise UsageError(f"{file}, line {reader.line_num}: no CSV ({error}).") from None


def _uncell(value: str) -> str:
    return value[1:] if _QUOTED.match(value) else value


def _flag(value: str, place: str) -> bool:
    if value.strip().lower() not in _YES + _NO:
        raise UsageError(f"{place}: flagged: '{value[:40]}' is neither true nor false.")
    return value.strip().lower() in _YES


def _number(value: str, place: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise UsageError(f"{place}: '{value[:40]}' is no number.") from None


def _read_jsonl(text: str, file: str) -> Iterator[tuple[str, Any]]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        place = f"{file}, line {number}"
        try:
            told = json.loads(line)
        except (json.JSONDecodeError, RecursionError):
            raise UsageError(f"{place}: no JSON.") from None
        if not isinstance(told, dict):
            raise UsageError(f"{place}: must be an object with a kind.")
        kind = told.pop("kind", "answer")
        if kind == "answer":
            yield kind, entry_of(told, place, number)
        elif kind in _READERS:
            try:
                yield kind, _READERS[kind](told)
            except (KeyError, TypeError, ValueError) as error:
                raise UsageError(f"{place}: {_fault(error)}.") from None
        else:
            raise UsageError(f"{place}: kind '{str(kind)[:40]}' isn't known: review, item, reviewer or answer.")


def _head(told: dict[str, Any]) -> dict[str, Any]:
    if told["version"] != _VERSION:
        raise ValueError(f"version {told['version']} of the form isn't known here: update the workbench")
    return {
        **told,
        "name": str(told["name"]),
        "run_id": str(told["run_id"]),
        "spec": ReviewSpec.model_validate(told["spec"]),
    }


def _item(told: dict[str, Any]) -> ItemRow:
    content = Content.model_validate(told["content"])
    return ItemRow(
        str(told["item"]), str(told["user"]), str(told["subtype"]), content, told.get("candidate"), told.get("known")
    )


def _reviewer(told: dict[str, Any]) -> dict[str, Any]:
    if told["role"] not in ("reviewer", "senior"):
        raise ValueError(f"role '{str(told['role'])[:40]}' is neither reviewer nor senior")
    return {"name": str(told["name"]), "role": told["role"]}


_READERS = {"review": _head, "item": _item, "reviewer": _reviewer}


def _fault(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"{error.args[0]} is missing"
    if isinstance(error, ValidationError):
        fault = error.errors()[0]
        return f"{'.'.join(str(part) for part in fault['loc'])}: {fault['msg']}"
    return str(error)
