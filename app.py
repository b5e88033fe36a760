"""The dashboard's entry: the pages and what stands beside all of them."""

from pathlib import Path

import streamlit as st

from pages.shared import view

# A file of our own: a Material icon would be fetched from another host.
ICON = Path(__file__).parent / "pages" / "shared" / "icon.svg"

st.set_page_config(page_title="OP-Bench Workbench", page_icon=str(ICON), layout="wide")
# The views stand below pages/, not in it: a file right in it Streamlit runs without this one when the first visitor
# follows a link to it.
page = st.navigation(
    {
        "Results": [
            st.Page("pages/views/trade_off.py", title="Trade-off", icon=":material/balance:", default=True),
            st.Page(
                "pages/views/oracle_gap.py",
                title="Oracle gap",
                url_path="oracle-gap",
                icon=":material/vertical_align_top:",
            ),
            st.Page("pages/views/latency.py", title="Latency", icon=":material/timer:"),
        ],
        "Studies": [st.Page("pages/views/launch.py", title="Launch", icon=":material/play_circle:")],
    }
)
view.show(page)
