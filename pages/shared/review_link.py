"""A personal link: its secret comes behind the `#` of the address, which no browser sends to a server.

So it stands in no log and no referrer. The page takes it out of the address at once and hands it over by the open
connection; the tab keeps it for a reload, the server for as long as the session lasts, in memory alone.
"""

from __future__ import annotations

from urllib.parse import urlsplit

import streamlit as st

from opbench.review import links

_SECRET = "review-secret"
#: Key of the component that reads the link.
READER = "review-reader"
#: The longest secret that is looked up.
_LONGEST = 200
_JS = """
const KEPT = "opbench-reviewer";
const keep = (secret) => {
  try {
    if (secret) sessionStorage.setItem(KEPT, secret); else sessionStorage.removeItem(KEPT);
  } catch { /* A tab that keeps nothing: after a reload the link is followed again. */ }
};
const kept = () => { try { return sessionStorage.getItem(KEPT); } catch { return null; } };
export default function ({ data, setTriggerValue }) {
  const read = () => {
    const found = location.hash.match(/^#reviewer=([\\w-]+)$/);
    if (found) {
      history.replaceState(history.state, "", location.pathname + location.search);
      keep(found[1]);
    } else if (data.forget) {
      keep(null);
    }
    const secret = found ? found[1] : kept();
    if (secret && (found || !data.known)) setTriggerValue("secret", secret);
  };
  read();
  window.addEventListener("hashchange", read);
  return () => window.removeEventListener("hashchange", read);
}
"""


def address(secret: str) -> str:
    """The personal link to this dashboard's review page."""
    here = urlsplit(st.context.url or "")
    return f"{here.scheme}://{here.netloc}{here.path.removesuffix('/review')}{links.link_path(secret)}"


def secret() -> str | None:
    """The secret of the link that this tab was opened with."""
    found: str | None = st.session_state.get(_SECRET)
    return found


def drop() -> None:
    """Be nobody's reviewer any more; the tab forgets the link too."""
    st.session_state.pop(_SECRET, None)
    st.session_state["review-forget"] = True


def set_aside() -> None:
    """Look at something else than the review; the tab keeps the link."""
    st.session_state.pop(_SECRET, None)


def read() -> None:
    """Look for a link's secret in the tab; there is nothing to see of it."""
    component = st.components.v2.component("opbench_review_link", js=_JS)
    forget = bool(st.session_state.pop("review-forget", False))
    component(key=READER, data={"known": secret() is not None, "forget": forget}, on_secret_change=_take)


def _take() -> None:
    given = st.session_state[READER].secret
    if isinstance(given, str) and len(given) <= _LONGEST:
        st.session_state[_SECRET] = given
