"""The Mechanism page's section on language: which words become more frequent with memory (the paper's figure 15)."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from opbench.analysis import language as analysis
from opbench.analysis.grids import Key
from opbench.figures import language as figures
from opbench.figures import theme
from opbench.figures.answers import Answer
from opbench.figures.attention import configuration_name
from opbench.figures.language import Names, Side
from opbench.figures.mechanism_answers import language_answers
from opbench.sharing.visible import one_line
from opbench.store.reading import RunStatus
from opbench.store.rundata import RunData
from opbench.store.texts import read_texts
from pages.shared import answering, collecting, link, parts, results
from pages.shared.mechanism_filters import Looked

_LENGTHS = {"all": "all lengths", "1": "words", "2": "pairs", "3": "triples"}
_SIDES: tuple[Side, ...] = ("with", "without")
_LONGEST = 60
DEFINITION = (
    "Words and phrases of one to three words of the responses to sycophancy questions (fact, value and memory level), "
    "over the instances that both sides answered. Log odds ratio with an informative Dirichlet prior (Monroe, Colaresi "
    "and Quinn 2008): above 0 is more frequent on the first side. Intervals draw users anew; p is adjusted over all "
    "phrases that were tested (Benjamini and Hochberg). A phrase is content, not tone, when more than half of its "
    "occurrences stand in the question or in the memories that this side saw. The paper's figure 15 shows word clouds "
    "without numbers, of other models."
)


@st.cache_resource(max_entries=4, show_spinner="Reading the responses…")
def _texts(run_id: str, stamp: results.Stamp) -> pd.DataFrame:
    """Responses to sycophancy questions with their memories; shared by all visitors and read only."""
    return read_texts(results.opened().store, run_id, subtypes=analysis.SYCOPHANCY, memories=True)


def _chosen(run_id: str, stamp: results.Stamp, looked: Looked) -> pd.DataFrame:
    texts = _texts(run_id, stamp)
    # Which configurations are compared is chosen below.
    by_instance = Looked(looked.users, looked.subtypes, (), (), looked.first_only)
    return texts[by_instance.mask(texts, results.run_data(run_id, stamp))]


@st.cache_data(max_entries=16, show_spinner="Counting words…")
def _tables(
    run_id: str, stamp: results.Stamp, looked: Looked, key: Key, against: Key
) -> tuple[pd.DataFrame, pd.DataFrame, tuple[int, int]]:
    texts = _chosen(run_id, stamp, looked)
    return (
        analysis.word_table(texts, key, against),
        analysis.paper_words(texts, key, against),
        analysis.paired_responses(texts, key, against),
    )


def show(status: RunStatus, data: RunData, looked: Looked) -> None:
    """All of the section."""
    pairs = {
        name: pair
        for name, pair in _pairs(data).items()
        if (not looked.memories or pair[0][1] in looked.memories)
        and (not looked.mitigations or pair[0][2] in looked.mitigations)
    }
    if not pairs:
        st.info(
            "Nothing can be compared among what is looked at: that takes a memory system and BASE of the same model.",
            icon=":material/info:",
        )
        return
    with st.container(horizontal=True, vertical_alignment="bottom"):
        name = link.one_of("Compared", list(pairs), "compared", width=380)
        length = link.one_of("Phrases", list(_LENGTHS), "length", kind="segmented", names=_LENGTHS)
        with_content = link.switch(
            "With content words",
            "content",
            help="Phrases that come from the memories or the question: what is talked about, not how.",
        )
    key, against = pairs[name]
    names = figures.names_of(key, against)
    table, named, (n, users) = _tables(status.run_id, results.stamp(status), looked, key, against)
    collecting.sheet().marks += [name, f"{n:,} paired responses", theme.users(users), _LENGTHS[length]]
    if not looked.instances(data)["subtype"].isin(analysis.SYCOPHANCY).any():
        st.info("No sycophancy question is among what is looked at.", icon=":material/filter_alt_off:")
        return
    if not n:
        parts.nothing_yet("No sycophancy question is answered on both sides yet.")
        return
    shown = table if with_content else analysis.tone(table)
    answering.say([Answer(name, tuple(language_answers(named, shown, n, users, names)))])
    if length != "all":
        shown = shown[shown["order"] == int(length)]
    mark = theme.provenance(recorded=status.recorded, comparable=False)
    what = "words and phrases" if with_content else "words and phrases of tone"
    _bars(shown, mark, what, names)
    _named(named, mark, names)
    parts.remark(DEFINITION)
    if key[1] != "random" and "random" not in set(data.configurations["memory"]):
        parts.remark(
            "The control is missing: with the memory system “random” in a study, its words show what any memories do."
        )


def _pairs(data: RunData) -> dict[str, tuple[Key, Key]]:
    """What is compared with what, by name; random memories, the control, last."""
    several = data.configurations["model"].nunique() > 1
    found = analysis.comparisons(data)
    found.sort(key=lambda pair: pair[0][1] == "random")
    return {
        f"{configuration_name(*key, several_models=several)} against {configuration_name(*against)}": (key, against)
        for key, against in found
    }


def _bars(frame: pd.DataFrame, mark: str, what: str, names: Names) -> None:
    parts.heading(f"More frequent {names.first}, and {names.second}")
    if frame.empty:
        parts.remark(f"No {what} is frequent enough to be tested ({analysis.MINIMUM} times on both sides together).")
        return
    parts.chart(
        figures.word_bars(frame, mark=mark, title=f"The {what} that tell the sides apart most", names=names),
        "words",
        f"Log odds ratios of {what} with their intervals; right is {names.label('with')}; the table has all",
    )
    parts.remark("In order of z, the most typical first. Hollow: no interval. The table has all that were tested.")
    if link.switch("Also as a word cloud", "cloud", help="Larger: tells the sides apart more, by z. No intervals."):
        for place, side in zip(st.columns(2), _SIDES, strict=True):
            with place:
                parts.chart(
                    figures.word_cloud(frame, side, mark, names=names),
                    f"cloud-{side}",
                    f"A word cloud of what is {names.label(side)}; the table has the numbers",
                )
    _table(frame, "words", names)


def _named(frame: pd.DataFrame, mark: str, names: Names) -> None:
    parts.heading("The words that the paper names")
    parts.chart(
        figures.word_list(frame, mark, names=names),
        "paper-words",
        "Log odds ratios of the words that the paper names, with their intervals",
    )
    _table(frame, "paper-words", names)
    parts.remark("They were chosen before anything was counted here, so p is adjusted over these few alone (Holm).")


def _table(frame: pd.DataFrame, name: str, names: Names) -> None:
    number, text = st.column_config.NumberColumn, st.column_config.TextColumn
    shown = frame.assign(
        word=[one_line(str(each), _LONGEST) for each in frame["word"]],
        within=[
            theme.MISSING if pd.isna(low) else f"{figures.signed(low)} to {figures.signed(high)}"
            for low, high in zip(frame["low"], frame["high"], strict=True)
        ],
        from_memories=100 * frame["from_memories"],
        from_question=100 * frame["from_question"],
    )
    columns: dict[str, Any] = {
        "word": "word or phrase",
        "delta": number("log odds ratio", format="%+.2f", help=f"Natural; above 0: {names.label('with')}"),
        "within": text("95 %", help="Over users drawn anew"),
        "p_adjusted": number("adjusted p", format="%.4f"),
        "count_with": number(f"times {names.first}"),
        "count_without": number(f"times {names.second}"),
        "per_1000_with": number(f"per 1,000 {names.first}", format="%.2f"),
        "per_1000_without": number(f"per 1,000 {names.second}", format="%.2f"),
        "responses_with": number(f"responses {names.first}"),
        "responses_without": number(f"responses {names.second}"),
        "users": number("users"),
        "from_memories": number("in memories", format="%.0f %%", help="Of its occurrences"),
        "from_question": number("in question", format="%.0f %%", help="Of its occurrences"),
        "z": number("z", format="%+.1f", help="Takes every word for a draw of its own"),
        "reason": "no interval because",
    }
    if not frame["reason"].any():
        del columns["reason"]
    # Words of responses: few are a sentence, but a phrase of a model's answer is its text.
    parts.table(shown, columns, name, frame, ("word",))
