"""Ingestions as tables: sums by hand, and names that tell the same system's settings apart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd

from mitigations.base import Memory
from opbench.analysis import ingestions
from opbench.gateway.lease import Usage
from opbench.memories.library import Added
from opbench.memories.manifest import Failure, Manifest, SessionEntry

FIRST = SessionEntry(
    1, "1 May 2023", Added(3, 1, 0), 3, Usage(1, 0, 8000, 120, 2, 4, 0, 0, 0.02, 0.02, 900.0), 2.5, 1_700_000_000.0
)
SECOND = SessionEntry(
    2, "9 May 2023", Added(0, 1, 1), 3, Usage(1, 1, 8100, 10, 1, 1, 1, 0, 0.01, 0.0, 300.0), 0.5, 1_700_000_060.0
)
MEM0 = Manifest(
    system="mem0",
    label="Mem0",
    note="",
    user="sample-1/Ana",
    identity={"library": "2.2.1", "extractor_served": "gpt", "embedder_model": "all-MiniLM-L6-v2"},
    extractor="gpt-4o-mini",
    history_sha256="a" * 64,
    digest="1" * 64,
    sessions_planned=9,
    started_at=1_700_000_000.0,
    sessions=(FIRST, SECOND),
    store_bytes=2_000_000,
    state="failed",
    failure=Failure("timeout", "gpt-4o-mini: no answer", 1.0),
)
MEMU = replace(
    MEM0, system="memu", label="MemU", digest="2" * 64, sessions=(), state="partial", failure=None, store_bytes=0
)


def row(manifest: Manifest) -> dict[Any, Any]:
    return ingestions.overview([manifest]).to_dict("records")[0]


def test_an_ingestion_is_the_sum_of_its_sessions() -> None:
    assert row(MEM0) == {
        "name": "Mem0",
        "system": "mem0",
        "user": "sample-1/Ana",
        "state": "failed",
        "sessions": 2,
        "planned": 9,
        "memories": 3,
        "extractions": 2,
        "empty": 1,
        "calls": 2,
        "reused": 1,
        "tokens_in": 16100,
        "tokens_out": 130,
        "embedded_texts": 5,
        "seconds": 3.0,
        "spent_usd": 0.02,
        "cost_usd": 0.03,
        "store_bytes": 2_000_000,
        "extractor": "gpt-4o-mini",
        "embedder": "all-MiniLM-L6-v2",
        "failure": "gpt-4o-mini: no answer",
        "finished_at": 1_700_000_060.0,
        "digest": "1" * 64,
    }


def test_two_users_of_a_conversation_share_a_digest_and_nothing_else() -> None:
    ben = replace(MEM0, user="sample-1/Ben", sessions=(FIRST,))
    frame = ingestions.overview([MEM0, ben])
    assert frame["sessions"].tolist() == [2, 1]
    assert frame["calls"].tolist() == [2, 1]
    assert frame["name"].tolist() == ["Mem0", "Mem0"]


def test_one_that_has_not_begun_holds_nothing_and_cost_nothing() -> None:
    found = row(MEMU)
    assert (found["sessions"], found["memories"], found["cost_usd"], found["seconds"]) == (0, 0, 0.0, 0.0)
    assert pd.isna(found["finished_at"])


def test_an_unknown_price_of_one_session_makes_the_sum_unknown() -> None:
    unpriced = replace(SECOND, usage=Usage(calls=1, cost_usd=None))
    assert pd.isna(row(replace(MEM0, sessions=(FIRST, unpriced)))["cost_usd"])


def test_what_a_library_merged_away_is_no_memory() -> None:
    merged = replace(SECOND, added=Added(1, 1, 0), total=2)
    assert row(replace(MEM0, sessions=(FIRST, merged)))["memories"] == 2


def test_sessions_one_by_one() -> None:
    frame = ingestions.by_session([MEM0, MEMU])
    assert frame[["name", "session", "day", "memories", "total", "empty", "tokens"]].to_dict("records") == [
        {"name": "Mem0", "session": 1, "day": "1 May 2023", "memories": 3, "total": 3, "empty": 0, "tokens": 8120},
        {"name": "Mem0", "session": 2, "day": "9 May 2023", "memories": 0, "total": 3, "empty": 1, "tokens": 8110},
    ]


def test_no_ingestion_makes_empty_tables_with_their_columns() -> None:
    assert list(ingestions.overview([]).columns) == list(ingestions.OVERVIEW)
    assert list(ingestions.by_session([]).columns) == list(ingestions.SESSIONS)


def test_the_same_system_with_other_settings_has_another_name() -> None:
    other_model = replace(MEM0, extractor="smollm2-135m", identity={**MEM0.identity, "extractor_served": "smol"})
    other_model = replace(other_model, digest="3" * 64)
    assert ingestions.names([MEM0, other_model, MEMU]) == {
        "1" * 64: "Mem0 · gpt-4o-mini",
        "3" * 64: "Mem0 · smollm2-135m",
        "2" * 64: "MemU",
    }
    # Two users of one ingestion's settings are one name; another version with the same model is told by its hash.
    ben = replace(MEM0, user="sample-1/Ben", digest="4" * 64)
    newer = replace(MEM0, identity={**MEM0.identity, "library": "2.3.0"}, digest="5" * 64)
    found = ingestions.names([MEM0, ben, newer])
    assert found["1" * 64] == found["4" * 64]
    assert found["1" * 64] != found["5" * 64]
    assert all(name.startswith("Mem0 · ") and len(name) == len("Mem0 · ") + 6 for name in found.values())


def test_settings_stand_beside_each_other_and_those_that_differ_come_first() -> None:
    newer = replace(MEM0, identity={**MEM0.identity, "library": "2.3.0"}, digest="5" * 64)
    frame = ingestions.provenance([MEM0, newer])
    assert list(frame.columns) == ["what", "1" * 12, "5" * 12]
    assert frame["what"].tolist()[:2] == ["library", "digest"]
    assert frame.to_numpy()[0].tolist() == ["library", "2.2.1", "2.3.0"]
    assert frame[frame["what"] == "history sha256"].to_numpy().tolist() == [["history sha256", "a" * 64, "a" * 64]]


def test_hits_that_two_systems_share_are_marked() -> None:
    frame = ingestions.hits(
        {
            "Mem0": [Memory("Ana  likes tea.", "1 May 2023", 0.9), Memory("Ana has a dog.", "9 May 2023", 0.4)],
            "MemU": [Memory("ana likes TEA.", "", None)],
            "MemOS": [],
        }
    )
    assert frame[["system", "rank", "also"]].to_dict("records") == [
        {"system": "Mem0", "rank": 1, "also": "MemU"},
        {"system": "Mem0", "rank": 2, "also": ""},
        {"system": "MemU", "rank": 1, "also": "Mem0"},
    ]
    assert frame["similarity"].tolist()[:2] == [0.9, 0.4]
    assert pd.isna(frame["similarity"].iloc[2])


def test_nothing_found_makes_an_empty_table() -> None:
    assert ingestions.hits({"Mem0": []}).empty
    assert list(ingestions.kept([]).columns) == ["number", "date", "memory"]
