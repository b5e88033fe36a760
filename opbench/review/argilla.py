"""A review for Argilla 2, and the answers that were made there.

Out: a folder as `Dataset.to_disk` writes it, in a zip: `rg.Dataset.from_disk(folder, name=…, client=…)` makes the data
set with its guidelines, fields and questions. In: that folder with answers in a zip, its `records.json`, or what
`dataset.records(with_responses=True).to_json(…)` writes. Scores are ratings from 0 to 10 there.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Mapping
from typing import Any

from opbench.errors import UsageError
from opbench.review import outside
from opbench.review.entries import Entry, digest, entry_of
from opbench.store.reviews import ItemRow, ReviewRow

_TOOL = "argilla"
_RECORDS = "records.json"
_STEPS = 10
_LARGEST = 500_000_000


def export(review: ReviewRow, items: list[ItemRow]) -> bytes:
    """The data set's folder in a zip."""
    records = [_record(item, review.spec.seed) for item in outside.shuffled(items, review.spec.seed)]
    name = re.sub(r"[^0-9a-z]+", "-", review.name.lower()).strip("-")[:100] or review.id
    dataset = {
        "id": None,
        "inserted_at": None,
        "updated_at": None,
        "name": name,
        "status": "draft",
        "guidelines": _guidelines(review),
        "allow_extra_metadata": False,
        "distribution": _distribution(review),
        "workspace_id": None,
        "last_activity_at": None,
    }
    return outside.packed(
        {
            ".argilla/dataset.json": json.dumps(dataset, ensure_ascii=False),
            ".argilla/settings.json": json.dumps(_settings(review), ensure_ascii=False),
            _RECORDS: json.dumps(records, ensure_ascii=False),
        }
    )


def read(content: bytes, seed: int, file: str) -> list[Entry]:
    """The submitted answers; `line` of an entry is the record's number. People are called by Argilla's user ids.

    Raises:
        UsageError: no records of Argilla, or one of them is no answer of ours.
    """
    records = _records(content, file)
    found: list[Entry] = []
    for number, record in enumerate(records, 1):
        place = f"{file}, record {number}"
        if not isinstance(record, dict) or not record.get("id"):
            raise UsageError(f"{place}: has no id: export the records with their responses.")
        by_user: dict[str, dict[str, Any]] = {}
        for question, answers in _mapping(record.get("responses")).items():
            for answer in answers if isinstance(answers, list) else ():
                if answer.get("status", "submitted") == "submitted" and answer.get("user_id"):
                    by_user.setdefault(str(answer["user_id"]), {})[question] = answer.get("value")
        side = outside.first(seed, str(record["id"]), _TOOL)
        for user, given in by_user.items():
            if given.get("verdict") is None:
                continue
            told = {
                "item": str(record["id"]),
                "reviewer": user,
                "verdict": outside.verdict(str(given["verdict"]), side),
                **outside.by_side(_score(given.get("score_a"), place), _score(given.get("score_b"), place), side),
                "comment": given.get("comment") or "",
                "flagged": given.get("flag") == "yes",
                "first": side,
            }
            told["entry"] = digest(_TOOL, user, json.dumps([record["id"], given], sort_keys=True))
            found.append(entry_of(told, place, number))
    return found


def _record(item: ItemRow, seed: int) -> dict[str, Any]:
    a, b = outside.shown(item.content, outside.first(seed, item.item, _TOOL))
    return {
        "id": item.item,
        "fields": {
            "about": outside.about(item.content),
            "memories": outside.remembered(item.content),
            "question": item.content.question,
            "response_a": a,
            "response_b": b,
        },
        "metadata": {"subtype": item.subtype},
        "suggestions": {},
        "responses": {},
        "vectors": {},
        "status": "pending",
        "_server_id": None,
    }


def _settings(review: ReviewRow) -> dict[str, Any]:
    fields = {
        "about": "The user",
        "memories": "What the assistant remembers of the user",
        "question": "The user's question",
        "response_a": "Response A",
        "response_b": "Response B",
    }
    choices = [{"text": text, "value": value} for value, text in outside.CHOICES.items()]
    ratings = {"type": "rating", "options": [{"value": value} for value in range(_STEPS + 1)]}
    questions: list[tuple[str, str, str | None, bool, dict[str, Any]]] = [
        ("verdict", outside.ASKED, outside.HELP, True, {"type": "label_selection", "options": choices}),
        *(
            (
                f"score_{side}",
                f"Response {side.upper()}",
                f"{_STEPS} not over-personalised at all, 0 wholly",
                False,
                ratings,
            )
            for side in ("a", "b")
        ),
        ("comment", "Comment", None, False, {"type": "text", "use_markdown": False}),
        (
            "flag",
            "For the adjudicator",
            None,
            False,
            {"type": "label_selection", "options": [{"text": "Flag", "value": "yes"}]},
        ),
    ]
    stamp = {"id": None, "inserted_at": None, "updated_at": None, "dataset_id": None}
    text = {"type": "text", "use_markdown": False}
    return {
        "guidelines": _guidelines(review),
        "questions": [
            {
                **stamp,
                "name": name,
                "settings": settings,
                "title": title,
                "description": described,
                "required": required,
                "type": settings["type"],
            }
            for name, title, described, required, settings in questions
        ],
        "fields": [
            {
                **stamp,
                "name": name,
                "settings": text,
                "title": title,
                # A user may have no memories.
                "required": name != "memories",
                "description": None,
                "type": "text",
            }
            for name, title in fields.items()
        ],
        "vectors": [],
        "metadata": [
            {
                **stamp,
                "name": "subtype",
                "settings": {"visible_for_annotators": False, "type": "terms", "values": None},
                "title": "Subtype",
                "visible_for_annotators": False,
            }
        ],
        "allow_extra_metadata": False,
        "distribution": _distribution(review),
        "mapping": None,
    }


def _distribution(review: ReviewRow) -> dict[str, Any]:
    return {"strategy": "overlap", "min_submitted": review.spec.per_item}


def _guidelines(review: ReviewRow) -> str:
    return "\n\n".join(part for part in (f"{outside.ASKED} {outside.HELP}", review.spec.guidance) if part)


def _records(content: bytes, file: str) -> list[Any]:
    if zipfile.is_zipfile(io.BytesIO(content)):
        content = _unpacked(content, file)
    try:
        records = json.loads(content)
    except (ValueError, RecursionError):
        raise UsageError(f"{file}: no JSON: give Argilla's records.json, or its folder in a zip.") from None
    if not isinstance(records, list):
        raise UsageError(f"{file}: must be the list of records that Argilla's to_json or to_disk writes.")
    return records


def _unpacked(content: bytes, file: str) -> bytes:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        names = [info for info in archive.infolist() if info.filename.rpartition("/")[2] == _RECORDS]
        if len(names) != 1 or names[0].file_size > _LARGEST:
            raise UsageError(f"{file}: must hold one {_RECORDS}.")
        return archive.read(names[0])


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _score(value: object, place: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _STEPS:
        raise UsageError(f"{place}: a rating is {str(value)[:40]}: it must be from 0 to {_STEPS}.")
    return value / _STEPS
