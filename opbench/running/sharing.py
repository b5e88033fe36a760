"""Which of a plan's calls are made once for several records, as far as that is known before any is made."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mitigations.base import PostProcessor
from opbench.running.plan import DONE, UNJUDGED, Jobs
from opbench.running.prepare import Prepared
from opbench.running.response_prompts import answer_messages
from opbench.study import BASE, NO_MITIGATION, Configuration

Mask = NDArray[np.bool_]
"""Shape (instances,)."""
Places = NDArray[np.intp]
"""Indices of instances."""

Cause = Literal["base", "plain", "equal", "judged"]
#: Why a driver that shares nothing makes more calls, for people.
CAUSES: dict[Cause, str] = {
    "base": "BASE under the post-processors is one record",
    "plain": "the response without post-processing serves drafts and emptied memories too",
    "equal": "equal questions and contexts are asked once",
    "judged": "equal responses are judged once",
}


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls of one kind that some records need."""

    new: Places
    """The instances for which they have to be made."""
    equal: int
    """Answered by the call for another instance of the configuration, which asks the very same."""
    shared: int
    """Answered by what another configuration asks, or by what the run's records have asked already."""


class _Met:
    """What was asked already: calls by kind, of which each is told by its instance's group."""

    def __init__(self) -> None:
        self._seen: dict[Hashable, Mask] = {}

    def take(self, kind: Hashable, groups: NDArray[np.intp], wanted: Mask) -> Calls:
        places = np.flatnonzero(wanted)
        found, first = np.unique(groups[places], return_index=True)
        seen = self._of(kind, groups)
        new = np.sort(places[first[~seen[found]]])
        seen[found] = True
        return Calls(new, len(places) - len(found), len(found) - len(new))

    def note(self, kind: Hashable, groups: NDArray[np.intp], there: Mask) -> None:
        self._of(kind, groups)[groups[there]] = True

    def _of(self, kind: Hashable, groups: NDArray[np.intp]) -> Mask:
        return self._seen.setdefault(kind, np.zeros(len(groups), dtype=np.bool_))


class Sharing:
    """Tells configuration by configuration, in the order of the plan, which calls are new.

    Two calls are the same when all that they are made of is known to be: the question and, with a memory system, the
    user whose memories are searched. What post-processors make of different memories is known afterwards only, and
    taken to differ. A latency probe shares nothing but the configuration BASE.
    """

    def __init__(self, prepared: Prepared, jobs: Jobs) -> None:
        self._probe = prepared.study.latency_probe
        self._mitigations = prepared.mitigations
        instances = prepared.instances
        self._searched = _groups((i.benchmark, i.user.id, i.question) for i in instances)
        self._asked = _groups(answer_messages(prepared.study, BASE, i, ()) for i in instances)
        # What a judge may be told beside the response; its prompt may hold less.
        self._judged = _groups(
            (i.benchmark, i.user.id, i.question, i.subtype, i.answer, i.explanation) for i in instances
        )
        self._met = _Met()
        for configuration, row in zip(jobs.configuration_ids, jobs.states, strict=True):
            self._note(configuration, row)

    def _note(self, configuration: Configuration, row: NDArray[np.uint8]) -> None:
        """What the run's records have asked."""
        answered, judged = row >= UNJUDGED, row == DONE
        if self._probe or not answered.any():
            return
        self._met.note(("retrieval", configuration.memory), self._searched, answered)
        self._met.note(("post", configuration), self._searched, answered)
        self._met.note(self._response(configuration), self._groups_of(configuration), answered)
        self._met.note(self._judging(configuration), self._judged, judged)

    def retrievals(self, configuration: Configuration, wanted: Mask) -> Calls:
        """Searches of a memory system: one serves all models and post-processors."""
        return self._take(("retrieval", configuration.memory), self._searched, wanted)

    def post(self, configuration: Configuration, wanted: Mask) -> Calls:
        """A post-processor's calls."""
        return self._take(("post", configuration), self._searched, wanted)

    def responses(self, configuration: Configuration, wanted: Mask) -> Calls:
        return self._take(self._response(configuration), self._groups_of(configuration), wanted)

    def judging(self, configuration: Configuration, wanted: Mask) -> Calls:
        return self._take(self._judging(configuration), self._judged, wanted)

    def plain(self, configuration: Configuration) -> bool:
        """Whether its response, or the draft of it, is one without post-processing."""
        method = self._mitigations[configuration.mitigation]
        return configuration.mitigation == NO_MITIGATION or method.revises or response_to(method) == "nothing"

    def _take(self, kind: Hashable, groups: NDArray[np.intp], wanted: Mask) -> Calls:
        if self._probe:
            return Calls(np.flatnonzero(wanted), 0, 0)
        return self._met.take(kind, groups, wanted)

    def _memory(self, configuration: Configuration) -> str:
        """What the prompt's memories are of; none are left when they are emptied."""
        emptied = response_to(self._mitigations[configuration.mitigation]) == "nothing"
        return BASE if emptied else configuration.memory

    def _groups_of(self, configuration: Configuration) -> NDArray[np.intp]:
        return self._asked if self._memory(configuration) == BASE else self._searched

    def _response(self, configuration: Configuration) -> Hashable:
        if self.plain(configuration):
            return "response", configuration.model, self._memory(configuration)
        return "response", configuration

    def _judging(self, configuration: Configuration) -> Hashable:
        if self.plain(configuration) and not self._mitigations[configuration.mitigation].revises:
            return "judge", configuration.model, self._memory(configuration)
        return "judge", configuration


def response_to(method: PostProcessor) -> str:
    """`mitigations.method.ResponseTo`; a plugin needn't tell it."""
    return str(getattr(method, "response", "kept"))


def _groups(values: Iterable[Hashable]) -> NDArray[np.intp]:
    """A number for each value, the same for equal ones."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(value, len(numbers)) for value in values], dtype=np.intp)
