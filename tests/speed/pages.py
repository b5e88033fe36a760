"""`make bench`, second part: how long the dashboard's pages take with a study of 129,600 records, in Chromium.

A time runs from the click in the browser to the last change of the page after its script has ended: what a visitor
waits for, drawing included. Opening is a click in the navigation of a warm session; the first visit is the first of
the server's life, in the order of the table, so the page that first needs scores or times reads them. Re-filtering is
a click on a rule, on “First speakers only” or on a model; “new” is a choice whose numbers nobody has asked for yet.
The floor, taken in the same run, is a page of the same server that shows one sentence.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Locator, Page, sync_playwright

from opbench.analysis.aggregate import RULES
from opbench.store.database import MIGRATIONS, open_store
from tests.browser.conftest import _ARGUMENTS, free_port, serve
from tests.speed import big_study

ROUNDS = 5
_EMPTY = "Instances"  # with published figures it shows a sentence
_LONGEST_MS = 60_000
#: Notes in the page when a click, a script run and the last change of the document happened.
_WATCH = """() => {
  if (window.watched) { window.watched.clicked = null; window.watched.ran = false; return; }
  const seen = window.watched = { clicked: null, ran: false, changed: 0 };
  addEventListener('click', () => { if (seen.clicked === null) seen.clicked = performance.now(); }, true);
  new MutationObserver(changes => {
    // What a screen reader reads of a table stands in its canvas, a fifth of a second after the table was drawn.
    changes = changes.filter(change => !(change.target.closest ? change.target : change.target.parentElement)
      ?.closest('canvas'));
    if (changes.length) seen.changed = performance.now();
    for (const change of changes)
      if (change.target.dataset?.testid === 'stApp' && change.target.dataset.testScriptState === 'running'
          && seen.clicked !== null) seen.ran = true;
  }).observe(document.body, { subtree: true, childList: true, attributes: true, characterData: true });
}"""
_SETTLED = """limit => new Promise((resolve, reject) => {
  const seen = window.watched, app = document.querySelector('[data-testid=stApp]');
  const look = () => {
    const now = performance.now();
    // A script may be over before the page has said that it runs.
    const begun = seen.ran || now - seen.clicked > 1500;
    const over = begun && app.dataset.testScriptState === 'notRunning' && now - seen.changed > 300;
    if (over && seen.changed < seen.clicked) reject(new Error('the click changed nothing'));
    else if (over) resolve(seen.changed - seen.clicked);
    else if (now - seen.clicked > limit) reject(new Error('not settled after ' + limit + ' ms'));
    else setTimeout(look, 20);
  };
  look();
})"""


def home() -> Path:
    """The folder with the study, made once for this version of its script and of the schema."""
    sources = [Path(big_study.__file__), *sorted((MIGRATIONS / "versions").glob("*.py"))]
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in sources)).hexdigest()[:12]
    folder = Path(tempfile.gettempdir()) / f"opbench-speed-{digest}"
    if not folder.exists():
        for old in folder.parent.glob("opbench-speed-*"):
            shutil.rmtree(old)
        begun = time.perf_counter()
        part = Path(tempfile.mkdtemp(prefix="opbench-speed-being-made-"))
        store = open_store(f"sqlite:///{part / 'store.sqlite3'}")
        big_study.write_big_study(store)
        store.close()
        part.rename(folder)
        print(f"study written in {time.perf_counter() - begun:.0f} s to {folder}")
    return folder


class Timer:
    """A browser session at the dashboard."""

    def __init__(self, page: Page, url: str) -> None:
        self.page, self._url = page, url
        self.side = page.get_by_test_id("stSidebar")
        page.set_default_timeout(_LONGEST_MS)

    def go(self, path: str) -> None:
        self.page.goto(self._url + path)
        self.page.wait_for_selector("[data-testid=stApp][data-test-script-state=notRunning] h1")
        self.page.wait_for_timeout(1_000)

    def click(self, place: Locator) -> float:
        """Milliseconds from the click until the page is as it will be."""
        place.scroll_into_view_if_needed()
        self.page.evaluate(_WATCH)
        place.click()
        taken = float(self.page.evaluate(_SETTLED, _LONGEST_MS))
        fault = self.page.get_by_test_id("stException")
        if fault.count():
            raise AssertionError(f"{self.page.url}: {fault.first.inner_text()[:300]}")
        return taken

    def pages(self) -> list[str]:
        return [link.inner_text().splitlines()[-1] for link in self.page.get_by_test_id("stSidebarNavLink").all()]

    def open(self, name: str) -> float:
        return self.click(self.page.get_by_test_id("stSidebarNavLink").filter(has_text=re.compile(f"{name}$")))

    def rule(self, name: str) -> float:
        return self.click(self.side.locator("label").filter(has_text=re.compile(f"^{name}$")))

    def speakers(self) -> float:
        return self.click(self.side.locator("label").filter(has_text="First speakers only"))

    def models(self) -> list[float]:
        """Times of choosing one model after the other; none where a page has no such choice."""
        box = self.page.get_by_test_id("stMain").get_by_role("combobox", name=re.compile(r"\bModel$"))
        if box.count() != 1:
            return []
        times = []
        for number in (1, 2, 3, 0):
            box.click()
            times.append(self.click(self.page.get_by_role("option").nth(number)))
        return times


@contextmanager
def session(folder: Path) -> Iterator[tuple[Timer, Timer]]:
    """A server of its own and two sessions at it: one for the floor, one for the pages."""
    with serve(folder, free_port()) as app, sync_playwright() as playwright:
        path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
        browser = playwright.chromium.launch(executable_path=path, args=_ARGUMENTS)
        floor, pages = (Timer(browser.new_page(viewport={"width": 1280, "height": 900}), app.url) for _ in range(2))
        yield floor, pages
        browser.close()


def refilter(timer: Timer) -> tuple[list[float], list[float]]:
    """Times of changing rule and speakers to pairs that the page hasn't shown, and to such that it has.

    It begins and ends at the first rule and all speakers.
    """
    first, second, third = RULES
    new = [timer.rule(second), timer.rule(third), timer.speakers(), timer.rule(first), timer.rule(second)]
    again = [timer.rule(third), timer.speakers(), timer.rule(second), timer.rule(first)]
    return new, again


def _lists(names: list[str]) -> dict[str, list[float]]:
    return {name: [] for name in names}


def table(rows: list[tuple[str, dict[str, float]]], floor: dict[str, float]) -> str:
    heads = ["first visit", "open", "re-filter new", "re-filter again", "model"]
    lines = [f"{'page':18}" + "".join(f"{head:>24}" for head in heads)]
    for name, times in [("(floor)", floor), *rows]:
        cells = [
            f"{times[head]:8.0f} ms {times[head] / floor[head]:6.1f} ×" if head in times and head in floor else "–"
            for head in heads
        ]
        lines.append(f"{name:18}" + "".join(f"{cell:>24}" for cell in cells))
    return "\n".join(lines)


def main() -> None:
    """Print the medians, each beside its ratio to the floor, which is taken again beside every page."""
    folder = home()
    with session(folder) as (low, timer):
        low.go(f"/{_EMPTY.lower()}")
        refilter(low)
        timer.go(f"/studies?run={big_study.BIG}")
        names = timer.pages()
        firsts, opens, new, again, models = (_lists(names) for _ in range(5))
        empty: dict[str, list[float]] = {"open": [], "re-filter": []}
        at = "Studies"
        for name in names:
            # From a light page, which isn't the one that is there: a click on that changes nothing.
            timer.open(next(light for light in ("Audit", "Studies") if light not in (at, name)))
            firsts[name].append(timer.open(name))
            at = name
        for _ in range(ROUNDS):
            for name in names:
                opens[name].append(timer.open(name))
            low.open("Audit")
            empty["open"].append(low.open(_EMPTY))
        for name in names:
            timer.open(name)
            new[name], again[name] = refilter(timer)
            models[name] = timer.models()
            empty["re-filter"].append(low.speakers())
    measured = {"first visit": firsts, "open": opens, "re-filter new": new, "re-filter again": again, "model": models}
    rows = {
        name: {head: statistics.median(times[name]) for head, times in measured.items() if times[name]}
        for name in names
    }
    lows = {kind: statistics.median(times) for kind, times in empty.items()}
    floor = {head: lows["open" if head in ("first visit", "open") else "re-filter"] for head in measured}
    size = (folder / "store.sqlite3").stat().st_size / 1e6
    print(f"{platform.machine()}, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}, ", end="")
    print(f"Python {platform.python_version()}, SQLite store of {size:.0f} MB")
    print(table(list(rows.items()), floor))


if __name__ == "__main__":
    main()
