"""The offline judge against the published cases: docs/offline-judge.md says what is measured, whatever it is."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from opbench.errors import DataError
from opbench.judges.base import Evidence
from opbench.judges.calibration import calibrate, neutral_control
from opbench.types import Profile, User

DOC = (Path(__file__).parents[2] / "docs" / "offline-judge.md").read_text("utf-8")


def documented(measure: str) -> str:
    (value,) = re.findall(rf"^\| {re.escape(measure)} \| (.+?) \|$", DOC, re.MULTILINE)
    return str(value)


@pytest.fixture(scope="module")
def cases_file(real_data: Path) -> Path:
    return real_data / "published" / "appendix_cases.jsonl"


def test_documented_agreement_is_the_measured_one(cases_file: Path) -> None:
    found = calibrate(cases_file)
    assert found.left_out == 6
    assert documented("responses compared") == str(found.agreement.n) == "10"
    assert documented("Spearman's ρ") == f"{found.agreement.spearman:.3f}"
    assert documented("Pearson's r") == f"{found.agreement.pearson:.3f}"
    assert documented("mean absolute error") == f"{found.agreement.mean_absolute_error:.3f}"
    assert documented("Spearman's ρ, both together") == f"{found.pooled.spearman:.3f}"
    assert documented("Pearson's r, both together") == f"{found.pooled.pearson:.3f}"
    assert documented("mean absolute error, both together") == f"{found.pooled.mean_absolute_error:.3f}"
    assert documented("cases in which the good answer scores above the response") == f"{found.separated} of 10"


def test_documented_cases_are_the_measured_ones(cases_file: Path) -> None:
    found = calibrate(cases_file)
    rows = re.findall(r"^\| (fig-\d+) \| (\S+) \| (\S+) \| (\S+) \| (\S+) \|$", DOC, re.MULTILINE)
    assert rows == [
        (case.id, case.subtype, f"{case.published:.2f}", f"{case.score:.2f}", f"{good.score:.2f}")
        for case, good in zip(found.responses, found.references, strict=True)
    ]


def test_documented_chance_overlap_is_the_measured_one(real_data: Path, cases_file: Path) -> None:
    conversations = json.loads((real_data / "opbench" / "locomo10_overpersonalized.json").read_text("utf-8"))
    profiles = [
        Profile(User(str(n), name, "", False), (), person["profile"], tuple(person["observation"]))
        for n, conversation in enumerate(conversations)
        for name, person in conversation.items()
    ]
    scores = neutral_control(cases_file, profiles)
    words = " ".join(DOC.split())
    assert f"({len(scores)} scores, all of which should be 1)" in words
    assert f"score {sum(scores) / len(scores):.3f} on average and {min(scores):.3f} at worst" in words


def write(tmp_path: Path, *cases: dict[str, object] | str) -> Path:
    file = tmp_path / "cases.jsonl"
    file.write_text("\n".join(case if isinstance(case, str) else json.dumps(case) for case in cases), "utf-8")
    return file


def case(number: int, published: float, **more: object) -> dict[str, object]:
    base = {"id": f"c{number}", "persona": "Rosa", "subtype": "fact", "question": "?", "memory": [], "response": "r"}
    return base | {"published_score": published} | more


def test_agreement_by_hand(tmp_path: Path) -> None:
    file = write(tmp_path, case(1, 0.1), case(2, 0.2), case(3, 0.6), case(4, 0.9, subtype="response-diversity"))
    ours = iter([0.2, 0.4, 0.3])
    found = calibrate(file, lambda evidence: next(ours))
    assert found.left_out == 1
    assert found.agreement.n == 3
    assert found.agreement.spearman == pytest.approx(0.5)  # ranks 1 2 3 against 1 3 2
    assert found.agreement.mean_absolute_error == pytest.approx((0.1 + 0.2 + 0.3) / 3)
    assert found.references == ()


def test_missing_scores_and_constant_sides_are_not_made_up(tmp_path: Path) -> None:
    def judge(evidence: Evidence) -> float | None:
        return None if evidence.response == "odd" else 0.5

    found = calibrate(write(tmp_path, case(1, 0.1), case(2, 0.2), case(3, 0.3, response="odd")), judge)
    assert found.agreement.n == 2
    assert found.agreement.spearman is None
    assert found.agreement.pearson is None
    assert [c.score for c in found.responses] == [0.5, 0.5, None]


@pytest.mark.parametrize(
    ("line", "message"),
    [("{", r"cases.jsonl: line 2 is no JSON"), ('{"id": "x"}', r"line 2 has no key 'persona'"), ("[]", "no key 'id'")],
)
def test_damaged_file_is_named_with_its_line(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        calibrate(write(tmp_path, case(1, 0.1), line))


def test_absent_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.jsonl: can't be read \(No such file or directory\): set OPBENCH_DATA"):
        calibrate(tmp_path / "none.jsonl")
