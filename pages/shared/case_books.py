"""Case books: several saved cases in an order, under a name, as one file for a paper or a meeting."""

from __future__ import annotations

from functools import partial

import streamlit as st

from opbench.cases.saved import BookRow, CaseRow
from opbench.sharing.case_html import book_html
from opbench.store import cases as kept
from pages.shared import access, parts, results
from pages.shared.case_keeping import TEXTS_HELP


def show(rows: list[CaseRow]) -> None:
    """The books that there are, and for editors the form of a new one."""
    readable = {row.id: row for row in rows if row.damage is None}
    books = kept.list_books(results.opened().store)
    if not readable and not books:
        return
    st.header("Case books", anchor=False)
    st.caption("Several cases in an order, as one HTML file: for a paper's appendix, or a meeting.")
    for book in books:
        _book(book, readable)
    if access.may_edit() and readable:
        with st.expander("New case book", icon=":material/library_add:", expanded=not books):
            name = st.text_input("Name of the book", max_chars=kept.LONGEST_NAME, key="book-name")
            note = st.text_area("Introduction", max_chars=kept.LONGEST_NOTE, key="book-note", height=80)
            chosen = _ordered("Cases, in the order in which you choose them", readable, [], "book-cases")
            if st.button("Make the book", key="book-make", icon=":material/library_add:", disabled=not chosen):
                access.demand_edit()
                kept.save_book(results.opened().store, name=name, note=note, cases=chosen, maker=access.name())
                st.rerun()


def _ordered(label: str, rows: dict[str, CaseRow], first: list[str], key: str) -> list[str]:
    return list(
        st.multiselect(
            label,
            list(dict.fromkeys((*first, *rows))),
            first,
            format_func=lambda case_id: _name(case_id, rows),
            key=key,
            placeholder="Choose cases",
        )
    )


def _name(case_id: str, rows: dict[str, CaseRow]) -> str:
    row = rows.get(case_id)
    return f"gone ({case_id[:6]})" if row is None else f"{parts.as_label(row.name)} · {case_id[:6]}"


def _book(book: BookRow, rows: dict[str, CaseRow]) -> None:
    store = results.opened().store
    count = f"{len(book.cases)} {'case' if len(book.cases) == 1 else 'cases'}"
    with st.expander(f"{parts.as_label(book.name)}: {count}", icon=":material/menu_book:"):
        if book.damage is not None:
            st.error(parts.plain(book.damage), icon=":material/error:")
        if book.note:
            st.text(book.note)
        if book.gone:
            st.warning(
                f"{book.gone} of its cases was deleted since." if book.gone == 1 else f"{book.gone} were deleted."
            )
        cases = list(book.cases)
        if access.may_edit():
            new_name = st.text_input(
                "Name of the book", book.name, max_chars=kept.LONGEST_NAME, key=f"book-name-{book.id}"
            )
            cases = _ordered("Cases, in order", rows, cases, f"book-cases-{book.id}")
        else:
            for number, case_id in enumerate(cases, 1):
                st.markdown(f"{number}. {parts.plain(_name(case_id, rows))}")
        with st.container(horizontal=True, vertical_alignment="center"):
            if access.may_edit():
                if st.button("Keep the changes", key=f"book-keep-{book.id}", icon=":material/check:"):
                    access.demand_edit()
                    kept.set_book(store, book.id, cases)
                    kept.rename_book(store, book.id, new_name)
                    st.rerun()
                if st.button("Delete the book", key=f"book-delete-{book.id}", icon=":material/delete:"):
                    access.demand_edit()
                    kept.delete_book(store, book.id)
                    st.rerun()
            with_texts = st.toggle("With texts", key=f"book-texts-{book.id}", help=TEXTS_HELP)
            if book.damage is None and len(book.cases) > book.gone:
                st.download_button(
                    "As HTML",
                    partial(_html, book.id, with_texts),
                    file_name=f"cases-{book.id}.html",
                    mime="text/html",
                    icon=":material/download:",
                    key=f"book-html-{book.id}",
                    on_click="ignore",
                )


def _html(book_id: str, with_texts: bool) -> bytes:
    return book_html(kept.load_book(results.opened().store, book_id), with_texts=with_texts).encode()
