"""The Case page in a browser: asked, streamed, taken apart, changed, saved, opened elsewhere; cancelled; by two."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, expect

from opbench.benchmarks import load
from opbench.store import cases as kept
from tests.browser.conftest import Served, Visitor, free_port, serve, steady
from tests.scripted_endpoint import ScriptedEndpoint

CORPUS = load("sample")
USER = "sample-1/Ottilie"
QUESTION = "Which goose should I ask for advice on bread?"
LINK = "/case?data=bundled+sample&models=scripted&columns=RAG"
_MEMORY = re.compile(r"\(\d+ \w+ \d{4}\) ([^\n]+)")
SLOW = "Take your time"
#: A slow answer streams for half a minute, unless somebody stops it.
SLOW_WORDS = 200
PIECE_S = 0.15
LOADED_MS = 150_000
"""The embedder's libraries are loaded first, beside whatever else runs."""
ANSWER = (
    "Ask whichever of them happens to be awake before noon and then sit down with it by the water where nobody listens "
    "since a goose that is heard by others will only ever say what the others would like to hear about bread"
)


def reply(body: dict[str, Any]) -> str:
    """Who has memories quotes the first one."""
    text = str(body["messages"][-1]["content"])
    if SLOW in text:
        return " ".join(f"word{number}" for number in range(SLOW_WORDS))
    remembered = _MEMORY.findall(text)
    if not remembered:
        return ANSWER
    return f"You once told me this: {remembered[0]}"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[ScriptedEndpoint]:
    with ScriptedEndpoint(reply=reply, piece_s=PIECE_S) as running:
        yield running


@pytest.fixture(scope="module")
def app(endpoint: ScriptedEndpoint, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("home")
    file = home / "models.toml"
    file.write_text(endpoint.registry_toml(timeout_s=60.0), encoding="utf-8")
    with serve(home, free_port(), OPBENCH_MODELS=str(file)) as served:
        yield served


@pytest.fixture
def looking(app: Served, browser: Browser) -> Iterator[Visitor]:
    opened = Visitor(browser, app.url)
    yield opened
    opened.close()


def column(visitor: Visitor, name: str) -> Locator:
    """A column of the case by its heading."""
    heading = visitor.page.get_by_role("heading", name=name, exact=True, level=3)
    return visitor.page.get_by_test_id("stColumn").filter(has=heading).last


def ask(visitor: Visitor) -> None:
    visitor.page.get_by_role("button", name="Ask all columns").click()


def growing(place: Locator, pattern: str) -> list[str]:
    """What of a place fits the pattern, each time it has changed, until it no longer streams."""
    seen: list[str] = []
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        text = place.inner_text()
        found = re.search(pattern, text)
        if found and (not seen or seen[-1] != found[0]):
            seen.append(found[0])
        if seen and "▌" not in text:
            return seen
        place.page.wait_for_timeout(100)
    raise AssertionError(f"it streams still: {seen[-1:]}")


@pytest.mark.timeout(300)
def test_asked_streamed_taken_apart_changed_saved_and_opened_elsewhere(
    app: Served, looking: Visitor, browser: Browser, endpoint: ScriptedEndpoint
) -> None:
    page = looking.go(f"{LINK}&ask=free+text&question={QUESTION.replace(' ', '+')}&user={USER}")
    ask(looking)

    # The text grows in the page, piece by piece, as it comes.
    pieces = growing(column(looking, "BASE"), r"Ask whichever[\w ]*\w")
    assert len(pieces) >= 3
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(pieces))
    expect(page.get_by_role("heading", name="In numbers")).to_be_visible(timeout=LOADED_MS)
    looking.settle()
    rag = column(looking, "RAG")
    expect(rag.get_by_text("You once told me this")).to_be_visible()
    # The wording of the first memory is marked, and its number leads to it.
    expect(rag.locator("mark").first).to_be_visible()
    expect(rag.get_by_role("button", name="from memory 1").first).to_be_visible()
    expect(rag.get_by_text(re.compile("5 retrieved, 5 kept"))).to_be_visible()
    looking.shoot("case-answers")

    before = endpoint.ledger.total
    rag.get_by_role("button", name="Which memory did it?").click()
    heading = page.get_by_role("heading", name=re.compile("^Which memory did it"))
    expect(heading).to_be_visible()
    verdict = page.get_by_test_id("stAlert").filter(has_text=re.compile("memory", re.IGNORECASE)).first
    expect(verdict).to_be_visible(timeout=LOADED_MS)
    # Only without memory 1 is another one quoted.
    expect(verdict).to_contain_text(re.compile(r"[Mm]emory 1\b"))
    looking.settle()
    assert endpoint.ledger.total - before == 5
    expect(page.locator(".js-plotly-plot")).to_have_count(1)
    looking.shoot("case-left-out")

    # Changed in place: two memories in the place of five, and the answer beside the first.
    k = page.get_by_role("spinbutton", name="Memories a query (k)").last
    k.fill("2")
    k.press("Enter")
    looking.settle()
    page.get_by_role("button", name="Ask it beside the first").click()
    changed = column(looking, "RAG (k 2)")
    expect(changed.get_by_text(re.compile("2 retrieved"))).to_be_visible()
    expect(page.get_by_role("heading", name="What differs")).to_be_visible()
    looking.settle()
    # The same again without memory 1, by the button below it: the second one is quoted.
    changed.get_by_role("button", name="Answer without memory 1").click()
    expect(column(looking, "RAG (k 2; without 1)").get_by_text("You once told me this")).to_be_visible()
    looking.settle()

    page.get_by_role("textbox", name="Name", exact=True).fill("A goose's advice")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_text("Saved: its link opens it as it is now")).to_be_visible()
    looking.settle()
    (row,) = kept.list_cases(app.store)
    saved = kept.load_case(app.store, row.id)
    assert [(each.memory, each.k, each.without) for each in saved.spec.columns] == [
        ("base", None, ()),
        ("rag", None, ()),
        ("rag", 2, ()),
        ("rag", 2, (1,)),
    ]
    assert [ablation.column for ablation in saved.ablations] == [1]

    # The address is the saved case's from then on.
    page.get_by_role("button", name="Open the saved case").click()
    expect(page.get_by_role("heading", name="A goose's advice")).to_be_visible()
    expect(page).to_have_url(re.compile(f"case={row.id}"))

    asked = endpoint.ledger.total
    colleague = Visitor(browser, app.url)
    theirs = colleague.go(f"/case?case={row.id}")
    expect(theirs.get_by_role("heading", name="A goose's advice")).to_be_visible()
    for name in ("BASE", "RAG", "RAG (k 2)", "RAG (k 2; without 1)"):
        expect(column(colleague, name)).to_be_visible()
    expect(theirs.get_by_text(QUESTION).first).to_be_visible()
    expect(theirs.get_by_test_id("stAlert").filter(has_text=re.compile(r"[Mm]emory 1\b")).first).to_be_visible()
    assert endpoint.ledger.total == asked
    for width, scheme in ((1280, "dark"), (390, "dark"), (390, "light"), (1280, "light")):
        colleague.look(width, scheme)  # type: ignore[arg-type]
        assert colleague.fits()
        colleague.shoot("case-saved")
    assert colleague.faults == []
    assert colleague.elsewhere == []
    colleague.close()
    assert looking.faults == []
    assert looking.elsewhere == []


@pytest.mark.timeout(200)
def test_cancelling_closes_the_connection_in_mid_stream(looking: Visitor, endpoint: ScriptedEndpoint) -> None:
    closed = endpoint.ledger.closed_by_client
    page = looking.go(f"{LINK}&columns=&ask=free+text&question={SLOW.replace(' ', '+')}&user={USER}")
    ask(looking)
    base = column(looking, "BASE")
    expect(base.get_by_text(re.compile("word2"))).to_be_visible()
    asked = endpoint.ledger.total
    # Loaded anew the page finds its case, which goes on meanwhile.
    page.reload()
    expect(base.get_by_text(re.compile("word0 .* word6"))).to_be_visible()
    assert endpoint.ledger.total == asked
    page.get_by_role("button", name="Cancel", exact=True).click()
    expect(base.get_by_text("Cancelled: this is as far as it came.")).to_be_visible()
    # What had come by then stands there, and nothing comes any more.
    far = steady(page, base.inner_text)
    assert "word0 word1 word2" in far
    assert f"word{SLOW_WORDS - 1}" not in far
    deadline = time.monotonic() + 10
    while endpoint.ledger.closed_by_client == closed and time.monotonic() < deadline:
        page.wait_for_timeout(100)
    assert endpoint.ledger.closed_by_client > closed
    assert steady(page, base.inner_text) == far
    assert looking.faults == []


@pytest.mark.timeout(200)
def test_two_people_at_once_do_not_disturb_each_other(
    looking: Visitor, browser: Browser, app: Served, endpoint: ScriptedEndpoint
) -> None:
    """Both ask at the same time; one cancels, and the other's answer comes to its end."""
    colleague = Visitor(browser, app.url)
    first, second = CORPUS.users
    mine = looking.go(f"{LINK}&columns=&ask=free+text&question={SLOW.replace(' ', '+')}+please&user={first}")
    theirs = colleague.go(f"{LINK}&columns=&ask=free+text&question=What+now&user={second}")
    ask(looking)
    expect(column(looking, "BASE").get_by_text(re.compile("word2"))).to_be_visible()
    ask(colleague)
    expect(column(colleague, "BASE").get_by_text(re.compile("Ask whichever"))).to_be_visible()
    mine.get_by_role("button", name="Cancel", exact=True).click()
    expect(column(looking, "BASE").get_by_text("Cancelled: this is as far as it came.")).to_be_visible()
    expect(column(colleague, "BASE").get_by_text(ANSWER, exact=True)).to_be_visible()
    expect(column(colleague, "BASE").get_by_text("done")).to_be_visible()
    # Neither sees anything of the other's.
    assert "word0" not in theirs.locator("body").inner_text()
    assert "Ask whichever" not in mine.locator("body").inner_text()
    assert looking.faults == colleague.faults == []
    colleague.close()
