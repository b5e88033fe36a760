"""A new review: of which run, which two configurations, by how many people, with which spot checks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import streamlit as st

from opbench.errors import UsageError
from opbench.figures import theme
from opbench.review.checks import Check, default_checks, read_checks
from opbench.review.making import pairs_of, plan, save_plan
from opbench.review.spec import ReviewSpec, drawn_seed
from opbench.store.record import Key
from opbench.store.reviews import LONGEST_NAME
from opbench.types import OP_SUBTYPES
from pages.shared import access, parts, results, view

_ROUND = "review-round"
_NONE, _OURS, _FILE = "none", "those of the workbench", "from a file"


def form(made: Callable[[str, str], None]) -> None:
    """The form; `made` is told the id of what was made, and a sentence about it."""
    runs = results.runs()
    if not runs:
        parts.launch_first("A review is made from a run with BASE and a memory system: launch one first.")
        return
    turn = st.session_state.get(_ROUND, 0)
    looked_at = view.current().status
    ids = list(runs)
    first = ids.index(looked_at.run_id) if looked_at is not None and looked_at.run_id in runs else 0
    run_id = st.selectbox(
        "Run",
        ids,
        first,
        format_func=lambda each: view.describe(runs[each]),
        key=f"review-run-{turn}",
        help="Its texts are copied: the review stands by itself, and the run may be deleted.",
    )
    pairs = pairs_of(results.opened().store, run_id)
    if not pairs:
        st.info(
            "This run has no BASE beside a memory system, so there is nothing to compare. Choose another.",
            icon=":material/info:",
        )
        return
    checks_from = st.segmented_control(
        "Spot checks",
        [_OURS, _FILE, _NONE],
        default=_OURS,
        required=True,
        key=f"review-checks-{turn}",
        help="Items with an evident verdict, mixed in without a word: they measure care and decide nothing.",
    )
    file = None
    if checks_from == _FILE:
        file = st.file_uploader("Spot checks as JSON Lines", type=["jsonl"], key=f"review-checks-file-{turn}")
    with st.form(f"review-new-{turn}", border=True):
        with st.container(horizontal=True):
            name = st.text_input("Name", max_chars=LONGEST_NAME, width=280, placeholder="pilot, first round")
            pair = st.selectbox("Responses of", pairs, format_func=_pair, width=420)
        with st.container(horizontal=True):
            per_item = st.number_input("Reviewers an item", 1, 9, 2, width=150, help="Independent of each other.")
            limit = st.number_input(
                "Items at most", 1, 100_000, None, width=150, placeholder="all", help="Spread over users and subtypes."
            )
            hours = st.number_input(
                "Hours in hand", 0.5, 1000.0, 72.0, width=150, help="Held for longer, an item goes back to the others."
            )
            every = st.number_input("A spot check in", 2, 100, 10, width=150, help="Of so many items one is a check.")
        subtypes = st.multiselect("Subtypes", OP_SUBTYPES, format_func=theme.name, placeholder="all")
        guidance = st.text_area(
            "Guidance", max_chars=5000, height=100, placeholder="Shown to reviewers above every item; plain text."
        )
        if not st.form_submit_button("Make the review", type="primary", icon=":material/rate_review:"):
            return
    access.demand_edit()
    base, memory = pair
    spec = ReviewSpec(
        base=base,
        memory=memory,
        per_item=int(per_item),
        subtypes=tuple(subtypes),
        limit=None if limit is None else int(limit),
        hours=float(hours),
        check_every=int(every),
        seed=drawn_seed(),
        guidance=guidance,
    )
    checks = _checks(checks_from, None if file is None else (file.name, file.getvalue()))
    store = results.opened().store
    planned = plan(store, run_id, spec)
    review_id = save_plan(store, run_id, spec, planned, name=name, maker=access.name(), checks=checks)
    st.session_state[_ROUND] = turn + 1
    left_out = "".join(f" {count:,} left out: {reason}." for reason, count in planned.left_out.items())
    made(review_id, f"Made: {len(planned.items):,} items and {len(checks)} spot checks.{left_out} Now invite people.")


def _pair(pair: tuple[Key, Key]) -> str:
    (model, _, _), (_, memory, mitigation) = pair
    return f"{model}: BASE and {theme.name(memory)}, {theme.name(mitigation)}"


def _checks(chosen: str | None, file: tuple[str, bytes] | None) -> Sequence[Check]:
    if chosen == _NONE:
        return ()
    if chosen != _FILE:
        return default_checks()
    if file is None:
        raise UsageError("choose the file with the spot checks, or none.")
    name, content = file
    try:
        return read_checks(content.decode("utf-8"), name)
    except UnicodeDecodeError:
        raise UsageError(f"{name}: no text in UTF-8.") from None
