"""The bar above every page: copy the link to this view, or take the view along as a file."""

from __future__ import annotations

import streamlit as st

from opbench.sharing.sheet import Sheet

_HTML = '<button type="button">Copy link</button>'
_CSS = """
button { font: inherit; font-size: 0.875rem; color: var(--st-text-color); background: transparent; cursor: pointer;
  border: 1px solid var(--st-border-color); border-radius: var(--st-base-radius); padding: 0.25rem 0.75rem;
  white-space: nowrap; min-height: 2.25rem; }
button:hover, button:focus-visible { color: var(--st-primary-color); border-color: var(--st-primary-color); }
"""
# Without HTTPS a browser gives pages of other hosts no clipboard: then the old way, with a field that is selected.
_JS = """
export default function ({ parentElement }) {
  const button = parentElement.querySelector("button");
  button.onclick = async () => {
    const link = window.location.href;
    let copied = true;
    try { await navigator.clipboard.writeText(link); } catch {
      const field = document.createElement("textarea");
      field.value = link;
      document.body.appendChild(field);
      field.select();
      copied = document.execCommand("copy");
      field.remove();
    }
    button.textContent = copied ? "Link copied" : "Copy it from the address bar";
    setTimeout(() => { button.textContent = "Copy link"; }, 2000);
  };
}
"""


def bar(sheet: Sheet) -> None:
    """The link and the exports of the view that was drawn."""
    with st.container(horizontal=True, horizontal_alignment="right", vertical_alignment="center", key="share"):
        _copy_link()


def _copy_link() -> None:
    st.components.v2.component("copy_link", html=_HTML, css=_CSS, js=_JS)(key="copy-link", width="content")
