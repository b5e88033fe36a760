"""The Memories page in a browser: histories are taken in, watched, looked into, and two systems asked the same."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from opbench.benchmarks import load
from opbench.memories.manifest import read_manifests
from tests.browser.conftest import Served, Visitor, free_port, serve, steady
from tests.scripted_endpoint import ScriptedEndpoint

INGESTED_MS = 240_000
"""Eighteen sessions a system; the process loads its libraries first, beside whatever else runs."""
USER = "sample-1/Ottilie"
CORPUS = load("sample")
SESSIONS = CORPUS.conversations["sample-1"].sessions
#: What the model finds worth keeping: the first two turns of a session, to Mem0 and to MemU alike.
_LINE = re.compile(r"\(\d+ \w+ \d{4}\) (\w+: [^\n\"]{12,150})")


def reply(body: dict[str, Any]) -> str:
    text = str(body["messages"][-1]["content"]).split("## New Messages")[-1].replace("\\n", "\n")
    facts = [line.strip() for line in _LINE.findall(text)[:2]]
    told = [{"id": str(place), "text": fact, "attributed_to": "user"} for place, fact in enumerate(facts)]
    return json.dumps({"memory": told, "facts": facts})


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("home")
    with ScriptedEndpoint(reply=reply, latency_s=0.5) as endpoint:
        file = home / "models.toml"
        file.write_text(endpoint.registry_toml(timeout_s=60.0), encoding="utf-8")
        with serve(home, free_port(), OPBENCH_MODELS=str(file)) as served:
            yield served


@pytest.fixture
def looking(app: Served, browser: Browser) -> Iterator[Visitor]:
    opened = Visitor(browser, app.url)
    yield opened
    opened.close()


def choose(visitor: Visitor, label: str, *options: str) -> None:
    page = visitor.page
    box = page.get_by_role("combobox", name=label, exact=True).first
    # A list that has opened closes when the page scrolls.
    box.scroll_into_view_if_needed()
    page.wait_for_timeout(500)
    for option in options:
        box.click()
        page.get_by_role("option", name=option, exact=True).click()
        page.keyboard.press("Escape")
        visitor.settle()


@pytest.mark.timeout(600)
def test_ingested_watched_browsed_searched_and_shared(app: Served, looking: Visitor, browser: Browser) -> None:
    page = looking.go("/memories")
    expect(page.get_by_text("Nothing is ingested yet")).to_be_visible()
    page.get_by_role("radio", name="bundled sample").click()
    looking.settle()
    choose(looking, "Memory systems", "Mem0", "MemU")
    choose(looking, "Extractor", "scripted")
    # Two systems, two users, nine sessions each.
    expect(page.get_by_test_id("stMetric").filter(has_text="Sessions to do")).to_contain_text("36")
    command = "opbench memory ingest mem0 memu --extractor scripted --embedder minilm --data sample"
    expect(page.get_by_text(command, exact=True)).to_be_visible()
    looking.shoot("memories-before")

    page.get_by_role("button", name="Ingest", exact=True).click()
    expect(page.get_by_role("heading", name="Ingesting Mem0, MemU: all users")).to_be_visible()
    # Nothing is clicked: the page goes on watching by itself.
    expect(page.get_by_text(re.compile(r"Mem[0U] · sample-1/\w+: [1-9] of 9 sessions")).first).to_be_visible(
        timeout=INGESTED_MS
    )
    looking.shoot("memories-ingesting")
    expect(page.get_by_text("4 complete")).to_be_visible(timeout=INGESTED_MS)
    # The process ends a moment after its last session, and the page is drawn anew then, which closes menus.
    expect(page.get_by_role("heading", name="Ingesting")).to_have_count(0)
    page.reload()
    looking.settle()
    manifests = read_manifests(app.home / "memories")
    assert {(each.system, each.user, each.complete) for each in manifests} == {
        (system, user, True) for system in ("mem0", "memu") for user in CORPUS.users
    }

    choose(looking, "User", USER)
    # What was said first is a memory of both.
    first = SESSIONS[0].turns[0]
    question = page.get_by_role("textbox", name="Question")
    question.fill(f"{first.speaker}: {first.text}"[:120])
    question.press("Enter")
    looking.settle()
    for system in ("Mem0", "MemU"):
        expect(page.get_by_role("heading", name=system, exact=True)).to_be_visible()
    expect(page.get_by_text("also in MemU").first).to_be_visible()
    expect(page.get_by_text("also in Mem0").first).to_be_visible()
    expect(page.get_by_text(SESSIONS[0].day).first).to_be_visible()

    says = page.get_by_role("textbox", name="Text in the memory")
    word = max(re.findall(r"\w+", first.text[:100]), key=len)
    says.fill(word.upper())
    says.press("Enter")
    looking.settle()
    # Some of them, not all.
    expect(page.get_by_text(re.compile(r"^(?!(\d+) of \1 )[1-9]\d* of \d+ memories$"))).to_be_visible()

    hits = steady(page, page.get_by_test_id("stText").all_inner_texts)
    colleague = Visitor(browser, app.url)
    theirs = colleague.go(page.url.removeprefix(app.url))
    expect(theirs.get_by_text("also in MemU").first).to_be_visible()
    assert steady(theirs, theirs.get_by_test_id("stText").all_inner_texts) == hits
    for width, scheme in ((1280, "dark"), (390, "dark"), (390, "light"), (1280, "light")):
        colleague.look(width, scheme)  # type: ignore[arg-type]
        assert colleague.fits()
        colleague.shoot("memories")
    assert colleague.faults == []
    assert colleague.elsewhere == []
    colleague.close()
    assert looking.faults == []
    assert looking.elsewhere == []


@pytest.mark.timeout(300)
def test_one_is_deleted_only_when_it_is_meant(app: Served, looking: Visitor) -> None:
    before = len(read_manifests(app.home / "memories"))
    page = looking.go("/memories?user=sample-1%2FCorvin&ingestion=MemU")
    page.get_by_text("Make anew or remove").click()
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_text("nothing was deleted: tick the box first")).to_be_visible()
    assert len(read_manifests(app.home / "memories")) == before
    page.get_by_text(re.compile("Yes, delete these")).click()
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_text(re.compile("Deleted: MemU's memories of sample-1/Corvin"))).to_be_visible()
    left = {(each.system, each.user) for each in read_manifests(app.home / "memories")}
    assert len(left) == before - 1
    assert ("memu", "sample-1/Corvin") not in left
    # The page may still have a copy open for searching: it goes when that is closed.
    assert not list(Path(app.home / "memories" / "memu" / "sample-1" / "Corvin").glob("*/checkpoints"))
