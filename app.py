"""The dashboard's entry: the pages and what stands beside all of them."""

import streamlit as st

from pages.shared import view

st.set_page_config(page_title="OP-Bench Workbench", page_icon=":material/balance:", layout="wide")
page = st.navigation(
    {
        "Results": [
            st.Page("pages/trade_off.py", title="Trade-off", icon=":material/balance:", default=True),
            st.Page("pages/oracle_gap.py", title="Oracle gap", icon=":material/vertical_align_top:"),
            st.Page("pages/latency.py", title="Latency", icon=":material/timer:"),
        ],
        "Studies": [st.Page("pages/launch.py", title="Launch", icon=":material/play_circle:")],
    }
)
view.show(page)
