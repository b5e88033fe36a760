"""A study from the browser: launched, watched, reloaded, paused, stopped, gone on with, and read."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from opbench.settings import ROOT
from opbench.store.reading import run_ids, run_status
from tests.browser.conftest import Served, Visitor, steady

QUIET_S = 8.0
LOADING_MS = 120_000
"""The process loads its libraries and the embedded model before its first record."""
STUDY_MS = 600_000
"""About a minute on two idle cores; the model shares them with whatever else runs."""


def launch(visitor: Visitor, *, seed: int = 0, button: str = "Start") -> Page:
    """Fill in the form for a small study on the sample with the embedded model, and start it, or its pilot."""
    page = visitor.go("/launch")
    page.get_by_role("radio", name="bundled sample").click()
    # This one adds a sentence to the prompt; the others' calls of up to 512 tokens take the embedded model minutes.
    page.get_by_role("combobox", name="Post-processors").click()
    page.get_by_role("option", name="Reminder (original)").click()
    page.keyboard.press("Escape")
    visitor.settle()
    page.get_by_role("button", name="Remove Reminder", exact=True).click()
    expect(page.get_by_text(re.compile("--mitigations none,reminder-original"))).to_be_visible()
    page.get_by_text("Retrieval and decoding").click()
    given = {"Longest response, tokens": (24, "--max-tokens 24"), "Instances a benchmark": (6, "--limit 6")}
    for label, (value, flag) in (given | ({"Seed": (seed, f"--seed {seed}")} if seed else {})).items():
        field = page.get_by_role("spinbutton", name=label)
        field.fill(str(value))
        field.press("Enter")
        # What is typed into the next field while the page is still drawn anew would be lost.
        expect(page.get_by_text(re.compile(rf"{flag}\b"))).to_be_visible()
        visitor.settle()
    expect(
        page.get_by_text(re.compile(r"--mitigations none,reminder-original --limit 6\b.*--max-tokens 24"))
    ).to_be_visible()
    page.get_by_role("button", name=button, exact=True).click()
    expect(page.get_by_role("heading", name=re.compile("starting|running"))).to_be_visible(timeout=LOADING_MS)
    return page


def steer(page: Page, button: str) -> None:
    """Click a button of the watched run; Streamlit's own header has a “Stop” too."""
    page.get_by_test_id("stMain").get_by_role("button", name=button).first.click()


def run_in(page: Page) -> str:
    found = re.search(r"[?&]run=(\w+)", page.url)
    assert found, page.url
    return found.group(1)


def wait_for_records(page: Page, more_than: int) -> int:
    """How many records the page says are finished, once they are more than that."""
    deadline = time.monotonic() + LOADING_MS / 1000
    while time.monotonic() < deadline:
        said = re.search(r"(\d+) of \d+ records", page.get_by_test_id("stProgress").inner_text())
        if said and int(said.group(1)) > more_than:
            return int(said.group(1))
        page.wait_for_timeout(300)
    raise AssertionError(f"no record more than {more_than}: {page.get_by_test_id('stMain').inner_text()}")


def wait_until_quiet(served: Served, run: str) -> int:
    """The number of records once it has stayed the same for a while."""
    done = -1
    while (now := run_status(served.store, run).done) != done:
        done = now
        time.sleep(QUIET_S)
    return done


def table(served: Served, run: str, of: str) -> dict[tuple[str, str], dict[str, Any]]:
    """`opbench table` by memory system and post-processor."""
    done = subprocess.run(
        [sys.executable, "-m", "opbench", "table", run, "--of", of, "--json"],
        cwd=ROOT,
        env=served.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return {(row["memory"], row["mitigation"]): row for row in json.loads(done.stdout)["rows"]}


def as_shown(change: float | None) -> list[str]:
    """A change as the heatmap's cell has it; a missing one has no number in its cell."""
    if change is None:
        return []
    return ["0.0" if round(change, 1) == 0 else f"{change:+.1f}".replace("-", "−")]


@pytest.mark.timeout(1200)
def test_launch_reload_finish_and_read(visitor: Visitor, served: Served) -> None:
    page = launch(visitor)
    run = run_in(page)
    before = wait_for_records(page, 0)

    page.reload()
    visitor.settle()
    assert run_in(page) == run
    # Nothing is clicked: the page goes on watching by itself.
    wait_for_records(page, before)
    visitor.shoot("launch-running")

    expect(page.get_by_role("heading", name="complete")).to_be_visible(timeout=STUDY_MS)
    status = run_status(served.store, run)
    assert (status.done, status.planned) == (36, 36)
    visitor.shoot("launch-complete")

    page.get_by_text("See the trade-off").click()
    expect(page.get_by_text("36 of 36 records")).to_be_visible()
    visitor.settle()
    cell = ("rag", "reminder-original")
    op = table(served, run, "op")[cell]["op_change_points"]
    locomo = table(served, run, "locomo")[cell]["change_points"]
    assert op is not None
    assert locomo is not None
    panels = page.locator(".js-plotly-plot .heatmaplayer")
    expect(panels).to_have_count(2)
    assert steady(page, panels.nth(0).locator("text").all_text_contents) == as_shown(op)
    assert steady(page, panels.nth(1).locator("text").all_text_contents) == as_shown(locomo)
    visitor.shoot("trade-off-measured")
    assert visitor.faults == []
    assert visitor.elsewhere == []


@pytest.mark.timeout(1200)
def test_pause_go_on_stop_and_resume(visitor: Visitor, served: Served, browser: Browser) -> None:
    page = launch(visitor, seed=1)
    run = run_in(page)
    # Whoever opens the link sees the run start, go on and pause, and can steer it.
    colleague = Visitor(browser, served.url)
    theirs = colleague.page
    theirs.goto(page.url)
    expect(theirs.get_by_role("heading", name=re.compile("starting|running"))).to_be_visible()
    wait_for_records(theirs, 0)

    steer(page, "Pause")
    expect(page.get_by_role("heading", name="paused")).to_be_visible()
    expect(theirs.get_by_role("heading", name="paused")).to_be_visible()
    # What was in flight is finished; then nothing more, though there is more to do.
    paused_at = wait_until_quiet(served, run)
    paused = run_status(served.store, run)
    assert paused.working
    assert paused.waiting > 0

    steer(theirs, "Go on")
    expect(page.get_by_role("heading", name="running")).to_be_visible()
    wait_for_records(page, paused_at)
    colleague.close()

    steer(page, "Stop")
    expect(page.get_by_role("heading", name="stopped")).to_be_visible(timeout=LOADING_MS)
    stopped = run_status(served.store, run)
    assert not stopped.working
    assert stopped.waiting > 0

    steer(page, "Go on")
    wait_for_records(page, stopped.done)
    assert run_in(page) == run
    assert run_ids(served.store).count(run) == 1
    steer(page, "Stop")
    expect(page.get_by_role("heading", name="stopped")).to_be_visible(timeout=LOADING_MS)
    assert visitor.faults == []


@pytest.mark.timeout(600)
def test_a_pilot_grounds_the_quote_and_its_link_opens_the_same(
    visitor: Visitor, served: Served, browser: Browser
) -> None:
    page = launch(visitor, seed=2, button="Run a pilot")
    run = run_in(page)
    expect(page.get_by_text("The pilot of 12 records is done")).to_be_visible(timeout=STUDY_MS)
    status = run_status(served.store, run)
    # Three configurations, two benchmarks, two records each.
    assert status.by_configuration["done"].tolist() == [4, 4, 4]
    quoted = page.get_by_text("An estimate from a pilot of 12 records")
    expect(quoted).to_be_visible()
    said = steady(page, quoted.inner_text)
    assert re.search(r"with 95 % confidence: .* tokens in, ", said), said
    visitor.shoot("launch-pilot")

    colleague = Visitor(browser, served.url)
    theirs = colleague.go(page.url.removeprefix(served.url))
    expect(theirs.get_by_role("heading", name="stopped")).to_be_visible()
    expect(theirs.get_by_text("An estimate from a pilot of 12 records")).to_have_text(said)
    expect(theirs.get_by_text(re.compile(r"--limit 6 --seed 2\b.*--max-tokens 24")).last).to_be_visible()
    assert colleague.faults == []
    colleague.close()


def test_a_form_that_makes_no_study_says_why(visitor: Visitor) -> None:
    page = visitor.go("/launch")
    page.get_by_role("button", name="Remove SmolLM2-135M").click()
    expect(page.get_by_text("this form: models")).to_be_visible()
    assert page.locator("[data-testid=stException]").count() == 0


def test_a_model_without_its_key_asks_for_it_and_cannot_start(visitor: Visitor) -> None:
    page = visitor.go("/launch")
    page.get_by_role("combobox", name="Models").click()
    page.get_by_role("option", name="GPT-4o-mini").click()
    page.keyboard.press("Escape")
    secret = page.get_by_role("textbox", name="Key for GPT-4o-mini")
    expect(secret).to_have_attribute("type", "password")
    expect(page.get_by_role("button", name="Start", exact=True)).to_be_disabled()
    secret.fill("sk-typed-in-the-session")
    secret.press("Enter")
    expect(page.get_by_role("button", name="Start", exact=True)).to_be_enabled()
    assert "sk-typed" not in page.url
    assert "GPT-4o-mini" in page.url, "the study is in the link, the key isn't"
