"""The pieces of work of a build, named and in order, and which of them are still to be done.

Names and order depend on the spec and the users alone, so that candidates have the same ids and the same order however
the work went.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from opbench.benchmarks.op_bench import BAITING_KINDS
from opbench.construction.loading import Source
from opbench.construction.spec import GENERAL_TOPICS, BuildSpec, Stage
from opbench.errors import UsageError
from opbench.store.builds import Unit
from opbench.types import OP_SUBTYPES, Session, User

What = Literal["fully-irrelevant", "baiting", "fact", "value", "memory", "subtopics", "repetition"]
FINE, COARSE = "fine-grained", "coarse-grained"
#: Ordinals between a slot's first candidate and the next slot's: more than an answer may have items.
_STRIDE = 64
#: Ordinals are 32 bits wide in the store.
MOST_SLOTS = 2**31 // _STRIDE
_LONGEST_UNIT = 300


@dataclass(frozen=True, slots=True)
class Slot:
    """One call of a generator (and its repair)."""

    unit: str
    user: User
    what: What
    generator: str
    round: int
    """From 1."""
    count: int
    """Questions, or subtopics, that are asked for."""
    first: int
    """The ordinal of its first candidate."""
    detail: str = ""
    """The general topic, the kind of baiting, or the grain."""
    topic: int = 0
    """Repetition: the number of the user's topic, from 1."""
    subtopic: int = 0
    """Repetition: the number of the topic's subtopic, from 1."""

    def candidate_id(self, number: int) -> str:
        """The id of the n-th item (from 0)."""
        return hashlib.sha256(f"{self.unit}#{number}".encode()).hexdigest()[:16]


class Units(Protocol):
    """What is done, by unit name."""

    def get(self, unit: str, /) -> Unit | None: ...


def users_of(spec: BuildSpec, source: Source) -> list[User]:
    """The users that are built for, in file order.

    Raises:
        UsageError: one isn't in the conversations, or names are so long that units can't be told apart.
    """
    for name in spec.users:
        if name not in source.users:
            there = ", ".join(list(source.users)[:10])
            raise UsageError(f"no user '{name[:60]}' in {source.name}. There are: {there}.")
    users = [user for user in source.users.values() if not spec.users or user.id in spec.users]
    longest = max(len(user.id) for user in users) + max(map(len, spec.generators)) + 60
    if longest > _LONGEST_UNIT:
        raise UsageError(f"{source.name}: names of conversations, speakers and models are too long: shorten them.")
    return users


def summary_unit(conversation: str, session: int) -> str:
    return f"profiles/{conversation}/summary/{session}"


def observations_unit(user: User, session: int) -> str:
    return f"profiles/{user.id}/observations/{session}"


def profile_unit(user: User) -> str:
    return f"profiles/{user.id}/profile"


def topics_unit(user: User) -> str:
    return f"profiles/{user.id}/topics"


def similarity_unit(user: User) -> str:
    return f"tasks/{user.id}/similarity"


def subtopics_unit(slot: Slot) -> str:
    """The unit that gives the subtopic of a repetition slot."""
    return f"tasks/{slot.user.id}/subtopics/{slot.topic}/{slot.generator}/{slot.round}"


def sessions_without_summary(source: Source, conversation: str) -> list[Session]:
    given = source.summaries.get(conversation, {})
    sessions = source.conversations[conversation].sessions
    return [each for each in sessions if each.turns and each.number not in given]


def sessions_without_observations(source: Source, conversation: str) -> list[Session]:
    """Of a conversation in which nobody has noted any; one session without is one in which nothing was said."""
    sessions = source.conversations[conversation].sessions
    return [] if any(each.observations for each in sessions) else [each for each in sessions if each.turns]


def slots(spec: BuildSpec, users: Sequence[User]) -> Iterator[Slot]:
    """All slots in order: round by round, user by user; which generator comes first changes from user to user, since
    of two near-duplicates the first one is kept."""
    index = 0
    for turn in range(1, spec.rounds + 1):
        for number, user in enumerate(users):
            shift = (number + turn - 1) % len(spec.generators)
            for generator in (*spec.generators[shift:], *spec.generators[:shift]):
                for what, detail, topic, subtopic, count in _of_a_round(spec, number + turn - 1):
                    place = detail or "/".join(str(part) for part in (topic, subtopic) if part)
                    name = "/".join(part for part in ("tasks", user.id, what, place, generator, str(turn)) if part)
                    yield Slot(name, user, what, generator, turn, count, index * _STRIDE, detail, topic, subtopic)
                    index += 1


def _of_a_round(spec: BuildSpec, shift: int) -> Iterator[tuple[What, str, int, int, int]]:
    counts, wanted = spec.counts, set(spec.subtypes or OP_SUBTYPES)
    if "fully-irrelevant" in wanted and counts.irrelevant:
        for topic in GENERAL_TOPICS:
            yield "fully-irrelevant", topic, 0, 0, counts.irrelevant
    if "baiting" in wanted:
        for number, kind in enumerate(BAITING_KINDS):
            share = counts.baiting // 4 + ((number - shift) % 4 < counts.baiting % 4)
            if share:
                yield "baiting", kind, 0, 0, share
    if "fact" in wanted and counts.fact:
        yield "fact", "", 0, 0, counts.fact
    if "value" in wanted and counts.value:
        yield "value", "", 0, 0, counts.value
    if "memory" in wanted:
        if counts.fine:
            yield "memory", FINE, 0, 0, counts.fine
        if counts.coarse:
            yield "memory", COARSE, 0, 0, counts.coarse
    if "repetition" in wanted and counts.subtopics and counts.repetition:
        for topic_number in range(1, counts.topics + 1):
            yield "subtopics", "", topic_number, 0, counts.subtopics
            for subtopic in range(1, counts.subtopics + 1):
                yield "repetition", "", topic_number, subtopic, counts.repetition


def needs_similarity(spec: BuildSpec) -> bool:
    return "fully-irrelevant" in (spec.subtypes or OP_SUBTYPES) and spec.counts.irrelevant > 0


def profile_units(spec: BuildSpec, source: Source, users: Sequence[User]) -> list[str]:
    """All units of the first stage."""
    found = []
    for conversation in dict.fromkeys(user.conversation for user in users):
        found += [summary_unit(conversation, each.number) for each in sessions_without_summary(source, conversation)]
    for user in users:
        without = sessions_without_observations(source, user.conversation)
        found += [observations_unit(user, each.number) for each in without]
        found += [profile_unit(user), topics_unit(user)]
    return found


def void(slot: Slot, units: Units) -> bool:
    """Whether a slot falls away by what is known: its general topic is related to the user's, or the model named fewer
    topics or subtopics."""
    if slot.what == "fully-irrelevant":
        return not_in(output_of(units.get(similarity_unit(slot.user)), "unrelated"), slot.detail)
    if slot.topic and beyond(output_of(units.get(topics_unit(slot.user)), "topics"), slot.topic):
        return True
    return slot.what == "repetition" and beyond(output_of(units.get(subtopics_unit(slot)), "subtopics"), slot.subtopic)


def output_of(unit: Unit | None, key: str) -> Any:
    """A part of what a unit gave; None while it isn't done."""
    return unit.output.get(key) if unit is not None and unit.status == "done" else None


def not_in(known: list[str] | None, name: str) -> bool:
    return known is not None and name not in known


def beyond(known: list[str] | None, number: int) -> bool:
    return known is not None and number > len(known)


class Outline:
    """All units of a build, as far as they are known from what is done."""

    def __init__(self, spec: BuildSpec, source: Source) -> None:
        """Raises UsageError as `users_of`."""
        self.users = users_of(spec, source)
        self.profiles = profile_units(spec, source, self.users)
        self.similarities = [similarity_unit(user) for user in self.users] if needs_similarity(spec) else []
        self.slots = list(slots(spec, self.users))

    def expected(self, units: Units) -> dict[Stage, list[str]]:
        """The units of the stages that make questions: topics that aren't judged yet count as unrelated, and every
        topic as having all of its subtopics."""
        tasks = [*self.similarities, *(slot.unit for slot in self.slots if not void(slot, units))]
        return {"profiles": self.profiles, "tasks": tasks}
