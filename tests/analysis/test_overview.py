"""The study in figures: published rows as printed and by one rule, measured rows beside them, the radar's values."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from opbench.analysis import audit, overview
from opbench.analysis.audit import changes_table, ranking, ranking_changes
from opbench.types import OP_SUBTYPES


def cell(frame: Any, model: str, memory: str) -> Any:
    return frame.set_index(["model", "memory"]).loc[(model, memory)]


def test_as_printed_is_table_2() -> None:
    frame = overview.published_study("printed", "task-mean", first_only=True)
    assert len(frame) == 20
    row = cell(frame, "qwen3-8b", "memu")
    assert (row["op"], row["drop"]) == (35.09, 52.5)
    # Neither the rule nor the speakers apply to what is printed.
    assert set(frame["rule"]) == {"published"}
    assert set(frame["source"]) == {"published"}
    assert frame["n_scored"].isna().all()


def test_recomputed_by_one_rule() -> None:
    # GPT-4o-mini RAG by the task mean: (77.61 + 59.00 + 63.29 + (38.6 + 43.4 + 2·26.8) / 4) / 4 = 58.45
    frame = overview.published_study("recomputed", "task-mean")
    row = cell(frame, "gpt-4o-mini", "rag")
    assert row["op"] == pytest.approx(58.45)
    # BASE: (99.94 + 99.60 + 71.92 + (81 + 83.4 + 2·68.45) / 4) / 4 = 86.69625
    assert row["drop"] == pytest.approx(100 * (86.69625 - 58.45) / 86.69625)
    assert set(frame["rule"]) == {"task-mean"}


def test_first_speakers_count_in_the_instance_rule() -> None:
    # Gemini BASE, as printed: 70.55 = (159·99.56 + 50·95.2 + 450·63.45 + 50·88.6 + 50·87.8 + 100·26.4) / 859
    first = overview.published_study("recomputed", "instance", first_only=True)
    assert cell(first, "gemini-2.5-flash", "base")["op"] == pytest.approx(70.55, abs=0.005)
    whole = overview.published_study("recomputed", "instance")
    assert cell(whole, "gemini-2.5-flash", "base")["op"] == pytest.approx(
        (318 * 99.56 + 100 * 95.2 + 882 * 63.45 + 100 * 88.6 + 100 * 87.8 + 200 * 26.4) / 1700
    )


def test_radar_of_gpt_4o_mini() -> None:
    table = overview.radar_table(overview.published_study("printed", "task-mean"), "gpt-4o-mini", [])
    assert list(table["subtype"]) == list(OP_SUBTYPES)
    assert list(table.columns) == ["subtype", "base", "rag", "mem0", "memu", "memos"]
    assert list(table["base"]) == [99.94, 99.60, 71.92, 81.00, 83.40, 68.45]
    few = overview.radar_table(overview.published_study("printed", "task-mean"), "gpt-4o-mini", ["memos", "base"])
    assert list(few.columns) == ["subtype", "base", "memos"]


def measured() -> pd.DataFrame:
    """Rows as `op_table` has them: BASE and RAG, RAG with Reminder; Reminder's average is missing."""
    scores: dict[str, Any] = dict.fromkeys(
        ["fully_irrelevant", "baiting", "repetition", "fact_level", "value_level", "memory_level"], 1.0
    )
    rows = [
        ("base", "none", 90.0, None, "oracle"),
        ("rag", "none", 60.0, 33.0, ""),
        ("rag", "reminder", None, None, "x"),
    ]
    return pd.DataFrame(
        [
            {
                "model": "m",
                "memory": memory,
                "mitigation": mitigation,
                "op": op,
                "drop_relative": drop,
                "drop_note": note,
            }
            | {"n_scored": 9, "n_planned": 12, "missing": "", "rule": "instance"}
            | scores
            for memory, mitigation, op, drop, note in rows
        ]
    )


def test_a_measured_study_is_in_the_same_shape_and_says_measured() -> None:
    frame = overview.measured_study(measured())
    assert list(frame.columns) == list(overview.published_study("printed", "instance").columns)
    assert list(frame["memory"]) == ["base", "rag"]
    assert list(frame["drop"]) == [0.0, 33.0]
    assert set(frame["source"]) == {"measured"}


def test_base_stands_beside_every_post_processor() -> None:
    frame = overview.measured_study(measured(), "reminder")
    assert list(zip(frame["memory"], frame["mitigation"], strict=True)) == [("base", "none"), ("rag", "reminder")]
    # Missing is never 0.
    assert frame.iloc[1][["op", "drop"]].isna().all()


# The ranking -------------------------------------------------------------------------------------------------------


def test_by_the_task_mean_nine_pairs_swap() -> None:
    """Worked out by hand from table 2: drops of the two RAG rows, 32.58 and 35.95, printed 32.7 and 26.2."""
    pairs: Any = changes_table("task-mean")
    assert set(zip(pairs["first"], pairs["second"], strict=True)) == {
        ("gpt-4o-mini rag", "gemini-2.5-flash rag"),
        ("qwen3-32b rag", "gemini-2.5-flash rag"),
        ("qwen3-8b rag", "gemini-2.5-flash rag"),
        ("gpt-4o-mini mem0", "qwen3-8b mem0"),
        ("gpt-4o-mini memu", "qwen3-8b memos"),
        ("gpt-4o-mini memos", "qwen3-32b mem0"),
        ("gpt-4o-mini memos", "gemini-2.5-flash mem0"),
        ("qwen3-32b memu", "gemini-2.5-flash memos"),
        ("qwen3-8b memu", "gemini-2.5-flash memos"),
    }
    widest = pairs.iloc[0]
    assert widest[["first", "second", "first_published", "second_published"]].to_list() == [
        *("gpt-4o-mini rag", "gemini-2.5-flash rag"),
        *(32.7, 26.2),
    ]
    assert widest["first_recomputed"] == pytest.approx(100 * (86.69625 - 58.45) / 86.69625)
    # Gemini: BASE (99.56 + 95.2 + 63.45 + 57.3) / 4 = 78.8775; RAG (68.99 + 40.2 + 52.78 + 40.1) / 4 = 50.5175
    assert widest["second_recomputed"] == pytest.approx(100 * (78.8775 - 50.5175) / 78.8775)
    assert widest["by"] == pytest.approx(widest["second_recomputed"] - widest["first_recomputed"])


def test_ranking_orders_by_the_rule_and_counts_the_moves() -> None:
    frame: Any = ranking("task-mean").set_index(["model", "memory"])
    assert list(frame["place"]) == sorted(frame["place"])
    assert list(frame["drop"]) == sorted(frame["drop"], reverse=True)
    gemini = frame.loc[("gemini-2.5-flash", "rag")]
    # Printed 26.2 is the smallest drop of the 16; by one rule three RAG rows are smaller.
    assert gemini[["published_place", "place", "moved", "swaps"]].to_list() == [16, 13, 3, 3]
    # 49.6 is printed twice, and six rows are greater: both share place 7.
    printed = frame["published_place"]
    assert printed[("gpt-4o-mini", "memos")] == printed[("qwen3-8b", "memos")] == 7
    assert frame["swaps"].sum() == 2 * len(ranking_changes("task-mean"))


def test_every_rule_ranks_the_sixteen_rows() -> None:
    for rule in ("task-mean", "instance", "category-macro"):
        for scope in ("all", "first"):
            frame = audit.ranking(rule, scope)
            assert len(frame) == 16
            assert "base" not in set(frame["memory"])
