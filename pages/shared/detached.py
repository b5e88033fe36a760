"""Processes that the dashboard started and that go on by themselves: drawing those at work, and renewing the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import streamlit as st

from opbench.running.detached import Progress
from pages.shared import parts, wording


class Process(Protocol):
    @property
    def id(self) -> str: ...

    @property
    def working(self) -> bool: ...

    def progress(self) -> Progress | None: ...

    def last_words(self, lines: int = 12) -> list[str]: ...


P = TypeVar("P", bound=Process)


def follow(key: str, processes: Sequence[P], draw: Callable[[P], None], ended: str) -> None:
    """Draw those at work, and under the heading `ended` what the newest said when it is over. When one begins or ends,
    the whole page is drawn anew; `key` tells these processes from others'."""
    working = [each for each in processes if each.working]
    seen = tuple(each.id for each in working)
    was = st.session_state.get(key)
    st.session_state[key] = seen
    if was is not None and was != seen:
        # The rest of the page is drawn from what is there now.
        st.rerun()
    for process in working:
        draw(process)
    if processes and not processes[0].working and (words := processes[0].last_words()):
        with st.expander(ended, icon=":material/terminal:"):
            parts.code("\n".join(words))


def bar(found: Progress | None) -> None:
    """How far one is, with the time that is left."""
    if found is None:
        st.caption("It is starting: libraries and the model are loaded first.")
        return
    of = f"{parts.plain(found.label)}: " if found.label else ""
    left = "" if found.seconds_left is None else f", {wording.duration(found.seconds_left)} left"
    st.progress(min(1.0, found.done / max(1, found.planned)), text=f"{of}{found.done:,} of {found.planned:,}{left}")
