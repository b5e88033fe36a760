"""From the list to a record, to its neighbour, to a link that opens the same in another browser; and from Compare."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import Served, Visitor, steady
from tests.pages.made_run import MADE, write_run

ONE_ROW = 35


@pytest.fixture(scope="module", autouse=True)
def made(served: Served) -> str:
    return write_run(served.store, name="pilot")


def tick(visitor: Visitor, row: int) -> None:
    """Tick a row of the list; the table is drawn on a canvas, so by its place."""
    table = visitor.page.get_by_test_id("stDataFrame").first
    expect(table.locator("canvas").first).to_be_visible()
    table.click(position={"x": 17, "y": int(ONE_ROW * (row + 1.5))})


def test_a_ticked_record_has_a_link_that_opens_it_elsewhere(served: Served, visitor: Visitor, browser: Browser) -> None:
    visitor.go(f"/instances?run={MADE}&only-processor=Reminder")
    page = visitor.page
    expect(page.get_by_text("Tick a row to open its record.")).to_be_visible()
    tick(visitor, 1)
    expect(page.get_by_text("hit 2 of 24")).to_be_visible()
    page.get_by_role("button", name="Next").click()
    expect(page.get_by_text("hit 3 of 24")).to_be_visible()
    head = steady(page, page.get_by_role("heading", level=2).first.inner_text)
    assert "reminder" in page.url
    other = Visitor(browser, served.url)
    try:
        other.page.goto(page.url)
        expect(other.page.get_by_role("heading", name=head)).to_be_visible()
        expect(other.page.get_by_role("heading", name="smollm2-135m · RAG · Reminder")).to_be_visible()
        expect(other.page.get_by_text("hit 3 of 24")).to_be_visible()
    finally:
        other.close()


def test_the_largest_change_opens_both_records(visitor: Visitor) -> None:
    visitor.go(f"/compare?run={MADE}")
    page = visitor.page
    page.get_by_role("link").filter(has_text="locomo/").first.click()
    expect(page.get_by_role("heading", name="smollm2-135m · RAG · no post-processor")).to_be_visible()
    expect(page.get_by_role("heading", name="smollm2-135m · RAG · Reminder")).to_be_visible()
