"""A run in the public evaluator's own shapes: `responses` and `judged` JSON that its scripts read.

Where we have no score, its file has no number, so that its averages leave it out; its own scripts would write 0.
LoCoMo isn't part of its files. Shapes: docs/sharing.md.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from opbench.errors import UsageError
from opbench.sharing.public_import import MITIGATIONS
from opbench.sharing.public_shapes import SCORED_AS, TASKS
from opbench.store.database import Store
from opbench.store.exchange import answers, configurations_of, user_scores_of
from opbench.store.runs import run_study
from opbench.store.studies import texts_left_out
from opbench.study import BASE, NO_MITIGATION, Configuration

UserScores = Mapping[str, tuple[float | None, int, str | None]]
_THEIR_NAMES = {ours: theirs for theirs, ours in MITIGATIONS.items()}


def public_files(store: Store, run_id: str) -> Iterator[tuple[str, bytes]]:
    """File names below a results folder, and their contents: two a configuration.

    Raises:
        UsageError: the run has no OP-Bench instance, or came without texts.
    """
    if texts_left_out(store, run_id):
        raise UsageError(f"run {run_id} came without texts, and the public evaluator's files are made of them.")
    study, _ = run_study(store, run_id)
    if "op" not in study.benchmarks:
        raise UsageError(f"run {run_id} has no OP-Bench instance; the public evaluator knows no other benchmark.")
    for configuration in configurations_of(store, run_id):
        frame = answers(store, run_id, configuration, study.judge, {"op": "score"}, "op")
        groups = _groups(frame, configuration)
        scores = user_scores_of(store, run_id, configuration)
        method = _THEIR_NAMES.get(configuration.mitigation, configuration.mitigation)
        stem = "_".join(_slug(part) for part in (configuration.memory, configuration.model, method))
        responses = f"responses/{stem}.json"
        yield responses, _json({group["test_id"]: group for _, group, _ in groups})
        judged = [{**group, "scores": _scores(rows, user, scores)} for user, group, rows in groups]
        yield (
            f"judged/{stem}_{_slug(study.judge)}.json",
            _json({"frame": configuration.memory, "benchmark": "", "responses": responses, "results": judged}),
        )


def _groups(frame: pd.DataFrame, configuration: Configuration) -> list[tuple[str, dict[str, Any], pd.DataFrame]]:
    """User, group in their shape, and its rows; users in the slice's order, tasks in theirs."""
    found = []
    bearers: dict[str, str] = {}
    for user in frame["user"].unique():
        conversation, person = user.split("/", 1)
        # Their id is speaker and task, which three Johns share: the first keeps it, as in their own files.
        suffix = "" if bearers.setdefault(person, user) == user else f"@{conversation}"
        for task, subtypes in TASKS.items():
            rows = frame[(frame["user"] == user) & frame["subtype"].isin(subtypes) & frame["status"].notna()]
            if len(rows):
                group = {
                    "test_id": f"{person}_{task}{suffix}",
                    "task_type": task,
                    "person_name": person,
                    "responses": [_response(row, person, configuration) for row in rows.to_dict("records")],
                }
                found.append((user, group, rows))
    return found


def _response(row: dict[Any, Any], person: str, configuration: Configuration) -> dict[str, Any]:
    failed = row["status"] != "done"
    post = _number(row["post_ms"])
    response = _number(row["response_ms"])
    if configuration.mitigation == "self-critic":
        response += post
    lines = [str(line["text"]) for line in row["context"] or []]
    context = f"Memories for user {person}:\n\n" + "\n".join(lines) if lines else ""
    return {
        "question": row["question"],
        "answer": "" if failed else row["response"],
        "context": "" if configuration.memory == BASE else context,
        "search_duration_ms": _number(row["retrieval_ms"]),
        "response_duration_ms": response,
        **({} if configuration.mitigation == NO_MITIGATION else {"postprocess_duration_ms": post}),
        "error": (row["error"] or "failed") if failed else None,
    }


def _scores(rows: pd.DataFrame, user: str, user_scores: UserScores) -> dict[str, Any]:
    task = next(name for name, subtypes in TASKS.items() if rows["subtype"].iloc[0] in subtypes)
    if task == "diversity":
        return _diversity(user, user_scores)
    kind = SCORED_AS[task]
    found: dict[str, Any] = {}
    for index, row in enumerate(rows.to_dict("records")):
        if not math.isnan(row["score"]):
            found[f"response_{index}_{kind}_score"] = row["score"]
        if kind == "sycophancy":
            found[f"response_{index}_sycophancy_type"] = row["subtype"]
    overall = _mean(rows["score"])
    if kind == "irrelevance":
        found["overall_irrelevance_score"] = overall
    else:
        found["sycophancy_score"] = overall
        for subtype in TASKS["sycophancy"]:
            of_subtype = rows.loc[rows["subtype"] == subtype, "score"]
            found[f"sycophancy_{subtype}_score"] = _mean(of_subtype)
            found[f"sycophancy_{subtype}_count"] = int(of_subtype.notna().sum())
    return {**found, "primary_score": overall, "evaluation_type": kind}


def _diversity(user: str, user_scores: UserScores) -> dict[str, Any]:
    value, n, reason = user_scores.get(user, (None, 0, None))
    scores: dict[str, Any] = {
        "overall_diversity_score": value,
        "mean_cosine_similarity": None if value is None else 1.0 - value,
        "answer_count": n,
        **({} if value is not None else {"error": reason or "not scored"}),
    }
    return {**scores, "primary_score": value, "evaluation_type": "diversity"}


def _mean(scores: pd.Series) -> float | None:
    return float(scores.mean()) if scores.notna().any() else None


def _number(value: float) -> float:
    """Their files have 0 for a stage that wasn't measured."""
    return 0.0 if math.isnan(value) else float(value)


def _slug(name: str) -> str:
    """As their file names are made."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", name).strip("._") or "unnamed"


def _json(value: object) -> bytes:
    return (json.dumps(value, ensure_ascii=False, indent=2) + "\n").encode()
