"""Stage 1: each user's observations, profile and topics, from summaries of the sessions (paper, section 3.1).

What the conversations' file has already, summaries and observations, is taken from it.
"""

from __future__ import annotations

from opbench.construction import shapes
from opbench.construction.making import Making, Task, together
from opbench.construction.people import summaries_of
from opbench.construction.prompting import bullets, load_prompt
from opbench.construction.slots import (
    observations_unit,
    output_of,
    profile_unit,
    sessions_without_observations,
    sessions_without_summary,
    summary_unit,
    topics_unit,
)
from opbench.types import Session, User

#: Facts about one speaker that one session gives at most.
MOST_FACTS = 8


async def make_summaries(making: Making, conversation: str) -> bool:
    """Summaries of the sessions that have none; whether all are there then."""
    sessions = sessions_without_summary(making.source, conversation)
    done = await together(_summary(making, conversation, session) for session in sessions)
    return all(done)


async def make_observations(making: Making, user: User) -> None:
    """Observations about a user where the conversation has none at all; a session that fails is left out, and shown as
    failed."""
    sessions = sessions_without_observations(making.source, user.conversation)
    await together(_observations(making, user, session) for session in sessions)


async def make_profile(making: Making, user: User) -> bool:
    """A user's profile and topics; whether both are there then."""
    unit, prompt = profile_unit(user), load_prompt("profile")
    values = {"name": user.speaker, "other": user.other, "summaries": _summaries(making, user)}
    done = await making.do(
        Task(unit, "profiles", user.id, "extractor", making.spec.extractor, prompt, values, shapes.profile()),
        lambda value: shapes.not_copied(shapes.read_text(value, "profile"), load_prompt("profile").holds),
        lambda text: {"profile": text},
    )
    profile = output_of(done, "profile")
    if profile is None:
        return False
    n = making.spec.counts.topics
    values = values | {"profile": profile, "n": str(n)}
    unit, prompt, shape = topics_unit(user), load_prompt("topics"), shapes.names("topics", n)
    done = await making.do(
        Task(unit, "profiles", user.id, "extractor", making.spec.extractor, prompt, values, shape),
        lambda value: shapes.read_names(value, "topics", n, load_prompt("topics").holds),
        lambda topics: {"topics": topics},
    )
    return output_of(done, "topics") is not None


async def _summary(making: Making, conversation: str, session: Session) -> bool:
    speakers = " and ".join(making.source.conversations[conversation].speakers)
    values = {"date": session.day, "speakers": speakers, "session": spoken(session)}
    unit, prompt = summary_unit(conversation, session.number), load_prompt("summary")
    done = await making.do(
        Task(unit, "profiles", conversation, "extractor", making.spec.extractor, prompt, values, shapes.summary()),
        lambda value: shapes.not_copied(shapes.read_text(value, "summary"), prompt.holds),
        lambda text: {"summary": text},
    )
    return done is not None and done.status == "done"


async def _observations(making: Making, user: User, session: Session) -> None:
    turns = [turn.id for turn in session.turns]
    values = {
        "date": session.day,
        "speakers": f"{user.speaker} and {user.other}",
        "session": spoken(session, ids=True),
        "name": user.speaker,
        "other": user.other,
        "most": str(MOST_FACTS),
    }
    unit, prompt = observations_unit(user, session.number), load_prompt("observations")
    shape = shapes.observations(turns, MOST_FACTS)
    await making.do(
        Task(unit, "profiles", user.id, "extractor", making.spec.extractor, prompt, values, shape),
        lambda value: shapes.read_observations(value, turns, MOST_FACTS, prompt.holds),
        lambda found: {"observations": [list(pair) for pair in found[0]], "unusable": found[1]},
    )


def spoken(session: Session, *, ids: bool = False) -> str:
    """A session as text, a turn a line."""
    head = "{0.id} {0.speaker}: " if ids else "{0.speaker}: "
    return "\n".join(head.format(turn) + " ".join(turn.text.split()) for turn in session.turns)


def _summaries(making: Making, user: User) -> str:
    told = summaries_of(making.source, making.units, user.conversation)
    return bullets([f"{text} ({day})" for day, text in told])
