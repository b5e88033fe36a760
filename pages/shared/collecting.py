"""The sheet of the page that is being drawn: what `parts` draws is also kept here, for the export."""

from __future__ import annotations

import streamlit as st

from opbench.sharing.sheet import Block, Chart, Data, Sheet, Text, Words

_KEY = "sheet"


def begin(page: str) -> None:
    st.session_state[_KEY] = Sheet(page)


def sheet() -> Sheet:
    """The sheet as far as the page is drawn."""
    found: Sheet = st.session_state.setdefault(_KEY, Sheet(""))
    return found


def add(block: Block) -> None:
    """Add a block. What a fragment draws anew takes the place of what it replaces: figures and tables by their name,
    texts by what they say."""
    blocks = sheet().blocks
    for place, there in enumerate(blocks):
        if _same(there, block):
            blocks[place] = block
            return
    blocks.append(block)


def _same(there: Block, block: Block) -> bool:
    if (isinstance(there, Chart) and isinstance(block, Chart)) or (isinstance(there, Data) and isinstance(block, Data)):
        return there.name == block.name
    return isinstance(there, Text | Words) and there == block
