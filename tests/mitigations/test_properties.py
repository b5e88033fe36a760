"""Whatever a model replies: what goes on is a memory, or holds to one."""

from __future__ import annotations

import asyncio
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mitigations import Reply, context_lines, get
from mitigations.evidence import Evidence
from tests.mitigations.scripted import ORIGINAL, STORE, Model

#: From each method's own file: the share of content words that a line in the model's words must have in its sources.
THRESHOLDS = {
    "reminder": 0.6, "few-shot-cot": 0.6, "comorag": 0.3, "comorag-invite-none": 0.3, "marag": 0.5, "self-recheck": 1.0,
    "self-recheck-verdicts": 1.0, "self-recheck-twice": 1.0, "marag-per-memory": 0.5,
}  # fmt: skip
QUESTION = "Which day is the class that Joost and Mara teach?"
EVIDENCE = Evidence(QUESTION, STORE)
WORDS = sorted(set(re.findall(r"[\w']+", " ".join((*ORIGINAL, QUESTION)))))
MADE_UP = [
    "zeppelin",
    "Pieter",
    "1987",
    "not",
    "never",
    "you",
    "I",
    "NONE",
    "hazelnuts",
    "Rotterdam",
    "5 May 2024",
    "|",
    ".",
]
line = st.builds(
    "{}{}".format,
    st.sampled_from(["", "", "[1] ", "[2] ", "[3,5] ", "[4] ", "[5] ", "[7] ", "1. ", "(3) ", "- [2] ",
                     "Context: ", "Notes:\n"]),
    st.one_of(
        st.lists(st.sampled_from(WORDS + MADE_UP), max_size=10).map(" ".join),
        st.sampled_from([memory.text for memory in STORE]),
    ),
)  # fmt: skip


@pytest.mark.parametrize("name", THRESHOLDS)
@settings(max_examples=150, deadline=None)
@given(lines=st.lists(line, max_size=6), finish_reason=st.sampled_from(["stop", "length"]))
def test_no_unaligned_text_goes_on(name: str, lines: list[str], finish_reason: str) -> None:
    done = asyncio.run(get(name).process(QUESTION, STORE, Model(Reply("\n".join(lines), finish_reason))))
    stored = {memory.text for memory in STORE}
    assert (done.state == "nothing") == (not done.lines)
    if done.state == "failed":
        assert context_lines(done) == ORIGINAL
    for kept in done.lines:
        assert kept.sources
        assert all(1 <= number <= len(STORE) for number in kept.sources)
        if kept.text not in stored:
            assert EVIDENCE.share(kept.text, kept.sources) >= THRESHOLDS[name]
            assert not re.search(r"1987|Pieter|Rotterdam|5 May|\byou\b|\bI\b", kept.text)
            assert "NO RELEVANT CONTEXT" not in kept.text


@given(text=st.text(max_size=200), label=st.sampled_from(["", "Revised answer:", "Critique: x\nRevised answer: "]))
def test_an_answer_is_the_draft_or_the_part_after_the_label(text: str, label: str) -> None:
    done = asyncio.run(get("self-critic").revise(QUESTION, STORE, "the draft", Model(label + text)))
    assert done.text.strip()
    assert done.text == "the draft" or (done.state == "revised" and done.text in text.replace("\u00a0", " "))
