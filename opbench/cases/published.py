"""The published cases of the paper's appendix D (figures 21 to 32) as cases to ask.

The file holds 16 responses: ten cases with one, and two repetitions with three each, twelve cases in all. Where the
data folder has no appendix, cases that were invented with the sample's people stand in, and say so (`origin`).
`opbench.cases.published_scores` sets our judges beside the published scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import mitigations
from mitigations.text import normalise
from opbench.benchmarks import cases, load
from opbench.cases.spec import CaseSpec, Column, Given
from opbench.errors import UsageError
from opbench.study import BASE, NO_MITIGATION
from opbench.types import Corpus

#: The given memories stand in the place of this system's retrieval, which isn't asked: the appendix's are MemU's, with
#: GPT-4o-mini, and neither is needed here.
GIVEN_TO = "rag"
ABOUT: dict[cases.Origin, str] = {
    "appendix": "From the paper's appendix D, read from your data folder: GPT-4o-mini's responses with MemU's "
    "memories, and the scores of the paper's judge. The reference responses and their scores are the authors' own.",
    "invented": "Invented for this project, with the people of the bundled sample: no model responded and no judge "
    "scored; the scores say what one would expect. The paper's own cases are shown when the data folder holds "
    f"{cases.APPENDIX}.",
}
LISTED = (
    "The appendix doesn't say whether the memories of a case with a post-processor were listed before or after it; "
    "they are given as they are listed."
)


@dataclass(frozen=True, slots=True)
class PublishedCase:
    """A published case, and whom of the data it is about."""

    case: cases.Case
    origin: cases.Origin
    users: tuple[str, ...]
    """Ids of the users it may be about: those of the persona's name, narrowed by whose question it is."""
    instances: tuple[str | None, ...]
    """By exchange: the instance with that question of that user; None where the benchmark's file has none."""

    @property
    def id(self) -> str:
        return self.case.id

    @property
    def user(self) -> str | None:
        """The one user that it can be about; None when there are none or several."""
        return self.users[0] if len(self.users) == 1 else None

    @property
    def data(self) -> Literal["auto", "sample"]:
        """Where its users are."""
        return "sample" if self.origin == "invented" else "auto"

    @property
    def mitigation(self) -> str | None:
        """Name of the post-processor behind `MemU + …`; None when the case has none, or one that isn't known here."""
        label = self.case.method.partition("+")[2].strip().casefold()
        known = {mitigations.get(name).label.casefold(): name for name in mitigations.names() if name != NO_MITIGATION}
        return known.get(label)

    def exchange_id(self, number: int) -> str:
        """`fig-21`, and for the second question of a repetition `fig-26/2`. `number` counts from 0."""
        return self.id if len(self.case.exchanges) == 1 else f"{self.id}/{number + 1}"

    def columns(self, models: Sequence[str]) -> tuple[tuple[Column, ...], ...]:
        """By exchange: for each model BASE, the given memories as they are, and with the case's post-processor."""
        return tuple(
            tuple(column for model in models for column in self._columns(model, exchange))
            for exchange in self.case.exchanges
        )

    def _columns(self, model: str, exchange: cases.Exchange) -> list[Column]:
        given = tuple(Given(text=text) for text in exchange.memories if text.strip())
        methods = [NO_MITIGATION] + ([self.mitigation] if self.mitigation else [])
        return [
            Column(model=model, memory=BASE),
            *(Column(model=model, memory=GIVEN_TO, mitigation=method, given=given) for method in methods),
        ]

    def to_spec(self, models: Sequence[str], exchange: int = 0, user: str | None = None) -> CaseSpec:
        """The case to ask of `models`, with its memories given. `exchange` counts from 0; `user` is for a persona whose
        name several users have.

        Raises:
            UsageError: no model, no such exchange, or no user of that name.
        """
        if not models:
            raise UsageError("A case needs a model: name one that `opbench models` lists.")
        if not 0 <= exchange < len(self.case.exchanges):
            raise UsageError(
                f"{self.id} has {len(self.case.exchanges)} questions: there is none of number {exchange + 1}."
            )
        return CaseSpec(
            question=self.case.exchanges[exchange].question,
            user=self._whom(user),
            instance=self.instances[exchange],
            published=self.exchange_id(exchange),
            data=self.data,
            columns=self.columns(models)[exchange],
            subtype=self.case.subtype,
        )

    def _whom(self, user: str | None) -> str:
        if user is None and self.user is not None:
            return self.user
        if user is not None and user in self.users:
            return user
        if not self.users:
            raise UsageError(f"{self.id} is about {self.case.user}, who is no user of these data.")
        asked = "" if user is None else f"{user} isn't one of whom {self.id} may be about. "
        raise UsageError(f"{asked}{self.case.user} may be {', '.join(self.users)}: name one of them.")


def published_cases() -> list[PublishedCase]:
    """All cases, in the file's order.

    Raises:
        DataError: a file is damaged; one line with file, place and mend.
    """
    known = cases.read()
    corpus = load("sample" if known.origin == "invented" else None)
    return [_found(case, known.origin, corpus) for case in known.cases]


def find(published: str) -> tuple[PublishedCase, int]:
    """The case and the exchange (from 0) of an id such as `fig-21` or `fig-26/2`.

    Raises:
        UsageError: there is no such case.
        DataError: a file is damaged.
    """
    name, _, number = published.partition("/")
    known = published_cases()
    for each in known:
        if each.id == name:
            if number.isdecimal() and 1 <= int(number) <= len(each.case.exchanges):
                return each, int(number) - 1
            if not number:
                return each, 0
            raise UsageError(f"{name} has {len(each.case.exchanges)} questions: {name}/1 is the first.")
    raise UsageError(f"No published case is called {published!r}. There are: {', '.join(each.id for each in known)}.")


def counted(known: Sequence[PublishedCase]) -> str:
    """How many there are, exactly: `12 cases with 16 responses (2 of them repetitions, with 6 responses)`."""
    responses = sum(len(each.case.exchanges) for each in known)
    several = [len(each.case.exchanges) for each in known if each.case.subtype == "repetition"]
    repeated = f" ({len(several)} of them repetitions, with {sum(several)} responses)" if several else ""
    return f"{len(known)} cases with {responses} responses{repeated}"


def _found(case: cases.Case, origin: cases.Origin, corpus: Corpus) -> PublishedCase:
    namesakes = [user.id for user in corpus.users.values() if user.speaker == case.user]
    asked = {plain(exchange.question) for exchange in case.exchanges}
    whose = {each.user.id for each in corpus.op if each.user.id in namesakes and plain(each.question) in asked}
    users = tuple(user for user in namesakes if not whose or user in whose)
    by_question = {
        plain(each.question): each.id for each in reversed(corpus.op) if len(users) == 1 and each.user.id == users[0]
    }
    return PublishedCase(
        case, origin, users, tuple(by_question.get(plain(exchange.question)) for exchange in case.exchanges)
    )


def plain(text: str) -> str:
    """A question without what two printings of it may differ in: case, spaces, quotation marks."""
    return " ".join(normalise(text).casefold().split())
