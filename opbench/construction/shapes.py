"""What models are asked to answer: schemas, and reading the answers item by item.

A schema's properties are in alphabetical order, in which a model that is held to them writes them: what a question
rests on comes before the question. Texts are bounded so that a small model that runs on comes to an end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from opbench.construction.asking import Shape, Wrong

LONGEST_QUESTION = 400
LONGEST_NOTE = 400
LONGEST_NAME = 60
LONGEST_PROFILE = 900
SHORTEST_NAME = 3
#: A summary or profile that is shorter says nothing to build on.
SHORTEST_PROFILE = 60
#: What an endpoint that holds a model to a schema holds it to: a small one would else stop after a word.
_SHORTEST = 12
_COPIED = "it is copied from the prompt's example"
#: Items of one answer that are kept at most; further ones aren't even looked at.
MOST_ITEMS = 60


@dataclass(frozen=True, slots=True)
class Item:
    """One question of an answer; `wrong` says why it can't be used. `fields` are the other texts."""

    question: str
    fields: Mapping[str, str] = field(default_factory=dict)
    wrong: str | None = None
    key: str = ""
    """Of answers whose items are asked for by key."""


@dataclass(frozen=True, slots=True)
class Items:
    """The questions of an answer in order, and how many items had none."""

    items: tuple[Item, ...]
    without_question: int = 0

    @property
    def good(self) -> list[Item]:
        return [item for item in self.items if item.wrong is None]


def summary() -> Shape:
    return Shape("summary", _object({"summary": _text(LONGEST_PROFILE, SHORTEST_PROFILE)}))


def profile() -> Shape:
    return Shape("profile", _object({"profile": _text(LONGEST_PROFILE, SHORTEST_PROFILE)}))


def names(what: str, n: int) -> Shape:
    """A list of short names under the key `what`."""
    return Shape(what, _object({what: _list(_text(LONGEST_NAME, SHORTEST_NAME), n)}))


def observations(turns: Sequence[str], most: int) -> Shape:
    item = _object({"fact": _text(LONGEST_NOTE, _SHORTEST), "turn": {"type": "string", "enum": list(turns)}})
    return Shape("observations", _object({"observations": {"type": "array", "items": item, "maxItems": most}}))


def relations(topics: Sequence[str]) -> Shape:
    """For each topic whether it is related."""
    return Shape(
        "relations", _object({topic: {"type": "string", "enum": ["related", "unrelated"]} for topic in topics})
    )


def questions(n: int) -> Shape:
    return Shape("questions", _object({"questions": _list(_text(LONGEST_QUESTION, _SHORTEST), n)}))


def noted(n: int, notes: Sequence[str]) -> Shape:
    """Questions with notes, which are written first."""
    return Shape("items", _object({"items": _list(_noted(notes), n)}))


def keyed(keys: Sequence[str], notes: Sequence[str]) -> Shape:
    """One question with notes for each key."""
    return Shape("items", _object({key: _noted(notes) for key in keys}))


def read_text(value: Any, key: str) -> str:
    """A summary or profile.

    Raises:
        Wrong: it isn't there, isn't a text, or is too short or too long.
    """
    found = value.get(key)
    fault = _fault(found, 2 * LONGEST_PROFILE)
    if fault is None and len(_line(found)) < SHORTEST_PROFILE:
        fault = f"has {len(_line(found))} characters; at least {SHORTEST_PROFILE}"
    if fault is not None:
        raise Wrong(f'"{key}" {fault}')
    return _line(found)


def _none(text: str) -> bool:
    return False


def read_names(value: Any, key: str, n: int, copied: Callable[[str], bool] = _none) -> list[str]:
    """Different short names of a list, at most `n`, without copies.

    Raises:
        Wrong: there is no list, or no usable name in it.
    """
    kept: dict[str, str] = {}
    for each in _listed(value, key):
        if _fault(each, LONGEST_NAME) is None and not copied(each):
            kept.setdefault(_line(each).casefold(), _line(each))
    if not kept:
        raise Wrong(f'"{key}" holds no name of its own of at most {LONGEST_NAME} characters')
    return list(kept.values())[:n]


def read_observations(
    value: Any, turns: Sequence[str], most: int, copied: Callable[[str], bool] = _none
) -> tuple[list[tuple[str, str]], int]:
    """(fact, turn) of the usable ones, and how many were not; copies are none. An empty list is an answer: nothing
    was said.

    Raises:
        Wrong: there is no list, or all of its items are unusable.
    """
    listed = _listed(value, "observations")
    good = [
        (_line(each["fact"]), each["turn"])
        for each in listed
        if isinstance(each, dict)
        and _fault(each.get("fact"), LONGEST_NOTE) is None
        and each.get("turn") in turns
        and not copied(each["fact"])
    ]
    if listed and not good:
        raise Wrong('no item of "observations" has a "fact" and the id of a turn of this session as "turn"')
    return good[:most], len(listed) - len(good)


def read_relations(value: Any, topics: Sequence[str]) -> list[str]:
    """The unrelated ones, in order.

    Raises:
        Wrong: one isn't judged.
    """
    told = {key.strip().casefold(): each for key, each in value.items()}
    found = []
    for topic in topics:
        answer = told.get(topic)
        if answer not in ("related", "unrelated"):
            raise Wrong(f'"{topic}" must be "related" or "unrelated"')
        if answer == "unrelated":
            found.append(topic)
    return found


def read_questions(value: Any, n: int) -> Items:
    """Questions without notes.

    Raises:
        Wrong: no usable one.
    """
    given = [{"question": each} if isinstance(each, str) else each for each in _listed(value, "questions")]
    return _items([("", each) for each in given], n, ())


def read_noted(value: Any, n: int, notes: Sequence[str]) -> Items:
    """Questions with notes.

    Raises:
        Wrong: no usable one.
    """
    return _items([("", each) for each in _listed(value, "items")], n, notes)


def read_keyed(value: Any, keys: Sequence[str], notes: Sequence[str]) -> Items:
    """One question with notes for each key; other keys are passed over.

    Raises:
        Wrong: no usable one.
    """
    return _items([(key, value.get(key)) for key in keys], len(keys), notes)


def own(items: Items, copied: Callable[[str], bool]) -> Items:
    """The items, with those that are copies marked as wrong.

    Raises:
        Wrong: all usable ones are copies.
    """
    found = tuple(
        replace(item, wrong=_COPIED) if item.wrong is None and copied(item.question) else item for item in items.items
    )
    marked = Items(found, items.without_question)
    if not marked.good:
        raise Wrong(_COPIED)
    return marked


def not_copied(text: str, copied: Callable[[str], bool]) -> str:
    """The text.

    Raises:
        Wrong: it is a copy.
    """
    if copied(text):
        raise Wrong(_COPIED)
    return text


def _items(given: Sequence[tuple[str, Any]], n: int, notes: Sequence[str]) -> Items:
    found: list[Item] = []
    blank = 0
    for key, each in given[:MOST_ITEMS]:
        question = each.get("question") if isinstance(each, dict) else None
        if not isinstance(question, str) or not question.strip():
            blank += 1
            continue
        item = _read(each, notes, key)
        if item.wrong is None and sum(other.wrong is None for other in found) == n:
            item = Item(item.question, item.fields, f"more questions than the {n} that were asked for", key)
        found.append(item)
    items = Items(tuple(found), blank + max(0, len(given) - MOST_ITEMS))
    if not items.good:
        raise Wrong(found[0].wrong if found and found[0].wrong else "there is no question in it")
    return items


def _read(each: dict[str, Any], notes: Sequence[str], key: str) -> Item:
    question = _line(each["question"])
    if len(question) > LONGEST_QUESTION:
        return Item(
            question[:LONGEST_QUESTION],
            {},
            f"the question has {len(question)} characters; at most {LONGEST_QUESTION}",
            key,
        )
    fields: dict[str, str] = {}
    for note in notes:
        fault = _fault(each.get(note), 2 * LONGEST_NOTE)
        if fault is not None:
            return Item(question, fields, f'"{note}" {fault}', key)
        fields[note] = _line(each[note])
    return Item(question, fields, None, key)


def _listed(value: Any, key: str) -> list[Any]:
    found = value.get(key)
    if not isinstance(found, list):
        raise Wrong(f'the key "{key}" must hold a list')
    return found


def _fault(value: Any, longest: int) -> str | None:
    if value is None:
        return "is missing"
    if not isinstance(value, str):
        return "must be a text"
    if not value.strip():
        return "is empty"
    if len(_line(value)) > longest:
        return f"has {len(_line(value))} characters; at most {longest}"
    return None


def _line(text: str) -> str:
    return " ".join(text.split())


def _text(longest: int, shortest: int = 1) -> dict[str, Any]:
    return {"type": "string", "minLength": shortest, "maxLength": longest}


def _list(item: Mapping[str, Any], n: int) -> dict[str, Any]:
    return {"type": "array", "items": dict(item), "minItems": n, "maxItems": n}


def _noted(notes: Sequence[str]) -> dict[str, Any]:
    texts = {note: _text(LONGEST_NOTE, _SHORTEST) for note in notes}
    return _object(texts | {"question": _text(LONGEST_QUESTION, _SHORTEST)})


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }
