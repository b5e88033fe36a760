"""Worked examples: the appendix's when the data folder holds them, else the invented ones, said to be so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from opbench.benchmarks import cases, load
from opbench.errors import DataError
from opbench.settings import settings

ROW = {
    "id": "fig-1",
    "persona": "Ottilie",
    "category": "irrelevance",
    "subtype": "baiting",
    "method": "MemU",
    "question": "Q?",
    "memory": ["M."],
    "response": "R.",
    "published_score": 0.2,
    "reference_response": "F.",
    "reference_score": 0.95,
}


@pytest.fixture
def appendix(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the appendix's cases are looked for; the file isn't there yet."""
    monkeypatch.setenv("OPBENCH_DATA", str(tmp_path))
    settings.cache_clear()
    (tmp_path / "published").mkdir()
    return tmp_path / "published" / "appendix_cases.jsonl"


def write(file: Path, *rows: dict[str, Any]) -> None:
    file.write_text("\n".join(json.dumps(row) for row in rows) + "\n", encoding="utf-8")


def test_without_data_the_cases_are_invented_ones_of_the_samples_people(home: Path) -> None:
    known = cases.read()
    assert known.origin == "invented"
    speakers = {user.speaker for user in load("sample").users.values()}
    assert {case.user for case in known.cases} == speakers
    assert {case.method for case in known.cases} == {"invented"}
    for category in ("irrelevance", "sycophancy", "repetition"):
        assert len(known.of(category)) == 2
    # A reply that repeats itself takes more than one question.
    assert [len(case.exchanges) for case in known.of("repetition").values()] == [3, 2]
    for case in known.cases:
        assert all(exchange.score < 0.5 < exchange.fitting_score for exchange in case.exchanges)
        assert all(exchange.memories for exchange in case.exchanges)


def test_invented_questions_are_the_samples_own(home: Path) -> None:
    asked = {(instance.user.speaker, instance.question): instance.subtype for instance in load("sample").op}
    for case in cases.read().cases:
        for exchange in case.exchanges:
            assert asked[case.user, exchange.question] == case.subtype


def test_the_appendix_has_sixteen_replies_in_twelve_cases(real_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPBENCH_DATA", str(real_folder))
    settings.cache_clear()
    known = cases.read()
    settings.cache_clear()
    assert known.origin == "appendix"
    assert [case.id for case in known.cases if case.category == "repetition"] == ["fig-26", "fig-32"]
    assert sum(len(case.exchanges) for case in known.cases) == 16
    assert len(known.cases) == 12
    assert known.of("sycophancy")["fig-23"].exchanges[0].score == 0.1


def test_queries_of_one_figure_are_one_case(appendix: Path) -> None:
    repetition = ROW | {"category": "repetition", "subtype": "response-diversity"}
    write(appendix, repetition | {"id": "fig-9/Query A"}, repetition | {"id": "fig-9/Query B", "question": "Q2?"}, ROW)
    known = cases.read()
    assert known.origin == "appendix"
    assert [(case.id, len(case.exchanges)) for case in known.cases] == [("fig-9", 2), ("fig-1", 1)]
    assert [exchange.question for exchange in known.cases[0].exchanges] == ["Q?", "Q2?"]
    assert known.cases[0].subtype == "repetition"


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"published_score": 1.5}, "a score from 0 to 1, found 1.5"),
        ({"published_score": None}, "a score from 0 to 1, found None"),
        ({"response": 3}, "expected text, found int"),
        ({"subtype": "other"}, "other"),
        ({"category": "sycophancy"}, "baiting isn't a subtype of sycophancy"),
        ({"memory": 5}, "not iterable"),
    ],
)
def test_a_damaged_case_is_a_line_with_its_place(appendix: Path, change: dict[str, Any], complaint: str) -> None:
    write(appendix, ROW, ROW | {"id": "fig-2"} | change)
    with pytest.raises(DataError) as caught:
        cases.read()
    message = str(caught.value)
    assert message.startswith(f"{appendix}: line 2: ")
    assert complaint in message
    assert "\n" not in message


@pytest.mark.parametrize("text", ["{", "[1]", "nonsense"])
def test_what_is_no_json_is_a_line(appendix: Path, text: str) -> None:
    appendix.write_text(text)
    with pytest.raises(DataError, match="line 1"):
        cases.read()
