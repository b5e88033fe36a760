"""What a build rests on, another name for it, and its end. Every deed is checked on the server: only editors may."""

from __future__ import annotations

from datetime import UTC, datetime

import streamlit as st

from opbench.construction.responding import forget_data
from opbench.errors import UsageError
from opbench.store.builds import LONGEST_NAME, Build, delete_build, rename_build
from pages.shared import access, builds, collecting, results


def provenance(build: Build) -> None:
    """What was asked for, and what determines what came of it."""
    known = {
        "build": build.id,
        "made by": build.maker,
        "begun": f"{datetime.fromtimestamp(build.created_at, UTC):%Y-%m-%d %H:%M} UTC",
        "asked for": build.spec.model_dump(mode="json"),
        **build.provenance,
    }
    collecting.sheet().provenance |= known
    with st.expander("Provenance: conversations, prompts, models, settings", icon=":material/fingerprint:"):
        st.json(known, expanded=1)


def manage(build: Build) -> None:
    """Rename or delete a build: for editors."""
    if not access.may_edit():
        return
    store = results.opened().store
    with st.expander("Rename or delete", icon=":material/edit:"):
        with st.form(f"rename-{build.id}-{builds.turn()}", border=False):
            name = st.text_input("Name", value=build.name, max_chars=LONGEST_NAME)
            renamed = st.form_submit_button("Rename", icon=":material/edit:")
        if renamed:
            access.demand_edit()
            rename_build(store, build.id, name)
            builds.look_again(build.id, f"Renamed: {' '.join(name.split())}.")
        if build.working:
            st.caption("It is being worked on: stop it before deleting it.")
            return
        st.markdown(
            "Deleting takes its questions with all decisions, its profiles, and the data that its runs read; these "
            "runs keep what they recorded, but can't go on. The answers of its calls stay in the call store, so that "
            "making it anew with the same settings pays only for what isn't there."
        )
        with st.form(f"delete-{build.id}-{builds.turn()}", border=False):
            typed = st.text_input(f"Type {build.id} to delete this build", autocomplete="off")
            gone = st.form_submit_button("Delete this build", icon=":material/delete_forever:")
        if gone:
            access.demand_edit()
            if typed.strip() != build.id:
                raise UsageError(f"nothing was deleted: what you typed isn't {build.id}.")
            delete_build(store, build.id)
            forget_data(build.id)
            builds.look_again(None, f"Deleted: build {build.id}, {build.name}.")
