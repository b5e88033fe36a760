"""What a build will take, and the button that starts it. Only editors may, and that is checked at the deed."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from opbench.construction.launching import BuildOrder, launch
from opbench.construction.loading import Source
from opbench.construction.planning import BuildPlan, plan
from opbench.construction.spec import BuildSpec
from opbench.construction.starting import find_or_start, find_same
from opbench.figures import theme
from opbench.models import load_registry
from opbench.store.builds import read_units
from pages.shared import access, builds, chosen_models, parts, results, wording

#: Requests at a time of a build that the page starts.
AT_ONCE = 8


def offer(spec: BuildSpec, source: Source, missing: list[str]) -> None:
    """The estimate in numbers, and the button; `missing` are variables of keys that nobody has typed yet.

    Raises:
        UsageError: a user or a model isn't known.
    """
    same = find_same(results.opened().store, spec, source)
    estimate = _estimate(spec, source.sha256, same, source)
    _show(estimate)
    if same is not None:
        st.caption(
            f"Build {same} is this very build: starting it goes on there. Another seed or name makes another one."
        )
    if not access.may_edit():
        return
    if missing:
        st.info(f"Type a key first: {', '.join(missing)}.", icon=":material/key:")
    if st.button(
        "Build" if same is None else "Go on with it",
        key="start-building",
        type="primary",
        icon=":material/play_arrow:",
        disabled=bool(missing),
        help="In a process of its own; this page watches it. What is made stays.",
    ):
        access.demand_edit()
        store = results.opened().store
        build_id, there = find_or_start(store, spec, source, maker=access.name())
        launch(store, BuildOrder(build_id, "run", AT_ONCE), chosen_models.typed_keys())
        builds.look_again(build_id, f"Build {build_id} {'goes on' if there else 'is begun'}.")


@st.cache_data(ttl=10, max_entries=8, show_spinner="Working out what it takes…")
def _estimate(spec: BuildSpec, sha256: str, same: str | None, _source: Source) -> BuildPlan:
    """What is left to do; `sha256` is that of the conversations, `same` the build in the store that is this one."""
    store = results.opened().store
    units = {} if same is None else read_units(store, same)
    return plan(store, spec, _source, load_registry(), units=units, concurrency=AT_ONCE)


def _show(estimate: BuildPlan) -> None:
    asked = sum(estimate.candidates.values())
    with st.container(horizontal=True, gap="medium", key="build-quote"):
        st.metric("Users", f"{estimate.users:,}", width="content")
        st.metric("Questions, at most", f"{asked:,}", width="content", help="Before filters and review.")
        st.metric("Model calls, at most", f"{estimate.calls:,}", width="content")
        st.metric("Tokens in", f"{estimate.prompt_tokens:,}", width="content")
        st.metric("Tokens out", f"{estimate.completion_tokens:,}", width="content")
        st.metric("Cost", wording.dollars(estimate.cost_usd), width="content", help="By the registry's list prices.")
        st.metric("Time", f"≈ {wording.duration(estimate.seconds)}", width="content", help=f"{AT_ONCE} at a time.")
    if not estimate.units:
        st.caption("All of it is made already: starting it only filters again.")
        return
    st.caption(
        f"An estimate: {parts.plain(estimate.basis)}. A second call for each answer that has to be repaired comes on "
        "top; calls that the call store has already cost nothing."
    )
    with st.expander("By role, and by subtype", icon=":material/table:"):
        lines = pd.DataFrame(
            [
                {
                    "role": line.role,
                    "model": line.model,
                    "calls": line.units,
                    "tokens_in": line.prompt_tokens,
                    "tokens_out": line.completion_tokens,
                    "cost_usd": line.cost_usd,
                    "seconds": line.seconds,
                }
                for line in estimate.lines
            ]
        ).astype({"cost_usd": "float64"})
        number = st.column_config.NumberColumn
        columns: dict[str, Any] = {
            "role": "role",
            "model": "model",
            "calls": number("calls", format="localized"),
            "tokens_in": number("tokens in", format="localized"),
            "tokens_out": number("tokens out", format="localized"),
            "cost_usd": number("cost", format="$%.4f"),
            "seconds": number("seconds", format="%.0f"),
        }
        parts.table(lines, columns, "build-quote", lines)
        st.caption(
            "Questions asked for: "
            + ", ".join(f"{theme.name(name)} {n:,}" for name, n in estimate.candidates.items())
            + ". General topics that are related to a user's fall away."
        )
