"""The memory systems that there are: their names for people, what they need, and how to install what isn't there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import streamlit as st

from opbench.figures import theme
from opbench.memories.registry import ingesting_names, memory_label, memory_names, needs_extractor
from opbench.running import keeping
from pages.shared import parts

__all__ = ["label", "labels", "libraries", "missing", "needs_extractor", "say_missing"]

_COMMAND = re.compile(r"\b(?:opbench|pip|apt-get) [^.,;`']+")


def label(name: str) -> str:
    """A memory system as people write it, the same as in figures and tables."""
    return theme.NAMES.get(name) or memory_label(name)


def labels() -> dict[str, str]:
    """All memory systems of this process, by name."""
    return {name: label(name) for name in memory_names()}


def libraries() -> list[str]:
    """The memory systems that take histories in session by session and keep them."""
    return ingesting_names()


@st.cache_data(ttl=10, max_entries=8, show_spinner=False)
def _missing(names: tuple[str, ...]) -> dict[str, str]:
    return keeping.not_installed(names)


def missing(names: Iterable[str]) -> Mapping[str, str]:
    """Of these, the ones that can't be used here, each with the sentence that says why and what mends it."""
    return _missing(tuple(name for name in names if name in set(libraries())))


def say_missing(found: Mapping[str, str]) -> None:
    """Say which memory systems aren't installed, each with the command that installs it."""
    for sentence in dict.fromkeys(found.values()):
        names = " and ".join(f"**{parts.plain(label(name))}**" for name, said in found.items() if said == sentence)
        st.info(f"{names} can't be used here: {parts.plain(sentence)}", icon=":material/download:")
        if command := _COMMAND.search(sentence):
            parts.code(command[0].strip(), "bash")
