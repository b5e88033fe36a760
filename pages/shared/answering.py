"""What the results pages share: the answer in words, and the choice of a memory system."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from opbench.figures import theme
from opbench.figures.answers import Answer
from opbench.sharing.sheet import Text
from opbench.study import BASE
from pages.shared import collecting, link, parts

ALL = "all memory systems"
#: Answers shown at a time: more are nothing to read.
MOST = 6


def say(found: Sequence[Answer]) -> None:
    """A paragraph for each memory system and model; bullets when there is one; none when there are too many. What is
    true of all of several is said once, after them."""
    if len(found) > MOST:
        st.info("Choose a memory system or a model to read the answer in words.", icon=":material/filter_alt:")
        return
    shared = [each for each in found[0].sentences if all(each in other.sentences for other in found)] if found else []
    for answer in found:
        collecting.add(Text(f"{answer.head}: {' '.join(answer.sentences)}"))
        head, sentences = parts.plain(answer.head), [parts.plain(sentence) for sentence in answer.sentences]
        if len(found) == 1:
            st.markdown("\n".join([f"**{head}**\n", *(f"- {sentence}" for sentence in sentences)]))
        else:
            own = [parts.plain(sentence) for sentence in answer.sentences if sentence not in shared]
            st.markdown(f"**{head}.** {' '.join(own)}")
    if len(found) > 1 and shared:
        st.markdown(f"**All of them.** {' '.join(map(parts.plain, shared))}")


def pick_memory(frame: pd.DataFrame, key: str = "memory") -> pd.DataFrame:
    """The rows of the memory system that is chosen, and those of BASE where there are any. `key`: its name in links."""
    systems = [name for name in dict.fromkeys(frame["memory"]) if name != BASE]
    names = {name: theme.name(name) for name in systems}
    chosen = link.one_of("Memory system", [ALL, *systems], key, names=names, width=220)
    return frame if chosen == ALL else frame[frame["memory"].isin([BASE, chosen])]
