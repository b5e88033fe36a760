"""Sets of responses for judges: made, read in, renamed, deleted. Every deed is checked on the server: only editors."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from opbench.benchmarks import load
from opbench.calibration import csv_sets, position, sets, traps
from opbench.errors import OpbenchError
from opbench.store import judgings as kept
from opbench.store.database import Store
from opbench.store.judgings import SetRow
from opbench.store.reviews import review_list
from pages.shared import access, link, parts, results, view

_SAID = "judges-set-said"
_ROUND = "judges-set-round"
_MADE: dict[str, tuple[str, str]] = {
    "published": ("Published cases", ":material/menu_book:"),
    "traps": ("Wrong answers on purpose", ":material/warning:"),
    "bias": ("Answers of several shapes", ":material/straighten:"),
}


def tell() -> None:
    """What came of the last deed."""
    for sentence in st.session_state.pop(_SAID, []):
        st.success(parts.plain(sentence), icon=":material/check:")


def offer() -> None:
    """All ways to a set with people's scores."""
    tell()
    if not access.may_edit():
        st.caption("You look as a viewer: only editors make sets.")
        return
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        offer_made("published")
        _of_a_run()
    _of_a_review()
    _upload()
    st.caption("The same from the command line:")
    parts.code("opbench judges sets --help", "bash")


def offer_made(kind: str) -> None:
    """The button that makes a set of this kind from what there is."""
    label, icon = _MADE[kind]
    if not access.may_edit():
        st.info("There are no such answers yet, and only editors make them.", icon=icon)
        return
    st.button(label, key=f"make-set-{kind}", icon=icon, on_click=access.editing(_make), args=(kind,))


def _make(kind: str) -> None:
    makers: dict[str, Callable[[Store], str]] = {
        "published": lambda store: sets.published_set(store, access.name()),
        "traps": lambda store: traps.traps_set(store, load(), access.name()),
        "bias": lambda store: position.bias_set(store, load(), access.name()),
    }
    _done(makers[kind])


def _done(make: Callable[[Store], str]) -> None:
    """Make it, and say what came of it."""
    try:
        made = make(results.opened().store)
    except OpbenchError as error:
        link.say(str(error))
        return
    row = kept.find_set(results.opened().store, made)
    st.session_state.setdefault(_SAID, []).append(f"{row.name}: {row.items:,} responses, {row.rated:,} with scores.")


def _take_run(run_id: str) -> None:
    _done(lambda store: sets.run_set(store, run_id, access.name()))


def _take_review(review_id: str) -> None:
    _done(lambda store: sets.review_set(store, review_id, access.name()))


def _of_a_run() -> None:
    status = view.current().status
    if status is None:
        return
    st.button(
        "People's scores of the chosen run",
        key="make-set-run",
        icon=":material/reviews:",
        help="Scores that people gave on the Instances page or with `opbench rate`",
        on_click=access.editing(_take_run),
        args=(status.run_id,),
    )


def _of_a_review() -> None:
    reviews = {row.id: f"{row.name} · {row.id[:6]}" for row in review_list(results.opened().store)}
    if not reviews:
        return
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        chosen = str(st.selectbox("A review's scores", list(reviews), format_func=reviews.__getitem__, width=320))
        st.button(
            "Take them",
            key="make-set-review",
            icon=":material/rate_review:",
            on_click=access.editing(_take_review),
            args=(chosen,),
        )


def _upload() -> None:
    turn = st.session_state.get(_ROUND, 0)
    file = st.file_uploader("A CSV file with responses and scores", type=["csv"], key=f"judges-csv-{turn}")
    with st.expander("The file's columns", icon=":material/table_chart:"):
        st.markdown(
            "A row a score; rows with the same `item` are one response with several raters. Needed: "
            + ", ".join(f"`{name}`" for name in csv_sets.NEEDED)
            + ". As wanted: "
            + ", ".join(f"`{name}`" for name in csv_sets.OPTIONAL)
            + ". `score` is from 0 to 1, higher is less over-personalised; `memories`, `context` and `facts` hold a "
            "line each."
        )
    if file is None:
        return
    access.demand_edit()
    content, name = file.getvalue(), file.name
    st.session_state[_ROUND] = turn + 1
    _done(lambda store: csv_sets.csv_set(store, content, name, access.name()))
    st.rerun()


def steer(row: SetRow) -> None:
    """For editors: the set's name, its scores as a file, and its end."""
    store = results.opened().store
    st.download_button(
        "Download as CSV",
        lambda: csv_sets.write_csv(kept.read_set(store, row.id)).encode(),
        file_name="responses.csv",
        mime="text/csv",
        icon=":material/download:",
        key=f"download-set-{row.id}",
        on_click="ignore",
    )
    if not access.may_edit():
        return
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        name = st.text_input("Name", row.name, key=f"name-set-{row.id}", max_chars=200, width=320)
        st.button(
            "Rename",
            key=f"rename-set-{row.id}",
            icon=":material/edit:",
            disabled=not name.strip() or name == row.name,
            on_click=access.editing(kept.rename_set),
            args=(store, row.id, name.strip()),
        )
        sure = st.checkbox("Delete it and its judgings", key=f"sure-set-{row.id}")
        st.button(
            "Delete",
            key=f"delete-set-{row.id}",
            icon=":material/delete:",
            disabled=not sure,
            on_click=access.editing(kept.delete_set),
            args=(store, row.id),
            help="Paid calls stay in the call store: made again, it costs nothing.",
        )
