"""A review for Label Studio, and the answers that were made there.

Out: `tasks.json` to import and `labeling.xml` for the project's labelling interface, in a zip. In: the JSON export of
the project (not JSON-MIN), whose annotations are answers.
"""

from __future__ import annotations

import json
from typing import Any
from xml.sax.saxutils import quoteattr

from opbench.errors import UsageError
from opbench.review import outside
from opbench.review.entries import Entry, digest, entry_of
from opbench.store.reviews import ItemRow, ReviewRow

_TOOL = "label-studio"
_FLAG = "Flag for the adjudicator"
_CHOICE_OF = {text: value for value, text in outside.CHOICES.items()}


def export(review: ReviewRow, items: list[ItemRow]) -> bytes:
    """Tasks and labelling interface in a zip."""
    tasks = [{"data": _data(item, review.spec.seed)} for item in outside.shuffled(items, review.spec.seed)]
    return outside.packed(
        {"tasks.json": json.dumps(tasks, ensure_ascii=False, indent=1), "labeling.xml": _interface(review)}
    )


def read(content: bytes, seed: int, file: str) -> list[Entry]:
    """The annotations that weren't cancelled; `line` of an entry is the task's number. People are called by their
    e-mail address, or `user N` where the export tells a number.

    Raises:
        UsageError: no export of Label Studio, or an annotation in it is no answer of ours.
    """
    try:
        tasks = json.loads(content)
    except (ValueError, RecursionError):
        raise UsageError(f"{file}: no JSON: export the project as JSON.") from None
    if not isinstance(tasks, list):
        raise UsageError(f"{file}: must be the list of tasks that Label Studio exports as JSON.")
    found: list[Entry] = []
    for number, task in enumerate(tasks, 1):
        place = f"{file}, task {number}"
        data = task.get("data") if isinstance(task, dict) else None
        item = data.get("item") if isinstance(data, dict) else None
        if not isinstance(item, str):
            raise UsageError(f"{place}: has no data.item: it isn't of a review's tasks.")
        if not isinstance(task.get("annotations"), list):
            raise UsageError(f"{place}: has no annotations: export the project as JSON, not as JSON-MIN.")
        for annotation in task["annotations"]:
            entry = _entry(annotation, item, outside.first(seed, item, _TOOL), place, number)
            if entry is not None:
                found.append(entry)
    return found


def _entry(annotation: Any, item: str, side: Any, place: str, number: int) -> Entry | None:
    if not isinstance(annotation, dict) or annotation.get("was_cancelled"):
        return None
    given = {
        part["from_name"]: part["value"]
        for part in annotation.get("result") or ()
        if isinstance(part, dict) and isinstance(part.get("value"), dict) and "from_name" in part
    }
    chosen = _one(given, "verdict", "choices")
    if chosen is None:
        return None
    lead = annotation.get("lead_time")
    told = {
        "item": item,
        "reviewer": _who(annotation.get("completed_by"), place),
        "verdict": outside.verdict(_CHOICE_OF.get(str(chosen), str(chosen)), side),
        **outside.by_side(_number(given, "score_a"), _number(given, "score_b"), side),
        "comment": "\n".join(str(line) for line in given.get("comment", {}).get("text") or ()),
        "flagged": _one(given, "flag", "choices") is not None,
        "seconds": lead if isinstance(lead, int | float) else None,
        "first": side,
        "made_at": annotation.get("updated_at") or annotation.get("created_at"),
    }
    mark = annotation.get("unique_id") or annotation.get("id")
    told["entry"] = digest(_TOOL, str(mark), json.dumps([item, given, told["reviewer"]], sort_keys=True))
    return entry_of(told, place, number)


def _data(item: ItemRow, seed: int) -> dict[str, str]:
    a, b = outside.shown(item.content, outside.first(seed, item.item, _TOOL))
    return {
        "item": item.item,
        "about": outside.about(item.content),
        "memories": outside.remembered(item.content) or "None.",
        "question": item.content.question,
        "response_a": a,
        "response_b": b,
    }


def _interface(review: ReviewRow) -> str:
    choices = "".join(
        f'<Choice value={quoteattr(text)} hotkey="{key}"/>' for key, text in enumerate(outside.CHOICES.values(), 1)
    )
    guidance = f'<Header value={quoteattr(review.spec.guidance)} size="5"/>' if review.spec.guidance else ""
    scores = "".join(
        f'<Header value="Response {side.upper()}: {outside.SCORED}" size="5"/>'
        f'<Number name="score_{side}" toName="response_{side}" min="0" max="1" step="0.05"/>'
        for side in ("a", "b")
    )
    return f"""<View>
  <Style>.htx-text {{ white-space: pre-wrap; }}</Style>
  {guidance}
  <Collapse><Panel value="The user"><Text name="about" value="$about"/></Panel>
    <Panel value="Memories"><Text name="memories" value="$memories"/></Panel></Collapse>
  <Header value="The user's question"/>
  <Text name="question" value="$question"/>
  <View style="display: flex; flex-wrap: wrap; gap: 1em">
    <View style="flex: 1 1 20em"><Header value="Response A"/><Text name="response_a" value="$response_a"/></View>
    <View style="flex: 1 1 20em"><Header value="Response B"/><Text name="response_b" value="$response_b"/></View>
  </View>
  <Header value={quoteattr(outside.ASKED)}/>
  <Header value={quoteattr(outside.HELP)} size="5"/>
  <Choices name="verdict" toName="question" choice="single" required="true" showInline="true">{choices}</Choices>
  {scores}
  <TextArea name="comment" toName="question" placeholder="Comment" rows="2" maxSubmissions="1"/>
  <Choices name="flag" toName="question" choice="multiple"><Choice value={quoteattr(_FLAG)}/></Choices>
</View>
"""


def _one(given: dict[str, Any], name: str, kind: str) -> object | None:
    values = given.get(name, {}).get(kind)
    return values[0] if isinstance(values, list) and values else None


def _number(given: dict[str, Any], name: str) -> float | None:
    value = given.get(name, {}).get("number")
    return float(value) if isinstance(value, int | float) else None


def _who(told: object, place: str) -> str:
    if isinstance(told, dict):
        told = told.get("email") or told.get("id")
    if isinstance(told, str) and told.strip():
        return told
    if isinstance(told, int):
        return f"user {told}"
    raise UsageError(f"{place}: an annotation doesn't tell who made it (completed_by).")
