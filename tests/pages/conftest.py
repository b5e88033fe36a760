"""Pages run in this process, on a store of their own, without the recorded studies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import streamlit as st
from streamlit.components.v2 import manifest_scanner
from streamlit.testing.v1 import AppTest

from opbench.settings import ROOT, settings
from opbench.store.database import Store, open_store
from pages.shared import case_live, results

Open = Callable[..., AppTest]


@pytest.fixture(scope="session", autouse=True)
def scanned() -> Iterator[None]:
    """Each AppTest looks through all installed packages for components; once is enough, none comes meanwhile."""
    found = manifest_scanner.scan_component_manifests()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifest_scanner, "scan_component_manifests", lambda: found)
        yield


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder from which recorded studies are taken: empty."""
    folder = tmp_path / "demo"
    folder.mkdir()
    monkeypatch.setattr(results, "DEMO", folder)
    return folder


@pytest.fixture(autouse=True)
def cold(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Case page loads nothing in the background, where it would outlive a test."""
    monkeypatch.setattr(case_live, "warm", lambda: None)


@pytest.fixture
def store(home: Path, demo: Path) -> Iterator[Store]:
    """The store that the pages will open."""
    st.cache_resource.clear()
    st.cache_data.clear()
    opened = open_store(settings().store_url)
    yield opened
    opened.close()
    st.cache_resource.clear()
    st.cache_data.clear()


@pytest.fixture
def visit(store: Store) -> Open:
    """Open a page as a link does: `visit("latency", run="…")`; the trade-off is where one lands."""

    def open_page(page: str = "trade_off", **parameters: str) -> AppTest:
        app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
        if page != "trade_off":
            # AppTest knows the pages once the entry has run.
            app.run().switch_page(f"pages/views/{page}.py")
        for name, value in parameters.items():
            app.query_params[name] = value
        app.run()
        assert not app.exception, app.exception[0].value
        return app

    return open_page
