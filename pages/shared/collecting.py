"""The sheet of the page that is being drawn: what `parts` draws is also kept here, for the export."""

from __future__ import annotations

import streamlit as st

from opbench.sharing.sheet import Block, Sheet

_KEY = "sheet"


def begin(page: str) -> None:
    st.session_state[_KEY] = Sheet(page)


def sheet() -> Sheet:
    """The sheet as far as the page is drawn."""
    found: Sheet = st.session_state.setdefault(_KEY, Sheet(""))
    return found


def add(block: Block) -> None:
    sheet().blocks.append(block)
