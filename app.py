"""The dashboard's entry: the pages and what stands beside all of them."""

from pathlib import Path

import streamlit as st

from dashboard.shared import view

# A file of our own: a Material icon would be fetched from another host.
ICON = Path(__file__).parent / "dashboard" / "shared" / "icon.svg"

st.set_page_config(page_title="OP-Bench Workbench", page_icon=str(ICON), layout="wide")
# Not in a folder named `pages`: from there Streamlit runs a file without this one when the first visitor follows a link
# to it.
page = st.navigation(
    {
        "Results": [
            st.Page("dashboard/trade_off.py", title="Trade-off", icon=":material/balance:", default=True),
            st.Page(
                "dashboard/oracle_gap.py",
                title="Oracle gap",
                url_path="oracle-gap",
                icon=":material/vertical_align_top:",
            ),
            st.Page("dashboard/latency.py", title="Latency", icon=":material/timer:"),
        ],
        "Studies": [st.Page("dashboard/launch.py", title="Launch", icon=":material/play_circle:")],
    }
)
view.show(page)
