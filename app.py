"""The dashboard's entry: the pages and what stands beside all of them."""

from pathlib import Path

import streamlit as st

from pages.shared import access, review_link, view

# Files of our own: a Material icon would be fetched from another host.
ICON = Path(__file__).parent / "pages" / "shared" / "icon.svg"
LOGO = ICON.with_name("logo.svg")


def page(file: str, title: str, icon: str, *, first: bool = False) -> st.Page:
    """A page below pages/views/; its address is its file's name with hyphens."""
    address = file.replace("_", "-")
    return st.Page(f"pages/views/{file}.py", title=title, url_path=address, icon=f":material/{icon}:", default=first)


st.set_page_config(page_title="OP-Bench Workbench", page_icon=str(ICON), layout="wide")
st.logo(str(LOGO), size="large", icon_image=str(ICON))
# The views stand below pages/, not in it: a file right in it Streamlit runs without this one when the first visitor
# follows a link to it.
chosen = st.navigation(
    {
        "Results": [
            page("trade_off", "Trade-off", "balance", first=True),
            page("oracle_gap", "Oracle gap", "vertical_align_top"),
            page("latency", "Latency and cost", "timer"),
            page("compare", "Compare", "compare_arrows"),
            page("instances", "Instances", "search"),
            page("case", "Live case", "forum"),
            page("mechanism", "Mechanism", "psychology"),
        ],
        "Studies": [
            page("launch", "Launch", "play_circle"),
            page("studies", "Studies", "inventory_2"),
            page("memories", "Memories", "memory"),
        ],
        "Benchmarks": [
            page("build", "Build", "construction"),
            page("review", "Review", "rate_review"),
            page("judges", "Judges", "gavel"),
        ],
        "Background": [
            page("overview", "Overview", "school"),
            page("audit", "Audit", "fact_check"),
            page("data", "Data", "dataset"),
        ],
    },
    position="sidebar" if access.may_read() and not review_link.secret() else "hidden",
    expanded=True,
)
view.show(chosen)
