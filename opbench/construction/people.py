"""What a build knows of its users: profile, topics, and observations with their evidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from opbench.construction.loading import Source, source_of
from opbench.construction.slots import (
    observations_unit,
    output_of,
    profile_unit,
    sessions_without_observations,
    summary_unit,
    topics_unit,
    users_of,
)
from opbench.store.builds import Unit, load_build, read_units
from opbench.store.database import Store
from opbench.types import User


@dataclass(frozen=True, slots=True)
class Fact:
    """A true observation about a user; `evidence` are turn ids (the file has some without any)."""

    text: str
    evidence: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Person:
    """A user; `profile` and `topics` are None while they aren't made."""

    user: User
    profile: str | None
    topics: tuple[str, ...] | None
    facts: tuple[Fact, ...]


def read_people(store: Store, build_id: str) -> dict[str, Person]:
    """A build's users by id, in file order.

    Raises:
        UsageError: no such build.
        DataError: its conversations aren't here.
    """
    build = load_build(store, build_id)
    source = source_of(build.provenance)
    units = read_units(store, build_id, "profiles")
    return {user.id: person(source, units, user) for user in users_of(build.spec, source)}


def person(source: Source, units: Mapping[str, Unit], user: User) -> Person:
    """A user as far as is known by these units."""
    topics = output_of(units.get(topics_unit(user)), "topics")
    return Person(
        user,
        output_of(units.get(profile_unit(user)), "profile"),
        None if topics is None else tuple(topics),
        facts_of(source, units, user),
    )


def facts_of(source: Source, units: Mapping[str, Unit], user: User) -> tuple[Fact, ...]:
    """The observations about a user in the conversation's order: the file's own, else those that were extracted."""
    sessions = source.conversations[user.conversation].sessions
    found = [
        Fact(each.text, each.evidence)
        for session in sessions
        for each in session.observations
        if each.speaker == user.speaker
    ]
    for session in sessions_without_observations(source, user.conversation):
        extracted = output_of(units.get(observations_unit(user, session.number)), "observations") or []
        found += [Fact(text, (turn,)) for text, turn in extracted]
    return tuple(found)


def summaries_of(source: Source, units: Mapping[str, Unit], conversation: str) -> list[tuple[str, str]]:
    """(day, summary) of the sessions in order, as far as there are any: the file's own, else those that were made."""
    given = source.summaries.get(conversation, {})
    found = []
    for session in source.conversations[conversation].sessions:
        text = given.get(session.number) or output_of(units.get(summary_unit(conversation, session.number)), "summary")
        if text is not None:
            found.append((session.day, text))
    return found
