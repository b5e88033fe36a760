"""Looking into the memories that are kept of a user: all of them, and what several systems find for one question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import streamlit as st

from opbench.analysis import ingestions
from opbench.errors import OpbenchError
from opbench.memories.manifest import Manifest
from opbench.running.keeping import memories_of, search_in
from opbench.running.remembering import Found
from opbench.sharing.visible import one_line, visible
from pages.shared import link, parts

PAGE_SIZE = 25
_ALL_DATES = "all dates"
#: Systems side by side: more are too narrow to read.
MOST = 4


def search(manifests: Mapping[str, Manifest]) -> None:
    """One question to several systems, what each finds beside the other. `manifests`: complete ingestions of one user
    by the name that tells them apart, a system's newest before its others."""
    parts.heading("What does each system find?")
    with st.container(horizontal=True, vertical_alignment="bottom"):
        question = link.text("Question", "question", placeholder="what a user might ask", width=420)
        k = link.number("Memories", 1, 100, 5, "k", width=110, help="Top k of each system")
    newest: dict[str, str] = {}
    for name, manifest in manifests.items():
        newest.setdefault(manifest.system, name)
    chosen = link.some_of(
        "Memory systems",
        list(manifests),
        "in",
        default=list(newest.values())[:2],
        max_selections=MOST,
        placeholder="none",
    )
    if not question.strip() or not chosen:
        st.caption("Type a question and press Enter: every chosen system is asked the same.")
        return
    with st.spinner("Asking…"):
        found = _found(tuple((name, *_version(manifests[name])) for name in chosen), question, k, manifests)
    frame = ingestions.hits({name: each.memories for name, each in found.items()})
    for place, (name, each) in zip(st.columns(len(found), gap="medium"), found.items(), strict=True):
        with place:
            _column(name, each, frame[frame["system"] == name])
    if frame.empty:
        return
    with st.expander("As a table", icon=":material/table:"):
        columns: dict[str, Any] = {
            "system": st.column_config.TextColumn("memory system"),
            "rank": st.column_config.NumberColumn("rank", width=50),
            "similarity": st.column_config.NumberColumn("similarity", format="%.3f", width=80),
            "date": st.column_config.TextColumn("date"),
            "also": st.column_config.TextColumn("found too by"),
            "memory": st.column_config.TextColumn("memory", width="large"),
        }
        shown = frame.assign(memory=[one_line(each, 400) for each in frame["memory"]])
        parts.table(shown, columns, "memory-search", frame, ["memory"])
    parts.remark(
        f"The {k} most similar memories of each system, as a run would retrieve them. Similarities are each system's "
        "own and not to be compared between systems. “Also in” means that the texts are the same, but for case and "
        "white space."
    )


def _column(name: str, found: Found, frame: pd.DataFrame) -> None:
    st.subheader(parts.plain(name), anchor=False)
    if found.problem:
        st.error(parts.plain(found.problem), icon=":material/error:")
        return
    hits = "1 memory" if len(frame) == 1 else f"{len(frame)} memories"
    st.caption(f"{hits} in {found.milliseconds:,.0f} ms")
    for hit in frame.to_dict("records"):
        with st.container(border=True):
            with st.container(horizontal=True, gap="small"):
                st.badge(f"{hit['rank']}", color="violet")
                similarity = "not told" if pd.isna(hit["similarity"]) else f"{hit['similarity']:.3f}"
                st.badge(f"similarity {similarity}", color="gray")
                st.badge(parts.plain(hit["date"]) or "no date", color="gray", icon=":material/event:")
                if hit["also"]:
                    st.badge(f"also in {parts.plain(hit['also'])}", color="green", icon=":material/done_all:")
            st.text(visible(hit["memory"]))


def _found(
    places: tuple[tuple[str, str, str, float], ...], question: str, k: int, manifests: Mapping[str, Manifest]
) -> dict[str, Found]:
    kept = st.session_state.get("memories-found")
    wanted = (places, question, k)
    # Drawing the page anew asks nobody again; what failed is asked again.
    if kept is not None and kept[0] == wanted and not any(each.problem for each in kept[1].values()):
        return dict(kept[1])
    names = [name for name, *_ in places]
    found = dict(zip(names, search_in([manifests[name] for name in names], question, k), strict=True))
    st.session_state["memories-found"] = (wanted, found)
    return found


def browse(manifests: Mapping[str, Manifest]) -> None:
    """All memories of one ingestion, by text and date."""
    parts.heading("All memories of this user")
    with st.container(horizontal=True, vertical_alignment="bottom"):
        name = link.one_of("In", list(manifests), "browse", width=240)
        says = link.text("Text in the memory", "says", placeholder="upper and lower case are the same", width=280)
        manifest = manifests[name]
        try:
            frame = _kept(manifest)
        except OpbenchError as error:
            st.error(parts.plain(str(error)), icon=":material/error:")
            return
        date = link.one_of("Date", [_ALL_DATES, *dict.fromkeys(frame["date"])], "date", width=200)
    chosen = frame if date == _ALL_DATES else frame[frame["date"] == date]
    if says:
        chosen = chosen[chosen["memory"].str.contains(says, case=False, regex=False)]
    st.markdown(f"**{len(chosen):,} of {len(frame):,} memories**")
    if chosen.empty:
        st.info(
            "This system keeps no memory of this user: nothing was extracted." if frame.empty else "No memory fits.",
            icon=":material/search_off:",
        )
        return
    _page_of(chosen, (name, says, date))


def _page_of(frame: pd.DataFrame, wanted: Sequence[str]) -> None:
    pages = -(-len(frame) // PAGE_SIZE)
    # Another filter begins at its first page; a link's own page is kept.
    if st.session_state.get("browsed", wanted) != wanted:
        st.session_state["part"] = 1
    st.session_state["browsed"] = wanted
    for given in st.query_params.get_all("part"):
        if not given.isdecimal() or not 1 <= int(given[:9]) <= pages:
            link.say(f"The link asks for part {given[:20]} of {pages:,}; it was left out.")
    table, below = st.container(), st.container()
    with below:
        page = st.pagination(pages, key="part", bind="query-params") if pages > 1 else 1
    start = PAGE_SIZE * (min(page, pages) - 1)
    shown = frame.iloc[start : start + PAGE_SIZE]
    columns: dict[str, Any] = {
        "number": st.column_config.NumberColumn("no.", width=50, help="In the order of the sessions"),
        "date": st.column_config.TextColumn("date", width=130, help="Of the session that it came from"),
        "memory": st.column_config.TextColumn("memory", width="large"),
    }
    with table:
        for row in shown.to_dict("records"):
            with st.container(gap=None):
                st.caption(f"{row['number']} · {parts.plain(row['date']) or 'no date'}")
                st.text(visible(row["memory"]))
        with st.expander("As a table", icon=":material/table:"):
            told = shown.assign(memory=[one_line(each, 1000) for each in shown["memory"]])
            parts.table(told, columns, "memories", frame, ["memory"])
            parts.remark(f"The table shows this page; the download has all {len(frame):,} that fit.")


def _version(manifest: Manifest) -> tuple[str, str, float]:
    return manifest.digest, manifest.user, manifest.changed_at


@st.cache_data(ttl=60, max_entries=16, show_spinner="Reading the memories…", hash_funcs={Manifest: _version})
def _kept(manifest: Manifest) -> pd.DataFrame:
    return ingestions.kept(memories_of(manifest))
