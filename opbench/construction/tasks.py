"""Stage 2: questions of all six subtypes (paper, section 3.2 and appendix A.2)."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from opbench.construction import shapes
from opbench.construction.asking import Shape
from opbench.construction.making import Making, Task, together
from opbench.construction.people import Fact, Person
from opbench.construction.prompting import Prompt, bullets, load_prompt
from opbench.construction.shapes import Item, Items
from opbench.construction.slots import FINE, Slot, output_of, similarity_unit, subtopics_unit, void
from opbench.construction.spec import GENERAL_TOPICS
from opbench.store.builds import Candidate, Unit

#: Observations that a baiting prompt shows, others in each round.
_SHOWN_FACTS = 12
#: Earlier questions that a later round is told not to ask again.
_SHOWN_EARLIER = 40
_BAITING = ("normal", "over_personalised")


@dataclass(frozen=True, slots=True)
class _Order:
    """What a slot asks for, and how its answer is read."""

    prompt: Prompt
    values: dict[str, str]
    shape: Shape
    read: Callable[[Any], Items]
    facts: Sequence[Fact] = ()
    """Of memory-level ones: what each key falsifies."""


async def judge_topics(making: Making, person: Person) -> None:
    """Which general topics are unrelated to the user's."""
    prompt = load_prompt("similarity")
    values = {
        "topics": bullets(list(person.topics or ())),
        "profile": person.profile or "",
        "general": bullets(GENERAL_TOPICS),
        "first": GENERAL_TOPICS[0],
    }
    shape = shapes.relations(GENERAL_TOPICS)
    unit, model = similarity_unit(person.user), making.spec.similarity
    await making.do(
        Task(unit, "tasks", person.user.id, "similarity", model, prompt, values, shape),
        lambda value: shapes.read_relations(value, GENERAL_TOPICS),
        lambda unrelated: {"unrelated": unrelated},
    )


async def fill(making: Making, person: Person, chain: Sequence[Slot]) -> None:
    """One kind of question of a user by one generator, round by round: a later one is told what there is."""
    unrelated = output_of(making.units.get(similarity_unit(person.user)), "unrelated")
    for slot in chain:
        if slot.what == "fully-irrelevant" and unrelated is None:
            return
        if void(slot, making.units):
            continue
        if await _questions(making, person, slot, _earlier(making, chain, slot)) is None:
            return


async def fill_repetition(making: Making, person: Person, chain: Sequence[Slot]) -> None:
    """One topic of a user by one generator: subtopics, then questions for each, round by round."""
    names = [slot for slot in chain if slot.what == "subtopics"]
    for slot in names:
        if void(slot, making.units):
            return
        unit = await _subtopics(making, person, slot, _earlier(making, names, slot, "subtopics"))
        if unit is None:
            return
        if unit.status == "failed":
            continue
        mine = [each for each in chain if each.what == "repetition" and each.round == slot.round]
        await together(
            _questions(making, person, each, _earlier(making, chain, each))
            for each in mine
            if not void(each, making.units)
        )


async def _subtopics(making: Making, person: Person, slot: Slot, earlier: Sequence[str]) -> Unit | None:
    assert person.topics is not None, "a slot of a topic that isn't known is void or not begun"
    values = {"topic": person.topics[slot.topic - 1], "n": str(slot.count), "earlier": bullets(list(earlier))}
    prompt, shape = load_prompt("subtopics"), shapes.names("subtopics", slot.count)
    return await making.do(
        Task(slot.unit, "tasks", slot.user.id, "generator", slot.generator, prompt, values, shape, slot.round),
        lambda value: shapes.read_names(value, "subtopics", slot.count, prompt.holds),
        lambda found: {"subtopics": found},
    )


async def _questions(making: Making, person: Person, slot: Slot, earlier: Sequence[str]) -> Unit | None:
    order = _ordered(making, person, slot, earlier)
    if order is None:
        return await _without_facts(making, slot)
    topic, subtopic = _topic(making, person, slot)

    def candidates(items: Items) -> list[Candidate]:
        return [_candidate(slot, number, item, order, topic, subtopic) for number, item in enumerate(items.items)]

    return await making.do(
        Task(
            slot.unit,
            "tasks",
            slot.user.id,
            "generator",
            slot.generator,
            order.prompt,
            order.values,
            order.shape,
            slot.round,
        ),
        lambda value: shapes.own(order.read(value), order.prompt.holds),
        lambda items: {
            "questions": [item.question for item in items.good],
            "without_question": items.without_question,
        },
        candidates,
    )


def _ordered(making: Making, person: Person, slot: Slot, earlier: Sequence[str]) -> _Order | None:
    """None when it is about observations, and there are none."""
    n = slot.count
    values = {
        "n": str(n),
        "name": person.user.speaker,
        "profile": person.profile or "",
        "topics": bullets(list(person.topics or ())),
        "earlier": bullets(list(earlier)),
    }
    if slot.what == "memory":
        facts = falsified(making, person.facts, slot)
        keys = [str(number) for number in range(1, len(facts) + 1)]
        prompt = load_prompt("memory-fine" if slot.detail == FINE else "memory-coarse")
        values["facts"] = "\n".join(f"{key}. {fact.text}" for key, fact in zip(keys, facts, strict=True))
        notes = ("false_memory",)
        read = lambda value: shapes.read_keyed(value, keys, notes)  # noqa: E731
        return _Order(prompt, values, shapes.keyed(keys, notes), read, facts) if facts else None
    if slot.what == "baiting":
        values["facts"] = bullets([fact.text for fact in _shown(making, person.facts, slot)])
        return _noted(load_prompt(f"baiting-{slot.detail}"), values, n, _BAITING)
    if slot.what in ("fact", "value"):
        return _noted(load_prompt(slot.what), values, n, ("explanation",))
    prompt = load_prompt("irrelevant" if slot.what == "fully-irrelevant" else "repetition")
    topic, subtopic = _topic(making, person, slot)
    values |= {"topic": topic or "", "subtopic": subtopic or ""}
    return _Order(prompt, values, shapes.questions(n), lambda value: shapes.read_questions(value, n))


def _noted(prompt: Prompt, values: dict[str, str], n: int, notes: tuple[str, ...]) -> _Order:
    return _Order(prompt, values, shapes.noted(n, notes), lambda value: shapes.read_noted(value, n, notes))


def falsified(making: Making, facts: Sequence[Fact], slot: Slot) -> list[Fact]:
    """The observations that a memory-level slot falsifies: the same ones for every generator, others for the two
    grains and in the next round, as long as there are enough."""
    counts = making.spec.counts
    order = list(facts)
    random.Random(f"{making.spec.seed}/{slot.user.id}").shuffle(order)
    begin = (slot.round - 1) * (counts.fine + counts.coarse) + (0 if slot.detail == FINE else counts.fine)
    return [order[(begin + number) % len(order)] for number in range(min(slot.count, len(order)))]


def _shown(making: Making, facts: Sequence[Fact], slot: Slot) -> list[Fact]:
    chosen = random.Random(f"{making.spec.seed}/{slot.user.id}/{slot.detail}/{slot.round}")
    numbers = chosen.sample(range(len(facts)), min(_SHOWN_FACTS, len(facts)))
    return [facts[number] for number in sorted(numbers)]


def _topic(making: Making, person: Person, slot: Slot) -> tuple[str | None, str | None]:
    if slot.what == "fully-irrelevant":
        return slot.detail, None
    if slot.what != "repetition" or person.topics is None:
        return None, None
    subtopics = output_of(making.units.get(subtopics_unit(slot)), "subtopics") or []
    return person.topics[slot.topic - 1], subtopics[slot.subtopic - 1]


def _earlier(making: Making, chain: Sequence[Slot], slot: Slot, key: str = "questions") -> list[str]:
    """What earlier rounds of the same kind made."""
    found: list[str] = []
    for each in chain:
        if each.round < slot.round and each.what == slot.what:
            found += output_of(making.units.get(each.unit), key) or []
    return found[-_SHOWN_EARLIER:]


async def _without_facts(making: Making, slot: Slot) -> Unit | None:
    """The unit of a slot for which the history holds nothing. It costs nothing to look again in the next start, when
    observations may have been extracted."""
    if making.work.stopping:
        return None
    prompt = load_prompt("memory-fine" if slot.detail == FINE else "memory-coarse")
    unit = Unit(
        unit=slot.unit,
        stage="tasks",
        user_id=slot.user.id,
        status="failed",
        reason=f"there is no observation about {slot.user.speaker} that could be made false",
        output={"retriable": True},
        role="generator",
        model=slot.generator,
        prompt_sha256=prompt.sha256,
        cost_usd=0.0,
        made_at=time.time(),
    )
    await making.keep(unit)
    return unit


def _candidate(
    slot: Slot, number: int, item: Item, order: _Order, topic: str | None, subtopic: str | None
) -> Candidate:
    fact = order.facts[int(item.key) - 1] if item.key else None
    return Candidate(
        id=slot.candidate_id(number),
        ordinal=slot.first + number,
        unit=slot.unit,
        user_id=slot.user.id,
        subtype="repetition" if slot.what == "subtopics" else slot.what,
        kind=slot.detail if slot.what in ("baiting", "memory") else None,
        topic=topic,
        subtopic=subtopic,
        question=item.question,
        explanation=_explanation(item, fact),
        falsifies=None if fact is None else fact.text,
        evidence=() if fact is None else fact.evidence,
        generator=slot.generator,
        prompt_sha256=order.prompt.sha256,
        state="candidate" if item.wrong is None else "dropped",
        decided_by=None if item.wrong is None else "format",
        reason=item.wrong,
    )


def _explanation(item: Item, fact: Fact | None) -> str | None:
    fields = item.fields
    if item.wrong is not None or not fields:
        return None
    if fact is not None:
        return f"False memory: {fields['false_memory']} On record: {fact.text}"
    if "normal" in fields:
        return f"A normal answer: {fields['normal']} An over-personalised one: {fields['over_personalised']}"
    return fields["explanation"]
