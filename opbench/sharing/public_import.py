"""The public evaluator's results as a recorded run: speakers become users, and a failed judgement's 0 isn't a score."""

from __future__ import annotations

import hashlib
import json
import time
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

from opbench.benchmarks import load
from opbench.errors import DataError, ModelErrorKind, UsageError
from opbench.sharing.public_shapes import TASKS, Answer, Group, PublicFile, parse_public
from opbench.store.database import Store
from opbench.store.exchange import save_recorded
from opbench.study import BASE, NO_MITIGATION, Configuration, make_study
from opbench.types import Corpus, Instance

SOURCE = "public evaluator"
JUDGE_NOT_TOLD = "public-evaluator"
PAPER_JUDGE = "gpt-4o-mini"
EMBEDDER = "text-embedding-3-small"
"""The evaluator's own setting; its files don't name it."""
ZERO = "0 may mean that the judge failed: the public evaluator writes 0 for both"
#: The evaluator's names for post-processors, and ours.
MITIGATIONS = {
    "self_recheck": "self-recheck",
    "self_critic": "self-critic",
    "few_shot_chain_of_thought": "few-shot-cot",
}


@dataclass(frozen=True, slots=True)
class PublicPart:
    """One file of one configuration; `label` names the file in messages."""

    content: bytes
    label: str
    configuration: Configuration


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import made: the run, and what of it is worth saying, a sentence each."""

    run_id: str
    notes: tuple[str, ...]


def configuration(model: str, memory: str, mitigation: str) -> Configuration:
    """What the evaluator's files don't tell, as people give it; its own names of post-processors are known.

    Raises:
        UsageError: a name is missing.
    """
    named = {"model": model.strip(), "memory": memory.strip().lower(), "mitigation": mitigation.strip().lower()}
    for flag, name in named.items():
        if not name:
            raise UsageError(f"the public evaluator's files don't name the {flag}: give it with --{flag}.")
    return Configuration(named["model"], named["memory"], MITIGATIONS.get(named["mitigation"], named["mitigation"]))


def import_public(
    store: Store, parts: Sequence[PublicPart], *, judge: str = "", name: str = "", corpus: Corpus | None = None
) -> Imported:
    """Write the files, one a configuration, as one recorded run; the same files again give the same run.

    `judge` is the model that judged, which the files don't name. `corpus` None reads the benchmark data that is here:
    instances are found by speaker, task and question.

    Raises:
        DataError: a file of another shape, or that doesn't fit the benchmark data; one line with file and place.
        UsageError: two files of one configuration, or a configuration that can't be.
    """
    corpus = corpus or load()
    judge = judge.strip() or JUDGE_NOT_TOLD
    results: dict[Configuration, tuple[list[dict[str, Any]], list[dict[str, Any]]]] = {}
    planned: dict[str, Instance] = {}
    told: list[dict[str, Any]] = []
    zeros = failed = 0
    for part in parts:
        if part.configuration.memory == BASE and part.configuration.mitigation != NO_MITIGATION:
            raise UsageError(f"{part.label}: BASE has no memories to post-process. Name the memory system.")
        if part.configuration in results:
            raise UsageError(f"{part.label}: {part.configuration.label} was given twice. Give each file its own.")
        file = parse_public(part.content, part.label)
        if not file.groups:
            raise DataError(f"{part.label}: holds no result.")
        reader = _Reader(part, file, corpus, judge)
        results[part.configuration] = reader.read()
        planned |= reader.planned
        zeros += reader.zeros
        failed += reader.failed
        told.append(
            {
                "file": part.label.replace("\\", "/").rsplit("/", 1)[-1][:120],
                "sha256": hashlib.sha256(part.content).hexdigest(),
                "shape": file.kind,
                "frame": file.frame,
                "configuration": part.configuration.label,
                "failed": reader.failed,
                "zeros": reader.zeros,
            }
        )
    instances = [instance for instance in corpus.op if instance.id in planned]
    study = make_study(
        {
            "name": " ".join(name.split()) or f"{SOURCE}: {', '.join(dict.fromkeys(c.model for c in results))}",
            "models": [c.model for c in results],
            "memories": [c.memory for c in results],
            "mitigations": [c.mitigation for c in results],
            "benchmarks": ["op"],
            "users": list(dict.fromkeys(instance.user.id for instance in instances)),
            "judge": judge,
            "embedder": EMBEDDER,
        },
        where=parts[0].label,
    )
    notes = [f"{zeros:,} scores of 0 may mean that the judge failed"] if zeros else []
    provenance: dict[str, Any] = {
        "source": SOURCE,
        "comparable": judge == PAPER_JUDGE,
        "data": corpus.sha256,
        "data_source": corpus.source,
        "files": told,
        "told_at_import": ["model", "memory", "mitigation", *(["judge"] if judge != JUDGE_NOT_TOLD else [])],
        "marks": [SOURCE, *notes],
    }
    contents = sorted((str(each["configuration"]), str(each["sha256"])) for each in told)
    decisive = {"files": contents, "study": study.identity()}
    digest = hashlib.sha256(json.dumps(decisive, sort_keys=True, ensure_ascii=False).encode()).hexdigest()
    run_id = f"rec-pub-{digest[:12]}"
    save_recorded(store, run_id, study, digest, provenance, instances, results)
    said = [*notes, *([f"{failed:,} questions have no answer: they failed there"] if failed else [])]
    return Imported(run_id, tuple(said))


class _Reader:
    """One file against the benchmark: which instance every answer belongs to, and what its numbers are worth."""

    def __init__(self, part: PublicPart, file: PublicFile, corpus: Corpus, judge: str) -> None:
        self._part = part
        self._file = file
        self._judge = judge
        self._corpus = corpus
        self._of: dict[tuple[str, str], list[Instance]] = defaultdict(list)
        tasks = {subtype: task for task, subtypes in TASKS.items() for subtype in subtypes}
        for instance in corpus.op:
            self._of[instance.user.id, tasks[instance.subtype]].append(instance)
        self.planned: dict[str, Instance] = {}
        self.zeros = 0
        self.failed = 0

    def read(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        records: list[dict[str, Any]] = []
        users: list[dict[str, Any]] = []
        for group in self._file.groups:
            instances = self._instances(group)
            self.planned |= {instance.id: instance for instance in instances}
            answered = 0
            for answer, instance in zip(group.answers, instances, strict=True):
                record = self._record(group, answer, instance)
                answered += record["status"] == "done" and not answer.error
                records.append(record)
            if group.task == "diversity" and self._file.judged and instances:
                users.append(self._user_score(group, instances[0].user.id, answered))
        return records, users

    def _instances(self, group: Group) -> list[Instance]:
        """The group's instances: of the user with that name, and these questions, who isn't taken yet."""
        named = [user for user in self._corpus.users.values() if user.speaker == group.person]
        if not named:
            where = "the bundled sample" if self._corpus.source == "sample" else "the benchmark data"
            raise group.node.key("person_name" if "person_name" in group.node.entries() else "test_case").error(
                f"no speaker of that name in {where}"
            )
        furthest = 0
        for user in named:
            left: dict[str, deque[Instance]] = defaultdict(deque)
            for instance in self._of[user.id, group.task]:
                if instance.id not in self.planned:
                    left[instance.question.strip()].append(instance)
            found = []
            for answer in group.answers:
                if not left[answer.question.strip()]:
                    break
                found.append(left[answer.question.strip()].popleft())
            if len(found) == len(group.answers):
                return found
            furthest = max(furthest, len(found))
        raise group.answers[furthest].node.error(
            f"isn't a question to {group.person} in {group.task}, or was there before: another version of the benchmark"
        )

    def _record(self, group: Group, answer: Answer, instance: Instance) -> dict[str, Any]:
        of = self._part.configuration
        processed = of.mitigation != NO_MITIGATION
        remembers = of.memory != BASE
        failed = not answer.answer.strip()
        self.failed += failed
        response_ms = answer.response_ms
        if of.mitigation == "self-critic" and response_ms is not None and answer.post_ms is not None:
            # The evaluator counts the critique in both stages.
            response_ms = max(0.0, response_ms - answer.post_ms)
        context = _lines(answer.context, group.person) if remembers and not failed else None
        return {
            "instance_id": instance.id,
            "status": "error" if failed else "done",
            "error_kind": _kind(answer.error) if failed else None,
            "error": (answer.error or "no answer") if failed else None,
            "response": None if failed else answer.answer,
            "retrieved": context if not processed else None,
            "context": context,
            "state": "failed" if processed and answer.error and not failed else None,
            "state_reason": answer.error if processed and not failed else None,
            "retrieval_ms": answer.search_ms if remembers else None,
            "post_ms": answer.post_ms if processed else None,
            "response_ms": None if failed else response_ms,
            "finished_at": time.time(),
            "score": None if failed or group.task == "diversity" else self._score(answer),
        }

    def _score(self, answer: Answer) -> dict[str, Any]:
        reason = None
        if answer.score == 0.0:
            self.zeros += 1
            reason = ZERO
        elif answer.score is None:
            reason = "not judged" if not self._file.judged else "no score in the file"
        return {
            "judge": self._judge,
            "metric": "score",
            "value": answer.score,
            "reason": reason,
            "raw": None,
            "retriable": False,
        }

    def _user_score(self, group: Group, user_id: str, answered: int) -> dict[str, Any]:
        n = answered if group.overall_n is None else group.overall_n
        value, reason = group.overall, group.failure
        if value is None and reason is None:
            reason = "no score in the file"
        if reason is not None or n < 2:
            # The evaluator writes 0 for what it couldn't compute, with the reason beside it.
            value, reason = None, reason or f"{n} answered, two are needed for a similarity"
        return {
            "user_id": user_id,
            "metric": "repetition",
            "judge": EMBEDDER,
            "value": value,
            "n": n,
            "reason": reason,
        }


def _lines(context: str, person: str) -> list[dict[str, Any]]:
    """The context as lines, without the heading that the evaluator puts over them."""
    lines = [line for line in context.splitlines() if line.strip()]
    if lines and lines[0].strip() == f"Memories for user {person}:":
        lines = lines[1:]
    return [{"text": line, "date": None, "sources": []} for line in lines]


def _kind(error: str | None) -> str:
    """Our word for the kind of a failure, where its text begins with it."""
    first = (error or "").partition(":")[0].strip()
    return first if first in get_args(ModelErrorKind) else "empty" if not error else "other"
