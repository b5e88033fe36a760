"""What a run says of the ingestions that it rests on: warnings where there is nothing to retrieve, notes, and no trust
in what a bundle holds."""

from __future__ import annotations

from typing import Any

import pytest

from opbench.analysis.ingested import COLUMNS, ingested, memory_notes, settings, thin_memories


def row(user: str, memories: int, **more: Any) -> dict[str, Any]:
    return {
        "system": "mem0",
        "label": "Mem0",
        "note": "",
        "user": user,
        "state": "complete",
        "error": None,
        "sessions": 9,
        "planned": 9,
        "memories": memories,
        "extractions": 9,
        "empty": 9 if not memories else 2,
        "calls": 9,
        "reused": 0,
        "prompt_tokens": 72000,
        "completion_tokens": 900,
        "embedded_tokens": 10,
        "cost_usd": None,
        "seconds": 30.5,
        "store_bytes": 4096,
        "digest": "d" * 64,
        "identity": {"mem0ai": "2.2.1"},
    } | more


def test_a_system_with_memories_is_no_matter() -> None:
    assert thin_memories({"ingestion": [row("c/Ana", 30), row("c/Ben", 5)]}, 5) == []


def test_one_without_any_is_said_with_the_reason() -> None:
    assert thin_memories({"ingestion": [row("c/Ana", 0)]}, 5) == [
        "Mem0 holds no memory of c/Ana: 9 of 9 extractions gave nothing. A record for which nothing is retrieved is "
        "that of BASE, and no finding about the memory system."
    ]


def test_users_are_counted_and_some_of_them_named() -> None:
    rows = [row(f"c/{name}", 0) for name in "ABCD"] + [row("c/E", 40)]
    (said,) = thin_memories({"ingestion": rows}, 5)
    assert said.startswith(
        "Mem0 holds no memory of 4 of 5 users (c/A, c/B, c/C, …): 36 of 36 extractions gave nothing."
    )


def test_fewer_than_a_query_retrieves_is_said_too() -> None:
    (said,) = thin_memories({"ingestion": [row("c/Ana", 4), row("c/Ben", 30)]}, 5)
    assert said.startswith("Mem0 holds 4 memories or fewer of 1 of 2 users (c/Ana), less than the 5 that a query")
    assert thin_memories({"ingestion": [row("c/Ana", 4)]}, 4) == []


@pytest.mark.parametrize("state", ["partial", "failed", "at work", "stopped", "waiting"])
def test_what_is_not_complete_is_no_empty_memory(state: str) -> None:
    # Its records are errors, and say so themselves.
    assert thin_memories({"ingestion": [row("c/Ana", 0, state=state)]}, 5) == []


def test_each_system_says_its_own() -> None:
    rows = [row("c/Ana", 0), row("c/Ana", 0, system="memu", label="MemU", extractions=0, empty=0)]
    first, second = thin_memories({"ingestion": rows}, 5)
    assert first.startswith("Mem0 ")
    assert second.startswith("MemU holds no memory of c/Ana: its sessions gave nothing to extract.")


def test_notes_are_said_once_a_system() -> None:
    note = "MemU's store and retrieval, our extractor"
    rows = [row("c/Ana", 3, label="MemU", note=note), row("c/Ben", 3, label="MemU", note=note), row("c/Ana", 3)]
    assert memory_notes({"ingestion": rows}) == ["MemU: MemU's store and retrieval, our extractor."]


def test_the_table_has_a_row_a_system_and_user() -> None:
    frame = ingested({"ingestion": [row("c/Ana", 3), row("c/Ben", 0)]})
    assert list(frame.columns) == list(COLUMNS)
    assert frame[["user", "memories", "empty"]].to_numpy().tolist() == [["c/Ana", 3, 2], ["c/Ben", 0, 9]]
    assert settings({"ingestion": [row("c/Ana", 3)]}) == {"Mem0": {"mem0ai": "2.2.1"}}


@pytest.mark.parametrize(
    "told",
    [
        None,
        "x",
        3,
        {"a": 1},
        [None],
        ["x"],
        [{}],
        [{"system": 1, "label": "L", "user": "u"}],
        [row("u", -1)],
        [[row("u", 1)]],
    ],
)
def test_whatever_a_bundle_holds_is_no_fault(told: Any) -> None:
    provenance = {"ingestion": told}
    assert ingested(provenance).empty
    assert thin_memories(provenance, 5) == []
    assert memory_notes(provenance) == []
    assert settings(provenance) == {}


def test_an_ingestion_that_never_began_has_no_counts() -> None:
    short = {key: value for key, value in row("c/Ana", 0, state="waiting").items() if key not in ("calls", "digest")}
    assert ingested({"ingestion": [short]})["calls"].isna().all()
    assert ingested({}).empty
