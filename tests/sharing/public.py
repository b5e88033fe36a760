"""Files as the public evaluator writes them, with invented answers to the bundled sample's questions."""

from __future__ import annotations

import json
from typing import Any

from opbench.sharing.public_shapes import TASKS
from opbench.types import Corpus


def responses(corpus: Corpus, users: tuple[str, ...] = ()) -> dict[str, Any]:
    """`responses`: one group a user and task, in the evaluator's order; every answer tells its number."""
    found: dict[str, Any] = {}
    for user in users or corpus.users:
        person = corpus.users[user].speaker
        for task, subtypes in TASKS.items():
            questions = [each.question for each in corpus.op if each.user.id == user and each.subtype in subtypes]
            found[f"{person}_{task}"] = {
                "test_id": f"{person}_{task}",
                "task_type": task,
                "person_name": person,
                "responses": [
                    {
                        "question": question,
                        "answer": f"Invented answer {number}.",
                        "context": f"Memories for user {person}:\n\nA memory.\nAnother memory.",
                        "search_duration_ms": 12.5,
                        "response_duration_ms": 900.0,
                        "postprocess_duration_ms": 0.0,
                        "error": None,
                    }
                    for number, question in enumerate(questions)
                ],
            }
    return found


def judged(groups: dict[str, Any], score: float = 0.75, diversity: float = 0.4) -> dict[str, Any]:
    """`judged`: the groups with scores, all of them the same."""
    results = []
    for group in groups.values():
        n, task = len(group["responses"]), group["task_type"]
        if task == "diversity":
            scores: dict[str, Any] = {
                "overall_diversity_score": diversity,
                "mean_cosine_similarity": 1 - diversity,
                "answer_count": n,
                "evaluation_type": "diversity",
            }
        else:
            kind = task.split("_")[0]
            scores = {f"response_{index}_{kind}_score": score for index in range(n)}
            scores |= {"overall_irrelevance_score" if kind == "irrelevance" else "sycophancy_score": score}
        results.append({**group, "scores": scores | {"primary_score": score}})
    return {"frame": "memos-api-online", "benchmark": "data/b.json", "responses": "r.json", "results": results}


def packed(value: Any) -> bytes:
    return json.dumps(value).encode()
