"""Which conversations a build is made of: the benchmark's, the sample's, or one's own file, converted if need be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import streamlit as st

from opbench.benchmarks import find
from opbench.construction.converting import Converted, convert_bytes
from opbench.construction.loading import Source, read_bytes, read_source
from opbench.figures import theme
from opbench.sharing.naming import file_stem
from pages.shared import access, builds, link, parts

CONVERSATIONS = {"auto": "benchmark data", "sample": "bundled sample", "upload": "a file of mine"}
_GAP_HOURS = 6.0


@dataclass(frozen=True, slots=True)
class Chosen:
    """The conversations, and what the command line says of them."""

    source: Source
    told: str


def choose(off: dict[str, Any]) -> Chosen | None:
    """Ask for conversations; None while there is no file.

    Raises:
        DataError: they can't be read; one line with the place.
    """
    where = link.one_of(
        "Conversations", list(CONVERSATIONS), "conversations", kind="segmented", names=CONVERSATIONS, **off
    )
    if where != "upload":
        there = find(None).source != "sample"
        sample = where == "sample" or not there
        if where != "sample" and not there:
            st.caption("No benchmark data here, so this is the bundled sample. `opbench data fetch` gets them.")
        source = read_source("sample" if sample else None)
        _say(source)
        return Chosen(source, "sample" if sample else "auto")
    found = _uploaded(off)
    if found is not None:
        _say(found.source)
    return found


def _say(source: Source) -> None:
    sessions = sum(len(each.sessions) for each in source.conversations.values())
    turns = sum(len(session.turns) for each in source.conversations.values() for session in each.sessions)
    made = [] if any(source.summaries.values()) else ["no session summaries, so these are made first"]
    noted = any(session.observations for each in source.conversations.values() for session in each.sessions)
    made += [] if noted else ["no observations, so these are drawn from the sessions"]
    st.caption(
        f"{_conversations(len(source.conversations))} of {theme.users(len(source.users))}, {sessions:,} sessions, "
        f"{turns:,} turns" + (f"; {', '.join(made)}" if made else "") + "."
    )


def _conversations(n: int) -> str:
    return "1 conversation" if n == 1 else f"{n:,} conversations"


def _uploaded(off: dict[str, Any]) -> Chosen | None:
    if not access.may_edit():
        st.caption("Only editors read files in.")
        return None
    file = st.file_uploader(
        "Conversations in LoCoMo's format (.json), or chats as JSON Lines (.jsonl)",
        type=["json", "jsonl"],
        key=f"build-upload-{builds.turn()}",
        help="Only the conversations are needed; summaries, observations and questions are used where they are there. "
        "A line of a chat names conversation, speaker or role, text and time.",
        **off,
    )
    if file is None:
        st.caption("Choose a file to see what a build of it takes.")
        return None
    access.demand_edit()
    if not file.name.lower().endswith(".jsonl"):
        return Chosen(_read(file.name, file.getvalue()), file.name)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        gap = st.number_input(
            "A new session after, hours",
            0.1,
            1000.0,
            _GAP_HOURS,
            1.0,
            key="build-gap",
            width=200,
            help="Of silence between two turns.",
        )
        zone = st.text_input(
            "Time zone of times that name none",
            "UTC",
            max_chars=60,
            key="build-zone",
            width=240,
            help="As in the IANA list, e.g. Europe/Berlin.",
        )
    made = _converted(file.name, file.getvalue(), float(gap), zone.strip() or "UTC")
    left_out = ", ".join(f"{n:,} {parts.plain(why)}" for why, n in made.left_out.items())
    st.caption(
        f"{_conversations(len(made.conversations))}, {made.sessions:,} sessions, {made.turns:,} turns"
        + (f"; messages left out: {left_out}." if left_out else ".")
    )
    stem = file_stem(file.name.rpartition(".")[0] or file.name)
    st.download_button(
        "Download it in LoCoMo's format",
        made.json,
        file_name=f"{stem}.json",
        mime="application/json",
        icon=":material/download:",
        key="build-converted",
        on_click="ignore",
    )
    return Chosen(_read(f"{stem}.json", made.json()), f"{stem}.json")


@st.cache_data(max_entries=2, show_spinner="Converting the chats…")
def _converted(name: str, content: bytes, gap_hours: float, zone: str) -> Converted:
    return convert_bytes(content, name, gap_hours=gap_hours, zone=zone)


@st.cache_resource(max_entries=2, show_spinner="Reading the conversations…")
def _read(name: str, content: bytes) -> Source:
    return read_bytes(content, name)
