"""The Judges page in a browser: the recorded study's ranking from the first minute, and judges set against scores."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import Served, Visitor, free_port, serve

JUDGED_MS = 120_000
"""The process loads its libraries first, beside whatever else runs."""


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A first start: nothing but what comes with the project."""
    with serve(tmp_path_factory.mktemp("home"), free_port()) as served:
        yield served


@pytest.fixture
def looking(app: Served, browser: Browser) -> Iterator[Visitor]:
    opened = Visitor(browser, app.url)
    yield opened
    opened.close()


@pytest.mark.timeout(300)
def test_the_recorded_study_is_ranked_and_judges_are_set_against_scores(looking: Visitor) -> None:
    page = looking.go("/judges")
    expect(page.get_by_text("7 configurations in 9 views (3 judges or prompts by 3 averaging rules)")).to_be_visible()
    expect(page.get_by_text("one and the same score").first).to_be_visible()
    page.get_by_role("radio", name="Against people").click()
    looking.settle()
    page.get_by_role("button", name="Published cases").click()
    looking.settle()
    expect(page.get_by_text("No judge has scored these responses yet")).to_be_visible()
    page.get_by_role("radio", name="Judging").click()
    looking.settle()
    box = page.get_by_role("combobox", name="Judges by rule", exact=True)
    for judge in ("offline (rules)", "random (the control)"):
        box.click()
        page.get_by_role("option", name=judge, exact=True).click()
        page.keyboard.press("Escape")
        looking.settle()
    page.get_by_role("button", name="Judge", exact=True).click()
    expect(page.get_by_text("What the last judging said at its end")).to_be_visible(timeout=JUDGED_MS)
    page.get_by_role("radio", name="Against people").click()
    looking.settle()
    for judge in ("offline", "random"):
        said = page.get_by_role("paragraph").filter(has_text=f"{judge}: Spearman's")
        expect(said.filter(visible=True).first).to_be_visible()
    assert "section=Against" in page.url
