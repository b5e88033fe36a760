"""The Build page in browsers: a benchmark is begun, stopped, gone on with, read, answered and taken away as files."""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from opbench.benchmarks import load
from opbench.store.build_runs import candidates_of_run, runs_of_build
from opbench.store.builds import list_builds, load_build
from opbench.store.reading import run_status
from tests.browser.conftest import Served, Visitor, free_port, serve
from tests.construction.writer import schema_of, write
from tests.scripted_endpoint import ScriptedEndpoint, default_reply

MADE_MS = 120_000
#: Few questions of three kinds, of both users of the sample: 2 fact-level, 2 value-level, 4 memory-level.
FORM = (
    "/build?conversations=bundled+sample&subtypes=Fact-level&subtypes=Value-level&subtypes=Memory-level"
    "&fact=1&value=1&fine=1&coarse=1&topics=1&name=Ours&generators=scripted&extractor=scripted&similarity=scripted"
    "&checker=scripted&embedder=scripted"
)


def reply(body: dict[str, Any]) -> str:
    return default_reply(body) if schema_of(body) is None else write(body)


@pytest.fixture(scope="module")
def endpoint() -> Iterator[ScriptedEndpoint]:
    with ScriptedEndpoint(reply=reply) as made:
        yield made


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory, endpoint: ScriptedEndpoint) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("home")
    file = home / "models.toml"
    # As the default embedder too, whose own libraries take their time to load.
    embedder = endpoint.registry_toml("minilm", timeout_s=120.0).split("\n\n")[1]
    file.write_text(endpoint.registry_toml(timeout_s=120.0) + embedder, encoding="utf-8")
    with serve(home, free_port(), OPBENCH_MODELS=str(file)) as served:
        yield served


@pytest.fixture
def looking(app: Served, browser: Browser) -> Iterator[Visitor]:
    opened = Visitor(browser, app.url)
    yield opened
    opened.close()


def choose(visitor: Visitor, label: str, option: str) -> None:
    page = visitor.page
    box = page.get_by_role("combobox", name=label, exact=True).first
    # A list that has opened closes when the page scrolls.
    box.scroll_into_view_if_needed()
    page.wait_for_timeout(300)
    box.click()
    page.get_by_role("option", name=option, exact=True).click()
    page.keyboard.press("Escape")
    visitor.settle()


@pytest.mark.timeout(400)
def test_a_benchmark_is_made_read_answered_and_taken_away(
    app: Served, endpoint: ScriptedEndpoint, looking: Visitor, browser: Browser, tmp_path: Path
) -> None:
    page = looking.go(FORM)
    expect(page.get_by_text("No benchmark is made here yet")).to_be_visible()
    expect(page.get_by_test_id("stMetric").filter(has_text="Questions, at most")).to_contain_text("8")
    looking.shoot("build-before")

    # It comes into its middle and no further, so that it is stopped there however quick the machine is.
    endpoint.held = lambda: endpoint.ledger.total > 2
    page.get_by_role("button", name="Build", exact=True).click()
    expect(page.get_by_role("heading", name=re.compile("Ours .*: building"))).to_be_visible(timeout=MADE_MS)
    stop = page.get_by_role("button", name="Stop", exact=True)
    stop.click()
    expect(page.get_by_role("heading", name=re.compile("stopping"))).to_be_visible()
    # The process looks every second whether it is to stop.
    page.wait_for_timeout(3_000)
    endpoint.held = None
    halted = page.get_by_test_id("stAlert").filter(has_text="Stopped on request. The next start goes on.")
    expect(halted).to_be_visible(timeout=MADE_MS)
    (build,) = list_builds(app.store)
    assert not build.counts
    looking.settle()

    page.get_by_role("button", name="Go on", exact=True).click()
    # Nothing is clicked: the page goes on watching by itself.
    expect(page.get_by_role("heading", name=re.compile("Ours .*: complete"))).to_be_visible(timeout=MADE_MS)
    # The process ends a moment later, and the page is drawn anew then, which closes menus.
    expect(page.get_by_text("What its last process said at its end")).to_be_visible()
    page.reload()
    looking.settle()
    counts = list_builds(app.store)[0].counts
    assert sum(counts.values()) == 8
    kept = counts.get("kept", 0)
    assert kept + counts.get("dropped", 0) == 8
    assert kept > 0
    assert not load_build(app.store, build.id).working
    expect(page.get_by_text("8 of 8 questions", exact=True)).to_be_visible()

    # A colleague follows the link to what was dropped, or kept.
    colleague = Visitor(browser, app.url)
    theirs = colleague.go(f"/build?build=Ours+%C2%B7+{build.id}&state=kept")
    expect(theirs.get_by_text(f"{kept} of 8 questions", exact=True)).to_be_visible()
    for width, scheme in ((1280, "dark"), (390, "dark"), (390, "light"), (1280, "light")):
        colleague.look(width, scheme)  # type: ignore[arg-type]
        assert colleague.overflow() == 0
        colleague.shoot("build")
    assert colleague.faults == []
    assert colleague.elsewhere == []
    colleague.close()

    choose(looking, "Models that respond", "scripted")
    choose(looking, "Memory systems", "random memories")
    page.get_by_role("button", name="What will it take?").click()
    records = page.get_by_test_id("stMetric").filter(has_text="Records to do")
    expect(records).to_contain_text(str(2 * kept))
    page.get_by_role("button", name="Respond", exact=True).click()
    expect(page.get_by_text(re.compile("Started: run"))).to_be_visible()
    (run_id,) = runs_of_build(app.store, build.id)
    looking.settle()
    page.get_by_role("link", name="Watch it").click()
    expect(page.get_by_role("heading", name=re.compile("Responses to Ours .*: complete"))).to_be_visible(
        timeout=MADE_MS
    )
    assert run_status(app.store, run_id).done == 2 * kept
    assert len(candidates_of_run(app.store, run_id)) == kept

    page = looking.go("/build")
    with page.expect_download() as download:
        page.get_by_role("button", name=re.compile(f"All {kept} that filters kept")).click()
    folder = tmp_path / "ours"
    with zipfile.ZipFile(io.BytesIO(Path(download.value.path()).read_bytes())) as archive:
        archive.extractall(folder)
    corpus = load(next(path.parent for path in folder.rglob("opbench")))
    assert len(corpus.op) == kept
    told = json.loads(next(folder.rglob("provenance.json")).read_text(encoding="utf-8"))
    assert build.id in json.dumps(told)
    assert looking.faults == []
    assert looking.elsewhere == []
