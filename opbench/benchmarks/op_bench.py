"""OP-Bench's file: 1,700 instances for the 20 speakers of LoCoMo's conversations (paper, section 3, table 1)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from opbench.benchmarks.oddities import oddity
from opbench.benchmarks.shape import Node
from opbench.types import OP_SUBTYPES, Conversation, Instance, Oddity, Profile, User

#: The file's kinds of baiting questions.
BAITING_KINDS = ("subject_confusion", "interest_confusion", "contextual_misalignment", "behavioral_attribution")
#: Subtype of each type in the file's sycophancy group; memory-level has two grains.
SYCOPHANCY_TYPES = {"fact": "fact", "value": "value", "fine-grained": "memory", "coarse-grained": "memory"}
GROUPS = ("irrelevance_easy", "irrelevance_hard", "diversity", "sycophancy")


@dataclass(slots=True)
class OpFile:
    """What the file holds: instances by user, then in OP_SUBTYPES' order, then in file order; profiles by user id."""

    profiles: dict[str, Profile] = field(default_factory=dict)
    instances: list[Instance] = field(default_factory=list)
    oddities: list[Oddity] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Item:
    subtype: str
    node: Node
    topic: Node | None = None
    kind: str | None = None


@dataclass(frozen=True, slots=True)
class _Topics:
    """Reads each topic in its first spelling, with a capital, and notes every other spelling once."""

    read_as: dict[str, str] = field(default_factory=dict)
    noted: set[str] = field(default_factory=set)

    def read(self, node: Node, oddities: list[Oddity]) -> str:
        text = node.text().strip()
        read_as = self.read_as.setdefault(text.casefold(), text[:1].upper() + text[1:])
        if text != read_as and text not in self.noted:
            self.noted.add(text)
            oddities.append(oddity("topic-case", node, f'"{text}" is read as "{read_as}"'))
        return read_as


def parse(root: Node, conversations: Mapping[str, Conversation], users: Mapping[str, User]) -> OpFile:
    """The file's instances and profiles.

    The n-th entry belongs to the n-th conversation of the LoCoMo file, and its two keys must be that conversation's
    speakers: names alone don't identify a conversation.

    Raises:
        DataError: a wrong shape at any level, or entries that don't fit the conversations.
    """
    entries = root.items()
    if len(entries) != len(conversations):
        raise root.error(f"{len(entries)} entries for the {len(conversations)} conversations of the LoCoMo file")
    result = OpFile()
    topics = _Topics()
    for entry, conversation in zip(entries, conversations.values(), strict=True):
        people = entry.entries()
        if set(people) != set(conversation.speakers):
            expected = " and ".join(conversation.speakers)
            raise entry.error(
                f"expected the speakers of {conversation.id}, {expected}, found {' and '.join(people) or 'none'}"
            )
        for speaker in conversation.speakers:
            _read_user(people[speaker], users[f"{conversation.id}/{speaker}"], topics, result)
    result.oddities += _shared_names(root, users)
    return result


def _read_user(node: Node, user: User, topics: _Topics, result: OpFile) -> None:
    result.profiles[user.id] = Profile(
        user=user,
        topics=tuple(topic.text() for topic in node.key("topics").items()),
        profile=node.key("profile").text(),
        observations=tuple(fact.text() for fact in node.key("observation").items()),
    )
    items = list(_items(node.key("tasks"), result.oddities))
    first_with = {instance.question: instance.id for instance in reversed(result.instances)}
    for subtype in OP_SUBTYPES:
        for number, item in enumerate((item for item in items if item.subtype == subtype), start=1):
            identity = f"op/{user.id}/{subtype}/{number}"
            text = item.node.key("question")
            question = text.text()
            if question in first_with:
                detail = f"{identity}: same text as {first_with[question]}"
                result.oddities.append(oddity("duplicate-question", text, detail))
            first_with.setdefault(question, identity)
            if re.search("[‘’“”–—]", question):
                result.oddities.append(oddity("typographic-marks", text, identity))
            explanation = item.node.entries().get("explanation")
            result.instances.append(
                Instance(
                    id=identity,
                    benchmark="op",
                    user=user,
                    subtype=subtype,
                    question=question,
                    topic=topics.read(item.topic, result.oddities) if item.topic else None,
                    kind=item.kind,
                    explanation=explanation.text() if explanation else None,
                )
            )


def _items(tasks: Node, oddities: list[Oddity]) -> Iterator[_Item]:
    for name, group in tasks.entries().items():
        if name not in GROUPS:
            raise group.error(f"no such task group; expected {', '.join(GROUPS)}")
    for node in tasks.key("irrelevance_easy").items():
        yield _Item("fully-irrelevant", node, topic=node.key("topic"))
    for node in tasks.key("irrelevance_hard").items():
        yield _Item("baiting", node, kind=node.key("type").choice(BAITING_KINDS))
    for node in _without_empty(tasks.key("diversity"), oddities):
        for question in _without_empty(node.key("questions"), oddities):
            yield _Item("repetition", question, topic=question.key("topic"))
    for node in tasks.key("sycophancy").items():
        kind = node.key("type").choice(tuple(SYCOPHANCY_TYPES))
        subtype = SYCOPHANCY_TYPES[kind]
        yield _Item(subtype, node, kind=kind if subtype == "memory" else None)


def _without_empty(nodes: Node, oddities: list[Oddity]) -> Iterator[Node]:
    """The elements that aren't `[]`. The public file has them among a user's questions; older ones around them."""
    for node in nodes.items():
        if node.value == []:
            oddities.append(oddity("empty-list", node, "no instance"))
        else:
            yield node


def _shared_names(root: Node, users: Mapping[str, User]) -> Iterator[Oddity]:
    bearers: dict[str, list[str]] = {}
    for user in users.values():
        bearers.setdefault(user.speaker, []).append(user.id)
    for name, ids in bearers.items():
        if len(ids) > 1:
            yield oddity("shared-name", root, f"{name} is {len(ids)} people: {', '.join(ids)}")
