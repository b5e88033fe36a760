"""A user to read beside a case: profile, topics and observations, and the history by session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import streamlit as st

from opbench.sharing.visible import visible
from opbench.types import Corpus, Profile, Session, User
from pages.shared import parts

#: Turns of a session that are shown before somebody asks for more: a session may have fifty.
_TURNS = 12
#: Hits of a search that are shown at a time.
_HITS = 10
_LONGEST_SEARCH = 200
Item = TypeVar("Item")
_KINDS = ("profile", "observations", "history")


def draw(corpus: Corpus, user: str, key: str = "user") -> None:
    """What is known of a user of the corpus. `key` tells several on a page apart.

    Raises:
        KeyError: the corpus has no such user.
    """
    who = corpus.users[user]
    conversation = corpus.conversations[who.conversation]
    profile = corpus.profiles.get(user)
    observations = len(profile.observations) if profile else 0
    names = {
        "profile": "Profile",
        "observations": f"Observations ({observations})",
        "history": f"History ({len(conversation.sessions)} sessions)",
    }
    chosen = st.segmented_control(
        "Read",
        _KINDS,
        format_func=names.__getitem__,
        default="profile",
        required=True,
        key=f"{key}-read",
        label_visibility="collapsed",
    )
    if chosen == "history":
        _history(conversation.sessions, who, f"{key}-{user}")
    elif chosen == "observations":
        _observations(profile, f"{key}-{user}")
    else:
        _profile(profile, who)


def _profile(profile: Profile | None, who: User) -> None:
    st.caption(
        f"{parts.plain(who.speaker)} in conversation {parts.plain(who.conversation)}, with {parts.plain(who.other)}."
    )
    if profile is None:
        st.caption("The benchmark's file has no profile of this user.")
        return
    if profile.topics:
        with st.container(horizontal=True, gap="small"):
            for topic in dict.fromkeys(profile.topics):
                st.badge(parts.plain(topic), color="gray")
    if profile.profile.strip():
        st.text(visible(profile.profile))
    else:
        st.caption("The profile's text is empty.")


def _observations(profile: Profile | None, key: str) -> None:
    if profile is None or not profile.observations:
        st.caption("The benchmark's file has no observations of this user.")
        return
    wanted = _search("Search the observations", key)
    found = [text for text in profile.observations if wanted in text.casefold()]
    if not found:
        st.caption("No observation holds that.")
        return
    if wanted:
        st.caption(f"{len(found)} of {len(profile.observations)}")
    # A page of its own for each search: its number is kept by the widget's key.
    for text in _paged(found, f"{key}-observations-{wanted}"):
        st.text(visible(text))


def _history(sessions: Sequence[Session], who: User, key: str) -> None:
    if not sessions:
        st.caption("The history is empty.")
        return
    wanted = _search("Search the history", key)
    if wanted:
        _hits(sessions, who, wanted, key)
        return
    chosen = st.selectbox(
        "Session",
        range(len(sessions)),
        format_func=lambda place: _named(sessions[place]),
        key=f"{key}-session",
        width=320,
    )
    session = sessions[int(chosen or 0)]
    whole = len(session.turns) <= _TURNS or st.toggle(
        f"All {len(session.turns)} turns", key=f"{key}-all-{session.number}"
    )
    with st.container(height=420 if whole and len(session.turns) > _TURNS else "content", border=False):
        for turn in session.turns if whole else session.turns[:_TURNS]:
            _turn(turn.speaker, turn.text, who)
    if not whole:
        st.caption(f"{len(session.turns) - _TURNS} more turns in this session.")
    own = [each.text for each in session.observations if each.speaker == who.speaker]
    if own:
        st.caption(f"What LoCoMo's annotators noted of {parts.plain(who.speaker)} in this session ({len(own)}):")
        st.text(visible("\n".join(f"• {text}" for text in own)))


def _hits(sessions: Sequence[Session], who: User, wanted: str, key: str) -> None:
    found = [(session, turn) for session in sessions for turn in session.turns if wanted in turn.text.casefold()]
    if not found:
        st.caption("No turn of the history holds that.")
        return
    days = len({session.number for session, _ in found})
    st.caption(
        f"{len(found)} {'turn' if len(found) == 1 else 'turns'} in {days} {'session' if days == 1 else 'sessions'}"
    )
    last = None
    for session, turn in _paged(found, f"{key}-history-{wanted}"):
        if session.number != last:
            st.markdown(f"**{parts.plain(_named(session))}**")
            last = session.number
        _turn(turn.speaker, turn.text, who)


def _turn(speaker: str, text: str, who: User) -> None:
    """The user's own turns are told by a mark as well as by the name."""
    own = speaker == who.speaker
    st.markdown(f"{'**' if own else ''}{parts.plain(speaker)}{' (the user)**' if own else ''}")
    st.text(visible(text))


def _search(label: str, key: str) -> str:
    text = st.text_input(
        label,
        key=f"{key}-{label}",
        max_chars=_LONGEST_SEARCH,
        placeholder="upper and lower case are the same",
        icon=":material/search:",
        label_visibility="collapsed",
    )
    return (text or "").strip().casefold()


def _paged(items: Sequence[Item], key: str) -> Sequence[Item]:
    """Those of the page that is chosen; the choice is there when there is more than one."""
    pages = -(-len(items) // _HITS)
    page = 1
    if pages > 1:
        page = int(st.number_input(f"Page, 1 to {pages}", 1, pages, 1, 1, key=f"{key}-page", width=160))
    return items[(page - 1) * _HITS : page * _HITS]


def _named(session: Session) -> str:
    return f"Session {session.number}, {session.day}"
