"""How far a judge may be trusted: whether rankings survive another judge, whether it agrees with people, with itself,
and whether it falls for traps (paper, A.4 and table 5)."""

import streamlit as st

from opbench.errors import OpbenchError
from pages.shared import (
    judges_ceiling,
    judges_checks,
    judges_measuring,
    judges_people,
    judges_stability,
    link,
    parts,
    view,
)

SECTIONS = {
    "ranking": "Ranking",
    "people": "Against people",
    "checks": "Repeats and traps",
    "ceiling": "LoCoMo's ceiling",
    "judging": "Judging",
}


def show_section(section: str, current: view.View) -> None:
    if section == "ranking":
        judges_stability.show(current)
    elif section == "people":
        judges_people.show()
    elif section == "checks":
        judges_checks.show()
    elif section == "ceiling":
        judges_ceiling.show()
    else:
        judges_measuring.show(current)


parts.title("How far can the judge be trusted?")
judges_measuring.panel()
chosen = link.one_of("Section", list(SECTIONS), "section", kind="segmented", names=SECTIONS)
try:
    show_section(chosen, view.current())
except OpbenchError as error:
    st.info(parts.plain(str(error)), icon=":material/info:")
