"""A run whose records are written, not made by a model: quick, and its numbers are known."""

from __future__ import annotations

from collections import Counter
from typing import Any

from opbench.benchmarks import load, select
from opbench.store.database import Store
from opbench.store.writing import FinishedRecord, create_run, save_records, save_user_scores
from opbench.study import BASE, NO_MITIGATION, Configuration, make_study
from opbench.types import Score

MADE = "made0run"
#: Score of every judged OP-Bench instance (and of repetition), and of every LoCoMo question, by configuration.
OP = {(BASE, NO_MITIGATION): 0.9, ("rag", NO_MITIGATION): 0.5, ("rag", "reminder"): 0.7, ("rag", "marag"): 0.4}
LOCOMO = {(BASE, NO_MITIGATION): 0.1, ("rag", NO_MITIGATION): 0.6, ("rag", "reminder"): 0.45, ("rag", "marag"): 0.6}
#: Nasty on purpose: it must reach the page as text.
FAULT = "<script>alert(1)</script> **bold** ![x](http://example.invalid/x.png) =1+1"


def write_run(store: Store, run_id: str = MADE, *, name: str = "", failed: int = 0, left: int = 0) -> str:
    """Write a run of base and rag with none, reminder and marag on 12 sample instances a benchmark.

    The first `failed` records of `rag · marag` are errors and its last `left` are not there.
    """
    study = make_study(
        {
            "name": name,
            "models": ["smollm2-135m"],
            "memories": ["base", "rag"],
            "mitigations": ["none", "reminder", "marag"],
            "limit": 12,
            "data": "sample",
        }
    )
    instances = select(load("sample"), ("op", "locomo"), limit=12)
    provenance = {"comparable": False, "data_source": "sample", "data": {"sample": "0" * 64}, "git_commit": "0" * 40}
    ids = create_run(store, run_id, study, run_id, provenance, instances)
    records = []
    for configuration, configuration_id in ids.items():
        key = configuration.memory, configuration.mitigation
        mine = instances[: len(instances) - left] if key == ("rag", "marag") else instances
        for number, instance in enumerate(mine):
            if key == ("rag", "marag") and number < failed:
                values: dict[str, Any] = {
                    "status": "error",
                    "error_kind": "timeout",
                    "error": FAULT,
                    "concurrency": 4,
                    "finished_at": 1.0,
                }
                records.append(FinishedRecord(configuration_id, instance.id, values))
                continue
            records.append(
                FinishedRecord(
                    configuration_id,
                    instance.id,
                    _values(configuration),
                    judge="offline",
                    scores=_scores(instance.benchmark, instance.subtype, key),
                )
            )
    save_records(store, run_id, records)
    users = Counter(instance.user.id for instance in instances if instance.subtype == "repetition")
    save_user_scores(
        store,
        [
            {
                "configuration_id": configuration_id,
                "user_id": user,
                "metric": "repetition",
                "judge": "minilm",
                "value": OP[configuration.memory, configuration.mitigation] if n > 1 else None,
                "n": n,
                "reason": None if n > 1 else "1 answered, two are needed for a similarity",
            }
            for configuration, configuration_id in ids.items()
            for user, n in users.items()
        ],
    )
    return run_id


def _values(configuration: Configuration) -> dict[str, Any]:
    remembers, processes = configuration.memory != BASE, configuration.mitigation != NO_MITIGATION
    return {
        "status": "done",
        "response": "A reply.",
        "finish_reason": "stop",
        "retrieval_ms": 20.0 if remembers else None,
        "post_ms": 400.0 if processes else None,
        "response_ms": 1000.0,
        "retrieval_reused": processes if remembers else None,
        "post_reused": False if processes else None,
        "response_reused": False,
        "concurrency": 4,
        "post_prompt_tokens": 200 if processes else None,
        "post_completion_tokens": 40 if processes else None,
        "response_prompt_tokens": 300,
        "response_completion_tokens": 60,
        "cost_usd": 0.0,
        "finished_at": 2.0,
    }


def _scores(benchmark: str, subtype: str, key: tuple[str, str]) -> list[Score]:
    if benchmark == "locomo":
        return [Score("f1", LOCOMO[key])]
    return [] if subtype == "repetition" else [Score("score", OP[key])]
