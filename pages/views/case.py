"""A live case: one question through several configurations side by side, taken apart, changed, kept and passed on."""

from __future__ import annotations

import streamlit as st

from opbench.cases.estimate import estimate
from opbench.cases.spec import CaseSpec
from opbench.errors import OpbenchError
from opbench.models import Registry, load_registry
from opbench.store import cases as kept
from pages.shared import (
    access,
    case_answers,
    case_books,
    case_comparing,
    case_editing,
    case_form,
    case_keeping,
    case_leaving_out,
    case_live,
    chosen_models,
    drafting,
    parts,
    results,
    wording,
)
from pages.shared.case_live import Live
from pages.shared.case_view import of_live, of_saved


def show_saved(case_id: str, registry: Registry) -> None:
    """A saved case as it was, without asking any model."""
    try:
        case = kept.load_case(results.opened().store, case_id)
    except OpbenchError as error:
        st.warning(parts.plain(str(error)), icon=":material/search_off:")
        if st.button("All cases", icon=":material/arrow_back:", key="case-close"):
            case_keeping.leave()
        return
    case_keeping.head(case)
    view = of_saved(case, registry)
    case_answers.asked(view)
    case_answers.grid(view, registry)
    case_leaving_out.draw(view)
    case_answers.collect(view)
    case_comparing.draw(view)
    case_answers.provenance(view)


def show_form(registry: Registry) -> CaseSpec | None:
    """The form and its button; the case as it stands, for who may ask it."""
    editor = access.may_edit()
    if not editor:
        st.info(
            "You look as a viewer: saved cases you can read and export; only editors ask models.",
            icon=":material/visibility:",
        )
    spec = case_form.ask(registry, editor, drafting.offered())
    if spec is None or not editor:
        return None
    asked = [column.model for column in spec.columns]
    judge = [spec.judge] if spec.judge in registry.models else []
    extractor = [spec.extractor] if spec.extractor else []
    names = list(dict.fromkeys((*asked, *judge, *extractor)))
    chosen_models.show_notes(registry, names)
    missing = chosen_models.ask_for_keys(registry, names)
    if missing:
        st.info(f"Type a key first: {', '.join(missing)}.", icon=":material/key:")
    takes = estimate(results.opened().store, registry, spec, spec.columns)
    cost = "cost unknown" if takes.cost_usd is None else wording.dollars(takes.cost_usd)
    said = f"At most {takes.calls} calls, about {wording.duration(takes.seconds)}, {cost}: {takes.basis}."
    if takes.paid_calls > case_leaving_out.FEW_CALLS:
        st.info(parts.plain(said), icon=":material/payments:")
    else:
        st.caption(parts.plain(said))
    if st.button(
        "Ask all columns", key="case-ask", type="primary", icon=":material/play_arrow:", disabled=bool(missing)
    ):
        start(spec)
    return spec


def start(spec: CaseSpec) -> None:
    case_live.ask(spec)
    st.rerun()


def show_live(live: Live, registry: Registry, spec: CaseSpec | None) -> None:
    """The case at work, renewed while it is; then what can be done with it. `spec` is what the form says now."""
    case_answers.watch(registry, working=live.working)
    if live.working:
        return
    view = of_live(live, registry, access.may_edit())
    case_answers.collect(view)
    case_editing.draw(view)
    case_comparing.draw(view)
    if spec is not None:
        drafting.panel(spec, registry)
    case_keeping.save_form(view)
    case_answers.provenance(view)


def show() -> None:
    registry = load_registry()
    case_id = st.query_params.get(case_keeping.CASE)
    if case_id:
        show_saved(case_id, registry)
        return
    if access.may_edit():
        case_live.warm()
    live = case_live.find_again()
    with st.expander("What is asked, and who answers", icon=":material/edit_note:", expanded=live is None):
        spec = show_form(registry)
    if live is not None:
        show_live(live, registry, spec)
    elif spec is not None:
        drafting.panel(spec, registry)
    rows = case_keeping.listed()
    case_keeping.show_list(rows)
    case_books.show(rows)


parts.title("What does each configuration answer, and which memory did it?")
show()
