"""The users of a build: profile, topics, and the observations with the turns that they rest on."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from opbench.construction.people import Person, read_people
from opbench.sharing.visible import one_line, visible
from pages.shared import link, parts, results

_CELL = 300


@st.cache_data(ttl=10, max_entries=4, show_spinner="Reading the profiles…")
def _people(build_id: str) -> dict[str, Person]:
    return read_people(results.opened().store, build_id)


def show(build_id: str) -> None:
    """One user at a time."""
    people = _people(build_id)
    made = sum(each.profile is not None and each.topics is not None for each in people.values())
    with st.expander(f"Profiles and topics: {made:,} of {len(people):,} users", icon=":material/person:"):
        if not people:
            return
        user = link.one_of("Profile of", list(people), "profile", width=320)
        person = people[user]
        if person.profile is None:
            st.info("Their profile isn't made yet.", icon=":material/hourglass_empty:")
        else:
            st.text(visible(person.profile))
        with st.container(horizontal=True, gap="small"):
            for topic in person.topics or ():
                st.badge(parts.plain(topic), color="violet", icon=":material/label:")
        if not person.facts:
            st.caption("No observation is known of them yet: memory-level questions need some.")
            return
        frame = pd.DataFrame([{"observation": fact.text, "evidence": " ".join(fact.evidence)} for fact in person.facts])
        columns: dict[str, Any] = {
            "observation": st.column_config.TextColumn("observation", width="large"),
            "evidence": st.column_config.TextColumn("turns", width=110, help="Ids of the turns that it rests on"),
        }
        shown = frame.assign(observation=[one_line(each, _CELL) for each in frame["observation"]])
        parts.table(shown, columns, "observations", frame, ["observation"])
