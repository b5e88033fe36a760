"""The bar above every page: copy the link to this view, or take the view along as a file."""

from __future__ import annotations

from functools import partial
from urllib.parse import urlencode, urlsplit, urlunsplit

import streamlit as st

from opbench.sharing.html import holds_texts, view_html
from opbench.sharing.sheet import Chart, Data, Sheet, Words
from opbench.sharing.tables import csv_files, tables_of
from pages.shared import link

#: Session state of what a figure's camera button saves; `parts.chart` reads it.
PICTURE = "picture"
_PICTURES = {"png": "PNG", "svg": "SVG"}

# The bar stands in the line of Streamlit's own header, which is empty but for the menu at its end.
_STYLE = """<style>
.st-key-share { margin-top: -4.1rem; position: relative; z-index: 999991; }
[data-testid=stMainBlockContainer] h1 { padding-top: 0; }
.st-key-share button { min-height: 2rem; padding-top: 0.15rem; padding-bottom: 0.15rem; }
@media (max-width: 1100px) { .st-key-share { padding-right: 2.25rem; } }
</style>"""
_HTML = '<button type="button">Copy link</button>'
_CSS = """
button { font: inherit; font-size: 0.875rem; color: var(--st-text-color); background: transparent; cursor: pointer;
  border: 1px solid var(--st-border-color); border-radius: var(--st-base-radius); padding: 0.15rem 0.75rem;
  white-space: nowrap; min-height: 2rem; }
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
    st.html(_STYLE)
    with st.container(
        horizontal=True, horizontal_alignment="right", vertical_alignment="center", gap="small", key="share"
    ):
        _copy_link()
        if any(isinstance(block, Chart | Data | Words) for block in sheet.blocks):
            with st.popover("Share", icon=":material/share:", width="content"):
                _exports(sheet)


def _copy_link() -> None:
    st.components.v2.component("copy_link", html=_HTML, css=_CSS, js=_JS)(key="copy-link", width="content")


def _exports(sheet: Sheet) -> None:
    """Files of the view. They are made when they are asked for, of the sheet and link as they are now."""
    with_texts = False
    if holds_texts(sheet):
        with_texts = st.toggle(
            "With questions and responses",
            key="share-texts",
            help="The benchmarks' sentences may not be passed on freely. Left out, a file says so.",
        )
    stem = sheet.page or "view"
    st.download_button(
        "This view as HTML",
        partial(_html, sheet, _link(), with_texts),
        file_name=f"{stem}.html",
        mime="text/html",
        icon=":material/draft:",
        key="share-html",
        on_click="ignore",
        width="stretch",
        help="One file that opens anywhere, offline: figures, tables, the data and where it comes from.",
    )
    tables = sum(isinstance(block, Data) for block in sheet.blocks)
    if tables:
        st.download_button(
            "Its table as CSV" if tables == 1 else f"Its {tables} tables as CSV (zip)",
            partial(_csv, sheet, with_texts),
            file_name=f"{stem}.csv" if tables == 1 else f"{stem}-tables.zip",
            mime="text/csv" if tables == 1 else "application/zip",
            icon=":material/table:",
            key="share-csv",
            on_click="ignore",
            width="stretch",
        )
    if any(isinstance(block, Chart) for block in sheet.blocks):
        st.segmented_control(
            "A figure's camera saves",
            list(_PICTURES),
            format_func=_PICTURES.__getitem__,
            default=st.session_state.get(PICTURE, "png"),
            required=True,
            key=PICTURE,
            help="The camera shows above a figure when the pointer is on it.",
        )


def _html(sheet: Sheet, link: str, with_texts: bool) -> bytes:
    return view_html(sheet, link=link, with_texts=with_texts).encode()


def _csv(sheet: Sheet, with_texts: bool) -> bytes:
    return csv_files(tables_of(sheet, with_texts), sheet.marks)[1]


def _link() -> str:
    """The address of the view as it is drawn."""
    parameters = {name: st.query_params.get_all(name) for name in st.query_params if name != link.LIVE}
    parts = urlsplit(st.context.url or "")
    return urlunsplit(parts._replace(path=parts.path or "/", query=urlencode(parameters, doseq=True)))
