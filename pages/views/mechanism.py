"""Why memory takes over (the paper's section 4.3 and appendix C), from a run's own records: what is retrieved, where
attention goes, what becomes of language and of the variety of responses."""

import streamlit as st

from opbench.errors import OpbenchError
from opbench.store.reading import RunStatus
from pages.shared import (
    link,
    mechanism_attention,
    mechanism_filters,
    mechanism_language,
    mechanism_measuring,
    mechanism_repetition,
    mechanism_retrieval,
    parts,
    results,
    view,
)

SECTIONS = {
    "retrieval": "Retrieval",
    "attention": "Attention",
    "language": "Language",
    "repetition": "Repetition",
    "measuring": "Measuring",
}
_SHOW = {
    "retrieval": mechanism_retrieval.show,
    "attention": mechanism_attention.show,
    "language": mechanism_language.show,
    "repetition": mechanism_repetition.show,
}


def show_run(current: view.View, status: RunStatus) -> None:
    data = results.run_data(status.run_id, results.stamp(status))
    first = ["first speakers only"] if current.first_only else []
    parts.run_marks(status, data, *first)
    mechanism_measuring.panel(status.run_id)
    section = link.one_of("Section", list(SECTIONS), "section", kind="segmented", names=SECTIONS)
    if section == "measuring":
        mechanism_measuring.show(status, data)
        return
    looked = mechanism_filters.choose(data, first_only=current.first_only)
    try:
        _SHOW[section](status, data, looked)
    except OpbenchError as error:
        st.info(parts.plain(str(error)), icon=":material/info:")
    parts.run_provenance(status, data, speakers="first only" if current.first_only else "all")


parts.title("Why does memory take over?")
looked_at = view.current()
if looked_at.status is None:
    parts.published_marks()
    parts.remark(mechanism_attention.PUBLISHED)
    parts.launch_first(
        "The paper shows retrieval, attention, language and repetition as pictures (figures 4, 5 and 15 to 20), "
        "without numbers to draw again. Choose a run under “Results of” to see the same worked out from its records, "
        "or launch a study."
    )
else:
    show_run(looked_at, looked_at.status)
