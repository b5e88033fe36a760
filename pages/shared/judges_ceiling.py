"""The Judges page's section on LoCoMo's gold answers: what wrong ones leave to be reached."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from opbench.benchmarks import load
from opbench.calibration import ceiling as analysis
from opbench.figures import calibration as figures
from pages.shared import parts

WHAT_IT_IS = (
    "A public audit names LoCoMo questions whose gold answer is wrong (Data page). A right answer to one of them is "
    "judged wrong, so a perfect system gets no more than the rest. This assumes that a judge never accepts a right "
    "answer against a wrong gold, and that the audit is right. “Leave out” in the sidebar takes these questions out "
    "of all averages."
)


def show() -> None:
    """All of the section."""
    frame = _ceiling()
    parts.heading("What wrong gold answers leave of LoCoMo")
    if frame.empty:
        st.info("These data have no LoCoMo question with a gold answer.", icon=":material/quiz:")
        return
    if frame["ceiling"].isna().all():
        st.info(
            "The audit is of the real LoCoMo file and names none of these questions, so nothing is known of their gold "
            "answers. With the real data (Data page) the ceiling stands here.",
            icon=":material/info:",
        )
    else:
        parts.chart(
            figures.ceiling(frame), "ceiling", "The highest accuracy that LoCoMo's gold answers allow, by category"
        )
    number = st.column_config.NumberColumn
    columns: dict[str, Any] = {
        "category": "category",
        "ceiling": number("at most, %", format="%.1f"),
        "without_debatable": number("with debatable ones as right, %", format="%.1f"),
        "wrong_gold": number("wrong gold answers"),
        "debatable": number("debatable ones of them"),
        "questions": number("questions", format="localized"),
        "kinds": "what is wrong",
    }
    parts.table(frame, columns, "ceiling", frame)
    parts.remark(WHAT_IT_IS)


@st.cache_data(ttl=60, max_entries=1, show_spinner="Reading the benchmark…")
def _ceiling() -> pd.DataFrame:
    return analysis.ceiling(load())
