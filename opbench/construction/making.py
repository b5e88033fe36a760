"""Doing the units of a build: each asked once, kept in one transaction, and taken from the store when it is there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from opbench.construction.asking import Asked, Asker, Shape
from opbench.construction.at_work import AtWork, unit_of
from opbench.construction.loading import Source
from opbench.construction.prompting import Prompt
from opbench.construction.spec import BuildSpec, Role, Stage
from opbench.store.builds import Candidate, Unit

T = TypeVar("T")
R = TypeVar("R")
#: Seeds of one round lie this far from those of the next seed: there are at most as many rounds.
_ROUNDS = 100
#: Further attempts at a failed unit get seeds beyond those of ordinary ones.
_ATTEMPT = 1_000_000


@dataclass(frozen=True, slots=True)
class Task:
    """One unit: what is asked for and of whom."""

    unit: str
    stage: Stage
    user_id: str
    role: Role
    model: str
    prompt: Prompt
    values: Mapping[str, str]
    shape: Shape
    round: int = 1


@dataclass(slots=True)
class Making:
    """What all units of a build share. Belongs to one event loop."""

    spec: BuildSpec
    source: Source
    asker: Asker
    work: AtWork
    units: dict[str, Unit]
    """What is done, by unit name; grows."""
    at_once: asyncio.Semaphore
    again: bool
    """Whether units that failed for their answer are asked again, under another seed."""
    on_unit: Callable[[Unit, Sequence[Candidate]], None]
    """Told of every unit that was done now, with its candidates."""
    _tried: set[str] = field(default_factory=set)

    async def do(
        self,
        task: Task,
        read: Callable[[Any], T],
        output: Callable[[T], dict[str, Any]],
        candidates: Callable[[T], Sequence[Candidate]] = lambda value: (),
    ) -> Unit | None:
        """The unit, done now unless it is done; None when it isn't and nothing new is begun any more.

        Raises:
            StoreError: the store can't be read or written.
        """
        known = self.units.get(task.unit)
        if known is not None and not self._once_more(known):
            return known
        async with self.at_once:
            if self.work.stopping:
                return None
            attempt = 0 if known is None or known.retriable else 1 + int((known.output or {}).get("attempt", 0))
            generating = task.role == "generator"
            asked = await self.asker.ask(
                task.model,
                task.prompt.messages(task.values),
                task.shape,
                read,
                temperature=self.spec.temperature if generating else 0.0,
                max_tokens=self.spec.max_tokens,
                repeat=self.spec.seed * _ROUNDS + task.round - 1 + attempt * _ATTEMPT,
            )
            unit = self._unit(task, asked, output, attempt)
            made = list(candidates(asked.value)) if asked.value is not None else []
            await self.keep(unit, made)
            return unit

    async def keep(self, unit: Unit, candidates: Sequence[Candidate] = ()) -> None:
        """Keep a unit that is done. Raises StoreError."""
        await self.work.save(unit, candidates, self.asker.calls)
        self.units[unit.unit] = unit
        self._tried.add(unit.unit)
        self.on_unit(unit, candidates)

    def _once_more(self, unit: Unit) -> bool:
        if unit.status == "done" or unit.unit in self._tried:
            return False
        return unit.retriable or self.again

    def _unit(self, task: Task, asked: Asked[T], output: Callable[[T], dict[str, Any]], attempt: int) -> Unit:
        value = None if asked.value is None else output(asked.value)
        unit = unit_of(
            asked,
            unit=task.unit,
            stage=task.stage,
            user_id=task.user_id,
            role=task.role,
            model=task.model,
            prompt_sha256=task.prompt.sha256,
            output=value,
        )
        return unit if not attempt else replace(unit, output={**(unit.output or {}), "attempt": attempt})


async def together(jobs: Iterable[Awaitable[R]]) -> list[R]:
    """What all of the jobs gave, in order; when some raise, the first error once all have ended: what is in hand is
    paid for."""
    ended = await asyncio.gather(*jobs, return_exceptions=True)
    for each in ended:
        if isinstance(each, BaseException):
            raise each
    return [each for each in ended if not isinstance(each, BaseException)]
