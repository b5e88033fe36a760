"""The chosen models: what to know of them, the keys they need, and whether they answer now."""

from __future__ import annotations

import asyncio
import os

import streamlit as st
from pydantic import SecretStr

from opbench.models import Availability, ModelClient, Registry, probe
from pages.shared import access, parts

#: Session state of the password inputs, by environment variable.
KEY_PREFIX = "key-"
#: Before the name of the place, where a page asks in several.
_PLACE = "@"


def typed_keys() -> dict[str, SecretStr]:
    """The keys that were typed in this browser session, by environment variable."""
    state = {str(name): value for name, value in st.session_state.items()}
    return {
        name.removeprefix(KEY_PREFIX).partition(_PLACE)[0]: SecretStr(value)
        for name, value in state.items()
        if name.startswith(KEY_PREFIX) and value
    }


def ask_for_keys(registry: Registry, names: list[str], place: str = "") -> list[str]:
    """Ask for the keys that the environment lacks; the variables that are still missing. `place` tells several askings
    of a page apart."""
    wanted: dict[str, list[str]] = {}
    for name in names:
        variable = registry.models[name].key_env
        if variable and not os.environ.get(variable):
            wanted.setdefault(variable, []).append(parts.as_label(registry.models[name].label))
    missing = []
    for variable, labels in wanted.items():
        typed = st.text_input(
            f"Key for {', '.join(labels)} ({variable})",
            type="password",
            key=f"{KEY_PREFIX}{variable}{_PLACE + place if place else ''}",
            autocomplete="off",
            help="Goes to what is asked and nowhere else: it isn't stored and isn't in the link. "
            f"To keep it, set {variable} before starting the app.",
        )
        if not typed:
            missing.append(variable)
    return missing


def show_notes(registry: Registry, names: list[str]) -> None:
    """What to know of the chosen models before starting."""
    for name in names:
        spec = registry.models[name]
        if spec.note:
            st.caption(f"**{parts.plain(spec.label)}**: {parts.plain(spec.note)}")
        if spec.start:
            st.caption(f"**{parts.plain(spec.label)}** is asked at {parts.plain(spec.shown_url)}. To serve it there:")
            parts.code(spec.start, "bash")


def offer_to_ask(registry: Registry, names: list[str]) -> None:
    """A button that asks the chosen models whether they answer now."""
    if not st.button("Do these models answer now?", key="probe", icon=":material/network_check:", type="tertiary"):
        return
    access.demand_edit()

    async def ask_all() -> list[Availability]:
        async with ModelClient(registry, keys=typed_keys()) as client:
            return list(await asyncio.gather(*(probe(registry.models[name], client) for name in names)))

    with st.spinner("Asking…"):
        answers = asyncio.run(ask_all())
    for answer in answers:
        shown = st.success if answer.ok else st.warning
        shown(f"{parts.plain(registry.models[answer.name].label)}: {parts.plain(answer.detail)}")
