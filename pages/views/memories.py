"""What memory systems keep of users: taking histories in, what that took, and looking into what came of it."""

from collections.abc import Callable, Sequence

import streamlit as st

from opbench.analysis import ingestions as tables
from opbench.errors import OpbenchError
from opbench.memories.manifest import Manifest
from pages.shared import access, collecting, ingesting, ingestions, link, memory_systems, parts, remembered

_ALL = "all users"


def tell(section: Callable[[], None]) -> None:
    """Draw a section; what goes wrong in it is said there, and the page goes on."""
    try:
        section()
    except OpbenchError as error:
        st.error(parts.plain(str(error)), icon=":material/error:")


def show_form(*, first: bool) -> None:
    """Taking histories in; open where nothing has been yet."""
    with st.expander("Ingest: let memory systems take histories in", icon=":material/input:", expanded=first):
        if not access.may_edit():
            st.caption("You look as a viewer: what it takes, you can see; only editors start it.")
        tell(ingesting.form)


def show_user(manifests: Sequence[Manifest]) -> None:
    """One user: how their memories grew, the settings of each ingestion, and what is in them."""
    users = list(dict.fromkeys(each.user for each in sorted(manifests, key=lambda each: each.user)))
    parts.heading("What is remembered of a user")
    user = link.one_of("User", users, "user", width=320)
    mine = [each for each in manifests if each.user == user]
    by_name = named(mine)
    ingestions.growth(mine)
    ingestions.provenance(mine)
    tell(lambda: show_one(by_name))
    complete = {name: each for name, each in by_name.items() if each.complete}
    if not complete:
        st.info(
            "No ingestion of this user is complete yet, and none is searched before: a system that has taken in half "
            "a history would be judged by what it couldn't know.",
            icon=":material/hourglass_empty:",
        )
        return
    tell(lambda: remembered.search(complete))
    tell(lambda: remembered.browse(complete))


def show_one(by_name: dict[str, Manifest]) -> None:
    """One of the user's ingestions: its state, and for editors what can be done with it."""
    name = link.one_of("Ingestion", list(by_name), "ingestion", width=320)
    manifest = by_name[name]
    with st.container(border=True):
        st.subheader(f"{parts.plain(name)}: {manifest.state}", anchor=False)
        st.caption(" · ".join(map(parts.plain, ingestions.facts(manifest))))
        if manifest.note:
            st.caption(parts.plain(manifest.note))
        if manifest.failure is not None and not manifest.complete:
            st.error(parts.plain(manifest.failure.error), icon=":material/error:")
        ingesting.steer(manifest)


def named(manifests: Sequence[Manifest]) -> dict[str, Manifest]:
    """Ingestions of one user by a name that tells them apart."""
    names = tables.names(manifests)
    several = [name for name in names.values() if list(names.values()).count(name) > 1]
    return {
        f"{names[each.digest]} · {each.digest[:6]}" if names[each.digest] in several else names[each.digest]: each
        for each in manifests
    }


def show() -> None:
    found = ingestions.read()
    ingesting.tell()
    if not found:
        st.info(
            "Nothing is ingested yet. Choose memory systems and users below; the bundled sample takes the embedded "
            "model some minutes.",
            icon=":material/info:",
        )
        ingesting.panel()
        show_form(first=True)
        return
    collecting.sheet().marks.append(f"{len(found):,} ingestions")
    ingestions.badges(found)
    ingesting.panel()
    ingestions.notes(found)
    show_form(first=False)
    order = {name: place for place, name in enumerate(memory_systems.libraries())}
    by_system = sorted(found, key=lambda each: (order.get(each.system, len(order)), each.system, each.user))
    ingestions.charts(by_system)
    show_user(by_system)


parts.title("What does each memory system remember of a user, and what did that take?")
show()
