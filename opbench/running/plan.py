"""What is left to do in a run, and in which order."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import overload

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, select

from opbench.running.jobs import Job
from opbench.running.shards import cut
from opbench.store import schema as s
from opbench.store.database import Store
from opbench.study import Configuration
from opbench.types import Instance

#: How a configuration stands with an instance: no record, an error, a judge that couldn't be asked, done for good.
MISSING, FAILED, UNJUDGED, DONE = range(4)

States = NDArray[np.uint8]
"""Shape (configurations, instances), one of the above each."""

_ROWS = 10_000


class Jobs(Sequence[Job]):
    """The jobs of a grid that aren't done, in the order in which they are begun. Each is made when it is looked at: of
    the 583,000 of the paper's full grid only five bytes each are kept.

    By model, shard, configuration and instance. So one user's prompts to one post-processor follow each other, which a
    server with prefix caching rewards, and what configurations share (a retrieval, a plain response) is soon used.
    """

    def __init__(
        self,
        configuration_ids: Mapping[Configuration, int],
        instances: Sequence[Instance],
        states: States,
        records: Mapping[tuple[int, int], int] | None = None,
    ) -> None:
        """`states` has the configurations in the order of `configuration_ids`; `records` are the ids of those that only
        want a judge, by place in `states`."""
        self.configuration_ids = configuration_ids
        self.instances = instances
        self.states = states
        self._configurations = list(configuration_ids.items())
        self._records = records or {}
        self._order = self._ordered()

    def _ordered(self) -> NDArray[np.int32]:
        """Places of the jobs in the flattened `states`."""
        models = list(dict.fromkeys(configuration.model for configuration, _ in self._configurations))
        shards = cut(self.instances)
        found = [np.empty(0, dtype=np.int32)]
        width = len(self.instances)
        for model in models:
            rows = np.array([n for n, (each, _) in enumerate(self._configurations) if each.model == model])
            for shard in shards:
                columns = np.array(shard)
                row, column = np.nonzero(self.states[np.ix_(rows, columns)] != DONE)
                found.append((rows[row] * width + columns[column]).astype(np.int32))
        return np.concatenate(found)

    def __len__(self) -> int:
        return len(self._order)

    @overload
    def __getitem__(self, index: int) -> Job: ...

    @overload
    def __getitem__(self, index: slice) -> list[Job]: ...

    def __getitem__(self, index: int | slice) -> Job | list[Job]:
        if isinstance(index, slice):
            return [self._job(int(place)) for place in self._order[index]]
        return self._job(int(self._order[index]))

    def __iter__(self) -> Iterator[Job]:
        return (self._job(int(place)) for place in self._order)

    def _job(self, place: int) -> Job:
        row, column = divmod(place, len(self.instances))
        configuration, configuration_id = self._configurations[row]
        return Job(configuration_id, configuration, self.instances[column], self._records.get((row, column)))

    def unanswered(self) -> Iterator[tuple[str, Instance]]:
        """(memory system, instance) pairs of which a response is missing, each once."""
        names = list(dict.fromkeys(configuration.memory for configuration, _ in self._configurations))
        for name in names:
            rows = [n for n, (configuration, _) in enumerate(self._configurations) if configuration.memory == name]
            for column in np.nonzero((self.states[rows] < UNJUDGED).any(axis=0))[0]:
                yield name, self.instances[int(column)]

    def only(self, chosen: NDArray[np.bool_]) -> Jobs:
        """Those of the jobs that are `chosen`, which has the shape of `states`."""
        states = np.where(chosen, self.states, np.uint8(DONE))
        return Jobs(self.configuration_ids, self.instances, states, self._records)


@dataclass(frozen=True, slots=True)
class Plan:
    """A run's jobs: `planned` in all, of which `finished` are done for good; `failed` are tried again."""

    jobs: Jobs
    planned: int
    finished: int
    failed: int


def make_plan(
    store: Store, run_id: str, configuration_ids: Mapping[Configuration, int], instances: Sequence[Instance]
) -> Plan:
    """Compare the records with the plan: missing ones, errors and failed judge calls are to be done."""
    with store.begin() as connection:
        return plan_of(connection, run_id, configuration_ids, instances)


def plan_of(
    connection: Connection,
    run_id: str,
    configuration_ids: Mapping[Configuration, int],
    instances: Sequence[Instance],
    *,
    part: bool = False,
) -> Plan:
    """As `make_plan`, in a transaction; `part`: the instances are a small part of the run's."""
    rows = {configuration_id: row for row, configuration_id in enumerate(configuration_ids.values())}
    columns = {instance.id: column for column, instance in enumerate(instances)}
    states = np.zeros((len(rows), len(columns)), dtype=np.uint8)
    r = s.records.c
    mine = [r.run_id == run_id]
    if part:
        # Asked by the unique key, for a shard's few records of very many.
        mine += [r.configuration_id.in_(rows), r.instance_id.in_(columns)]
    kept = select(r.configuration_id, r.instance_id, r.status).where(*mine)
    for configuration_id, instance_id, status in connection.execute(kept, execution_options={"yield_per": _ROWS}):
        row, column = rows.get(configuration_id), columns.get(instance_id)
        if row is not None and column is not None:
            states[row, column] = FAILED if status == "error" else DONE
    unjudged: dict[tuple[int, int], int] = {}
    # A score to ask for again is always a missing one, and these have an index of their own.
    again = (
        select(r.id, r.configuration_id, r.instance_id)
        .join(s.scores, s.scores.c.record_id == r.id)
        .where(*mine, s.scores.c.value.is_(None), s.scores.c.retriable)
    )
    for record_id, configuration_id, instance_id in connection.execute(again):
        row, column = rows.get(configuration_id), columns.get(instance_id)
        if row is not None and column is not None and states[row, column] == DONE:
            states[row, column] = UNJUDGED
            unjudged[row, column] = record_id
    finished = int((states == DONE).sum())
    failed = int(((states == FAILED) | (states == UNJUDGED)).sum())
    return Plan(Jobs(configuration_ids, instances, states, unjudged), states.size, finished, failed)


def pilot(plan: Plan, instances: Sequence[Instance], records: int) -> Plan:
    """The plan with that many of its jobs only, spread over configurations and benchmarks as evenly as they go.

    Every configuration gets the same instances, those of the slice that are left by turns of their subtypes, so that
    what configurations share (a retrieval, a plain response) is shared in the pilot too.
    """
    jobs = plan.jobs
    met: Counter[str] = Counter()
    place: list[tuple[int, int]] = []
    for number, instance in enumerate(instances):
        place.append((met[instance.subtype], number))
        met[instance.subtype] += 1
    by_turns = sorted(range(len(instances)), key=place.__getitem__)
    benchmarks = list(dict.fromkeys(instance.benchmark for instance in instances))
    of_benchmark = {name: [n for n in by_turns if instances[n].benchmark == name] for name in benchmarks}
    ids = list(jobs.configuration_ids.values())
    queues = {
        row: {name: deque(n for n in numbers if jobs.states[row, n] != DONE) for name, numbers in of_benchmark.items()}
        for row in sorted(range(len(ids)), key=ids.__getitem__)
        if (jobs.states[row] != DONE).any()
    }
    wanted = min(records, len(jobs))
    chosen = np.zeros(jobs.states.shape, dtype=np.bool_)
    left = wanted
    for turn in count():
        if not left:
            break
        # By turns, so that a pilot with fewer records than configurations × benchmarks meets all of either.
        for number, (row, of_configuration) in enumerate(queues.items()):
            queue = of_configuration[benchmarks[(number + turn) % len(benchmarks)]]
            if queue and left:
                chosen[row, queue.popleft()] = True
                left -= 1
    return replace(plan, jobs=jobs.only(chosen))
