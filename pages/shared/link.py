"""A view's state in its link: widgets bound to the URL, whose values are checked on the way in.

Streamlit drops a value that a widget doesn't know; here it is also said. Every choice that changes what a page shows
is made through one of these, so that a copied link opens the same view.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar

import streamlit as st
from streamlit.runtime.state.session_state_proxy import get_session_state

LIVE = "live"
"""The id of the case at work, which leads nobody but its asker to it: no part of what a link shows to others."""
_SHOWN = 40
_WHOLE = re.compile(r"-?[0-9]{1,18}")
Kind = Literal["select", "segmented", "radio", "pills"]
Option = TypeVar("Option", bound=str)


def notices() -> list[str]:
    """What of the link couldn't be followed, a sentence each."""
    found: list[str] = st.session_state.setdefault("notices", [])
    return found


def say(sentence: str) -> None:
    """Add a notice, once."""
    if sentence not in notices():
        notices().append(sentence)


def one_of(
    label: str,
    options: Sequence[Option],
    key: str,
    *,
    kind: Kind = "select",
    default: Option | None = None,
    names: Mapping[str, str] | None = None,
    **more: Any,
) -> Option:
    """One of `options` (the first, or `default`, when the link says nothing). `names`: how options are written."""
    first = options[0] if default is None else default
    check(key, options, names)
    more |= {"format_func": _named(names), "key": key, "bind": "query-params"}
    chosen: Option | None
    if kind == "select":
        chosen = st.selectbox(label, options, options.index(first), **more)
    elif kind == "radio":
        chosen = st.radio(label, options, options.index(first), **more)
    elif kind == "segmented":
        chosen = st.segmented_control(label, options, default=first, required=True, **more)
    else:
        chosen = st.pills(label, options, default=first, required=True, **more)
    # A widget that has lost its options for a moment chooses nothing.
    return first if chosen is None else chosen


def some_of(
    label: str, options: Sequence[str], key: str, *, names: Mapping[str, str] | None = None, **more: Any
) -> list[str]:
    """Any of `options`; none chosen usually means all."""
    check(key, options, names)
    return list(st.multiselect(label, options, format_func=_named(names), key=key, bind="query-params", **more))


def switch(label: str, key: str, **more: Any) -> bool:
    check(key, ("true", "false"))
    return bool(st.toggle(label, key=key, bind="query-params", **more))


def text(label: str, key: str, **more: Any) -> str:
    """Free text, at most 200 signs."""
    return str(st.text_input(label, key=key, bind="query-params", max_chars=200, **more) or "")


def long_text(label: str, key: str, **more: Any) -> str:
    """Free text of several lines, at most 1,000 signs: browsers and servers take no link of any length."""
    return str(st.text_area(label, key=key, bind="query-params", max_chars=1_000, **more) or "")


def number(label: str, low: int, high: int, default: int, key: str, **more: Any) -> int:
    """A whole number from `low` to `high`."""
    for given in st.query_params.get_all(key):
        if not _WHOLE.fullmatch(given) or not low <= int(given) <= high:
            _leave_out(key, given, f"from {low} to {high}")
    return int(st.number_input(label, low, high, default, 1, key=key, bind="query-params", **more))


def decimal(label: str, low: float, high: float, default: float, step: float, key: str, **more: Any) -> float:
    """A number from `low` to `high`."""
    for given in st.query_params.get_all(key):
        try:
            fits = low <= float(given) <= high
        except ValueError:
            fits = False
        if not fits:
            _leave_out(key, given, f"from {low:g} to {high:g}")
    return float(st.number_input(label, low, high, default, step, key=key, bind="query-params", **more))


def _leave_out(key: str, given: str, wanted: str) -> None:
    """Say that a number isn't one, and let its widget not see it: Streamlit (1.67, pinned) would take what is close to
    a number (`1e3`), and fails at what is beyond all numbers (`1e999`)."""
    say(f"The link asks for {key}={given[:_SHOWN]}, which isn't {wanted}; it was left out.")
    with get_session_state().query_params() as parameters:
        parameters._initial_query_params.pop(key, None)
        parameters.remove_param(key)


def check(key: str, options: Sequence[str], names: Mapping[str, str] | None = None) -> None:
    """Say which values that the link gives for `key` are none of `options`. The link carries the written names."""
    shown = _named(names)
    known = {shown(option).lower() for option in options}
    for given in st.query_params.get_all(key):
        if given.lower() not in known and given:
            few = ", ".join(shown(option) for option in options[:12]) + (", …" if len(options) > 12 else "")
            say(f"The link asks for {key}={given[:_SHOWN]}, which is none of {few}; it was left out.")


def _named(names: Mapping[str, str] | None) -> Callable[[str], str]:
    return lambda option: str(option) if names is None else names.get(option, str(option))
