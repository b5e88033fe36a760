"""How a memory system reads a conversation: from the user's own point of view.

As MemOS's LoCoMo evaluation does it (docs/memory-systems.md): the user's own turns are `user`, the other speaker's are
`assistant`, and every text begins with the speaker's name. The session's date stands in the text, since libraries
stamp what they take in with today's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from opbench.types import Session, User


@dataclass(frozen=True, slots=True)
class ViewTurn:
    """One message of a user's view of a session."""

    role: Literal["user", "assistant"]
    speaker: str
    text: str
    """Begins with the date and the speaker's name: `(8 May 2023) Caroline: …`."""


def own_view(session: Session, user: User) -> list[ViewTurn]:
    """The session's turns as messages, in order."""
    return [
        ViewTurn(
            "user" if turn.speaker == user.speaker else "assistant",
            turn.speaker,
            f"({session.day}) {turn.speaker}: {turn.text}",
        )
        for turn in session.turns
    ]
