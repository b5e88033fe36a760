"""The store as pages read it: opened once a server, results kept until the run has gone further."""

from __future__ import annotations

import time
from dataclasses import dataclass

import pandas as pd
import streamlit as st

from opbench.analysis import latency as latencies
from opbench.analysis import op
from opbench.analysis import tradeoff as tradeoffs
from opbench.analysis.aggregate import Rule
from opbench.analysis.compare import Kind
from opbench.benchmarks import exclusions
from opbench.calibration import recorded
from opbench.errors import DataError, StoreError
from opbench.settings import ROOT, settings
from opbench.store import bundle, reading
from opbench.store.database import Store, open_store
from opbench.store.reading import RunRow, RunStatus
from opbench.store.rundata import RunData
from opbench.types import Benchmark

DEMO = ROOT / "results" / "demo"
#: How old what is shown of a run at work may be: seconds, and seconds for every thousand planned records, so that a
#: large run isn't read over and over while it is written.
_FRESH_FOR, _FRESH_FOR_THOUSAND = 5, 0.5

#: Key, in the session and the link, of the exclusion lists that are left out.
WITHOUT = "without"

Stamp = tuple[int | str | tuple[tuple[str, str], ...], ...]
"""Changes when there is something new to read of a run."""


@dataclass(frozen=True, slots=True)
class Opened:
    """The store, and what was wrong with recorded bundles: a sentence each."""

    store: Store
    problems: tuple[str, ...]


@st.cache_resource(show_spinner="Opening the store…")
def opened() -> Opened:
    """Open the store and take in the recorded studies that come with the project.

    Raises:
        StoreError: the store can't be opened.
    """
    store = open_store(settings().store_url)
    problems = []
    for file in sorted(DEMO.glob(f"*{bundle.SUFFIX}")):
        try:
            bundle.import_run(store, file)
        except DataError as error:
            problems.append(str(error))
    for file in sorted(DEMO.glob(f"*{recorded.SUFFIX}")):
        try:
            recorded.import_judgings(store, file)
        except DataError as error:
            problems.append(str(error))
    return Opened(store, tuple(problems))


def problems() -> tuple[str, ...]:
    """What was wrong with recorded bundles; nothing where the store can't be opened, which the page says itself."""
    try:
        return opened().problems
    except StoreError:
        return ()


@st.cache_data(ttl=2, max_entries=1, show_spinner=False)
def runs() -> dict[str, RunRow]:
    """All runs by id, newest first; up to two seconds old."""
    return {row.run_id: row for row in reading.run_list(opened().store)}


@st.cache_data(ttl=2, max_entries=16, show_spinner=False)
def status(run_id: str) -> RunStatus:
    """How far a run is; up to two seconds old."""
    return reading.run_status(opened().store, run_id)


def forget() -> None:
    """Read runs anew: one was made, went on or ended."""
    runs.clear()
    status.clear()


def left_out() -> tuple[str, ...]:
    """The names of the exclusion lists that the sidebar leaves out of all averages."""
    return tuple(st.session_state.get(WITHOUT) or ())


def stamp(status: RunStatus) -> Stamp:
    """What a run's numbers are kept under: the time, in steps, while it is worked on, and then what there is of it;
    at the end what is left out of them: names of lists with digests of what is on them."""
    lists = tuple((name, exclusions.get(name).sha256) for name in left_out())
    if status.working:
        return "at work", int(time.time() // (_FRESH_FOR + _FRESH_FOR_THOUSAND * status.planned / 1000)), lists
    return status.done, status.errors, status.unscored, status.retriable, status.bundle_sha256, lists


@st.cache_resource(max_entries=4, show_spinner="Reading the run…")
def run_data(run_id: str, seen: Stamp) -> RunData:
    """A run as of `seen`, shared by all visitors: read-only, each frame read from the store when it is first used.

    Raises:
        UsageError: a list to leave out holds what can't be.
    """
    *whole, lists = seen
    if isinstance(lists, tuple) and lists:
        return run_data(run_id, (*whole, ())).without(exclusions.listed(name for name, _ in lists))
    return reading.read_run(opened().store, run_id)


@st.cache_data(max_entries=32, show_spinner="Working out the changes…")
def tradeoff(run_id: str, seen: Stamp, rule: Rule, kind: Kind, first_only: bool) -> pd.DataFrame:
    return tradeoffs.tradeoff(run_data(run_id, seen), rule, kind, first_only)


@st.cache_data(max_entries=32, show_spinner="Working out the averages…")
def op_table(run_id: str, seen: Stamp, rule: Rule, first_only: bool) -> pd.DataFrame:
    return op.op_table(run_data(run_id, seen), rule, first_only)


@st.cache_data(max_entries=32, show_spinner="Working out the times…")
def latency(run_id: str, seen: Stamp, fresh_only: bool, benchmark: Benchmark | None) -> pd.DataFrame:
    return latencies.latency(run_data(run_id, seen), fresh_only, benchmark)
