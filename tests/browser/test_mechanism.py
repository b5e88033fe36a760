"""The Mechanism page in a browser: measuring is started, watched and stopped; a prompt is drawn as text; a link opens
the same view."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from opbench.mechanism import launching
from opbench.settings import settings
from tests.browser.conftest import Served, Visitor
from tests.pages.read_run import write_read
from tests.pages.wide_run import WIDE

STARTED_MS = 60_000
ENDED_MS = 120_000
PROMPT = "[role=region].prompt"


@pytest.fixture(scope="module", autouse=True)
def read(served: Served) -> str:
    return write_read(served.store)


@pytest.fixture
def looking(served: Served, browser: Browser) -> Iterator[Visitor]:
    opened = Visitor(browser, served.url)
    opened.page.on("dialog", lambda dialog: opened.faults.append(dialog.message))
    yield opened
    opened.close()


def test_the_finding_comes_first_and_the_link_opens_the_same_view(
    served: Served, browser: Browser, looking: Visitor
) -> None:
    page = looking.go(f"/mechanism?run={WIDE}")
    page.get_by_role("radiogroup").get_by_text("Attention", exact=True).click()
    looking.settle()
    sentence = page.get_by_text(re.compile(r"Per token, memory gets 3\.00× the attention of the query"))
    expect(sentence).to_be_visible()
    page.get_by_text("its first token", exact=True).click()
    looking.settle()
    assert "section=Attention" in page.url
    assert "position=its+first+token" in page.url
    colleague = Visitor(browser, served.url)
    there = colleague.go(page.url.removeprefix(served.url))
    expect(there.get_by_text("attention of its first token", exact=True)).to_be_visible()
    colleague.close()
    assert looking.faults == []
    assert looking.elsewhere == []


@pytest.mark.parametrize("width", [1280, 390])
def test_a_prompt_is_drawn_as_text_and_fits(looking: Visitor, width: int) -> None:
    looking.look(width, "dark")
    page = looking.go(f"/mechanism?run={WIDE}&section=Attention&tokens-of=RAG")
    prompt = page.locator(PROMPT)
    expect(prompt).to_contain_text("<b>first</b>Answer well. m0 m1")
    expect(prompt.locator("span.memory")).to_have_count(20)
    assert prompt.locator("b").count() == 0
    deepest, palest = (
        prompt.locator("span.sign").nth(place).evaluate("each => each.style.backgroundColor") for place in (3, 23)
    )
    assert deepest != palest
    assert looking.fits()
    looking.shoot("mechanism-attention")
    assert looking.faults == []


def test_measuring_is_started_watched_and_ends(
    served: Served, looking: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPBENCH_HOME", str(served.home))
    page = looking.go(f"/mechanism?run={WIDE}&section=Measuring")
    page.get_by_role("button", name="Measure similarities").click()
    expect(page.get_by_text(re.compile(r"Started: opbench mechanism retrieval"))).to_be_visible(timeout=STARTED_MS)
    settings.cache_clear()
    try:
        assert len(launching.started(WIDE)) == 1
        # The made run's memories have no texts, which the process says; nothing stays at work.
        expect(page.get_by_text("What the last measurement said at its end")).to_be_visible(timeout=ENDED_MS)
        (process,) = launching.started(WIDE)
        assert not process.working
    finally:
        settings.cache_clear()
    assert looking.faults == []
