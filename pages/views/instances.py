"""All records of a run: found by what they are and say, opened one at a time or two side by side."""

from collections.abc import Collection, Sequence
from typing import Any

import pandas as pd
import streamlit as st

from opbench.analysis.agreement import FEWEST, agreement
from opbench.analysis.grids import Key, configuration_keys
from opbench.errors import UsageError
from opbench.figures import theme
from opbench.sharing.visible import one_line
from opbench.store import human, record, search
from opbench.store.reading import RunStatus
from opbench.store.rundata import RunData
from pages.shared import collecting, filters, link, one_record, parts, rating, results, view

PAGE_SIZE = 25
_CELL = 160
_NOTHING = "nothing"


@st.cache_data(max_entries=64, show_spinner="Searching…")
def found(run_id: str, seen: results.Stamp, people: int, wanted: search.Search) -> search.Ids:
    """The ids of all hits in order; `people` is the newest human score, which a search may ask for."""
    study = results.run_data(run_id, seen).study
    return search.found(results.opened().store, run_id, study, wanted)


@st.cache_data(max_entries=16, show_spinner=False)
def names(run_id: str, seen: results.Stamp) -> dict[str, list[str]]:
    return search.names_of(results.opened().store, run_id)


def open_record(instance: str, label: str) -> None:
    if "of" not in st.session_state:
        # A widget that isn't drawn yet doesn't write the value that it is given here into the link.
        st.query_params["of"] = label
    st.session_state["instance"], st.session_state["of"] = instance, label


def open_selected(rows_shown: Sequence[tuple[str, str]], key: str) -> None:
    rows = st.session_state[key]["selection"]["rows"]
    if rows and rows[0] < len(rows_shown):
        open_record(*rows_shown[rows[0]])


def close_record() -> None:
    st.session_state["instance"] = ""


def hits_of(data: RunData, ids: search.Ids, texts: bool = True) -> pd.DataFrame:
    frame = search.hits(results.opened().store, data.study, [int(each) for each in ids], texts)
    labels = frame["model"] + " · " + frame["memory"] + " · " + frame["mitigation"]
    return frame.assign(label=labels)


def show_hits(data: RunData, ids: search.Ids, wanted: search.Search) -> None:
    """A page of hits as a table; choosing a row opens its record."""
    said = filters.told(wanted)
    total = f"{len(ids):,} record{'' if len(ids) == 1 else 's'}"
    st.markdown(f"**{total}** {'fit: ' + parts.plain('; '.join(said)) if said else 'in this run.'}")
    if not len(ids):
        st.info("No record fits. Take a filter away, or search for other words.", icon=":material/search_off:")
        return
    pages = -(-len(ids) // PAGE_SIZE)
    # Another search begins at its first page; a link's own page is kept.
    if st.session_state.get("searched", wanted) != wanted:
        st.session_state["hits"] = 1
    st.session_state["searched"] = wanted
    for given in st.query_params.get_all("hits"):
        if not given.isdecimal() or not 1 <= int(given[:9]) <= pages:
            link.say(f"The link asks for page {given[:20]} of {pages:,}; it was left out.")
    # The widget stands below the table, and says which page the table shows.
    table, below = st.container(), st.container()
    with below:
        page = st.pagination(pages, key="hits", bind="query-params") if pages > 1 else 1
    start = PAGE_SIZE * (min(page, pages) - 1)
    frame = hits_of(data, ids[start : start + PAGE_SIZE])
    key = f"found-{start}-{abs(hash(wanted))}"
    rows = list(zip(frame["instance"], frame["label"], strict=True))
    left_out = {"question", "response"} if data.text_left_out else set()
    if data.configurations["model"].nunique() < 2:
        left_out.add("model")
    if frame["human"].isna().all():
        left_out.add("human")
    with table:
        st.caption("Tick a row to open its record.")
        parts.table(
            _shown(frame),
            _columns(left_out),
            "records",
            frame,
            ["question", "response", "reason", "error"],
            key=key,
            on_select=lambda: open_selected(rows, key),
            selection_mode="single-row",
            height="content",
        )
    if pages > 1:
        marks = collecting.sheet().marks
        with below:
            st.download_button(
                f"Download all {len(ids):,} (ids and numbers)",
                lambda: parts.csv(hits_of(data, ids, texts=False), marks),
                file_name="records-all.csv",
                mime="text/csv",
                icon=":material/download:",
                key="csv-all",
                on_click="ignore",
            )


def _shown(frame: pd.DataFrame) -> pd.DataFrame:
    outcome = [
        f"failed: {kind or 'not told'}" if status == "error" else status
        for status, kind in zip(frame["status"], frame["error_kind"], strict=True)
    ]
    shown = parts.named(frame).assign(outcome=outcome, seconds=frame["total_ms"] / 1000)
    for name in ("question", "response"):
        shown[name] = [one_line(each, _CELL) if isinstance(each, str) else None for each in frame[name]]
    return shown


def _columns(left_out: Collection[str]) -> dict[str, Any]:
    score = "Headline score, 0 to 1: the judge's (OP-Bench), token F1 or judged correct (LoCoMo)"
    columns: dict[str, Any] = {
        "instance": st.column_config.TextColumn("instance", width=180),
        "model": st.column_config.TextColumn("model", width=110),
        "memory": st.column_config.TextColumn("memory", width=70),
        "mitigation": st.column_config.TextColumn("post-processor", width=110),
        "score": st.column_config.NumberColumn("score", format="%.2f", width=55, help=score),
        "human": st.column_config.NumberColumn("person", format="%.2f", width=65, help="Newest score of a person"),
        "question": st.column_config.TextColumn("question", width=190),
        "response": st.column_config.TextColumn("response", width=260),
        "outcome": st.column_config.TextColumn("outcome", width=95),
        "state": st.column_config.TextColumn("post-processing", width=105, help="What came of the post-processing"),
        "seconds": st.column_config.NumberColumn("time", format="%.1f s", width=65, help="All stages"),
    }
    return {name: look for name, look in columns.items() if name not in left_out}


def show_record(data: RunData, ids: search.Ids, instance: str, row: Any) -> None:
    """The opened record, another beside it, and the way to its neighbours among the hits."""
    labels = {" · ".join(key): key for key in configuration_keys(data)}
    with row:
        here = labels[link.one_of("Configuration", list(labels), "of", width=260)]
        beside = link.one_of(
            "Beside it", [_NOTHING, *labels], "beside", width=260, help="Differing words are coloured and bold."
        )
    neighbours(data, ids, here, instance)
    store = results.opened().store
    try:
        first = record.read_record(store, data.run_id, here, instance)
        second = None if beside == _NOTHING else record.read_record(store, data.run_id, labels[beside], instance)
    except UsageError as error:
        st.warning(parts.plain(str(error)), icon=":material/search_off:")
        return
    parts.heading(instance)
    with st.container(horizontal=True, gap="small"):
        st.badge("OP-Bench" if first.benchmark == "op" else "LoCoMo", color="blue")
        st.badge(parts.plain(theme.NAMES.get(first.subtype, first.subtype)), color="gray")
        st.badge(parts.plain(first.user), icon=":material/person:", color="gray")
    one_record.asked(first)
    places = st.columns(2, gap="medium") if second is not None else [st.container()]
    for place, mine, other, side in zip(places, (first, second), (second, first), "ab", strict=False):
        with place:
            if mine is not None:
                one_record.draw(mine, other, side)
                if mine.made:
                    rating.draw(mine, side)


def neighbours(data: RunData, ids: search.Ids, key: Key, instance: str) -> None:
    """Back to the list, and the previous and next hit."""
    store = results.opened().store
    at = search.place_of(store, data.run_id, key, instance)
    found_at = [] if at is None else (ids == at).nonzero()[0].tolist()
    places = [] if not found_at else [place for place in (found_at[0] - 1, found_at[0] + 1) if 0 <= place < len(ids)]
    around = hits_of(data, ids[places], texts=False).to_dict("records")
    # A hit that is gone since the search is no neighbour.
    by_place = dict(zip(places, around, strict=False)) if len(around) == len(places) else {}
    with st.container(horizontal=True, vertical_alignment="center"):
        st.button("All hits", icon=":material/arrow_back:", on_click=close_record, key="close")
        for step, label, icon in ((-1, "Previous", "chevron_left"), (1, "Next", "chevron_right")):
            row = by_place.get(found_at[0] + step) if found_at else None
            st.button(
                label,
                icon=f":material/{icon}:",
                key=f"step{step}",
                disabled=row is None,
                on_click=open_record,
                args=None if row is None else (row["instance"], row["label"]),
            )
        told = f"hit {found_at[0] + 1:,} of {len(ids):,}" if found_at else f"not among the {len(ids):,} hits"
        st.caption(told)


def show_people(data: RunData) -> None:
    """All scores that people gave in this run, and how far the judge agrees."""
    parts.heading("Scores that people gave")
    scores = human.human_scores(results.opened().store, data.run_id, data.study)
    if scores.empty:
        st.caption("Nobody has scored a response of this run yet. Open one: the form is below the judge's score.")
        return
    when = pd.to_datetime(scores["made_at"], unit="s", utc=True)
    shown = parts.named(scores).assign(
        at=when,
        by=[one_line(each, 80) for each in scores["rater"]],
        note=[one_line(each, _CELL) for each in scores["note"]],
        counts=scores["current"].map({True: "yes", False: "no"}),
    )
    columns = {
        "instance": st.column_config.TextColumn("instance", width=210),
        "memory": "memory",
        "mitigation": "post-processor",
        "value": st.column_config.NumberColumn("person", format="%.2f", width=75, help="0 to 1; none: withdrawn"),
        "judge_score": st.column_config.NumberColumn(
            "judge", format="%.2f", width=75, help="Of the response there now"
        ),
        "note": st.column_config.TextColumn("note", width=240),
        "by": "by",
        "at": st.column_config.DatetimeColumn("at (UTC)", format="YYYY-MM-DD HH:mm"),
        "counts": st.column_config.TextColumn(
            "counts", help="The newest score of a person for the response that is there now"
        ),
    }
    parts.table(shown, columns, "scores-of-people", scores, ["note"])
    _show_agreement(agreement(scores))


def _show_agreement(frame: pd.DataFrame) -> None:
    for row in frame.to_dict("records"):
        of = "OP-Bench" if row["benchmark"] == "op" else "LoCoMo"
        if row["n"] < FEWEST:
            parts.remark(f"{of}: {row['note']}.")
            continue
        interval = (
            f"95 % interval {theme.change(row['low'])} to {theme.change(row['high'])}, by user"
            if pd.notna(row["low"])
            else f"no interval: {row['note']}"
        )
        parts.remark(
            f"{of}: over {row['n']} responses that both scored, the judge gives {theme.points(row['judge'])} and "
            f"people {theme.points(row['people'])} points: a difference of {theme.change(row['difference'])} "
            f"({interval}); {theme.points(row['apart'])} apart on average. Raters: {row['raters']}."
        )
    if len(frame):
        parts.remark("People choose what they score, so this is no measure of the judge over the whole run.")


def show_run(current: view.View, status: RunStatus) -> None:
    seen = results.stamp(status)
    data = results.run_data(status.run_id, seen)
    parts.run_marks(status, data, *(["first speakers only"] if current.first_only else []))
    if status.text_left_out:
        st.info(
            "This recorded study came without its texts (the benchmark's sentences may not be passed on): ids, scores, "
            "times and tokens are here, questions, memories and responses aren't.",
            icon=":material/visibility_off:",
        )
    if not status.done and not status.errors:
        parts.nothing_yet("No record is finished yet.")
        return
    search_place, row = st.container(), st.container(horizontal=True, vertical_alignment="bottom")
    with row:
        instance = link.text(
            "Open an instance by its id", "instance", placeholder="op/conv-26/Caroline/fact/1", width=290
        ).strip()
    with search_place:
        wanted = filters.choose(
            status,
            names(status.run_id, seen),
            first_only=current.first_only,
            texts=not status.text_left_out,
            folded=bool(instance),
            order_in=row,
        )
    ids = found(status.run_id, seen, human.newest(results.opened().store, status.run_id), wanted)
    if instance:
        show_record(data, ids, instance, row)
    else:
        show_hits(data, ids, wanted)
        show_people(data)
    parts.run_provenance(status, data, speakers="first only" if current.first_only else "all")


parts.title("What did it say, and to what?")
looked_at = view.current()
if looked_at.status is None:
    parts.published_marks()
    parts.launch_first(
        "The published figures have no instances: the paper prints averages only. Choose a run under “Results of”, or "
        "launch a study."
    )
else:
    show_run(looked_at, looked_at.status)
