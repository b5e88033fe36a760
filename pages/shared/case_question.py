"""What a case asks: a benchmark instance, a published case, a saved one, or a question of one's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd
import streamlit as st

from opbench.benchmarks import load
from opbench.cases.spec import LONGEST_TEXT, CaseSpec, Column
from opbench.errors import UsageError
from opbench.figures import theme
from opbench.sharing.visible import one_line
from opbench.store import cases as kept
from opbench.types import LOCOMO_CATEGORIES, OP_SUBTYPES, Corpus, Instance
from pages.shared import link, parts, results, study_form

_SOURCES = {
    "instance": "benchmark instance",
    "published": "published case",
    "saved": "saved case",
    "free": "free text",
}
_ALL_USERS, _ALL_KINDS = "all users", "all subtypes"
_CELL = 200
#: Hits in the table; more are nothing to choose from.
_MOST_HITS = 200

Data = Literal["auto", "sample"]
_DATA: tuple[Data, ...] = ("auto", "sample")


@dataclass(frozen=True, slots=True)
class Asked:
    """A question with its user, and what it is judged as."""

    question: str
    user: str
    subtype: str
    data: Data
    instance: str | None = None
    published: str | None = None
    columns: tuple[Column, ...] = ()
    """Columns that it brings along: of a saved or published case, with the memories that were given."""

    @classmethod
    def of(cls, spec: CaseSpec, *, own_columns: bool = True) -> Asked:
        """What a case asks, with its columns or without."""
        columns = spec.columns if own_columns else ()
        return cls(spec.question, spec.user, spec.subtype, spec.data, spec.instance, spec.published, columns)


def choose(off: dict[str, Any], published: Callable[[Corpus, dict[str, Any]], Asked | None]) -> Asked | None:
    """Draw the choice; None while there is nothing to ask. `published` draws the choice of a published case.

    Raises:
        DataError: the data can't be read.
    """
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        source = link.one_of("Ask", list(_SOURCES), "ask", kind="segmented", names=_SOURCES, **off)
        data: Data = link.one_of("Data", _DATA, "data", kind="segmented", names=study_form.DATA, **off)
    corpus = load("sample" if data == "sample" else None)
    if source == "free":
        return _free(corpus, data, off)
    if source == "saved":
        return _saved(off)
    if source == "published":
        return published(corpus, off)
    return _instance(corpus, data, off)


def _free(corpus: Corpus, data: Data, off: dict[str, Any]) -> Asked | None:
    question = link.long_text(
        "Question", "question", placeholder="What do you ask the assistant as this user?", height=110, **off
    ).strip()
    with st.container(horizontal=True, vertical_alignment="bottom"):
        user = link.one_of("User", list(corpus.users), "user", width=260, **off)
        subtype = link.one_of(
            "Judged as",
            list(OP_SUBTYPES),
            "subtype",
            names=theme.NAMES,
            width=220,
            help="Which of OP-Bench's questions it is like: each subtype has a judge prompt, or rules, of its own.",
            **off,
        )
    if not question:
        return None
    return Asked(question[:LONGEST_TEXT], user, subtype, data)


def _instance(corpus: Corpus, data: Data, off: dict[str, Any]) -> Asked | None:
    everything = (*corpus.op, *corpus.locomo)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        says = link.text("Text in the question", "says", placeholder="upper and lower case are the same", width=240)
        who = link.one_of("Of", [_ALL_USERS, *corpus.users], "who", width=200)
        kinds = [_ALL_KINDS, *OP_SUBTYPES, *LOCOMO_CATEGORIES.values()]
        kind = link.one_of("Subtype", kinds, "kind", names=theme.NAMES, width=190)
        wanted = link.text("Instance", "instance", placeholder="chosen below, or an id", width=290).strip()
    hits = [
        each
        for each in everything
        if (who == _ALL_USERS or each.user.id == who)
        and (kind == _ALL_KINDS or each.subtype == kind)
        and (not says or says.casefold() in each.question.casefold())
    ]
    _show_hits(hits, (says, who, kind))
    known = {each.id: each for each in everything}
    if wanted and wanted not in known:
        st.warning(
            f"{parts.plain(wanted)} is no instance of these data. Choose one in the table, or other data.",
            icon=":material/search_off:",
        )
        return None
    if not wanted and not hits:
        return None
    return _of(known[wanted] if wanted else hits[0], data)


def _of(instance: Instance, data: Data) -> Asked:
    return Asked(instance.question, instance.user.id, instance.subtype, data, instance=instance.id)


def _show_hits(hits: Sequence[Instance], searched: tuple[str, ...]) -> None:
    if not hits:
        st.info("No instance fits. Take a filter away, or search for other words.", icon=":material/search_off:")
        return
    shown = hits[:_MOST_HITS]
    frame = pd.DataFrame(
        {
            "instance": [each.id for each in shown],
            "subtype": [theme.name(each.subtype) for each in shown],
            "question": [one_line(each.question, _CELL) for each in shown],
        }
    )
    key = f"case-hits-{abs(hash(searched))}"
    columns = {
        "question": st.column_config.TextColumn("question", width="large"),
        "subtype": st.column_config.TextColumn("subtype", width=120),
        "instance": st.column_config.TextColumn("instance", width=230),
    }
    st.dataframe(
        frame,
        hide_index=True,
        column_order=list(columns),
        column_config=columns,
        key=key,
        on_select=lambda: _select(shown, key),
        selection_mode="single-row",
        height=215,
        alt="Instances that fit",
    )
    rest = f" The first {len(shown)} are shown: narrow the search for others." if len(hits) > len(shown) else ""
    st.caption(f"{len(hits):,} of these fit. Tick one; without a tick the first is asked.{rest}")


def _select(shown: Sequence[Instance], key: str) -> None:
    rows = st.session_state[key]["selection"]["rows"]
    st.session_state["instance"] = shown[rows[0]].id if rows and rows[0] < len(shown) else ""


def _saved(off: dict[str, Any]) -> Asked | None:
    rows = {row.id: row for row in kept.list_cases(results.opened().store) if row.damage is None}
    if not rows:
        st.info("No case is saved yet. Ask one, and save it below its answers.", icon=":material/bookmark_border:")
        return None
    names = {key: f"{row.name} · {key[:6]}" for key, row in rows.items()}
    chosen = link.one_of("Saved case", list(rows), "saved", names=names, width=420, **off)
    try:
        spec = kept.load_case(results.opened().store, chosen).spec
    except UsageError:
        return None  # deleted by somebody else just now
    own = link.switch(
        "With its own columns",
        "own",
        value=True,
        help="As it was saved, with the memories and prompts that were changed in it; else with the columns below.",
        **off,
    )
    return Asked.of(spec, own_columns=own)
