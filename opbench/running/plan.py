"""What is left to do in a run, and in which order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy import exists, select

from opbench.store import schema as s
from opbench.store.database import Store
from opbench.study import Configuration
from opbench.types import Instance


@dataclass(frozen=True, slots=True)
class Job:
    """One instance for one configuration; with `record_id` only its judge is asked again."""

    configuration_id: int
    configuration: Configuration
    instance: Instance
    record_id: int | None = None


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
