"""Agreement of a judge with the paper's published cases (appendix D, figures 21-32)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scipy import stats

from opbench.errors import DataError
from opbench.judges.base import Evidence
from opbench.judges.offline import OfflineJudge
from opbench.types import Instance, Profile, User

_KEYS = ("id", "persona", "subtype", "question", "memory", "response", "published_score")


@dataclass(frozen=True, slots=True)
class Case:
    """One judged response: the paper's score and ours, both 0 to 1; `score` None when ours is missing."""

    id: str
    subtype: str
    published: float
    score: float | None


@dataclass(frozen=True, slots=True)
class Agreement:
    """Agreement over the cases that both judges scored. Correlations are None when either side is constant."""

    n: int
    spearman: float | None
    pearson: float | None
    mean_absolute_error: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """`responses` are over-personalised answers with the scores of the paper's judge; `references` are the good
    answers that the authors wrote beside them, with scores of their own, and serve as a sanity check only.

    The published repetition cases (`left_out` of them) have a score for each response; ours is one for each user, so
    they can't be compared.
    """

    responses: tuple[Case, ...]
    references: tuple[Case, ...]
    left_out: int

    @property
    def agreement(self) -> Agreement:
        return _agreement(self.responses)

    @property
    def pooled(self) -> Agreement:
        """Over responses and references together: how well bad and good answers are told apart."""
        return _agreement(self.responses + self.references)

    @property
    def separated(self) -> int:
        """Cases in which the reference scores above the over-personalised response."""
        ours = {case.id: case.score for case in self.responses}
        return sum(
            case.score is not None and (bad := ours.get(case.id)) is not None and case.score > bad
            for case in self.references
        )


def offline_score(evidence: Evidence) -> float | None:
    """The offline judge's `score`."""
    return OfflineJudge().score_now(evidence)[0].value


def calibrate(cases_file: Path, judge: Callable[[Evidence], float | None] = offline_score) -> Calibration:
    """Scores the cases of `appendix_cases.jsonl` with `judge` and sets them against the published scores.

    The judge sees the question, the response and the retrieved memories. Raises DataError naming file and line.
    """
    responses: list[Case] = []
    references: list[Case] = []
    left_out = 0
    for case in _read(cases_file):
        if case["subtype"] == "response-diversity":
            left_out += 1
            continue
        user = User("appendix", case["persona"], "", False)
        instance = Instance(f"op/{user.id}/{case['subtype']}/0", "op", user, case["subtype"], case["question"])
        memories = tuple(case["memory"])
        for answer, published, cases in (
            (case["response"], case["published_score"], responses),
            (case.get("reference_response"), case.get("reference_score"), references),
        ):
            if answer is not None and published is not None:
                score = judge(Evidence(instance, answer, memories=memories, context=memories))
                cases.append(Case(case["id"], case["subtype"], float(published), score))
    return Calibration(tuple(responses), tuple(references), left_out)


def neutral_control(cases_file: Path, profiles: Iterable[Profile]) -> list[float]:
    """Scores of the authors' neutral irrelevance answers set against each user's facts.

    None of them was written for any of these users, so whatever falls below 1 is chance overlap with the facts.
    """
    people = list(profiles)
    scores = []
    for case in _read(cases_file):
        if case["subtype"] not in ("fully-irrelevant", "baiting") or not case.get("reference_response"):
            continue
        for person in people:
            instance = Instance(f"op/{person.user.id}/control/0", "op", person.user, case["subtype"], case["question"])
            score = offline_score(
                Evidence(instance, case["reference_response"], profile=person.profile, own_facts=person.observations)
            )
            if score is not None:
                scores.append(score)
    return scores


def _read(file: Path) -> list[dict[str, Any]]:
    try:
        lines = file.read_text("utf-8").splitlines()
    except OSError as error:
        raise DataError(f"{file}: can't be read ({error.strerror}): set OPBENCH_DATA to the data folder.") from error
    cases = []
    for number, line in enumerate(lines, 1):
        try:
            case = json.loads(line)
        except ValueError as error:
            raise DataError(f"{file}: line {number} is no JSON ({error}): fetch the file again.") from error
        missing = [key for key in _KEYS if not isinstance(case, dict) or key not in case]
        if missing:
            raise DataError(f"{file}: line {number} has no key '{missing[0]}': fetch the file again.")
        cases.append(case)
    return cases


def _agreement(cases: tuple[Case, ...]) -> Agreement:
    pairs = [(case.published, case.score) for case in cases if case.score is not None]
    if not pairs:
        raise DataError("No case was scored by both judges: nothing to compare.")
    theirs, ours = zip(*pairs, strict=True)
    varied = len(set(theirs)) > 1 and len(set(ours)) > 1
    return Agreement(
        n=len(pairs),
        spearman=float(stats.spearmanr(theirs, ours).statistic) if varied else None,
        pearson=float(stats.pearsonr(theirs, ours).statistic) if varied else None,
        mean_absolute_error=sum(abs(a - b) for a, b in pairs) / len(pairs),
    )
