"""The filters of the Instances page: what is looked for, kept in the link."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import streamlit as st

from opbench.figures import theme
from opbench.store.reading import RunStatus
from opbench.store.search import ORDERS, OUTCOMES, STATES, Search
from opbench.types import Benchmark
from pages.shared import link

BENCHMARKS: dict[str, Benchmark | None] = {"both": None, "OP-Bench": "op", "LoCoMo": "locomo"}
_HUMAN = {"whether or not": None, "with a person's score": True, "without": False}
_ANY = "any"
_ICON = ":material/filter_list:"


def choose(
    status: RunStatus, there: dict[str, list[str]], *, first_only: bool, texts: bool, folded: bool, order_in: Any
) -> Search:
    """Draw the filters and return what they say. `there`: `opbench.store.search.names_of`; `texts`: whether to offer
    searching in them; `folded`: all of them behind one line; `order_in`: the container for the list's order."""
    whole = st.expander("Search and filters of the list", icon=_ICON) if folded else st.container()
    with whole:
        search = _choose(status, there, first_only, texts, folded)
    with whole if folded else order_in:
        order = link.one_of("Order of the list", ORDERS, "order", width=170)
    return replace(search, order=order)


def _choose(status: RunStatus, there: dict[str, list[str]], first_only: bool, texts: bool, folded: bool) -> Search:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        said = link.text(
            "Text in question or response",
            "says",
            placeholder="upper and lower case are the same",
            disabled=not texts,
            width=330,
        )
        benchmark = BENCHMARKS[link.one_of("Benchmark", list(BENCHMARKS), "only-benchmark", kind="segmented")]
    with st.container() if folded else st.expander("More filters", icon=_ICON):
        by = status.by_configuration
        first, second, third = st.columns(3)
        with first:
            models = _any_of("Model", by["model"], "only-model")
            memories = _any_of("Memory system", by["memory"], "only-memory")
            mitigations = _any_of("Post-processor", by["mitigation"], "only-processor")
        with second:
            users = _any_of("User", there["users"], "only-user")
            subtypes = _any_of("Subtype or category", there["subtypes"], "only-subtype")
            states = _any_of("Post-processor's state", STATES, "only-state")
        with third:
            low, high = score_range("score")
            outcome = link.one_of("Outcome", (_ANY, *OUTCOMES), "outcome")
            kinds = _any_of("Kind of error", there["error_kinds"], "only-error")
            human = _HUMAN[link.one_of("Scored by people", list(_HUMAN), "human")]
    return Search(
        models,
        memories,
        mitigations,
        benchmark,
        users,
        subtypes,
        first_only,
        low,
        high,
        next((name for name in OUTCOMES if name == outcome), None),
        kinds,
        states,
        said if texts else "",
        human,
    )


def told(search: Search) -> list[str]:
    """The filters that are set, as people read them; the order isn't one."""
    named = {
        "model": search.models,
        "memory system": search.memories,
        "post-processor": search.mitigations,
        "user": search.users,
        "subtype": search.subtypes,
        "state": search.states,
        "error": search.error_kinds,
    }
    found = [
        f"{what}: {', '.join(theme.NAMES.get(name, name) for name in names)}" for what, names in named.items() if names
    ]
    if search.benchmark:
        found.append("OP-Bench" if search.benchmark == "op" else "LoCoMo")
    if search.first_only:
        found.append("first speakers")
    if search.low > 0 or search.high < 1:
        found.append(f"score {search.low:g} to {search.high:g}")
    if search.outcome:
        found.append(search.outcome)
    if search.text:
        found.append(f"text “{search.text}”")
    if search.human is not None:
        found.append("with a person's score" if search.human else "without a person's score")
    return found


def score_range(key: str) -> tuple[float, float]:
    """A range of scores, 0 to 1; what of the link isn't one is said."""
    given = st.query_params.get_all(key)
    if given:
        try:
            ends = [float(each) for each in given]
        except ValueError:
            ends = []
        if len(ends) != 2 or not 0 <= ends[0] <= ends[1] <= 1:
            link.say(
                f"The link asks for {key}={'–'.join(given)[:40]}, which is no range within 0 and 1; it was left out."
            )
    low, high = st.slider(
        "Score",
        0.0,
        1.0,
        (0.0, 1.0),
        0.05,
        key=key,
        bind="query-params",
        help="Of the response, 0 to 1. A narrower range leaves out records without a score of their own; repetition is "
        "scored by user.",
    )
    return float(low), float(high)


def _any_of(label: str, options: Iterable[str], key: str) -> tuple[str, ...]:
    choices = list(dict.fromkeys(options))
    names = {name: theme.NAMES.get(name, name) for name in choices}
    return tuple(link.some_of(label, choices, key, names=names, placeholder="all"))
