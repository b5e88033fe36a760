"""Where an engine takes its jobs from: a plan of its own, or shards that it leases of a run of several workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sqlalchemy import Connection

from opbench.study import Configuration
from opbench.types import Instance


@dataclass(frozen=True, slots=True)
class Job:
    """One instance for one configuration; with `record_id` only its judge is asked again."""

    configuration_id: int
    configuration: Configuration
    instance: Instance
    record_id: int | None = None


class JobSource(Protocol):
    """Gives an engine its jobs, in the order in which they are to be begun. Belongs to the engine's event loop."""

    @property
    def planned(self) -> int:
        """Records of the whole run."""
        ...

    @property
    def finished(self) -> int:
        """Records of the whole run that were done for good when this source was made."""
        ...

    @property
    def to_do(self) -> int:
        """Jobs that this source gives at the most, those that it gave included."""
        ...

    async def take(self) -> Sequence[Job]:
        """Some jobs that nobody else does; empty when there are none any more. It may wait for others' shards, which
        come free when their worker dies.

        Raises:
            StoreError: the store can't be read or written.
        """
        ...

    def held(self, connection: Connection, jobs: Sequence[Job]) -> None:
        """Asked first in each transaction that writes what came of some jobs, in the writing thread: makes sure that
        they are still this source's until the transaction ends. It must write something itself (an update that
        changes nothing, say): SQLite's transaction begins with the first write, and PostgreSQL locks what is written.

        Raises:
            LeaseLost: others have taken them; nothing but the calls that were made is written then, and the engine
                ends.
        """
        ...

    async def committed(self, jobs: Sequence[Job]) -> None:
        """The records of these jobs are in the store, or are left for another start of the run: a shard of which no
        other job is open is given back.

        Raises:
            StoreError: the store can't be written.
        """
        ...

    async def aclose(self) -> None:
        """Give back what was taken and not done, for others to do. Never raises for a store that is gone."""
        ...
