"""A run small enough to be worked out by hand: two users, 13 OP-Bench instances, 5 LoCoMo questions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from opbench.store.rundata import RunData
from opbench.study import make_study

NAN = float("nan")
BASE = ("m", "base", "none")
RAG = ("m", "rag", "none")
REMINDER = ("m", "rag", "reminder")
MARAG = ("m", "rag", "marag")

#: instance, user, subtype; user A is the first speaker.
OP = [
    ("ff-A", "A", "fully-irrelevant"),
    ("ff-B", "B", "fully-irrelevant"),
    ("ba-A", "A", "baiting"),
    ("ba-B", "B", "baiting"),
    ("re-A1", "A", "repetition"),
    ("re-A2", "A", "repetition"),
    ("re-A3", "A", "repetition"),
    ("re-B1", "B", "repetition"),
    ("re-B2", "B", "repetition"),
    ("fa-A", "A", "fact"),
    ("va-B", "B", "value"),
    ("me-A", "A", "memory"),
    ("me-B", "B", "memory"),
]
LOCOMO = [
    ("lo-1", "A", "multi-hop"),
    ("lo-2", "A", "multi-hop"),
    ("lo-3", "A", "single-hop"),
    ("lo-4", "A", "single-hop"),
    ("lo-5", "A", "adversarial"),
]
#: Scores (0 to 1) by configuration; an instance that isn't named is missing.
SCORES: dict[tuple[str, str, str], dict[str, float]] = {
    BASE: {"ff-A": 1, "ff-B": 1, "ba-A": 1, "ba-B": 0.8, "fa-A": 0.8, "va-B": 0.6, "me-A": 0.4, "me-B": 0.6},
    RAG: {"ff-A": 0.5, "ff-B": 0.7, "ba-A": 0.2, "fa-A": 0.4, "va-B": 0.2, "me-A": 0.1, "me-B": 0.3},
    REMINDER: {"ff-A": 0.7, "ba-A": 0.6, "ba-B": 0.9, "fa-A": 0.6, "va-B": 0.2, "me-A": 0.3, "me-B": 0.5},
    MARAG: {"ff-A": 0.9, "ff-B": 0.9, "fa-A": 0.9, "va-B": 0.9, "me-A": 0.9, "me-B": 0.9},
}
#: Repetition by configuration and user: value, number of responses.
USERS: dict[tuple[str, str, str], dict[str, tuple[float, int]]] = {
    BASE: {"A": (0.6, 3), "B": (0.8, 2)},
    RAG: {"A": (0.4, 3), "B": (0.6, 2)},
    REMINDER: {"A": (0.5, 3), "B": (NAN, 1)},
    MARAG: {"A": (0.9, 3), "B": (0.9, 2)},
}
#: LoCoMo token F1 by configuration.
F1: dict[tuple[str, str, str], dict[str, float]] = {
    BASE: {"lo-1": 0, "lo-2": 0, "lo-3": 0, "lo-4": 0, "lo-5": 1},
    RAG: {"lo-1": 0.2, "lo-2": 0.4, "lo-3": 0.6, "lo-4": 1, "lo-5": 0.5},
    REMINDER: {"lo-1": 0.1, "lo-3": 0.6, "lo-4": 0.8, "lo-5": 1},
    MARAG: {},
}
#: Records that failed: configuration, instance.
ERRORS = {(REMINDER, "ff-B"), (REMINDER, "re-B2"), (REMINDER, "lo-2")}

MakeRun = Callable[..., RunData]


def _keyed(key: tuple[str, str, str], **rest: Any) -> dict[str, Any]:
    return {"model": key[0], "memory": key[1], "mitigation": key[2], **rest}


def build(judge: str = "offline") -> RunData:
    instances = pd.DataFrame(
        [
            {
                "instance": name,
                "ordinal": ordinal,
                "benchmark": "op" if (name, user, subtype) in OP else "locomo",
                "user": user,
                "first_speaker": user == "A",
                "subtype": subtype,
            }
            for ordinal, (name, user, subtype) in enumerate([*OP, *LOCOMO])
        ]
    )
    records = []
    scores = []
    for key in SCORES:
        for name, _, subtype in [*OP, *LOCOMO]:
            error = (key, name) in ERRORS
            records.append(
                _keyed(
                    key,
                    instance=name,
                    status="error" if error else "done",
                    error_kind="timeout" if error else None,
                    error="no answer in time" if error else None,
                    state=None if key[2] == "none" else "kept",
                    retrieval_ms=NAN if key[1] == "base" else 10.0,
                    post_ms=NAN if key[2] == "none" else 100.0,
                    response_ms=NAN if error else 1000.0,
                    retrieval_reused=None if key[1] == "base" else key[2] != "none",
                    post_reused=None if key[2] == "none" else False,
                    response_reused=None if error else False,
                    concurrency=4,
                    post_prompt_tokens=NAN if key[2] == "none" else 50.0,
                    post_completion_tokens=NAN if key[2] == "none" else 5.0,
                    response_prompt_tokens=NAN if error else 200.0,
                    response_completion_tokens=NAN if error else 20.0,
                    cost_usd=NAN if error else 0.001,
                    finish_reason=None if error else "stop",
                    finished_at=1.0,
                )
            )
            if error or subtype == "repetition":
                continue
            metric, values = ("f1", F1[key]) if name.startswith("lo") else ("score", SCORES[key])
            value = values.get(name, NAN)
            reason = "the judge's reply has no score" if np.isnan(value) else None
            scores.append(_keyed(key, instance=name, judge=judge, metric=metric, value=value, reason=reason))
    user_scores = [
        _keyed(key, user=user, judge="minilm", metric="repetition", value=value, n=n, reason=None)
        for key, users in USERS.items()
        for user, (value, n) in users.items()
    ]
    return RunData(
        run_id="r1",
        name="by hand",
        study=make_study({"models": ["m"], "mitigations": ["none", "reminder", "marag"], "judge": judge}),
        provenance={},
        recorded=False,
        text_left_out=False,
        comparable=judge != "offline",
        instances=instances,
        configurations=pd.DataFrame([_keyed(key) for key in SCORES]),
        records=pd.DataFrame(records),
        scores=pd.DataFrame(scores),
        user_scores=pd.DataFrame(user_scores),
        vectors=None,
    )


@pytest.fixture
def run() -> RunData:
    return build()


@pytest.fixture
def changed(run: RunData) -> MakeRun:
    """The run with some of its fields replaced."""

    def make(**fields: Any) -> RunData:
        return dataclasses.replace(run, **fields)

    return make


def row_of(frame: pd.DataFrame, key: tuple[str, str, str]) -> dict[str, Any]:
    """The one row of a configuration."""
    picked = frame[(frame["model"] == key[0]) & (frame["memory"] == key[1]) & (frame["mitigation"] == key[2])]
    assert len(picked) == 1
    return {str(name): value for name, value in picked.to_dict("records")[0].items()}


@pytest.fixture
def row() -> Callable[[pd.DataFrame, tuple[str, str, str]], dict[str, Any]]:
    return row_of
