"""The Memories page in this process: states, what can be done by whom, hostile text. Nothing is ingested or opened."""

from __future__ import annotations

import io
import json
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from mitigations.base import Memory
from opbench.access import Visitor
from opbench.benchmarks import load
from opbench.errors import MemoryFault
from opbench.gateway.lease import Usage
from opbench.memories.history import user_history_sha256
from opbench.memories.library import Added
from opbench.memories.locking import FileLock
from opbench.memories.manifest import (
    CHECKPOINTS,
    LOCK,
    Failure,
    Manifest,
    SessionEntry,
    read_manifests,
    write_failure,
    write_manifest,
)
from opbench.models import load_registry
from opbench.running import launch_ingestion
from opbench.running.launch_ingestion import Order, Started
from opbench.running.remembering import Found
from opbench.settings import settings
from pages.shared import access, ingesting, remembered
from tests.pages.conftest import Open
from tests.pages.hostile import NASTY
from tests.pages.test_text_safety import _AS_IT_IS, _HIDDEN, _MARKUP, elements, texts

CORPUS = load("sample")
FIRST, SECOND = CORPUS.users
SESSIONS = CORPUS.conversations["sample-1"].sessions


def write(
    system: str = "mem0", user: str = FIRST, sessions: int = len(SESSIONS), *, failure: str = "", **more: Any
) -> Manifest:
    """An ingestion as files, with 2 memories a session and none in the second one; each session cost a cent."""
    owner = CORPUS.users[user]
    entries = tuple(
        SessionEntry(
            each.number,
            each.day,
            Added(0 if place == 1 else 2, 1, int(place == 1)),
            2 * (place + 1) - (2 if place else 0),
            Usage(1, 0, 8000, 100, 1, 3, 0, 0, 0.01, 0.01, 500.0),
            1.5,
            1_700_000_000.0 + place,
        )
        for place, each in enumerate(SESSIONS[:sessions])
    )
    embedder = load_registry().embedder("minilm").identity()
    values: dict[str, Any] = {
        "system": system,
        "label": {"mem0": "Mem0", "memu": "MemU"}.get(system, system),
        "note": "our extractor" if system == "memu" else "",
        "user": user,
        "identity": {"library": "2.2.1", **{f"embedder_{key}": value for key, value in embedder.items()}},
        "extractor": "smollm2-135m",
        "history_sha256": user_history_sha256(owner, SESSIONS),
        "digest": {"mem0": "1", "memu": "2"}.get(system, "3") * 64,
        "sessions_planned": len(SESSIONS),
        "started_at": 1_700_000_000.0,
        "sessions": entries,
        "store_bytes": 1_500_000,
    } | more
    folder = settings().kept / system / owner.conversation / owner.speaker / values["digest"][:12]
    manifest = Manifest(**values, path=folder)
    checkpoint = folder / CHECKPOINTS / str(len(entries))
    checkpoint.mkdir(parents=True)
    write_manifest(manifest, checkpoint)
    if failure:
        write_failure(folder, Failure("timeout", failure, 1_700_000_100.0))
    return manifest


def told(app: AppTest) -> str:
    parts = [*app.info, *app.success, *app.error, *app.warning, *app.caption, *app.markdown, *app.subheader]
    return " ".join(part.value for part in parts).replace("\\", "").replace("\u2060", "")


def labels(app: AppTest) -> list[str]:
    return [button.label for button in app.button]


def table(app: AppTest) -> pd.DataFrame:
    return app.dataframe[0].value


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Memory]]:
    """What the systems hold, by name; they are searched in the order in which they hold it."""
    held: dict[str, list[Memory]] = {
        "mem0": [Memory("Likes tea.", "14 January 2024", 0.9), Memory("Has a dog.", "9 February 2024", 0.4)],
        "memu": [Memory("likes  TEA.", "14 January 2024", None)],
    }

    def search_in(manifests: Sequence[Manifest], query: str, k: int) -> list[Found]:
        return [Found(held[each.system][:k], 12.0) for each in manifests]

    monkeypatch.setattr(remembered, "search_in", search_in)
    monkeypatch.setattr(remembered, "memories_of", lambda manifest: held[manifest.system])
    return held


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Order]:
    """What was ordered; no process is started."""
    orders: list[Order] = []

    def launch(order: Order, keys: Any = None) -> Started:
        orders.append(order)
        return Started("x", order, 1, 0.0, Path("nowhere.log"), working=True)

    monkeypatch.setattr(launch_ingestion, "launch", launch)
    return orders


def test_nothing_ingested_says_what_to_do(visit: Open) -> None:
    app = visit("memories")
    assert app.title[0].value == "What does each memory system remember of a user, and what did that take?"
    assert "Nothing is ingested yet. Choose memory systems and users below" in told(app)
    assert not app.dataframe
    assert app.expander[0].proto.expanded


def test_each_state_is_told_with_its_progress_and_reason(visit: Open) -> None:
    write("mem0", FIRST)
    write("mem0", SECOND, 3, failure="smollm2-135m: no answer in 120 s")
    write("memu", FIRST, 0)
    working = write("memu", SECOND, 4)
    lock = FileLock(working.path / LOCK)
    assert lock.acquire()
    app = visit("memories")
    rows = {(row["name"], row["user"]): row for row in table(app).to_dict("records")}
    assert {key: (row["state"], row["progress"]) for key, row in rows.items()} == {
        ("Mem0", FIRST): ("complete", "9 of 9"),
        ("Mem0", SECOND): ("failed", "3 of 9"),
        ("MemU", FIRST): ("partial", "0 of 9"),
        ("MemU", SECOND): ("at work", "4 of 9"),
    }
    complete = rows["Mem0", FIRST]
    assert (complete["memories"], complete["barren"], complete["calls"], complete["tokens_in"]) == (
        16,
        "1 of 9",
        9,
        72000,
    )
    assert complete["cost_usd"] == pytest.approx(0.09)
    assert complete["store"] == pytest.approx(1500)
    assert rows["Mem0", SECOND]["failure"] == "smollm2-135m: no answer in 120 s"
    assert "MemU: our extractor" in told(app)
    # The one at work is no process that this page started.
    assert "At work by a run, or from the command line" in told(app)
    lock.release()


def test_an_incomplete_one_is_neither_searched_nor_browsed_and_goes_on(visit: Open, started: list[Order]) -> None:
    write("mem0", FIRST, 3, failure="smollm2-135m: no answer in 120 s")
    app = visit("memories")
    assert "No ingestion of this user is complete yet" in told(app)
    assert [header.value for header in app.header] == ["What a session gives and takes", "What is remembered of a user"]
    assert "no answer in 120 s" in app.error[0].value.replace("\\", "")
    app.button(key="go-on-ingesting").click().run()
    # Without benchmark data the sample stands for it, so the order needn't name it.
    assert started == [Order(("mem0",), (FIRST,), "smollm2-135m", "minilm")]
    assert "Started: opbench memory ingest mem0" in told(app)


def test_a_history_that_is_gone_says_so_and_offers_no_going_on(visit: Open) -> None:
    write("mem0", FIRST, 3, history_sha256="0" * 64)
    app = visit("memories")
    assert f"the history of {FIRST} that Mem0 took in isn't in the data here" in told(app)
    assert "Go on" not in labels(app)


def test_two_systems_side_by_side_and_what_both_found(visit: Open, opened: dict[str, list[Memory]]) -> None:
    write("mem0")
    write("memu")
    app = visit("memories", question="tea", k="2")
    assert not app.exception
    assert [each.value for each in app.subheader][-2:] == ["Mem0", "MemU"]
    said = told(app)
    assert "2 memories in 12 ms" in said
    assert "1 memory in 12 ms" in said
    assert "similarity 0.900" in said
    assert "similarity not told" in said
    assert "also in MemU" in said
    assert "also in Mem0" in said
    assert [text.value for text in app.text][:3] == ["Likes tea.", "Has a dog.", "likes  TEA."]


def test_one_that_fails_says_why_and_the_other_answers(
    visit: Open, opened: dict[str, list[Memory]], monkeypatch: pytest.MonkeyPatch
) -> None:
    write("mem0")
    write("memu")
    found = [Found([], 0.0, "MemOS isn't installed. Run: opbench memory install memos"), Found(opened["memu"], 3.0)]
    monkeypatch.setattr(remembered, "search_in", lambda manifests, query, k: found)
    app = visit("memories", question="tea")
    assert "opbench memory install memos" in app.error[0].value.replace("\\", "")
    assert "likes  TEA." in [text.value for text in app.text]


def test_memories_are_browsed_by_text_and_date_and_page(visit: Open, opened: dict[str, list[Memory]]) -> None:
    opened["mem0"] = [Memory(f"Fact {n} of tea.", "14 January 2024", None) for n in range(1, 31)]
    opened["mem0"].append(Memory("Has a dog.", "9 February 2024", None))
    write("mem0")
    app = visit("memories")
    assert "31 of 31 memories" in told(app)
    assert [text.value for text in app.text] == [f"Fact {n} of tea." for n in range(1, 26)]
    second = visit("memories", part="2")
    assert [text.value for text in second.text][-1] == "Has a dog."
    filtered = visit("memories", says="DOG")
    assert "1 of 31 memories" in told(filtered)
    by_date = visit("memories", date="9 February 2024")
    assert [text.value for text in by_date.text] == ["Has a dog."]
    assert "No memory fits" in told(visit("memories", says="nobody said this"))


def test_an_ingestion_without_any_memory_says_so(visit: Open, opened: dict[str, list[Memory]]) -> None:
    opened["mem0"] = []
    write("mem0")
    assert "This system keeps no memory of this user" in told(visit("memories"))


def test_what_cant_be_opened_says_why(visit: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(manifest: Manifest) -> list[Memory]:
        raise MemoryFault("this ingestion was made with other versions or settings of Mem0 than are here now")

    monkeypatch.setattr(remembered, "memories_of", refused)
    write("mem0")
    app = visit("memories")
    assert "other versions or settings of Mem0" in app.error[0].value


def test_versions_of_one_system_stand_beside_each_other(visit: Open, opened: dict[str, list[Memory]]) -> None:
    old = write("mem0")
    write("mem0", digest="4" * 64, identity={**old.identity, "library": "2.3.0"})
    app = visit("memories")
    names = table(app)["name"].tolist()
    assert len(set(names)) == 2
    assert all(name.startswith("Mem0 · ") for name in names)
    frames = [frame.value for frame in app.dataframe if "what" in frame.value]
    first = frames[0].iloc[0].tolist()
    assert (first[0], set(first[1:])) == ("library", {"2.2.1", "2.3.0"})


def test_ingesting_is_told_first_and_started_as_the_command_says(visit: Open, started: list[Order]) -> None:
    app = visit("memories", data="bundled sample")
    app.multiselect(key="ingest").set_value(["memu"]).run()
    app.multiselect(key="users").set_value([FIRST]).run()
    metrics = {metric.label: metric.value for metric in app.metric}
    # A call a session that has words.
    assert metrics["Sessions to do"] == "9"
    assert metrics["Model calls, at most"] == "9"
    assert metrics["Cost"] == "$0.00"
    command = f"opbench memory ingest memu --users {FIRST} --extractor smollm2-135m --embedder minilm --data sample"
    assert app.code[-1].value == command
    app.button(key="start-ingesting").click().run()
    assert [order.command() for order in started] == [command]
    assert not app.exception


def test_a_key_is_asked_for_before_anything_starts(visit: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    app = visit("memories")
    app.multiselect(key="ingest").set_value(["memu"]).run()
    app.selectbox(key="extractor").set_value("gpt-4o-mini").run()
    assert app.button(key="start-ingesting").disabled
    assert "OPENAI_API_KEY" in told(app)
    app.text_input(key="key-OPENAI_API_KEY").set_value("sk-typed").run()
    assert not app.button(key="start-ingesting").disabled
    assert "sk-typed" not in str(dict(app.query_params)) + "".join(code.value for code in app.code)


def test_what_is_not_installed_says_the_command(visit: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    # The home of this test has no environment for MemOS.
    monkeypatch.delenv("OPBENCH_MEMOS_PYTHON", raising=False)
    settings.cache_clear()
    app = visit("memories")
    said = told(app)
    assert "MemOS and MemOS (tree) can't be used here" in said.replace("**", "")
    assert "opbench memory install memos" in [code.value for code in app.code]
    assert "memos" not in app.multiselect(key="ingest").options


def process(order: Order, log: Path, *, working: bool) -> Started:
    return Started("20260101-000000-abcdef", order, 4711, 0.0, log, working)


def test_a_process_at_work_is_watched_and_stopped(visit: Open, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mine = process(Order(("memu",), (FIRST,)), tmp_path / "log", working=True)
    stopped: list[Started] = []
    monkeypatch.setattr(launch_ingestion, "started", lambda: [mine])
    monkeypatch.setattr(launch_ingestion, "stop", stopped.append)
    working = write("memu", FIRST, 4)
    lock = FileLock(working.path / LOCK)
    assert lock.acquire()
    app = visit("memories")
    assert f"Ingesting MemU: {FIRST}" in told(app)
    bars = [element.proto.text.replace("\\", "") for element in app.get("progress")]
    assert bars == [f"MemU · {FIRST}: 4 of 9 sessions, 6 memories, 4 calls (0 reused)"]
    app.button(key=f"stop-{mine.id}").click().run()
    assert stopped == [mine]
    lock.release()


def test_one_that_ended_early_is_quoted(visit: Open, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("opbench: no model can be asked \u202egpj.x\n", encoding="utf-8")
    mine = process(Order(("memu",), (FIRST,)), log, working=False)
    monkeypatch.setattr(launch_ingestion, "started", lambda: [mine])
    app = visit("memories")
    assert any("opbench: no model can be asked ⟨RLO⟩gpj.x" in code.value for code in app.code)


def test_deleting_needs_a_tick_and_making_anew_starts_it_again(
    visit: Open, opened: dict[str, list[Memory]], started: list[Order]
) -> None:
    write("mem0")
    app = visit("memories")
    anew = next(button for button in app.button if button.label == "Delete and ingest anew")
    anew.click().run()
    assert "nothing was deleted: tick the box first" in told(app)
    assert len(read_manifests(settings().kept)) == 1
    app.checkbox[0].check()
    next(button for button in app.button if button.label == "Delete and ingest anew").click().run()
    assert read_manifests(settings().kept) == []
    assert started == [Order(("mem0",), (FIRST,), "smollm2-135m", "minilm")]


def test_viewers_look_and_search_and_change_nothing(
    visit: Open, opened: dict[str, list[Memory]], monkeypatch: pytest.MonkeyPatch, started: list[Order]
) -> None:
    write("mem0")
    write("memu", FIRST, 3)
    monkeypatch.setattr(access, "who", lambda: Visitor("them@lab.example", "viewer", signed_in=True))
    app = visit("memories", question="tea", ingest="MemU")
    assert [text.value for text in app.text][:2] == ["Likes tea.", "Has a dog."]
    assert labels(app) == ["Sign out"]
    assert app.multiselect(key="ingest").disabled
    assert "only editors start it" in told(app)
    assert started == []


def test_a_click_after_the_role_is_gone_does_nothing(
    visit: Open, opened: dict[str, list[Memory]], monkeypatch: pytest.MonkeyPatch, started: list[Order]
) -> None:
    write("mem0", FIRST, 3)
    app = visit("memories", ingest="MemU")
    assert {"Ingest", "Go on", "Delete"} <= set(labels(app))
    monkeypatch.setattr(access, "who", lambda: Visitor("them@lab.example", "viewer", signed_in=True))
    app.checkbox[0].check()
    for button in app.button:
        button.click()
    app.run()
    assert not app.exception
    assert started == []
    assert len(read_manifests(settings().kept)) == 1
    with pytest.raises(Exception, match="Viewers read"):
        ingesting.start(Order(("mem0",)))


def test_text_of_memories_files_and_systems_stays_text(
    visit: Open,
    opened: dict[str, list[Memory]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: list[tuple[str, Any]] = []
    original: Callable[..., Any] = st.download_button

    def noted(label: str, data: Any, file_name: str | None = None, **more: Any) -> bool:
        found.append((file_name or "", data))
        return bool(original(label, data, file_name, **more))

    monkeypatch.setattr(st, "download_button", noted)
    opened["mem0"] = [Memory(NASTY, NASTY, 0.5)] * 2
    write("mem0", label=NASTY, note=NASTY, identity={NASTY: NASTY}, extractor=NASTY)
    write("memu", SECOND, 2, failure=NASTY)
    whole = write("memu", FIRST)
    write_manifest(
        replace(whole, sessions=tuple(replace(each, day=NASTY) for each in whole.sessions)),
        whole.path / CHECKPOINTS / "9",
    )
    for user in (FIRST, SECOND):
        app = visit("memories", user=user, question="tea", says="script")
        assert not app.exception
        for kind, proto in elements(app):
            if kind in (*_AS_IT_IS, "html"):
                continue
            if kind == "plotly_chart":
                assert "<script" not in json.dumps(json.loads(proto.spec), ensure_ascii=False)
                continue
            if kind in ("text", "code"):
                assert not _HIDDEN.search(proto.body if kind == "text" else proto.code_text)
                continue
            for text in texts(proto):
                assert not _MARKUP.search(text), (kind, text[:300])
                assert not _HIDDEN.search(text), (kind, text[:300])
    for name, data in found:
        content = data() if callable(data) else data
        if name.endswith(".csv"):
            frame = pd.read_csv(io.BytesIO(content), dtype=str, keep_default_na=False)
            assert not [cell for cell in frame.to_numpy().ravel() if cell.startswith(("=", "@", "\t"))], name


def test_no_process_is_started_by_looking(visit: Open, monkeypatch: pytest.MonkeyPatch, opened: Any) -> None:
    monkeypatch.setattr(subprocess, "Popen", lambda *a, **k: pytest.fail("a process was started"))
    write("mem0")
    app = visit("memories", ingest="MemU", question="tea")
    assert not app.exception
