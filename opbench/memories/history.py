"""What memory systems take in: its hash, and its text made fit for every library."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, replace

from opbench.models.failures import storable
from opbench.types import Conversation, Session, User


def history_sha256(conversation: Conversation) -> str:
    """SHA-256 (hex) of what the memory systems ingest of a conversation."""
    canonical = json.dumps(asdict(conversation), sort_keys=True, ensure_ascii=False, default=str)
    # Halves of characters have no UTF-8 form, and a file may hold them as JSON escapes.
    return hashlib.sha256(canonical.encode(errors="surrogatepass")).hexdigest()


def user_history_sha256(user: User, history: Sequence[Session]) -> str:
    """The hash of the conversation whose sessions these are: the one that a run's provenance holds."""
    speakers = (user.speaker, user.other) if user.first else (user.other, user.speaker)
    return history_sha256(Conversation(user.conversation, speakers, tuple(history)))


def fit(session: Session) -> Session:
    """The session with halves of characters and NUL replaced in its texts: no library's store takes them."""
    return replace(session, turns=tuple(replace(turn, text=storable(turn.text)) for turn in session.turns))
