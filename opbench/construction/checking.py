"""The filters that ask a model: is a false memory true after all, does a question need personalisation after all."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import numpy as np

from opbench.construction import needs, truths
from opbench.construction.asking import Asked, Asker
from opbench.construction.at_work import AtWork, unit_of
from opbench.construction.likeness import Likeness
from opbench.construction.loading import Source
from opbench.construction.people import facts_of, person
from opbench.construction.spec import Filters
from opbench.construction.wording import Checked, Question
from opbench.store.builds import Build, Candidate, Ruling, Unit
from opbench.types import User

#: The check that a subtype's questions go through.
OF_SUBTYPE = {"memory": "true-memory", "fully-irrelevant": "personal", "baiting": "personal"}
_ANSWER_TOKENS = 160


def check_of(question: Question, filters: Filters) -> str | None:
    """The filter that asks a model about this question; None when none does."""
    wanted = {"true-memory": filters.check_memories, "personal": filters.check_need}
    name = OF_SUBTYPE.get(question.subtype)
    return name if name is not None and wanted[name] else None


def was_checked(candidate: Candidate) -> bool:
    """Whether what is known of a candidate is what its check has told, or that it has told nothing."""
    told = candidate.details or {}
    return OF_SUBTYPE.get(candidate.subtype) in (told.get("checked"), told.get("filter"))


class Checker:
    """Asks about one question after the other, and keeps what was answered as units of the build."""

    def __init__(
        self,
        work: AtWork,
        build: Build,
        source: Source,
        asker: Asker,
        likeness: Likeness,
        units: Mapping[str, Unit],
    ) -> None:
        self._work = work
        self._spec = build.spec
        self._source = source
        self._asker = asker
        self._likeness = likeness
        self._units = units
        self._histories: dict[str, truths.History] = {}
        self._loading = asyncio.Lock()

    async def check(self, question: Question, vector: np.ndarray) -> Ruling:
        """What becomes of a question that the other filters left; `vector` is its own, L2-normalised.

        One whose check fails stays a candidate, with the reason.

        Raises:
            ModelError: the embedder failed for good.
            LeaseLost: another start has taken the build.
            StoreError: the store can't be read or written.
        """
        name = OF_SUBTYPE[question.subtype]
        user = self._source.users[question.user]
        asked = await (self._truth(question, user, vector) if name == "true-memory" else self._need(question, user))
        await self._keep(question, name, asked)
        if asked.value is None:
            told = {"filter": name, "retriable": asked.retriable}
            return Ruling(question.id, "candidate", None, f"{name}: the check failed: {asked.fault}", told)
        why = asked.value.why
        if why is None:
            return Ruling(question.id, "kept", None, None, {"checked": name})
        return Ruling(question.id, "dropped", name, why.reason, {"filter": name, **why.details})

    async def _truth(self, question: Question, user: User, vector: np.ndarray) -> Asked[Checked]:
        history = await self._history(user)
        lines = history.around(question, vector)
        return await self._asker.ask(
            self._spec.checker,
            truths.messages(question, user.speaker, lines),
            truths.shape(len(lines)),
            lambda value: truths.read(value, question, lines),
            max_tokens=_ANSWER_TOKENS,
        )

    async def _need(self, question: Question, user: User) -> Asked[Checked]:
        profile = person(self._source, self._units, user).profile
        return await self._asker.ask(
            self._spec.checker,
            needs.messages(question, profile or ""),
            needs.shape(),
            needs.read,
            max_tokens=_ANSWER_TOKENS,
        )

    async def _history(self, user: User) -> truths.History:
        # One at a time: of many questions that come at once the first embeds the conversation for all of them.
        async with self._loading:
            known = self._histories.get(user.id)
            if known is None:
                facts = facts_of(self._source, self._units, user)
                lines = truths.lines_of(self._source.conversations[user.conversation], facts)
                vectors = await self._likeness.of([line.text for line in lines])
                assert vectors is not None, "nothing stops it"
                known = self._histories[user.id] = truths.History(lines, vectors)
        return known

    async def _keep(self, question: Question, name: str, asked: Asked[Checked]) -> None:
        digest = {"true-memory": truths.prompt, "personal": needs.prompt}[name]().sha256
        unit = unit_of(
            asked,
            unit=f"filtering/{question.user}/{name}/{question.id}",
            stage="filtering",
            user_id=question.user,
            role="checker",
            model=self._spec.checker,
            prompt_sha256=digest,
            output=asked.value.answer if asked.value is not None else None,
        )
        before = self._units.get(unit.unit)
        if before is not None and (before.calls, before.status) == (unit.calls, unit.status) and unit.calls:
            return
        await self._work.save(unit, (), self._asker.calls)
