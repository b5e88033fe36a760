"""A run of the bundled sample whose responses are told by hand, and reviews of it."""

from __future__ import annotations

from opbench.benchmarks import load
from opbench.review.answering import Answered, answer
from opbench.review.assigning import Choice, Task, next_task
from opbench.review.links import invite
from opbench.review.making import create
from opbench.review.spec import ReviewerRole, ReviewSpec, Said, Verdict
from opbench.store.database import Store
from opbench.store.writing import FinishedRecord, create_run, save_records
from opbench.study import Configuration, Study

RUN = "run-1"
STUDY = Study(models=("m",), memories=("base", "rag"), benchmarks=("op",), data="sample")
BASE, RAG = ("m", "base", "none"), ("m", "rag", "none")
SPEC = ReviewSpec(base=BASE, memory=RAG)


def write_run(store: Store, study: Study = STUDY, skip: tuple[str, ...] = ()) -> None:
    """Both configurations answer the whole sample, but for RAG those to skip."""
    corpus = load("sample")
    ids = create_run(store, RUN, study, "hash", {"data": corpus.sha256}, corpus.op)
    records = []
    for instance in corpus.op:
        plain = {"status": "done", "response": f"plain {instance.id}", "finished_at": 1.0}
        records.append(FinishedRecord(ids[Configuration(*BASE)], instance.id, plain))
        if instance.id in skip:
            continue
        found = [{"text": f"memory of {instance.user.id}", "date": "9 May 2024", "score": 0.5}]
        kept = [{"text": "a kept line", "date": "9 May 2024", "sources": [0]}]
        personal = {"response": f"personal {instance.id}", "retrieved": found, "context": kept}
        records.append(FinishedRecord(ids[Configuration(*RAG)], instance.id, plain | personal))
    save_records(store, RUN, records)


def make_review(store: Store, spec: ReviewSpec = SPEC, **fields: object) -> str:
    """A review of the run, which is written first; `fields` change the settings."""
    write_run(store)
    return create(store, RUN, spec.model_copy(update=fields), name="first look", maker="ed")


def people(store: Store, review_id: str, *names: str, role: ReviewerRole = "reviewer") -> list[str]:
    """Ids of new reviewers."""
    return [invite(store, review_id, name, role=role).reviewer.id for name in names]


def say(store: Store, who: str, verdict: Verdict = "memory", **more: object) -> tuple[Task, Answered]:
    """Take the next task and answer it."""
    task = next_task(store, who)
    assert task is not None, "nothing to do"
    said = Said.model_validate({"verdict": verdict, **more})
    return task, answer(store, who, task.item, task.press, said)


def press(store: Store, who: str, task: Task, choice: Choice = "a") -> Answered:
    return answer(store, who, task.item, task.press, task.saying(choice))
