"""The builds of the store as the Build page reads them: kept for a moment, read anew when something was done."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from opbench.analysis import builds as tables
from opbench.analysis import funnel as funnels
from opbench.analysis import generators as costs
from opbench.store import build_runs
from opbench.store import builds as store_builds
from opbench.store.builds import Build, Listed, Unit
from pages.shared import results

_SAID = "builds-said"
_ROUND = "builds-round"


@st.cache_data(ttl=2, max_entries=1, show_spinner=False)
def listed() -> list[Listed]:
    """All builds, newest first; up to two seconds old."""
    return store_builds.list_builds(results.opened().store)


@st.cache_data(ttl=2, max_entries=8, show_spinner=False)
def load(build_id: str) -> Build:
    """A build; up to two seconds old."""
    return store_builds.load_build(results.opened().store, build_id)


@st.cache_data(ttl=10, max_entries=4, show_spinner=False)
def units(build_id: str) -> dict[str, Unit]:
    """What was done of a build, by unit; up to ten seconds old."""
    return store_builds.read_units(results.opened().store, build_id)


@st.cache_data(ttl=10, max_entries=4, show_spinner="Reading the candidates…")
def candidates(build_id: str) -> pd.DataFrame:
    """A build's candidates; up to ten seconds old."""
    return tables.candidate_frame(store_builds.read_candidates(results.opened().store, build_id))


@st.cache_data(ttl=10, max_entries=4, show_spinner=False)
def funnel(build_id: str) -> pd.DataFrame:
    """How many candidates each step has left; up to ten seconds old."""
    return funnels.funnel(results.opened().store, build_id)


@st.cache_data(ttl=10, max_entries=4, show_spinner=False)
def reasons(build_id: str) -> pd.DataFrame:
    """What filters dropped, by generator, subtype and filter; up to ten seconds old."""
    return funnels.reasons(results.opened().store, build_id)


@st.cache_data(ttl=10, max_entries=8, show_spinner=False)
def generators(build_id: str, by_subtype: bool) -> pd.DataFrame:
    """What each generator's candidates cost and how many were accepted; up to ten seconds old."""
    return costs.generators(results.opened().store, build_id, by_subtype=by_subtype)


@st.cache_data(ttl=2, max_entries=8, show_spinner=False)
def runs(build_id: str) -> list[str]:
    """The runs on a build's questions, newest first; up to two seconds old."""
    return build_runs.runs_of_build(results.opened().store, build_id)


def forget() -> None:
    """Read builds anew."""
    for kept in (listed, load, units, candidates, funnel, reasons, generators, runs):
        kept.clear()


def look_again(build_id: str | None, *sentences: str) -> None:
    """Draw the page anew, with that build chosen, and say what was done."""
    st.session_state[_SAID] = list(sentences)
    # A new key empties what was typed and uploaded.
    st.session_state[_ROUND] = turn() + 1
    if build_id is not None:
        st.session_state["next_build"] = build_id
    forget()
    st.rerun()


def turn() -> int:
    """Part of the keys of what is typed once and then done with."""
    return int(st.session_state.get(_ROUND, 0))


def said() -> list[str]:
    """What was done before the page was drawn anew."""
    found: list[str] = st.session_state.pop(_SAID, [])
    return found
