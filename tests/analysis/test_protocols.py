"""LoCoMo's two protocols in the analysis: the judge's three runs by hand, and that no two protocols are ever mixed."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
import pytest

from opbench.analysis.differences import Side, pair, pairs, summary
from opbench.analysis.judge_runs import judge_runs
from opbench.analysis.locomo import locomo_notes, locomo_table
from opbench.analysis.published import LOCOMO_METRIC
from opbench.analysis.published import tradeoff as published_tradeoff
from opbench.analysis.tradeoff import tradeoff
from opbench.analysis.unlike import doubts, unlike
from opbench.errors import UsageError
from opbench.protocol import METRICS, headline_metric, metric_label
from opbench.sharing.marks import remarks
from opbench.store.rundata import RunData
from opbench.study import make_study

from .conftest import RAG, REMINDER, build, row_of

NAN = float("nan")
JUDGE = "gpt-4o-mini"
PROTOCOL = {"name": "memos", "answer_prompts": "a", "judge_prompts": "b", "version": "1"}
CATEGORIES = {"q1": "multi-hop", "q2": "multi-hop", "q3": "temporal", "q4": "single-hop"}
#: What the three runs of the judge said of each answer (NaN: couldn't be read); Reminder's record of q4 failed.
RUNS: dict[tuple[str, str, str], dict[str, tuple[float, float, float]]] = {
    RAG: {"q1": (1, 0, 1), "q2": (1, 1, 1), "q3": (0, 0, NAN), "q4": (0, 1, 0)},
    REMINDER: {"q1": (1, 1, 1), "q2": (1, 1, 1), "q3": (0, 0, 0)},
}


def by_memos(judge: str = JUDGE, run_id: str = "r2") -> RunData:
    """Two configurations on four questions by protocol memos."""
    records: list[dict[str, Any]] = []
    scores: list[dict[str, Any]] = []
    for key, judged in RUNS.items():
        named = dict(zip(("model", "memory", "mitigation"), key, strict=True))
        for name in CATEGORIES:
            done = name in judged
            counts = {"context_tokens": 10 * len(records)} if done else None
            records.append({**named, "instance": name, "status": "done" if done else "error", "counts": counts})
            if not done:
                continue
            known = [value for value in judged[name] if not math.isnan(value)]
            values = {"memos_f1": 0.5}
            if judge != "offline":
                values["memos_correct"] = sum(known) / len(known)
                values |= {f"memos_correct_run{number}": value for number, value in enumerate(judged[name], 1)}
            scores += [
                {**named, "instance": name, "judge": judge, "metric": metric, "value": value, "reason": None}
                for metric, value in values.items()
            ]
    return RunData(
        run_id=run_id,
        name="",
        study=make_study({"models": ["m"], "mitigations": ["none", "reminder"], "judge": judge, "protocol": "memos"}),
        provenance={"protocol": PROTOCOL},
        recorded=False,
        text_left_out=False,
        comparable=False,
        instances=pd.DataFrame(
            {
                "instance": list(CATEGORIES),
                "ordinal": range(len(CATEGORIES)),
                "benchmark": "locomo",
                "user": "A",
                "first_speaker": True,
                "subtype": list(CATEGORIES.values()),
            }
        ),
        configurations=pd.DataFrame([dict(zip(("model", "memory", "mitigation"), key, strict=True)) for key in RUNS]),
        records=pd.DataFrame(records),
        scores=pd.DataFrame(scores),
        user_scores=pd.DataFrame(columns=["model", "memory", "mitigation", "user", "judge", "metric", "value", "n"]),
        vectors=None,
    )


def runs_of(key: tuple[str, str, str], category: str = "all") -> dict[str, Any]:
    frame = judge_runs(by_memos())
    return row_of(frame[frame["category"] == category], key)


def test_accuracy_of_each_run_then_mean_and_population_deviation() -> None:
    rag = runs_of(RAG)
    # Run 1: 1 1 0 0, run 2: 0 1 0 1, run 3: 1 1 – 0, over the three questions that it could be read for.
    assert [rag[f"run_{number}"] for number in (1, 2, 3)] == pytest.approx([50, 50, 200 / 3])
    assert [rag[f"n_run_{number}"] for number in (1, 2, 3)] == [4, 4, 3]
    assert rag["run_mean"] == pytest.approx(500 / 9)
    # Deviations −50/9, −50/9 and 100/9: √((2500 + 2500 + 10000) / 81 / 3).
    assert rag["run_std"] == pytest.approx(math.sqrt(15000 / 243))
    assert (rag["n_planned"], rag["run_judgements_missing"]) == (4, 1)


def test_three_equal_runs_have_no_spread_and_a_failed_record_has_no_judgement_to_miss() -> None:
    reminder = runs_of(REMINDER)
    assert [reminder[f"run_{number}"] for number in (1, 2, 3)] == pytest.approx([200 / 3] * 3)
    assert reminder["run_std"] == pytest.approx(0)
    assert reminder["run_judgements_missing"] == 0
    assert [reminder[f"n_run_{number}"] for number in (1, 2, 3)] == [3, 3, 3]


def test_runs_by_category() -> None:
    multi_hop, temporal = runs_of(RAG, "multi-hop"), runs_of(RAG, "temporal")
    assert [multi_hop[f"run_{number}"] for number in (1, 2, 3)] == [100, 50, 100]
    assert (multi_hop["run_mean"], multi_hop["n_planned"]) == (pytest.approx(250 / 3), 2)
    assert (temporal["run_1"], temporal["run_2"]) == (0, 0)
    assert math.isnan(temporal["run_3"]), "a run without any judgement is missing, not 0"
    assert (temporal["run_mean"], temporal["run_std"]) == (0, 0)


def test_the_table_has_the_main_metric_its_runs_and_the_context() -> None:
    frame = locomo_table(by_memos())
    rag = row_of(frame, RAG)
    assert rag["metric"] == "memos_correct"
    assert rag["metric_label"] == f"judged correct, mean of 3 runs of the judge ({JUDGE}), protocol memos"
    # Means over the runs that judged a question: 2/3, 1, 0 and 1/3.
    assert rag["overall"] == pytest.approx(50)
    assert rag["multi-hop"] == pytest.approx(250 / 3)
    assert (rag["run_mean"], rag["run_judgements_missing"]) == (pytest.approx(500 / 9), 1)
    assert rag["context_tokens"] == pytest.approx((0 + 10 + 20 + 30) / 4)
    reminder = row_of(frame, REMINDER)
    assert reminder["context_tokens"] == pytest.approx((40 + 50 + 60) / 3), "the failed record has no prompt to count"
    # Paired over q1 to q3: (1 + 1 + 0) / 3 against (2/3 + 1 + 0) / 3.
    assert reminder["change_points"] == pytest.approx(100 / 9)
    assert "run_mean" not in locomo_table(build()), "the uniform protocol asks the judge once"


def test_offline_the_main_metric_is_lexical_and_there_are_no_runs() -> None:
    frame = locomo_table(by_memos("offline"))
    assert set(frame["metric_label"]) == {"token F1 over sets, protocol memos"}
    assert "run_mean" not in frame
    assert row_of(frame, RAG)["overall"] == pytest.approx(50)


def test_the_tradeoff_names_the_protocol() -> None:
    frame = tradeoff(by_memos(), "task-mean")
    assert row_of(frame, REMINDER)["locomo_change"] == pytest.approx(100 / 9)
    assert set(frame["locomo_metric"]) == {f"judged correct, mean of 3 runs of the judge ({JUDGE}), protocol memos"}


def test_no_metric_has_one_name_in_both_protocols() -> None:
    assert not set(METRICS["uniform"]) & set(METRICS["memos"])
    for protocol in METRICS:
        for judge in ("offline", JUDGE):
            study = make_study({"models": ["m"], "judge": judge, "protocol": protocol})
            assert headline_metric(study) in METRICS[protocol]
    assert metric_label("correct", JUDGE) == f"judged correct ({JUDGE})"
    assert metric_label("memos_bleu4", JUDGE) == "BLEU-4, protocol memos"


def test_a_metric_of_the_other_protocol_is_refused() -> None:
    with pytest.raises(UsageError, match="run r2 has no LoCoMo metric 'f1': by protocol memos there are memos_correct"):
        locomo_table(by_memos(), "f1")
    with pytest.raises(UsageError, match="no LoCoMo metric 'memos_f1': by protocol uniform there are correct"):
        locomo_table(build(), "memos_f1")


def uniform_twin() -> RunData:
    """The same questions by the uniform protocol, with the same judge."""
    twin = by_memos(run_id="r1")
    scores = twin.scores[twin.scores["metric"].isin(["memos_correct", "memos_f1"])]
    renamed = scores.replace({"metric": {"memos_correct": "correct", "memos_f1": "f1"}})
    fields = {"models": ["m"], "mitigations": ["none", "reminder"], "judge": JUDGE}
    return RunData(
        run_id="r1",
        name="",
        study=make_study(fields),
        provenance={},
        recorded=False,
        text_left_out=False,
        comparable=False,
        instances=twin.instances,
        configurations=twin.configurations,
        records=twin.records,
        scores=renamed,
        user_scores=twin.user_scores,
        vectors=None,
    )


def test_runs_of_two_protocols_are_not_compared() -> None:
    sides = Side(uniform_twin(), RAG), Side(by_memos(), RAG)
    for before, after in (sides, sides[::-1]):
        found = pair(before, after)
        assert pairs(found).empty
        row = summary(found).set_index("subtype").loc["all"]
        assert (row["n_planned"], row["n_paired"], row["reason"]) == (4, 0, "nothing scored by both")
        assert pd.isna(row["change"])
        names = f"{before.data.study.protocol}, the other by {after.data.study.protocol}"
        assert any(f"LoCoMo isn't compared: one run is by protocol {names}" in remark for remark in found.remarks)
    assert doubts(*sides) == [
        "The LoCoMo protocols differ (uniform and memos): the LoCoMo numbers may not be compared."
    ]
    differing = unlike(*sides).set_index("what")
    assert tuple(differing.loc["LoCoMo protocol: name"]) == ("uniform", "memos")
    assert "judge" not in {name.partition(":")[0] for name in differing.index}, "OP-Bench is judged alike"


def test_two_runs_by_the_protocol_are_compared() -> None:
    found = pair(Side(by_memos(run_id="r1"), RAG), Side(by_memos(), REMINDER))
    assert found.metric == "memos_correct"
    assert summary(found).set_index("subtype").loc["all", "change"] == pytest.approx(100 / 9)
    assert not doubts(found.before, found.after)


def test_with_one_offline_judge_sets_are_compared() -> None:
    found = pair(Side(by_memos("offline", "r1"), RAG), Side(by_memos(), RAG))
    assert found.metric == "memos_f1"
    assert found.remarks[0] == (
        "LoCoMo is compared by token F1 over sets, protocol memos, since only one of the two has an LLM judge."
    )


def test_other_prompts_of_the_protocol_are_a_doubt() -> None:
    other = by_memos(run_id="r1")
    other.provenance["protocol"] = PROTOCOL | {"judge_prompts": "c"}
    assert doubts(Side(other, RAG), Side(by_memos(), RAG)) == [
        "The prompts or rules of LoCoMo's protocol memos differ: its numbers may not be compared."
    ]


def test_what_is_said_beside_the_numbers() -> None:
    assert remarks({"protocol": PROTOCOL}) == ["LoCoMo by protocol memos"]
    assert remarks({"protocol": PROTOCOL, "marks": ["a mark"]}) == ["LoCoMo by protocol memos", "a mark"]
    assert remarks({"protocol": "nonsense"}) == remarks({"protocol": {"name": None}}) == remarks({}) == []
    assert "protocol memos" in locomo_notes(by_memos())[0]
    assert "population standard deviation" in locomo_notes(by_memos())[1]
    assert len(locomo_notes(by_memos("offline"))) == 1
    assert "MemOS's evaluation (B.4)" in locomo_notes(build())[0]
    assert set(published_tradeoff()["locomo_metric"]) == {LOCOMO_METRIC} == {"not told, by MemOS's evaluation"}
