"""The real app in a real browser: Streamlit on a free port with a store of its own, Chromium driven by Playwright."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from opbench.settings import ROOT
from opbench.store.database import Store, open_store
from opbench.store.reading import run_ids, run_status

SCREENSHOTS = os.environ.get("OPBENCH_SCREENSHOTS")
"""A folder: where it is set, the tests leave pictures of the pages in it."""

_ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
_WAIT_MS = 60_000
_FOLLOW_S = 15
_AT_REST = "[data-testid=stApp][data-test-script-state=notRunning]"
# The model shares two cores with the browser: what is right comes, if not within Playwright's five seconds.
expect.set_options(timeout=30_000)


Scheme = Literal["light", "dark"]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Served:
    """A running app: its address, its home folder and an open connection to its store."""

    url: str
    home: Path
    store: Store

    @property
    def environment(self) -> dict[str, str]:
        return _environment(self.home)


def _environment(home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OPBENCH_")}
    return kept | {"OPBENCH_HOME": str(home), "PYTHONUNBUFFERED": "1"}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def serve(home: Path, port: int, *flags: str, **variables: str) -> Iterator[Served]:
    """The app with Streamlit's `flags` and further environment variables, until the block ends."""
    log = home / "streamlit.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "tools/serve.py", "--server.port", str(port), *flags],
            cwd=ROOT,
            env=_environment(home) | variables,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    url = f"http://127.0.0.1:{port}"
    store = open_store(f"sqlite:///{home / 'store.sqlite3'}")
    try:
        _await_health(url, process, log)
        yield Served(url, home, store)
    finally:
        _end_runs(store)
        store.close()
        process.terminate()
        process.wait(30)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The app, with nothing in its store but the recorded studies that come with the project."""
    with serve(tmp_path_factory.mktemp("home"), free_port()) as app:
        yield app


def _end_runs(store: Store) -> None:
    """End the processes that a failed test left at work; they were started by this app."""
    for run_id in run_ids(store):
        worker = run_status(store, run_id).worker
        if worker:
            os.kill(worker["pid"], signal.SIGKILL)


def _await_health(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(240):
        assert process.poll() is None, log.read_text()
        try:
            with urllib.request.urlopen(f"{url}/_stcore/health", timeout=5):
                return
        except OSError:
            time.sleep(0.25)
    raise AssertionError(f"the app doesn't answer at {url}: {log.read_text()}")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    assert path, "these tests drive Chromium: install Debian's package 'chromium', or name the program in CHROMIUM"
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=_ARGUMENTS)
        yield opened
        opened.close()


def steady(page: Page, read: Callable[[], T]) -> T:
    """What is read off a page once it no longer changes: while a script runs, and for a moment after it, Streamlit
    keeps the elements of the run before beside the new ones."""
    stale = page.locator("[data-stale=true]")
    until = time.monotonic() + _WAIT_MS / 1000
    before = None
    while time.monotonic() < until:
        page.wait_for_selector(_AT_REST, timeout=_WAIT_MS)
        now = (read(),)
        if now == before and not stale.count():
            return now[0]
        before = now
        page.wait_for_timeout(300)
    raise AssertionError(f"it changes still: {before}")


class Visitor:
    """A browser profile at one page of the app, that notes what went wrong on it."""

    def __init__(self, browser: Browser, url: str) -> None:
        self._context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light")
        self._context.set_default_timeout(_WAIT_MS)
        self.page: Page = self._context.new_page()
        self.url = url
        self.faults: list[str] = []
        self.elsewhere: list[str] = []
        self._scheme: Scheme = "light"
        self.page.on("console", lambda message: self._note(message.type, message.text, message.location.get("url", "")))
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("request", lambda request: self._note_request(request.url))

    def _note(self, kind: str, text: str, url: str) -> None:
        # Streamlit looks for its own endpoints below a page's path before it finds them at the root.
        if kind == "error" and not url.endswith(("/_stcore/health", "/_stcore/host-config")):
            self.faults.append(f"{text} {url}")

    def _note_request(self, url: str) -> None:
        if not url.startswith((self.url, self.url.replace("http", "ws", 1), "data:", "blob:")):
            self.elsewhere.append(url)

    def go(self, path: str = "/") -> Page:
        self.page.goto(self.url + path)
        self.settle()
        expect(self.page.get_by_text("Page not found")).to_have_count(0)
        return self.page

    def settle(self) -> None:
        """Wait until the page is drawn and its script has ended."""
        expect(self.page.locator("h1").first).to_be_visible(timeout=_WAIT_MS)
        self.page.wait_for_selector(_AT_REST, timeout=_WAIT_MS)
        self.page.wait_for_timeout(300)

    def look(self, width: int, scheme: Scheme) -> None:
        """Change the window and the theme under the open page."""
        self._scheme = scheme
        self.page.emulate_media(color_scheme=scheme)
        self.page.set_viewport_size({"width": width, "height": 900})
        self.page.wait_for_timeout(300)

    def shoot(self, name: str) -> None:
        """A picture of the whole page, where pictures are wanted."""
        if SCREENSHOTS is None:
            return
        size = self.page.viewport_size
        assert size is not None
        height = self.page.evaluate("document.querySelector('[data-testid=stMain]').scrollHeight")
        self.page.set_viewport_size({"width": size["width"], "height": min(int(height) + 20, 3000)})
        self.page.wait_for_timeout(800)
        self.page.screenshot(path=str(Path(SCREENSHOTS) / f"{name}-{size['width']}-{self._scheme}.png"))
        self.page.set_viewport_size({"width": size["width"], "height": size["height"]})

    def overflow(self) -> int:
        """By how many pixels the page is wider than its window."""
        return int(
            self.page.evaluate(
                "Math.max(...[document.documentElement, document.querySelector('[data-testid=stMain]')]"
                ".map(each => each.scrollWidth - each.clientWidth))"
            )
        )

    def fits(self) -> bool:
        """Whether the page is no wider than its window, once sidebar and figures have followed it."""
        deadline = time.monotonic() + _FOLLOW_S
        while self.overflow() > 0 and time.monotonic() < deadline:
            self.page.wait_for_timeout(200)
        return self.overflow() <= 0

    def close(self) -> None:
        self._context.close()


@pytest.fixture
def visitor(served: Served, browser: Browser) -> Iterator[Visitor]:
    opened = Visitor(browser, served.url)
    yield opened
    opened.close()
