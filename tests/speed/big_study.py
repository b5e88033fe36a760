"""A study of the size that the dashboard has to bear: 40 configurations × 3,240 instances, 129,600 records.

Written by the store's own code. Counts of users and subtypes are the paper's; questions, responses and numbers are
made up from a fixed seed, with the lengths that real ones have.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from opbench.benchmarks.check import CONVERSATIONS, LOCOMO_COUNTS, OP_COUNTS
from opbench.judges.repetition import repetition_score
from opbench.store.database import Store
from opbench.store.writing import FinishedRecord, create_run, save_records, save_user_scores
from opbench.study import BASE, NO_MITIGATION, Configuration, Study
from opbench.types import Instance, Score, User

BIG = "big0study"
STUDY = Study(
    name="forty configurations",
    models=("gpt-4o-mini", "gemini-2.5-flash", "qwen3-32b", "qwen3-8b"),
    memories=(BASE, "rag", "mem0", "memu"),
    mitigations=(NO_MITIGATION, "reminder", "self-recheck"),
    judge="gpt-4o-mini",
    judge_pack="own",
)
PROVENANCE = {"comparable": False, "data_source": "made up", "data": {"made up": "0" * 64}, "git_commit": "0" * 40}
DIMENSIONS = 384  # of the embedded embedder
_BATCH = 2_000
_FAILED, _UNSCORED = 0.004, 0.003  # shares of records
_WORDS = (
    "the",
    "a",
    "of",
    "evening",
    "river",
    "paper",
    "garden",
    "quietly",
    "because",
    "which",
    "holds",
    "seven",
    "beside",
)


@dataclass(frozen=True, slots=True)
class Level:
    """How good a configuration is: mean scores, 0 to 1, and how far its repetition responses point apart."""

    op: float
    locomo: float
    spread: float


def instances() -> list[Instance]:
    """3,240 instances of 20 users: OP-Bench's 1,700 and LoCoMo's 1,540 without the adversarial ones."""
    users = [
        User(f"made-{number:02}", name, other, name == "Ada")
        for number in range(CONVERSATIONS)
        for name, other in (("Ada", "Ben"), ("Ben", "Ada"))
    ]
    words = random.Random(1)
    made = []
    for subtype, count in OP_COUNTS.items():
        for number in range(count):
            user = users[number % len(users)]
            name = f"op/{user.id}/{subtype}/{number // len(users) + 1}"
            made.append(Instance(name, "op", user, subtype, _text(words, 12)))
    firsts = [user for user in users if user.first]
    number = 0
    for subtype, count in LOCOMO_COUNTS.items():
        for _ in range(count if subtype != "adversarial" else 0):
            user = firsts[number % len(firsts)]
            name = f"locomo/{user.conversation}/{number // len(firsts) + 1}"
            made.append(Instance(name, "locomo", user, subtype, _text(words, 10), _text(words, 4)))
            number += 1
    return made


def write_big_study(store: Store, run_id: str = BIG, study: Study = STUDY, every: int = 1) -> str:
    """Write the study; `every` n-th instance only makes a smaller one of the same kind."""
    slice_ = instances()[::every]
    ids = create_run(store, run_id, study, run_id, PROVENANCE, slice_)
    write_records(store, run_id, ids, slice_, study)
    return run_id


def write_records(
    store: Store,
    run_id: str,
    ids: Mapping[Configuration, int],
    slice_: Sequence[Instance],
    study: Study,
    failed: float = _FAILED,
) -> None:
    """Write every record of a run that is there, with scores and embeddings; `failed` is the share of errors."""
    for number, (configuration, configuration_id) in enumerate(ids.items()):
        made = _Made(configuration, configuration_id, number, study, failed)
        batch: list[FinishedRecord] = []
        for record in made.records(slice_):
            batch.append(record)
            if len(batch) == _BATCH:
                save_records(store, run_id, batch)
                batch = []
        save_records(store, run_id, batch)
        save_user_scores(store, made.user_scores())


class _Made:
    """The records of one configuration, made up."""

    def __init__(
        self, configuration: Configuration, configuration_id: int, number: int, study: Study, failed: float
    ) -> None:
        self.configuration, self.id = configuration, configuration_id
        self.judge, self.embedder, self.failed = study.judge, study.embedder, failed
        self.random = random.Random(number)
        self.numbers = np.random.default_rng(number)
        self.remembers = configuration.memory != BASE
        self.processes = configuration.mitigation != NO_MITIGATION
        self.level = _level(configuration, number)
        self.vectors: dict[str, list[npt.NDArray[np.float32]]] = {}

    def records(self, slice_: Sequence[Instance]) -> Iterator[FinishedRecord]:
        towards: dict[str, npt.NDArray[np.float64]] = {}
        for instance in slice_:
            if self.random.random() < self.failed:
                values: dict[str, Any] = {
                    "status": "error",
                    "error_kind": self.random.choice(("timeout", "rate_limit")),
                    "error": "no answer in 120 s",
                    "concurrency": 32,
                    "finished_at": time.time(),
                }
                yield FinishedRecord(self.id, instance.id, values)
                continue
            record = FinishedRecord(self.id, instance.id, self._values(instance), judge=self.judge)
            record.scores = self._scores(instance)
            if instance.subtype == "repetition":
                user = instance.user.id
                if user not in towards:
                    towards[user] = self.numbers.normal(size=DIMENSIONS)
                vector = towards[user] + self.level.spread * self.numbers.normal(size=DIMENSIONS)
                unit = (vector / np.linalg.norm(vector)).astype(np.float32)
                record.embedding = (self.embedder, unit)
                self.vectors.setdefault(user, []).append(unit)
            yield record

    def user_scores(self) -> list[dict[str, Any]]:
        return [
            {
                "configuration_id": self.id,
                "user_id": user,
                "metric": "repetition",
                "judge": self.embedder,
                "value": repetition_score(np.stack(vectors)),
                "n": len(vectors),
                "reason": None if len(vectors) > 1 else "1 answered, two are needed for a similarity",
            }
            for user, vectors in self.vectors.items()
        ]

    def _values(self, instance: Instance) -> dict[str, Any]:
        words, draw = self.random, self.numbers
        memories = [
            {"text": _text(words, 30), "date": "8 May 2023", "score": round(words.random(), 4)} for _ in range(5)
        ]
        return {
            "status": "done",
            "response": _text(words, 45 if instance.benchmark == "locomo" else 170),
            "finish_reason": "stop",
            "retrieved": memories if self.remembers else None,
            "context": memories[: words.randint(0, 5)] if self.remembers else None,
            "state": words.choice(("kept", "kept", "nothing")) if self.processes else None,
            "retrieval_ms": float(draw.lognormal(3.5, 0.5)) if self.remembers else None,
            "post_ms": float(draw.lognormal(6.8, 0.6)) if self.processes else None,
            "response_ms": float(draw.lognormal(7.6, 0.5)),
            "retrieval_reused": self.processes if self.remembers else None,
            "post_reused": False if self.processes else None,
            "response_reused": words.random() < 0.1,
            "concurrency": 32,
            "post_prompt_tokens": words.randint(200, 400) if self.processes else None,
            "post_completion_tokens": words.randint(20, 90) if self.processes else None,
            "response_prompt_tokens": words.randint(80, 700),
            "response_completion_tokens": words.randint(10, 300),
            "cost_usd": words.random() / 1000,
            "finished_at": time.time(),
        }

    def _scores(self, instance: Instance) -> list[Score]:
        if instance.subtype == "repetition":
            return []
        words = self.random
        unread = words.random() < _UNSCORED
        if instance.benchmark == "op":
            value = min(1.0, max(0.0, round(words.gauss(self.level.op, 0.25), 1)))
            return [Score("score", None, "judge: no score in the reply") if unread else Score("score", value, raw=_RAW)]
        right = words.random() < self.level.locomo
        verdict = (
            Score("correct", None, "judge: no verdict in the reply")
            if unread
            else Score("correct", float(right), raw=_RAW)
        )
        overlap = words.uniform(0.4, 0.9) if right else words.uniform(0.0, 0.3)
        return [Score("f1", overlap), Score("bleu1", overlap * 0.8), Score("rougeL", overlap * 0.9), verdict]


_RAW = "The response answers what was asked and keeps to it. Score: see the first line. " * 3


def _level(configuration: Configuration, number: int) -> Level:
    if configuration.memory == BASE:
        return Level(0.92, 0.05, 1.6)
    helped = {NO_MITIGATION: 0.0, "reminder": 0.10, "self-recheck": 0.22}.get(configuration.mitigation, 0.15)
    return Level(0.45 + helped + 0.005 * (number % 7), 0.62 - 0.3 * helped, 0.9 + helped)


def _text(words: random.Random, count: int) -> str:
    return " ".join(words.choices(_WORDS, k=count))
