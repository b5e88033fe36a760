"""Every page in both widths and both themes: nothing raised, nothing wider than the window, nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from opbench.settings import ROOT
from tests.browser.conftest import Scheme, Served, Visitor
from tests.pages.hostile import RUN, write_hostile_run
from tests.pages.made_run import MADE, write_run

PAGES = [
    "trade-off",
    "oracle-gap",
    "latency",
    "compare",
    "instances",
    "case",
    "mechanism",
    "launch",
    "studies",
    "memories",
    "build",
    "review",
    "judges",
    "overview",
    "audit",
    "data",
]
SCHEMES: tuple[Scheme, ...] = ("light", "dark")
#: What `hostile.NASTY` would have become, had anything taken it for markup.
HARM = "script:has-text('alert(1)'), img[src*='example.invalid'], a[href*='example.invalid'], a[href^='javascript']"


@pytest.fixture(scope="module", autouse=True)
def made(served: Served) -> str:
    write_hostile_run(served.store)
    return write_run(served.store, name="pilot", failed=1, left=2)


@pytest.fixture(scope="module")
def reader(served: Served, browser: Browser) -> Iterator[Visitor]:
    """One profile for all pages, as a reader has."""
    opened = Visitor(browser, served.url)
    opened.page.on("dialog", lambda dialog: opened.faults.append(dialog.message))
    yield opened
    opened.close()


def test_the_first_visitor_may_follow_a_link_to_any_page(served: Served, browser: Browser) -> None:
    # Must stay the first test of the module: only the first session of a server can go wrong.
    visitor = Visitor(browser, served.url)
    page = visitor.go(f"/latency?run={MADE}&rule=instance")
    expect(page.get_by_role("heading", level=1)).to_contain_text("How much longer does the user wait")
    expect(page.locator(".stMarkdownBadge").filter(has_text="measured here")).to_be_visible()
    expect(page.get_by_role("radio", name="instance")).to_be_checked()
    visitor.close()


def test_the_list_of_pages_is_whole() -> None:
    written = {file.stem for file in (ROOT / "pages" / "views").glob("*.py")} - {"__init__"}
    assert {name.replace("-", "_") for name in PAGES} == written


@pytest.mark.parametrize("run", ["", RUN], ids=["published", "hostile"])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_both_widths_and_themes(reader: Visitor, name: str, run: str) -> None:
    reader.faults.clear()
    reader.elsewhere.clear()
    page = reader.go(f"/{'' if name == 'trade-off' else name}" + (f"?run={run}" if run else ""))
    assert page.locator("h1").first.inner_text().endswith("?")
    assert page.title()
    for scheme in SCHEMES:
        for width in (1280, 390):
            reader.look(width, scheme)
            assert reader.fits(), (width, scheme)
            if not run:
                reader.shoot(name)
    assert page.locator("[data-testid=stException]").count() == 0
    assert page.locator(HARM).count() == 0
    assert reader.faults == []
    assert reader.elsewhere == []


def test_an_address_of_no_page_is_said_and_leads_to_the_first(visitor: Visitor) -> None:
    page = visitor.page
    page.goto(f"{visitor.url}/nosuchpage")
    visitor.settle()
    expect(page.get_by_text("Page not found")).to_be_visible()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Does a post-processor stop")
    assert page.locator("[data-testid=stException]").count() == 0


def test_dark_is_dark_and_light_is_light(visitor: Visitor) -> None:
    visitor.go()
    app = visitor.page.get_by_test_id("stApp")
    visitor.look(1280, "light")
    expect(app).to_have_css("background-color", "rgb(255, 255, 255)")
    visitor.look(1280, "dark")
    expect(app).to_have_css("background-color", "rgb(21, 19, 28)")


def test_a_link_to_no_run_gives_a_sentence(visitor: Visitor) -> None:
    page = visitor.go("/oracle-gap?run=nosuchrun")
    expect(page.get_by_text("The link's run can't be shown, here are the published figures")).to_be_visible()
    assert page.locator("[data-testid=stException]").count() == 0
    expect(page.locator(".js-plotly-plot .main-svg").first).to_be_visible()


def test_the_choice_of_a_run_is_in_the_link_on_every_page(visitor: Visitor) -> None:
    page = visitor.go()
    page.get_by_test_id("stSidebar").get_by_role("combobox", name="Results of").click()
    page.get_by_role("option").filter(has_text=MADE).click()
    expect(page.locator(".stMarkdownBadge").filter(has_text="measured here")).to_be_visible()
    page.get_by_text("category-macro").click()
    visitor.settle()
    page.get_by_role("link", name="Oracle gap").click()
    expect(page.get_by_text("How near does")).to_be_visible()
    visitor.settle()
    assert f"run={MADE}" in page.url
    assert "rule=category-macro" in page.url
    page.reload()
    visitor.settle()
    expect(page.get_by_text("rule: category-macro")).to_be_visible()


def test_a_fault_of_a_model_is_shown_as_text(visitor: Visitor) -> None:
    page = visitor.go(f"/launch?run={MADE}")
    page.get_by_text("Failures: 1").click()
    page.wait_for_timeout(1000)
    assert page.locator("script", has_text="alert(1)").count() == 0
    assert visitor.elsewhere == []
