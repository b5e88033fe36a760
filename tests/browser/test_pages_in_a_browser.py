"""Every page in both widths and both themes: nothing raised, nothing wider than the window, nothing from elsewhere."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import Scheme, Served, Visitor
from tests.pages.made_run import MADE, write_run

PAGES = {"trade-off": "/", "oracle-gap": "/oracle-gap", "latency": "/latency", "launch": "/launch"}


@pytest.fixture(scope="module", autouse=True)
def made(served: Served) -> str:
    return write_run(served.store, name="pilot", failed=1, left=2)


def test_the_first_visitor_may_follow_a_link_to_any_page(served: Served, browser: Browser) -> None:
    # Must stay the first test of the module: only the first session of a server can go wrong.
    visitor = Visitor(browser, served.url)
    page = visitor.go(f"/latency?run={MADE}&rule=instance")
    expect(page.get_by_text("How much longer does the user wait?")).to_be_visible()
    expect(page.get_by_text("measured here")).to_be_visible()
    expect(page.get_by_role("radio", name="instance")).to_be_checked()
    visitor.close()


@pytest.mark.parametrize("run", ["", MADE])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_both_widths_and_themes(visitor: Visitor, name: str, run: str) -> None:
    page = visitor.go(PAGES[name] + (f"?run={run}" if run else ""))
    if name != "launch":
        expect(page.locator(".js-plotly-plot .main-svg").first).to_be_visible()
    schemes: tuple[Scheme, ...] = ("light", "dark")
    for scheme in schemes:
        for width in (1280, 390):
            visitor.look(width, scheme)
            assert visitor.overflow() <= 0, (width, scheme)
            visitor.shoot(f"{name}-{'made' if run else 'published'}")
    assert page.locator("[data-testid=stException]").count() == 0
    assert visitor.faults == []
    assert visitor.elsewhere == []


def test_dark_is_dark_and_light_is_light(visitor: Visitor) -> None:
    visitor.go()
    background = "getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor"
    visitor.look(1280, "light")
    assert visitor.page.evaluate(background) == "rgb(255, 255, 255)"
    visitor.look(1280, "dark")
    assert visitor.page.evaluate(background) == "rgb(21, 19, 28)"


def test_a_link_to_no_run_gives_a_sentence(visitor: Visitor) -> None:
    page = visitor.go("/oracle-gap?run=nosuchrun")
    expect(page.get_by_text("The link's run can't be shown, here are the published figures")).to_be_visible()
    assert page.locator("[data-testid=stException]").count() == 0
    expect(page.locator(".js-plotly-plot .main-svg").first).to_be_visible()


def test_the_choice_of_a_run_is_in_the_link_on_every_page(visitor: Visitor) -> None:
    page = visitor.go()
    page.get_by_test_id("stSidebar").get_by_role("combobox").click()
    page.get_by_role("option").filter(has_text=MADE).click()
    expect(page.get_by_text("measured here")).to_be_visible()
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
