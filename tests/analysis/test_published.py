"""The published figures and the audit of how their averages were made."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from opbench.analysis import audit, published
from opbench.analysis.aggregate import RULES
from opbench.errors import DataError
from opbench.figures.theme import NAMES

MEMORY_SYSTEMS = ("mem0", "memu", "memos")


# Figures -----------------------------------------------------------------------------------------------------------


def test_counts_are_the_papers() -> None:
    assert dict(zip(published.counts()["subtype"], published.counts()["count"], strict=True)) == {
        "fully-irrelevant": 318,
        "baiting": 100,
        "repetition": 882,
        "fact": 100,
        "value": 100,
        "memory": 200,
    }


def test_twenty_rows_under_registry_names() -> None:
    table = published.op_scores()
    assert len(table) == 20
    assert set(table["model"]) == {"gpt-4o-mini", "gemini-2.5-flash", "qwen3-32b", "qwen3-8b"}
    assert list(table["memory"][:5]) == ["base", "rag", "mem0", "memu", "memos"]
    mem0 = table[(table["model"] == "gpt-4o-mini") & (table["memory"] == "mem0")].iloc[0]
    assert mem0["memory_level"] == 22.20
    assert mem0["op"] == 46.32
    assert mem0["drop"] == 44.3
    assert set(table["rule"]) == {"published"}


def test_tradeoff_is_marked_as_published_and_without_unit() -> None:
    frame = published.tradeoff()
    assert len(frame) == 20
    cell = frame[(frame["memory"] == "mem0") & (frame["mitigation"] == "few-shot-cot")].iloc[0]
    assert (cell["op_change"], cell["locomo_change"]) == (20.0, 9.9)
    assert set(frame["source"]) == {"published"}
    assert set(frame["unit"]) == {"points or % isn't told"}
    assert frame["op_n"].isna().all()


def test_oracle_gap_reads_the_changes_both_ways() -> None:
    # Mem0 46.32, BASE 83.10, Few-Shot-CoT +20.0
    def closed(kind: str) -> float:
        frame = published.oracle_gap(kind)  # type: ignore[arg-type]
        row = frame[(frame["memory"] == "mem0") & (frame["mitigation"] == "few-shot-cot")].iloc[0]
        return float(row["gap_closed"])

    assert closed("points") == pytest.approx(20.0 / (83.10 - 46.32))
    assert closed("relative") == pytest.approx(0.2 * 46.32 / (83.10 - 46.32))


def test_latency_has_no_median_that_was_never_published() -> None:
    frame = published.latency()
    critic = frame[frame["mitigation"] == "self-critic"].set_index("stage")
    assert critic.loc["post", "mean_ms"] == 4128.18
    assert critic.loc["post", "std_ms"] == 5696.26
    assert critic.loc["total", "mean_ms"] == pytest.approx(41.82 + 4128.18 + 3408.09)
    assert frame.loc[frame["stage"] == "total", "std_ms"].isna().all()
    assert frame["median_ms"].isna().all()
    assert frame["n"].isna().all()


def test_every_published_name_has_a_label() -> None:
    ours = {*published.MEMORIES.values(), *published.MITIGATIONS.values(), *published.SUBTYPES.values()}
    assert ours <= set(NAMES)


# Against the source ------------------------------------------------------------------------------------------------


def _as_json() -> dict[str, object]:
    """The published shape, made of our files: what `differences` must find nothing in."""
    scores = published._raw("op_scores.csv")
    changes = published._raw("mitigation_changes.csv")
    times = published._raw("latency.csv")
    numbers = published._raw("counts.csv")
    return {
        "overview": {
            "categories": [
                {
                    "label": category,
                    "subcategories": [
                        {"label": row["subtype"], "count": row["count"]} for row in part.to_dict("records")
                    ],
                }
                for category, part in numbers.groupby("category", sort=False)
            ]
        },
        "rq1": {
            "models": {
                str(model): [
                    {"method": row[1], "values": list(row[2:9]), "drop": row[9]}
                    for row in part.itertuples(index=False, name=None)
                ]
                for model, part in scores.groupby("model", sort=False)
            }
        },
        "rq3": {
            "methods": list(dict.fromkeys(changes["mitigation"])),
            "deltas": {
                str(benchmark): {
                    str(memory): list(values["change"]) for memory, values in part.groupby("memory", sort=False)
                }
                for benchmark, part in changes.groupby("benchmark", sort=False)
            },
        },
        "rq4": {
            "columns": [*dict.fromkeys(times["stage"]), "Total"],
            "latency": [
                {"method": method, "values": list(part["mean_ms"]), "std": list(part["std_ms"])}
                for method, part in times.groupby("mitigation", sort=False)
            ],
        },
    }


def test_differences_finds_a_changed_number(tmp_path: Path) -> None:
    file = tmp_path / "op_bench_results.json"
    content = _as_json()
    file.write_text(json.dumps(content, default=float), encoding="utf-8")
    assert published.differences(file) == []
    content["rq1"]["models"]["Qwen3-8B"][0]["values"][6] = 73.81  # type: ignore[index]
    file.write_text(json.dumps(content, default=float), encoding="utf-8")
    (line,) = published.differences(file)
    assert line.startswith("op_scores.csv: Qwen3-8B BASE: ")


def test_files_equal_the_published_json(real_data: Path) -> None:
    assert published.differences(real_data / "published" / "op_bench_results.json") == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"rq1": {}}'])
def test_a_damaged_json_is_one_line_with_the_file(tmp_path: Path, text: str) -> None:
    file = tmp_path / "op_bench_results.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=r"op_bench_results\.json") as caught:
        published.differences(file)
    assert "\n" not in str(caught.value)


def test_a_missing_json_is_a_data_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="can't be read"):
        published.differences(tmp_path / "none.json")


# Audit -------------------------------------------------------------------------------------------------------------


def test_audit_says_what_is_known() -> None:
    frame = audit.audit().set_index(["model", "memory"])
    assert len(frame) == 20
    for memory in ("base", "rag"):
        assert frame.loc[("gpt-4o-mini", memory), "best"] == "category-macro"
        for model in ("gemini-2.5-flash", "qwen3-32b", "qwen3-8b"):
            assert frame.loc[(model, memory), "best"] == "instance, first speakers"
    for memory in ("mem0", "memu"):
        assert frame.loc[("gpt-4o-mini", memory), "best"] == "task-mean"
    fitting = frame[frame["verdict"] == "fits"]
    assert len(fitting) == 10
    assert (fitting["residual"].abs() <= 0.02).all()
    nearest = frame[frame["verdict"] == "nearest"]
    assert set(nearest.index.get_level_values("memory")) == set(MEMORY_SYSTEMS)
    assert set(nearest["best"]) == {"task-mean"}
    assert (nearest["residual"].abs() > 0.02).all()


@pytest.mark.parametrize(
    ("model", "memory", "residual"),
    [
        # (25.67 + 22.40 + 46.27 + (55.8 + 56.2 + 2·14) / 4) / 4 = 32.335, published 33.05
        ("gemini-2.5-flash", "memu", -0.715),
        # (30.49 + 23.20 + 39.97 + (62 + 62.6 + 2·15.9) / 4) / 4 = 33.19, published 33.93
        ("gemini-2.5-flash", "memos", -0.740),
        # (42.74 + 36.60 + 54.73 + (39.2 + 44.4 + 2·23.4) / 4) / 4 = 41.6675, published 41.86
        ("gpt-4o-mini", "memos", -0.1925),
    ],
)
def test_residuals_of_the_rows_that_no_rule_fits(model: str, memory: str, residual: float) -> None:
    frame = audit.audit().set_index(["model", "memory"])
    assert frame.loc[(model, memory), "residual"] == pytest.approx(residual, abs=1e-6)


def test_task_mean_and_category_macro_do_not_depend_on_the_scope() -> None:
    for rule in ("task-mean", "category-macro"):
        whole, first = audit.recomputed(rule)["op"], audit.recomputed(rule, "first")["op"]
        assert list(whole) == pytest.approx(list(first))


def test_drops_under_one_rule() -> None:
    frame = audit.recomputed("task-mean").set_index(["model", "memory"])
    # BASE (99.94 + 99.60 + 71.92 + 75.325) / 4 = 86.69625; Mem0 46.32 (to 0.001: 46.31975)
    assert frame.loc[("gpt-4o-mini", "mem0"), "drop"] == pytest.approx(100 * (86.69625 - 46.32) / 86.69625, abs=0.01)
    assert frame.loc[("gpt-4o-mini", "base"), "drop"] == pytest.approx(0)


def test_one_rule_changes_the_order_of_some_rows() -> None:
    pairs = {(change["first"], change["second"]) for change in audit.ranking_changes("task-mean")}
    # Published: 32.7 against 26.2; by the task mean for both: 32.6 against 36.0.
    assert ("gpt-4o-mini rag", "gemini-2.5-flash rag") in pairs
    for rule in RULES:
        for change in audit.ranking_changes(rule):
            assert change["published"][0] > change["published"][1]
            assert change["recomputed"][0] < change["recomputed"][1]


def test_text_has_a_line_for_every_row() -> None:
    text = audit.to_text()
    assert "fits category-macro (+0.002)" in text
    assert "fits instance, first speakers (-0.001)" in text
    assert "nearest task-mean (-0.715)" in text
    rows = [line for line in text.splitlines() if line.startswith(("gpt-", "gemini-", "qwen3-"))]
    assert len(rows) == 20 + 16
    assert max(len(line) for line in text.splitlines()) <= 140
