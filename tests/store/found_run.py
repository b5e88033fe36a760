"""A run of three instances and three configurations whose records are told by hand, for finding them."""

from __future__ import annotations

from typing import Any

from opbench.store.database import Store
from opbench.store.writing import CallRow, CallUse, FinishedRecord, create_run, save_records, save_user_scores
from opbench.study import Configuration, Study
from opbench.types import Instance, Score, User

RUN = "r1"
ANA, BO = User("c1", "Ana", "Bo", True), User("c1", "Bo", "Ana", False)
FACT, REPEAT, WHEN = "op/c1/Ana/fact/1", "op/c1/Bo/repetition/1", "locomo/c1/1"
INSTANCES = [
    Instance(FACT, "op", ANA, "fact", "Is water 100% dry?"),
    Instance(REPEAT, "op", BO, "repetition", "What shall I cook?"),
    Instance(WHEN, "locomo", ANA, "temporal", "When did it rain?", "9 May 2024"),
]
STUDY = Study(models=("m",), memories=("base", "rag"), mitigations=("none", "reminder"))
BASE, RAG, REMINDER = ("m", "base", "none"), ("m", "rag", "none"), ("m", "rag", "reminder")


def write(store: Store) -> dict[Configuration, int]:
    """BASE and rag · none answer all; rag · reminder fails on the fact and hasn't come to LoCoMo."""
    ids = create_run(store, RUN, STUDY, "hash", {"comparable": False}, INSTANCES)
    one = ids[Configuration(*REMINDER)]
    call = CallRow("k1", "chat", "m", {}, "It’s wet.", "stop", 10, 4, 0.5, 120.0, 2, 5.0)
    records = [
        answered(ids[Configuration(*BASE)], FACT, "It’s wet.", 0.9, finished_at=1.0),
        answered(ids[Configuration(*BASE)], REPEAT, "Soup, I think.", finished_at=2.0),
        answered(ids[Configuration(*BASE)], WHEN, "No idea.", 0.0, metric="f1", finished_at=3.0),
        answered(ids[Configuration(*RAG)], FACT, "DRY_as 50% ash, Élan.", 0.2, finished_at=4.0, retrieval_ms=30.0),
        answered(ids[Configuration(*RAG)], REPEAT, "Soup again.", finished_at=5.0),
        answered(ids[Configuration(*RAG)], WHEN, "In May.", None, metric="f1", finished_at=6.0),
        FinishedRecord(
            one,
            FACT,
            {"status": "error", "error_kind": "timeout", "error": "no answer in 60 s", "finished_at": 7.0},
        ),
        answered(one, REPEAT, "Rice.", state="kept", finished_at=8.0),
    ]
    records[0].calls, records[0].uses = [call], [CallUse("k1", "response", False)]
    records[3].uses = [CallUse("k1", "response", True)]
    save_records(store, RUN, records)
    row = {"configuration_id": one, "user_id": BO.id, "metric": "repetition", "judge": "minilm", "value": 0.4, "n": 3}
    save_user_scores(store, [row | {"reason": None}])
    return ids


def answered(
    configuration: int, instance: str, response: str, score: float | None = None, metric: str = "score", **more: Any
) -> FinishedRecord:
    values = {"status": "done", "response": response, "response_ms": 100.0, "finished_at": 1.0} | more
    scores = [Score(metric, score, None if score is not None else "no number", raw="raw")]
    return FinishedRecord(configuration, instance, values, judge="offline", scores=[] if instance == REPEAT else scores)
