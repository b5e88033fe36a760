"""A run of enough users for intervals, with controls: 12 users on OP-Bench, 6 of them on LoCoMo; scores by hand."""

from __future__ import annotations

from typing import Any

from opbench.store.database import Store
from opbench.store.writing import FinishedRecord, create_run, save_records, save_user_scores
from opbench.study import BASE, NO_MITIGATION, make_study
from opbench.types import OP_SUBTYPES, Instance, Score, User

WIDE = "wide0run"
RAG, RANDOM = "rag", "random"
#: OP-Bench and LoCoMo score of every instance by memory system and post-processor.
LEVELS = {
    (BASE, NO_MITIGATION): (0.9, 0.1),
    (RAG, NO_MITIGATION): (0.5, 0.6),
    (RAG, "reminder"): (0.7, 0.45),
    (RAG, "marag"): (0.5, 0.6),
    (RAG, "abstain"): (0.95, 0.0),
    (RANDOM, NO_MITIGATION): (0.6, 0.3),
    (RANDOM, "reminder"): (0.6, 0.3),
    (RANDOM, "marag"): (0.6, 0.3),
    (RANDOM, "abstain"): (0.95, 0.0),
}
#: What MARAG on RAG adds for every second conversation and takes for the others: nothing in the mean.
WOBBLE = 0.1


def users() -> list[User]:
    return [
        User(f"conv-{number}", name, other, name == "Ada")
        for number in range(6)
        for name, other in (("Ada", "Ben"), ("Ben", "Ada"))
    ]


def instances() -> list[Instance]:
    op = [
        Instance(f"op/{user.id}/{subtype}/{n}", "op", user, subtype, "A question?")
        for user in users()
        for subtype in OP_SUBTYPES
        for n in (1, 2)
    ]
    locomo = [
        Instance(f"locomo/{user.conversation}/{n}", "locomo", user, "single-hop", "A question?", "An answer.")
        for user in users()
        if user.first
        for n in (1, 2)
    ]
    return [*op, *locomo]


def score(key: tuple[str, str], benchmark: str, user: User) -> float:
    level = LEVELS[key][benchmark == "locomo"]
    if key == (RAG, "marag"):
        return level + (WOBBLE if int(user.conversation.removeprefix("conv-")) % 2 else -WOBBLE)
    return level


def write_wide(store: Store, run_id: str = WIDE) -> str:
    """Write the run: every record is done and scored. Post-processing takes 0.4 s, abstaining asks nobody."""
    study = make_study(
        {
            "models": ["smollm2-135m"],
            "memories": [BASE, RAG, RANDOM],
            "mitigations": ["none", "reminder", "marag", "abstain"],
        }
    )
    made = instances()
    provenance = {"comparable": False, "data_source": "made", "data": {"made": "0" * 64}, "git_commit": "0" * 40}
    ids = create_run(store, run_id, study, run_id, provenance, made)
    records, by_user = [], []
    for configuration, configuration_id in ids.items():
        key = configuration.memory, configuration.mitigation
        for instance in made:
            value = score(key, instance.benchmark, instance.user)
            scores = [Score("f1", value)] if instance.benchmark == "locomo" else [Score("score", value)]
            records.append(
                FinishedRecord(
                    configuration_id,
                    instance.id,
                    _values(*key),
                    judge="offline",
                    scores=[] if instance.subtype == "repetition" else scores,
                )
            )
        by_user += [
            {
                "configuration_id": configuration_id,
                "user_id": user.id,
                "metric": "repetition",
                "judge": "minilm",
                "value": score(key, "op", user),
                "n": 2,
                "reason": None,
            }
            for user in users()
        ]
    save_records(store, run_id, records)
    save_user_scores(store, by_user)
    return run_id


def _values(memory: str, mitigation: str) -> dict[str, Any]:
    asked = mitigation not in (NO_MITIGATION, "abstain")
    return {
        "status": "done",
        "response": "A reply.",
        "finish_reason": "stop",
        "retrieval_ms": 20.0 if memory != BASE else None,
        "post_ms": 400.0 if asked else None,
        "response_ms": 1000.0,
        "retrieval_reused": mitigation != NO_MITIGATION if memory != BASE else None,
        "post_reused": False if asked else None,
        "response_reused": False,
        "concurrency": 4,
        "response_prompt_tokens": 300,
        "response_completion_tokens": 60,
        "cost_usd": 0.003 if asked else 0.001,
        "finished_at": 2.0,
    }
