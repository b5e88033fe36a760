"""A link opens the same view elsewhere; an exported view opens offline and asks nothing; a bundle comes by upload."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from opbench.settings import ROOT
from opbench.store.bundle import export_run
from opbench.store.reading import run_ids
from tests.browser.conftest import Served, Visitor, steady
from tests.pages.made_run import MADE, write_run

FIRST = re.findall(r'page\("(\w+)", .*first=True\)', (ROOT / "app.py").read_text("utf-8"))
PAGES = sorted(file.stem.replace("_", "-") for file in (ROOT / "pages" / "views").glob("[!_]*.py"))


def address(name: str) -> str:
    """Where a page is; the first one has no name of its own."""
    return "/" if name.replace("-", "_") in FIRST else f"/{name}"


@pytest.fixture(scope="module", autouse=True)
def made(served: Served) -> str:
    return write_run(served.store, name="pilot", failed=1, left=2)


@pytest.fixture
def offline(browser: Browser) -> Iterator[BrowserContext]:
    """A browser profile without a network."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_offline(True)
    yield context
    context.close()


def seen(page: Page) -> str:
    """All that the page says, without what passes: numbers of seconds."""
    return re.sub(r"\s+", " ", page.get_by_test_id("stMain").inner_text())


@pytest.mark.parametrize("name", PAGES)
def test_a_copied_link_opens_the_same_view_in_a_fresh_profile(served: Served, browser: Browser, name: str) -> None:
    here = Visitor(browser, served.url)
    here.page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=served.url)
    page = here.go(f"{address(name)}?run={MADE}")
    # A choice made on the page, not in the address: the link must have it.
    page.get_by_test_id("stSidebar").get_by_text("category-macro").click()
    here.settle()
    page.get_by_role("button", name="Copy link").click()
    expect(page.get_by_role("button", name="Link copied")).to_be_visible()
    link = page.evaluate("navigator.clipboard.readText()")
    assert f"run={MADE}" in link
    assert "rule=category-macro" in link
    expect(page.get_by_role("button", name="Copy link")).to_be_visible()
    here.settle()
    there = Visitor(browser, served.url)
    other = there.go(link.removeprefix(served.url))
    expect(other.get_by_role("radio", name="category-macro")).to_be_checked()
    for _ in range(20):
        mine, theirs = steady(page, lambda: seen(page)), steady(other, lambda: seen(other))
        # Figures are drawn a moment after the page's script has ended.
        if mine == theirs:
            break
    assert mine == theirs
    assert here.faults == there.faults == []
    here.close()
    there.close()


def exported(visitor: Visitor, path: str, file: Path) -> Path:
    """The view as the Share bar gives it."""
    page = visitor.go(path)
    page.get_by_role("button", name="Share").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="This view as HTML").click()
    download.value.save_as(file)
    return file


def opened(context: BrowserContext, file: Path) -> tuple[Page, list[str], list[str]]:
    """The file in a browser, with the requests that it made and the faults that it had."""
    page, requests, faults = context.new_page(), list[str](), list[str]()
    page.on("request", lambda request: requests.append(request.url))
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    page.goto(file.as_uri())
    page.wait_for_timeout(1500)
    return page, requests, faults


def printed(served: Served, *arguments: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "opbench", "table", MADE, "--json", *arguments]
    done = subprocess.run(command, env=served.environment, cwd=ROOT, capture_output=True, text=True, check=True)
    rows: list[dict[str, Any]] = json.loads(done.stdout)["rows"]
    return rows


@pytest.mark.parametrize(
    ("name", "of"),
    [("trade-off", "tradeoff"), ("oracle-gap", "gap"), ("latency", "latency")],
)
def test_an_exported_view_needs_no_network_and_holds_the_tables_numbers(
    served: Served, visitor: Visitor, offline: BrowserContext, tmp_path: Path, name: str, of: str
) -> None:
    file = exported(visitor, f"{address(name)}?run={MADE}&rule=instance", tmp_path / "view.html")
    page, requests, faults = opened(offline, file)
    assert [each for each in requests if not each.startswith(("blob:", "data:"))] == [file.as_uri()]
    assert faults == []
    expect(page.locator(".js-plotly-plot .main-svg").first).to_be_visible()
    expect(page.get_by_text(f"run {MADE}").first).to_be_visible()
    data = json.loads(page.locator("#data").text_content() or "")
    assert f"run={MADE}" in data["link"]
    assert data["link"].startswith(f"{served.url}{address(name)}?")
    (whole,) = [each for each in data["tables"] if each["name"] == name]
    rows = [dict(zip(whole["columns"], row, strict=True)) for row in whole["rows"]]
    flags = ["--aggregate", "instance"] if of != "latency" else []
    # Controls have a table of their own on the page.
    theirs = [row for row in printed(served, "--of", of, *flags) if not (name == "trade-off" and row["control"])]
    assert len(rows) == len(theirs) > 0
    shared = set(theirs[0]) & set(rows[0])
    assert len(shared) >= 8
    for ours, row in zip(rows, theirs, strict=True):
        for key in shared:
            expected = pytest.approx(row[key], abs=1e-9) if isinstance(row[key], float) else row[key]
            assert ours[key] == expected, key


def test_an_exported_view_reads_on_a_phone_in_the_dark(
    visitor: Visitor, offline: BrowserContext, tmp_path: Path
) -> None:
    file = exported(visitor, f"{address('trade-off')}?run={MADE}", tmp_path / "view.html")
    page, _, _ = opened(offline, file)
    background = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(background) == "rgb(255, 255, 255)"
    page.emulate_media(color_scheme="dark")
    page.set_viewport_size({"width": 390, "height": 800})
    page.wait_for_timeout(800)
    assert page.evaluate(background) == "rgb(21, 19, 28)"
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
    # Figures follow the theme: the title's text is light now.
    assert page.evaluate("getComputedStyle(document.querySelector('.gtitle')).fill") == "rgb(236, 233, 244)"


def test_pictures_and_tables_come_out_of_the_exported_file(
    visitor: Visitor, offline: BrowserContext, tmp_path: Path
) -> None:
    file = exported(visitor, f"{address('trade-off')}?run={MADE}", tmp_path / "view.html")
    page, requests, faults = opened(offline, file)
    for form, beginning in (("PNG", b"\x89PNG"), ("SVG", b"<svg")):
        with page.expect_download() as download:
            page.get_by_role("button", name=form, exact=True).first.click()
        assert download.value.suggested_filename == f"trade-off.{form.lower()}"
        assert Path(download.value.path()).read_bytes().startswith(beginning)
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV", exact=True).first.click()
    lines = Path(download.value.path()).read_text("utf-8").splitlines()
    data = json.loads(page.locator("#data").text_content() or "")
    assert lines[0].split(",")[:3] == ["model", "memory", "mitigation"]
    assert lines[0].endswith(",marks")
    assert all("not comparable with the paper" in line for line in lines[1:])
    assert len(lines) == 1 + len(data["tables"][0]["rows"])
    assert faults == []
    assert not [each for each in requests if each.startswith("http")]


def test_all_tables_come_as_csv(visitor: Visitor, tmp_path: Path) -> None:
    page = visitor.go(f"{address('trade-off')}?run={MADE}")
    page.get_by_role("button", name="Share").click()
    with page.expect_download() as download:
        page.get_by_role("button", name=re.compile("^Its .* as CSV")).click()
    file = tmp_path / download.value.suggested_filename
    download.value.save_as(file)
    if file.suffix == ".zip":
        with zipfile.ZipFile(file) as packed:
            content = packed.read("trade-off.csv")
    else:
        content = file.read_bytes()
    assert content.startswith(b"model,memory,mitigation,")


def test_the_camera_saves_what_is_chosen(visitor: Visitor) -> None:
    page = visitor.go("/latency")
    for form in ("PNG", "SVG"):
        page.get_by_role("button", name="Share").click()
        page.get_by_role("radio", name=form).click()
        page.keyboard.press("Escape")
        visitor.settle()
        figure = page.get_by_test_id("stPlotlyChart").first
        figure.scroll_into_view_if_needed()
        figure.hover()
        with page.expect_download() as download:
            figure.locator('[data-title*="Download"]').first.click()
        assert download.value.suggested_filename.endswith(f".{form.lower()}")


def test_a_bundle_comes_by_upload_and_goes_again(served: Served, visitor: Visitor, tmp_path: Path) -> None:
    file = export_run(served.store, MADE, tmp_path / "pilot.opbench.zip", texts=False)
    page = visitor.go("/studies")
    page.locator("input[type=file]").set_input_files(file)
    page.get_by_role("button", name="Read in").click()
    expect(page.get_by_text(f"Read in: rec-{MADE}.")).to_be_visible()
    visitor.settle()
    assert f"run=rec-{MADE}" in page.url
    assert f"rec-{MADE}" in run_ids(served.store)
    with page.expect_download() as download:
        page.get_by_role("button", name="Bundle without texts").click()
    assert download.value.suggested_filename == "pilot.opbench.zip"
    with zipfile.ZipFile(download.value.path()) as packed:
        assert "human_scores.jsonl" in packed.namelist()
    page.get_by_text("Delete", exact=True).click()
    page.get_by_label("To delete it, type its id").fill(f"rec-{MADE}")
    page.get_by_role("button", name="Delete this study").click()
    expect(page.get_by_text(f"Deleted rec-{MADE}")).to_be_visible()
    assert f"rec-{MADE}" not in run_ids(served.store)
    assert visitor.faults == []


def test_a_bad_upload_is_a_sentence(served: Served, visitor: Visitor, tmp_path: Path) -> None:
    before = run_ids(served.store)
    bad = tmp_path / "bad.zip"
    with zipfile.ZipFile(bad, "w") as packed:
        packed.writestr("../escaped.txt", "x")
    page = visitor.go("/studies")
    page.locator("input[type=file]").set_input_files(bad)
    page.get_by_role("button", name="Read in").click()
    expect(page.get_by_text("which is no member of a bundle")).to_be_visible()
    assert page.locator("[data-testid=stException]").count() == 0
    assert run_ids(served.store) == before
    assert not list(tmp_path.parent.glob("escaped.txt"))
