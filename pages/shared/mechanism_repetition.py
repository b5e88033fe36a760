"""The Mechanism page's section on repetition: how far apart a user's responses lie (the paper's figure 17), which are
most alike, and which memories come back."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from opbench.analysis import response_map as analysis
from opbench.analysis.grids import Key, configuration_keys
from opbench.analysis.recurring import recurring
from opbench.analysis.response_map import ResponseMap
from opbench.errors import UsageError
from opbench.figures import response_map as figures
from opbench.figures import theme
from opbench.figures.answers import Answer
from opbench.figures.attention import configuration_name
from opbench.figures.mechanism_answers import repetition_answers
from opbench.sharing.visible import one_line
from opbench.store.reading import RunStatus
from opbench.store.rundata import RunData
from opbench.store.texts import read_texts
from opbench.study import BASE, NO_MITIGATION
from pages.shared import answering, collecting, link, parts, results, texts
from pages.shared.mechanism_filters import Looked

_PAIRS = 20
_LONGEST = 90
_ALL = "all users"
DEFINITION = (
    "Embeddings of the responses to repetition questions. The dispersion is the repetition score under its geometric "
    "name: 100 × (1 − mean cosine) of a user's responses to different questions, in points; lower is more alike. It is "
    "measured in all dimensions; the map is a projection (PCA) of them for the eye, fitted to all its points together. "
    "The paper's figure 17 shows such maps by text-embedding-3-small, without numbers."
)


@st.cache_data(max_entries=16, show_spinner="Measuring distances…")
def _dispersions(
    run_id: str, stamp: results.Stamp, first_only: bool, users: tuple[str, ...]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    data = results.run_data(run_id, stamp)
    return analysis.dispersion_changes(data, first_only, users), analysis.dispersions(data, first_only, users)


@st.cache_resource(max_entries=16, show_spinner="Drawing the map…")
def _map(run_id: str, stamp: results.Stamp, keys: tuple[Key, ...], users: tuple[str, ...]) -> ResponseMap:
    return analysis.response_map(results.run_data(run_id, stamp), keys, users)


@st.cache_resource(max_entries=16, show_spinner="Reading the responses…")
def _texts(run_id: str, stamp: results.Stamp, user: str) -> pd.DataFrame:
    """A user's responses to repetition questions with their memories; shared by all visitors and read only."""
    return read_texts(results.opened().store, run_id, subtypes=(analysis.REPETITION,), users=(user,), memories=True)


def show(status: RunStatus, data: RunData, looked: Looked) -> None:
    """All of the section."""
    stamp = results.stamp(status)
    users = tuple(_users(data, looked))
    if not users:
        st.info("No repetition question is among what is looked at.", icon=":material/filter_alt_off:")
        return
    changes, by_user = _dispersions(status.run_id, stamp, looked.first_only, users)
    changes = changes[_configurations(changes, looked)]
    by_user = by_user[_configurations(by_user, looked) | (by_user["memory"] == BASE)]
    if by_user["dispersion"].isna().all():
        parts.nothing_yet(f"No dispersion yet: {'; '.join(sorted(set(by_user['reason']) - {''}))}.")
        return
    mark = theme.provenance(recorded=status.recorded, comparable=data.comparable)
    if sentences := repetition_answers(changes):
        answering.say([Answer("Dispersion of a user's responses", tuple(sentences))])
    _changes(changes, mark)
    _by_user(by_user)
    _on_the_map(status, data, looked, mark)
    if data.text_left_out:
        parts.remark(
            "This run came without texts: which responses are alike and which memories come back can't be read here."
        )
    else:
        _one_user(status, data, looked)
    parts.remark(DEFINITION)


def _configurations(frame: pd.DataFrame, looked: Looked) -> pd.Series:
    chosen = pd.Series(True, index=frame.index)
    for column, names in (("memory", looked.memories), ("mitigation", looked.mitigations)):
        if names:
            chosen &= frame[column].isin(names)
    return chosen


def _changes(frame: pd.DataFrame, mark: str) -> None:
    parts.heading("With memory and without")
    if frame["change"].isna().all():
        parts.remark("Nothing can be paired: that takes a memory system and BASE, with two responses of a user each.")
        return
    parts.chart(
        figures.dispersion_figure(frame, mark),
        "dispersion",
        "Changes of the mean distance of a user's responses, with their intervals; the table has the numbers",
    )
    number, text = st.column_config.NumberColumn, st.column_config.TextColumn
    several = frame["model"].nunique() > 1
    rows = frame.to_dict("records")
    shown = frame.assign(
        what=[
            configuration_name(row["model"], row["memory"], row["mitigation"], several_models=several)
            + f" against {configuration_name(row['model'], row['against_memory'], row['against_mitigation'])}"
            for row in rows
        ],
        within=[theme.span(row["low"], row["high"]) for row in rows],
        nearer=[f"{row['closer']} of {row['users']}" for row in rows],
    )
    columns: dict[str, Any] = {
        "what": "what",
        "dispersion": number("dispersion", format="%.1f", help="Points: 100 × (1 − mean cosine), mean over users"),
        "against": number("against", format="%.1f"),
        "change": number("change", format="%+.1f", help="Below 0: closer together"),
        "within": text("95 %", help="Over users drawn anew"),
        "p_holm": number("adjusted p", format="%.4f", help="Holm's, over all changes; random memories apart"),
        "nearer": text("users closer", help="Users whose responses lie closer together"),
        "responses": number("responses"),
        "reason": "no interval because",
    }
    if not frame["reason"].any():
        del columns["reason"]
    parts.table(shown, columns, "dispersion", frame)


def _by_user(frame: pd.DataFrame) -> None:
    with st.expander("By user", icon=":material/table:"):
        columns: dict[str, Any] = {
            "memory": "memory",
            "mitigation": "post-processor",
            "user": "user",
            "dispersion": st.column_config.NumberColumn("dispersion", format="%.1f"),
            "n": st.column_config.NumberColumn("responses"),
            "reason": "missing because",
        }
        if frame["model"].nunique() > 1:
            columns = {"model": "model"} | columns
        parts.table(parts.named(frame), columns, "dispersion-by-user", frame)


def _keys(data: RunData, looked: Looked) -> dict[str, Key]:
    """The configurations that are looked at, by name; BASE always."""
    several = data.configurations["model"].nunique() > 1
    return {
        configuration_name(*key, several_models=several): key
        for key in configuration_keys(data)
        if key[1] == BASE
        or (
            (not looked.memories or key[1] in looked.memories)
            and (not looked.mitigations or key[2] in looked.mitigations)
        )
    }


def _on_the_map(status: RunStatus, data: RunData, looked: Looked, mark: str) -> None:
    parts.heading("Map of the responses")
    by_name = _keys(data, looked)
    users = _users(data, looked)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        user = link.one_of("User", [_ALL, *users], "map-user", width=260)
        chosen = link.some_of(
            "Configurations", list(by_name), "map-of", placeholder="BASE and memory without post-processor"
        )
    plain = [name for name, key in by_name.items() if key[2] == NO_MITIGATION]
    keys = tuple(by_name[name] for name in (chosen or plain or list(by_name)))
    try:
        found = _map(status.run_id, results.stamp(status), keys, tuple(users) if user == _ALL else (user,))
    except UsageError as error:
        parts.remark(f"No map: {error}")
        return
    event = parts.chart(
        figures.map_figure(found.points, found.explained, mark),
        "response-map",
        "Embeddings of responses in the plane of their two principal components, a point a response",
        on_select="rerun",
        selection_mode="points",
    )
    explained = sum(share for share in found.explained if not pd.isna(share))
    missing = f" {found.missing:,} planned responses have no embedding." if found.missing else ""
    parts.remark(
        f"{found.n:,} responses; the two components hold {theme.share(explained)} of the variance in "
        f"{found.dimensions:,} dimensions, so what is near here may be far apart.{missing}"
    )
    with st.expander("The map's points", icon=":material/table:"):
        columns = {name: name for name in ("memory", "mitigation", "user", "instance", "x", "y")}
        parts.table(parts.named(found.points), columns, "response-map", found.points)
    points = (event or {}).get("selection", {}).get("points", []) if isinstance(event, dict) else []
    if points and not data.text_left_out:
        _clicked(status, points[0].get("customdata", []))
    elif not data.text_left_out:
        st.caption("Click a point to read its response.")


def _clicked(status: RunStatus, place: list[str]) -> None:
    if len(place) != 5:
        return
    instance, user, *key = place
    frame = _texts(status.run_id, results.stamp(status), user)
    mine = frame[(frame["instance"] == instance) & (frame[["model", "memory", "mitigation"]] == key).all(axis=1)]
    for row in mine.to_dict("records"):
        with st.container(border=True):
            st.caption(parts.plain(f"{configuration_name(*key)} · {user} · {instance}"))
            texts.show("Question", row["question"], "map-question")
            texts.show("Response", row["response"], "map-response")


def _users(data: RunData, looked: Looked) -> list[str]:
    frame = looked.instances(data)
    return list(dict.fromkeys(frame.loc[frame["subtype"] == analysis.REPETITION, "user"].astype(str)))


def _one_user(status: RunStatus, data: RunData, looked: Looked) -> None:
    parts.heading("One user's responses")
    by_name = _keys(data, looked)
    users = _users(data, looked)
    remembering = [name for name, key in by_name.items() if key[1] != BASE]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        user = link.one_of("User", users, "pairs-user", width=260)
        default = remembering[0] if remembering else next(iter(by_name))
        name = link.one_of("Configuration", list(by_name), "pairs-of", default=default, width=300)
    key = by_name[name]
    against = (key[0], BASE, NO_MITIGATION)
    frame = _texts(status.run_id, results.stamp(status), user)
    try:
        pairs = analysis.alike(data, frame, key, user, against if key[1] != BASE else None, _PAIRS)
    except UsageError as error:
        parts.remark(f"No pairs: {error}")
        pairs = pd.DataFrame()
    if len(pairs):
        _pairs(pairs, name)
    if key[1] != BASE:
        _recurring(recurring(frame, key, user), name)


def _pairs(frame: pd.DataFrame, name: str) -> None:
    st.markdown(f"**The most similar pairs of {parts.plain(name)}**")
    number = st.column_config.NumberColumn
    written = ("question_a", "question_b", "response_a", "response_b")
    shown = frame.assign(**{side: [one_line(each, _LONGEST) for each in frame[side]] for side in written})
    columns: dict[str, Any] = {
        "cosine": number("cosine", format="%.2f"),
        "cosine_against": number("of BASE", format="%.2f", help="BASE's responses to the same two questions"),
        "question_a": "one question",
        "question_b": "the other",
        "response_a": "one response",
        "response_b": "the other's",
    }
    parts.table(shown, columns, "alike", frame, written, on_select="rerun", selection_mode="single-row", key="alike")
    rows = st.session_state.get("alike", {}).get("selection", {}).get("rows", [])
    row = frame.iloc[rows[0] if rows and rows[0] < len(frame) else 0]
    st.caption("Choose a row to read another pair; this one is the most similar." if not rows else "The chosen pair:")
    for place, side in zip(st.columns(2), ("a", "b"), strict=True):
        with place:
            texts.show(f"Question of {row[f'instance_{side}']}", row[f"question_{side}"], f"pair-question-{side}")
            other = row["response_b" if side == "a" else "response_a"]
            texts.show_beside("Response", row[f"response_{side}"], other, f"pair-response-{side}")


def _recurring(frame: pd.DataFrame, name: str) -> None:
    st.markdown(f"**Memories that come back in {parts.plain(name)}**")
    if frame.empty:
        parts.remark("No memory was retrieved for this user's repetition questions.")
        return
    collecting.sheet().marks.append(f"memories of {name}")
    questions, back = int(frame["questions"].iloc[0]), int((frame["retrieved"] > 1).sum())
    parts.remark(
        f"{back:,} of {len(frame):,} retrieved memories came for more than one of the user's {questions:,} questions."
    )
    parts.chart(
        figures.recurring_figure(_without_texts(frame)),
        "recurring",
        "For how many of the user's questions each memory was retrieved, was seen by the model, and shows in wording",
    )
    number = st.column_config.NumberColumn
    shown = frame.assign(memory=[one_line(each, 2 * _LONGEST) for each in frame["memory"]])
    columns: dict[str, Any] = {
        "memory": st.column_config.TextColumn("memory", width="large"),
        "date": "date",
        "retrieved": number("retrieved", help="Questions for which it was retrieved"),
        "went_on": number("seen", help="Of these, those where the model saw it"),
        "shows": number("shows", help="Of these, those whose response shares wording with it; no proof of cause"),
        "questions": number("of questions"),
    }
    parts.table(shown, columns, "recurring", frame, ("memory",))


def _without_texts(frame: pd.DataFrame) -> pd.DataFrame:
    """For the figure, which an export always holds: memories by their number in the table."""
    return frame.assign(memory=[f"memory {place}" for place in range(1, len(frame) + 1)])
