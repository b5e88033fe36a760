"""What the Mechanism page looks at of a run: users, subtypes, memory systems and post-processors, kept in the link."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pandas as pd
import streamlit as st

from opbench.figures import theme
from opbench.store.rundata import RunData
from pages.shared import collecting, link, parts


@dataclass(frozen=True, slots=True)
class Looked:
    """Names of what is looked at; empty means all. `first_only`: first speakers of conversations."""

    users: tuple[str, ...] = ()
    subtypes: tuple[str, ...] = ()
    memories: tuple[str, ...] = ()
    mitigations: tuple[str, ...] = ()
    first_only: bool = False

    def instances(self, data: RunData) -> pd.DataFrame:
        """The run's instances that are looked at: those of the sidebar's lists are out already."""
        frame = data.instances
        if self.first_only:
            frame = frame[frame["first_speaker"].astype(bool)]
        for column, chosen in (("user", self.users), ("subtype", self.subtypes)):
            if chosen:
                frame = frame[frame[column].isin(chosen)]
        return frame

    def mask(self, frame: pd.DataFrame, data: RunData) -> pd.Series:
        """Which rows of a frame (with instance, and memory and mitigation where it has them) are looked at."""
        chosen = frame["instance"].isin(self.instances(data)["instance"])
        for column, names in (("memory", self.memories), ("mitigation", self.mitigations)):
            if names and column in frame:
                chosen &= frame[column].isin(names)
        return chosen

    def told(self) -> list[str]:
        """The filters that are set, as people read them."""
        named = {
            "users": self.users,
            "subtypes": self.subtypes,
            "memory systems": self.memories,
            "post-processors": self.mitigations,
        }
        return [f"{what}: {', '.join(map(theme.name, names))}" for what, names in named.items() if names]


def choose(data: RunData, *, first_only: bool) -> Looked:
    """Draw the filters and return what they say; what is set is a mark of the page's numbers."""
    with st.expander("By user, subtype, memory system and post-processor", icon=":material/filter_list:"):
        left, right = st.columns(2)
        with left:
            users = _any_of("Users", data.instances["user"], "of-user")
            subtypes = _any_of("Subtypes and categories", data.instances["subtype"], "of-subtype")
        with right:
            memories = _any_of("Memory systems", data.configurations["memory"], "of-memory")
            mitigations = _any_of("Post-processors", data.configurations["mitigation"], "of-processor")
    looked = Looked(users, subtypes, memories, mitigations, first_only)
    if told := looked.told():
        collecting.sheet().marks += told
        st.caption(parts.plain(f"Only {'; '.join(told)}."))
    return looked


def _any_of(label: str, options: Iterable[str], key: str) -> tuple[str, ...]:
    choices: Sequence[str] = list(dict.fromkeys(map(str, options)))
    names = {name: theme.name(name) for name in choices}
    return tuple(link.some_of(label, choices, key, names=names, placeholder="all"))
