"""A review as files: its answers to read elsewhere, items to be answered elsewhere, and answers that come back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import streamlit as st

from opbench.errors import UsageError
from opbench.review.interchange import Form, export_answers, file_name, import_answers, import_review
from opbench.store.reviews import ReviewRow
from pages.shared import access, parts, results

_FORMS: Mapping[Form, tuple[str, str, str]] = {
    "csv": ("Answers as CSV", "text/csv", "Every entry in order, with what was taken back. For a table."),
    "jsonl": (
        "Review as JSON Lines",
        "application/x-ndjson",
        "Items, people and every entry: it makes the same review in another store. It holds the responses' texts.",
    ),
    "argilla": ("For Argilla", "application/zip", "A data set's folder: `rg.Dataset.from_disk`. Blind: A and B."),
    "label-studio": ("For Label Studio", "application/zip", "Tasks and labelling interface. Blind: A and B."),
}
_WHENCE: Mapping[Form, str] = {
    "csv": "CSV of answers",
    "jsonl": "JSON Lines of this review",
    "argilla": "Argilla's records.json, or its folder in a zip",
    "label-studio": "Label Studio's JSON export",
}
_ROUND = "review-files-round"
_TOO_MANY = 20


def draw(review: ReviewRow, done: Callable[[str, str], None]) -> None:
    """Exports; for editors imports too. `done` is told the review's id and what was taken in."""
    parts.heading("Export")
    with st.container(horizontal=True):
        for form, (label, mime, text) in _FORMS.items():
            st.download_button(
                label,
                partial(export_answers, results.opened().store, review.id, form),
                file_name=file_name(results.opened().store, review.id, form),
                mime=mime,
                icon=":material/download:",
                key=f"review-export-{form}",
                on_click="ignore",
                help=text,
            )
    st.caption(
        "Two with the answers that were given here, two with the items to be answered elsewhere. Links' secrets are "
        "in none of them. Texts of the benchmarks may not be passed on freely."
    )
    if access.may_edit():
        parts.heading("Import answers")
        _take_answers(review, done)


def _take_answers(review: ReviewRow, done: Callable[[str, str], None]) -> None:
    turn = st.session_state.get(_ROUND, 0)
    with st.form(f"review-import-{review.id}-{turn}", border=True):
        form = st.selectbox("What it is", list(_WHENCE), format_func=_WHENCE.__getitem__, width=380)
        file = st.file_uploader("File", type=["csv", "jsonl", "json", "zip"])
        names = st.text_area(
            "Names",
            height=80,
            placeholder="name in the file = name here, a line each; none: as in the file",
            help="Argilla calls people by ids, Label Studio by e-mail addresses.",
        )
        replace = st.checkbox("Replace what the same person said of an item here", help="Else it is a conflict.")
        if not st.form_submit_button("Take in", type="primary", icon=":material/upload_file:"):
            return
    access.demand_edit()
    if file is None:
        raise UsageError("choose a file with answers first.")
    taken = import_answers(
        results.opened().store,
        review.id,
        file.getvalue(),
        form,
        file=file.name,
        replace=replace,
        names=_names(names),
    )
    st.session_state[_ROUND] = turn + 1
    conflicts = "".join(f" {each}" for each in taken.conflicts[:_TOO_MANY])
    people = f" New here: {', '.join(taken.reviewers)}." if taken.reviewers else ""
    done(review.id, f"Taken in: {taken.new:,} answers, {taken.known:,} were there already.{people}{conflicts}")


def take_review(done: Callable[[str, str], None]) -> None:
    """Make a review again from its JSON Lines: for editors."""
    turn = st.session_state.get(_ROUND, 0)
    with st.expander("A review from a file", icon=":material/upload_file:"), st.form(f"review-again-{turn}"):
        file = st.file_uploader("Review as JSON Lines", type=["jsonl"])
        if not st.form_submit_button("Read in", icon=":material/upload_file:"):
            return
    access.demand_edit()
    if file is None:
        raise UsageError("choose the file of a review first.")
    made = import_review(results.opened().store, file.getvalue(), file=file.name, maker=access.name())
    st.session_state[_ROUND] = turn + 1
    done(made, "Read in. Links aren't in such a file: give people new ones under People.")


def _names(told: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, line in enumerate(told.splitlines(), 1):
        if not line.strip():
            continue
        theirs, is_one, ours = line.partition("=")
        if not is_one or not theirs.strip() or not ours.strip():
            raise UsageError(f"names, line {number}: write “name in the file = name here”.")
        found[theirs.strip()] = ours.strip()
    return found
