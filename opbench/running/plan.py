"""What is left to do in a run, and in which order."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count

from sqlalchemy import exists, select

from opbench.running.jobs import Job
from opbench.store import schema as s
from opbench.store.database import Store
from opbench.study import Configuration
from opbench.types import Instance


@dataclass(frozen=True, slots=True)
class Plan:
    """A run's jobs: `planned` in all, of which `finished` are done for good; `failed` are tried again."""

    jobs: tuple[Job, ...]
    planned: int
    finished: int
    failed: int


def make_plan(
    store: Store, run_id: str, configuration_ids: dict[Configuration, int], instances: Sequence[Instance]
) -> Plan:
    """Compare the records with the plan: missing ones, errors and failed judge calls are to be done."""
    with store.begin() as connection:
        rows = connection.execute(
            select(
                s.records.c.id,
                s.records.c.configuration_id,
                s.records.c.instance_id,
                s.records.c.status,
                exists().where(s.scores.c.record_id == s.records.c.id, s.scores.c.retriable).label("unjudged"),
            ).where(s.records.c.run_id == run_id)
        ).all()
    known = {(row.configuration_id, row.instance_id): row for row in rows}
    jobs = []
    failed = 0
    for configuration, configuration_id, instance in _in_order(configuration_ids, instances):
        row = known.get((configuration_id, instance.id))
        if row is None:
            jobs.append(Job(configuration_id, configuration, instance))
        elif row.status == "error":
            failed += 1
            jobs.append(Job(configuration_id, configuration, instance))
        elif row.unjudged:
            failed += 1
            jobs.append(Job(configuration_id, configuration, instance, row.id))
    planned = len(configuration_ids) * len(instances)
    return Plan(tuple(jobs), planned, planned - len(jobs), failed)


def pilot(plan: Plan, instances: Sequence[Instance], records: int) -> Plan:
    """The plan with that many of its jobs only, spread over configurations and benchmarks as evenly as they go.

    Every configuration gets the same instances, those of the slice that are left by turns of their subtypes, so that
    what configurations share (a retrieval, a plain response) is shared in the pilot too.
    """
    met: Counter[str] = Counter()
    place: dict[str, tuple[int, int]] = {}
    for number, instance in enumerate(instances):
        place[instance.id] = met[instance.subtype], number
        met[instance.subtype] += 1
    benchmarks = list(dict.fromkeys(instance.benchmark for instance in instances))
    queues: dict[int, dict[str, deque[Job]]] = {}
    for job in sorted(plan.jobs, key=lambda job: place[job.instance.id]):
        of_configuration = queues.setdefault(job.configuration_id, {name: deque() for name in benchmarks})
        of_configuration[job.instance.benchmark].append(job)
    wanted = min(records, len(plan.jobs))
    chosen: set[tuple[int, str]] = set()
    for turn in count():
        if len(chosen) >= wanted:
            break
        # By turns, so that a pilot with fewer records than configurations × benchmarks meets all of either.
        for number, configuration_id in enumerate(sorted(queues)):
            queue = queues[configuration_id][benchmarks[(number + turn) % len(benchmarks)]]
            if queue and len(chosen) < wanted:
                job = queue.popleft()
                chosen.add((job.configuration_id, job.instance.id))
    jobs = tuple(job for job in plan.jobs if (job.configuration_id, job.instance.id) in chosen)
    return replace(plan, jobs=jobs)


def _in_order(
    configuration_ids: dict[Configuration, int], instances: Sequence[Instance]
) -> Iterator[tuple[Configuration, int, Instance]]:
    """By model, user and instance, the configurations innermost.

    So the post-processors of a memory system find the retrieval and the plain response made a moment ago, and one
    user's prompts follow each other, which a server with prefix caching rewards.
    """
    models = dict.fromkeys(configuration.model for configuration in configuration_ids)
    users: dict[str, list[Instance]] = {}
    for instance in instances:
        users.setdefault(instance.user.id, []).append(instance)
    for model in models:
        for group in users.values():
            for instance in group:
                for configuration, configuration_id in configuration_ids.items():
                    if configuration.model == model:
                        yield configuration, configuration_id, instance
