"""Making a benchmark from conversations: started and watched, what it gave and dropped, and what comes after."""

from functools import partial

import streamlit as st

from opbench.store.builds import Listed
from pages.shared import (
    access,
    build_candidates,
    build_form,
    build_keeping,
    build_next,
    build_profiles,
    build_progress,
    build_results,
    builds,
    collecting,
    link,
    parts,
)


def show_form(*, first: bool) -> None:
    """A new build; open where there is none yet."""
    with st.expander("New build: make a benchmark from conversations", icon=":material/add:", expanded=first):
        build_next.tell(build_form.form)


def choose(found: list[Listed]) -> Listed:
    """The build that is looked at."""
    names = {each.id: f"{each.name} · {each.id}" if each.name != each.id else each.id for each in found}
    wanted = st.session_state.pop("next_build", None)
    if wanted in names:
        st.session_state["build"] = wanted
    elif st.session_state.get("build", found[0].id) not in names:
        # It was deleted meanwhile.
        del st.session_state["build"]
    chosen = link.one_of("Build", list(names), "build", names=names, width=420)
    return next(each for each in found if each.id == chosen)


def show_build(listed: Listed) -> None:
    """One build: how far it is, what came of it, and what can be done with it."""
    if listed.build is None:
        st.error(parts.plain(listed.damage), icon=":material/error:")
        return
    build = builds.load(listed.id)
    counts = {str(state): n for state, n in listed.counts.items()}
    collecting.sheet().marks.append(f"build {build.id}")
    build_progress.panel(build)
    for section in (
        partial(build_results.work, build.id),
        partial(build_results.failures, build.id),
        partial(build_results.funnel, build.id),
        partial(build_results.generators, build.id),
        partial(build_profiles.show, build.id),
        partial(build_candidates.browse, build.id),
        partial(build_next.respond, build, counts),
        partial(build_next.export, build, counts),
        partial(build_keeping.provenance, build),
        partial(build_keeping.manage, build),
    ):
        build_next.tell(section)


parts.title("Which questions do these conversations give, and which of them stand?")
for sentence in builds.said():
    st.success(parts.plain(sentence), icon=":material/check:")
found = builds.listed()
if not found:
    st.info(
        "No benchmark is made here yet. Choose conversations and models below; the bundled sample and the embedded "
        "model need nothing else."
        if access.may_edit()
        else "No benchmark is made here yet, and only editors make one.",
        icon=":material/info:",
    )
show_form(first=not found)
if found:
    show_build(choose(found))
