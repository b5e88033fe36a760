"""Who looks: an editor may launch, ask, import, delete and write scores; a viewer reads and downloads.

The rules are `opbench.access`; here they are asked of the session, anew at every question: a role ends with the
sign-in, in every open tab.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from opbench.access import Policy, SignOuts, Visitor, make_policy, visitor
from opbench.errors import OpbenchError, UsageError
from opbench.settings import settings
from pages.shared import link, review_link
from pages.shared.parts import plain

REFUSED = "Viewers read and download; launching, asking and writing is for editors."
_ENDED = SignOuts()
#: The identities of editors' sessions, newest last: whose files are taken.
_EDITING: OrderedDict[str, Mapping[str, Any]] = OrderedDict()
_MOST_SESSIONS = 10_000
_Arguments = ParamSpec("_Arguments")

# Signing in leads over the provider and back to the first page; the tab remembers which link was wanted.
_KEEP_LINK = """
export default function () {
  sessionStorage.setItem("opbench-wanted", location.pathname + location.search);
}
"""
_FOLLOW_LINK = """
export default function () {
  const wanted = sessionStorage.getItem("opbench-wanted");
  sessionStorage.removeItem("opbench-wanted");
  if (!wanted) return;
  const target = new URL(wanted, location.origin);
  if (target.origin === location.origin && target.href !== location.href) location.replace(target.href);
}
"""


def who() -> Visitor:
    """Who this is, as of now.

    Raises:
        UsageError: the dashboard is open to others without anybody having said so.
    """
    return _visitor(_claims())


def name() -> str:
    """Who this is, for the history of what people write: an e-mail address, or `local` where nobody signs in."""
    return who().name


def may_read() -> bool:
    """Whether this visitor may see anything at all."""
    try:
        return who().role != "nobody"
    except OpbenchError:
        return False


def may_edit() -> bool:
    """Whether this visitor may spend money or change what is stored. Asked on the server, before the deed."""
    return who().role == "editor"


def demand_edit() -> None:
    """Let only editors past: the first line of what spends or changes.

    Raises:
        UsageError: this visitor is none.
    """
    if not may_edit():
        raise UsageError(REFUSED)


def editing(deed: Callable[_Arguments, object]) -> Callable[_Arguments, None]:
    """`deed` as a widget's callback: done for editors alone. A callback runs before the page and its gate."""

    @functools.wraps(deed)
    def checked(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> None:
        if may_read() and may_edit():
            deed(*args, **kwargs)
        else:
            link.say(REFUSED)

    return checked


def watched(body: Callable[_Arguments, None]) -> Callable[_Arguments, None]:
    """`body` as a fragment that ends with the visitor's right to see it: it runs without the page and its gate."""

    @functools.wraps(body)
    def checked(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> None:
        if not may_read():
            st.rerun()
        body(*args, **kwargs)

    return checked


def may_upload(session_id: str) -> bool:
    """Whether the session's files are taken. Asked by the server, outside of any page."""
    claims = _EDITING.get(session_id)
    return claims is not None and _visitor(claims).role == "editor"


def gate() -> bool:
    """Whether to go on with the page; if not, all that there is to see is drawn: who may come in, and how.

    Raises:
        UsageError: the dashboard is open to others without anybody having said so.
    """
    visitor = who()
    _note_editor(visitor)
    if visitor.role != "nobody":
        if visitor.signed_in and not st.session_state.setdefault("followed", False):
            st.session_state["followed"] = True
            st.components.v2.component("follow_link", js=_FOLLOW_LINK)(key="follow-link")
        return True
    _forget_session()
    st.title("OP-Bench Workbench", anchor=False)
    if visitor.reason:
        st.info(plain(visitor.reason), icon=":material/person_off:")
    if visitor.signed_in:
        sign_out_button()
        return False
    st.components.v2.component("keep_link", js=_KEEP_LINK)(key="keep-link")
    for provider in _policy().providers or ("",):
        label = f"Sign in with {provider}" if provider else "Sign in"
        if st.button(label, key=f"sign-in-{provider}", type="primary", icon=":material/login:"):
            st.login(provider or None)
    return False


def show_who() -> None:
    """In the sidebar: who is signed in, as what, and the way out. Nothing where the dashboard is one person's own."""
    visitor = who()
    if visitor.signed_in:
        st.caption(f"{plain(visitor.name)} · {visitor.role}")
        sign_out_button()
    elif visitor.role == "viewer":
        st.caption("Open to all: you read and download.")


def _policy() -> Policy:
    auth = st.secrets.get("auth", {}) if st.secrets.load_if_toml_exists() else {}
    return make_policy(str(st.get_option("server.address") or ""), auth, settings())


def _claims() -> dict[str, Any]:
    return dict(st.user.to_dict())


def _visitor(claims: Mapping[str, Any]) -> Visitor:
    policy = _policy()
    if policy.sign_in and _ENDED.has(claims):
        return Visitor("", "nobody")
    return visitor(policy, claims)


def _note_editor(visitor: Visitor) -> None:
    context = get_script_run_ctx()
    if context is None:
        return
    _EDITING.pop(context.session_id, None)
    if visitor.role == "editor":
        _EDITING[context.session_id] = _claims()
        while len(_EDITING) > _MOST_SESSIONS:
            _EDITING.popitem(last=False)


def _forget_session() -> None:
    """Keys that were typed, and all else of who is no longer here; not the click on the button below, nor the personal
    link that the tab is about to hand over."""
    for key in list(st.session_state):
        if not str(key).startswith(("sign-", review_link.READER)):
            del st.session_state[key]


def sign_out_button() -> None:
    """The way out."""
    if st.button("Sign out", key="sign-out", icon=":material/logout:"):
        _ENDED.end(_claims(), _policy().hours)
        _forget_session()
        st.logout()
        st.stop()
