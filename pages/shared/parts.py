"""Elements that look the same on all pages. Text of runs, models and files goes through `plain`, or is no Markdown."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from opbench.analysis.ingested import ingested, memory_notes, thin_memories
from opbench.figures import theme
from opbench.judges import offline
from opbench.sharing.marks import remarks
from opbench.sharing.sheet import Chart, Column, Data, Text
from opbench.sharing.tables import csv_bytes, no_formulas
from opbench.sharing.visible import visible
from opbench.store.reading import RunStatus
from opbench.store.rundata import RunData
from pages.shared import collecting, link, results

PAPER = "OP-Bench, arXiv 2601.13722"
_MARKDOWN = re.compile(r"([\\`*_{}\[\]()#+\-.!|<>~$:&@^=])")
_JOINER = "\u2060"
#: What Markdown makes a link of, or an icon (`:material/skull:`, `:smile:`), escaped or not.
_ADDRESS = re.compile(r":(?=//)|:(?=[a-z+-][\w/+-]*:)|www(?=\.)|@(?=\w)", re.IGNORECASE)
_TOOLS_LEFT_OUT = ["zoom", "pan", "select", "lasso", "zoomIn", "zoomOut", "autoScale", "resetScale"]


def plain(text: str) -> str:
    """Text that Markdown shows as it is, in one line: no marks, no links, nothing hidden or turned round."""
    # A word joiner shows nothing: where it stands already it stays, and an address that has one is no link.
    shown = _JOINER.join(visible(part) for part in " ".join(text.split()).split(_JOINER))
    return _MARKDOWN.sub(r"\\\1", _ADDRESS.sub(rf"\g<0>{_JOINER}", shown))


def as_label(text: str) -> str:
    """Text for a widget's label: Markdown's marks are left out, since a label is also read aloud as it is written."""
    return re.sub(r"[\\`*_{}\[\]()#!|<>~$:]", "", visible(" ".join(text.split())))


def code(text: str, language: str | None = None) -> None:
    """A command or a log, with nothing hidden in it or turned round."""
    st.code(visible(text), language=language, wrap_lines=True)


def nothing_yet(sentence: str) -> None:
    """An empty state of a run, and where to watch it."""
    st.info(plain(sentence), icon=":material/hourglass_empty:")
    st.page_link("pages/views/launch.py", label="Watch the run on the Launch page", icon=":material/play_circle:")


def launch_first(sentence: str) -> None:
    """An empty state that a study would fill, and where to launch one. `sentence` is ours: it may be Markdown."""
    st.info(sentence, icon=":material/info:")
    st.page_link("pages/views/launch.py", label="To the Launch page", icon=":material/play_circle:")


def say_left_out(frame: pd.DataFrame) -> None:
    """Name the subtypes that the slice doesn't plan, so that no average of a part passes for one of the whole."""
    if gone := ", ".join(sorted(set(frame["left_out"]) - {""})):
        st.caption(f"The slice has none of: {plain(gone)}; the averages are over the rest.")


def csv(frame: pd.DataFrame, marks: Sequence[str] = ()) -> bytes:
    """A table as CSV in UTF-8, with the page's marks in its last column; text that a spreadsheet would take for a
    formula gets an apostrophe before it."""
    return csv_bytes(frame, marks)


def title(question: str) -> None:
    """The page's first line: the question that it answers."""
    collecting.sheet().title = question
    st.title(question, anchor=False)


def heading(text: str) -> None:
    collecting.add(Text(text, heading=True))
    st.header(text, anchor=False)


def remark(text: str) -> None:
    """A remark under a figure or table, as plain text."""
    collecting.add(Text(text))
    st.caption(plain(text))


def table(
    shown: pd.DataFrame,
    columns: Mapping[str, Any],
    name: str,
    whole: pd.DataFrame,
    texts: Sequence[str] = (),
    **more: Any,
) -> None:
    """A table, and the download of `whole`: all columns, unrounded. `columns`: those shown, with their look.

    `texts` names columns with sentences of the benchmark or of responses, which an export leaves out by default.
    `more` goes to `st.dataframe`, for a selection.
    """
    heads = {key: _column(key, look) for key, look in columns.items()}
    collecting.add(Data(name, shown, heads, whole, tuple(texts)))
    # The table's own menu downloads what it holds as CSV, without a thought of formulas.
    st.dataframe(
        no_formulas(shown),
        hide_index=True,
        column_order=list(columns),
        column_config=columns,
        placeholder=theme.MISSING,
        alt=f"{name} as a table",
        **more,
    )
    st.download_button(
        "Download CSV",
        partial(csv, whole, collecting.sheet().marks),
        file_name=f"{name}.csv",
        mime="text/csv",
        icon=":material/download:",
        key=f"csv-{name}",
        on_click="ignore",
    )


def _column(key: str, look: Any) -> Column:
    if not isinstance(look, Mapping):
        return Column(str(look or key))
    kind = look.get("type_config") or {}
    return Column(str(look.get("label") or key), kind.get("format"), look.get("help"))


def chart(figure: go.Figure, key: str, alt: str, **more: Any) -> Any:
    """A figure as wide as its place. Dragging doesn't zoom: on a phone it would catch the finger that scrolls.

    `more` goes to `st.plotly_chart`, for a selection, which is then given back.
    """
    figure.update_layout(dragmode=False)
    collecting.add(Chart(key, figure, alt))
    tools = {"filename": key, "scale": 2, "format": st.session_state.get("picture", "png")}
    config = {"displaylogo": False, "modeBarButtonsToRemove": _TOOLS_LEFT_OUT, "toImageButtonOptions": tools}
    return st.plotly_chart(figure, key=key, alt=alt, config=config, **more)


def named(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with memory systems and post-processors as people write them."""
    names = {column: [theme.name(name) for name in frame[column]] for column in ("memory", "mitigation")}
    return frame.assign(**names)


def pick_model(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of the model that is chosen; the choice is there when there are several."""
    models = list(dict.fromkeys(frame["model"]))
    if len(models) < 2:
        return frame
    chosen = link.one_of("Model", ["all models", *models], "model", width=260)
    return frame if chosen == "all models" else frame[frame["model"] == chosen]


def published_marks() -> None:
    collecting.sheet().marks += ["published", PAPER]
    with st.container(horizontal=True, gap="small"):
        st.badge("published", icon=":material/menu_book:", color="violet")
        st.badge(f"{PAPER}", color="gray")


def run_marks(status: RunStatus, data: RunData, *facts: str) -> None:
    """Where a run's numbers come from, how far it is, and what they may be compared with."""
    facts += (*remarks(data.provenance), *(f"without {name}" for name in results.left_out()))
    collecting.sheet().marks += [
        f"run {status.run_id}",
        "recorded" if status.recorded else "measured",
        f"{status.done:,} of {status.planned:,} records",
        f"judge: {data.study.judge}",
        *facts,
        *([] if data.comparable else ["not comparable with the paper"]),
    ]
    with st.container(horizontal=True, gap="small"):
        if status.recorded:
            st.badge("recorded", icon=":material/inventory_2:", color="blue")
        else:
            st.badge("measured here", icon=":material/straighten:", color="green")
        st.badge(f"{status.done:,} of {status.planned:,} records", color="green" if status.complete else "orange")
        if status.working:
            st.badge("running", icon=":material/sync:", color="orange")
        if status.errors:
            st.badge(f"{status.errors:,} failed", color="red")
        if status.unscored:
            st.badge(f"{status.unscored:,} without a score", color="red")
        for fact in facts:
            st.badge(plain(fact), color="gray")
        if not data.comparable:
            st.badge("not comparable with the paper", icon=":material/warning:", color="orange")
    _ingested(data)
    if not data.comparable:
        with st.expander(f"Judge “{plain(data.study.judge)}”: why not comparable, and how it scores"):
            st.markdown(_how_it_scores(data.study.judge, data.study.embedder))


def _ingested(data: RunData) -> None:
    """What must be said of the memory systems beside their results; first where there was nothing to retrieve."""
    for sentence in thin_memories(data.provenance, data.study.k):
        collecting.add(Text(sentence))
        st.warning(plain(sentence), icon=":material/memory:")
    for sentence in memory_notes(data.provenance):
        remark(sentence)


def _how_it_scores(judge: str, embedder: str) -> str:
    """Markdown: what differs from the paper, and the judge's definition where it is ours."""
    if judge != "offline":
        return (
            "The paper's judge is GPT-4o-mini with the public prompts, and its repetition scores rest on "
            f"text-embedding-3-small. Here they are {plain(judge)} and {plain(embedder)}, with the prompts that the "
            "provenance names."
        )
    return (
        "The paper's numbers are GPT-4o-mini's judgements; these come from rules over the wording of a response. "
        "They tell configurations of one run apart, and nothing else. "
        f"Repetition is scored as in the paper, with another embedder.\n\n{inspect.getdoc(offline)}"
    )


def run_provenance(status: RunStatus, data: RunData, **chosen: str) -> None:
    """What the run's numbers rest on (design, rule 4)."""
    known = data.provenance
    rows = {
        "run": status.run_id,
        "begun": datetime.fromtimestamp(status.created_at, UTC).strftime("%Y-%m-%d %H:%M UTC"),
        **{name.replace("_", " "): value for name, value in chosen.items()},
        "judge": data.study.judge,
        "embedder": data.study.embedder,
        "data": str(known.get("data_source", "")),
        **{f"sha256 of {name}": digest for name, digest in dict(known.get("data", {})).items()},
        "left out of averages": ", ".join(results.left_out()) or "nothing",
        "commit": str(known.get("git_commit", "")),
        "concurrency": _values(data.records_with("concurrency")["concurrency"]),
        "texts": "left out" if data.text_left_out else "in the store",
    }
    collecting.sheet().provenance |= rows | {"study": data.study.model_dump(mode="json"), "all": known}
    with st.expander("Provenance: data, judge, prompts, commit, concurrency", icon=":material/fingerprint:"):
        st.dataframe(pd.DataFrame(rows.items(), columns=["what", "value"]), hide_index=True)
        _ingestions(data)
        st.caption("All that determines the results, and so the run's id:")
        st.json(known, expanded=1)


def _ingestions(data: RunData) -> None:
    """What the run's memory systems took in, as the run found it."""
    frame = ingested(data.provenance)
    if frame.empty:
        return
    st.caption("What its memory systems took in:")
    columns: dict[str, Any] = {
        "label": "memory system",
        "user": "user",
        "state": "state",
        "progress": st.column_config.TextColumn("sessions"),
        "memories": st.column_config.NumberColumn("memories", format="localized"),
        "barren": st.column_config.TextColumn("empty", help="Extractions that gave no memory, of those that were read"),
        "calls": st.column_config.NumberColumn("calls", format="localized"),
        "reused": st.column_config.NumberColumn("reused", format="localized"),
        "prompt_tokens": st.column_config.NumberColumn("tokens in", format="localized"),
        "completion_tokens": st.column_config.NumberColumn("tokens out", format="localized"),
        "cost_usd": st.column_config.NumberColumn("cost", format="$%.4f", help="By list price"),
        "seconds": st.column_config.NumberColumn("time", format="%.0f s"),
        "error": "error",
        "digest": st.column_config.TextColumn("digest", help="Of settings and history"),
    }
    if frame["error"].isna().all():
        del columns["error"]
    shown = frame.assign(
        progress=[f"{done} of {planned}" for done, planned in zip(frame["sessions"], frame["planned"], strict=True)],
        barren=[f"{empty} of {read}" for empty, read in zip(frame["empty"], frame["extractions"], strict=True)],
    )
    table(shown, columns, "run-ingestions", frame)


def published_provenance(*remarks: str) -> None:
    collecting.sheet().provenance |= {"published": f"{PAPER}, web/data/research_results.json", "remarks": list(remarks)}
    with st.expander("Provenance: where these figures come from", icon=":material/fingerprint:"):
        st.markdown(
            f"Figures only, as published with {PAPER} (`web/data/research_results.json` of the authors' repository), "
            "kept in `results/published/`. Judge: GPT-4o-mini. Some rows of table 2 rest on first speakers only "
            "(`opbench audit`)."
        )
        for remark in remarks:
            st.markdown(f"- {remark}")


def _values(column: pd.Series) -> str:
    return ", ".join(str(int(value)) for value in sorted(column.dropna().unique())) or "no record yet"
