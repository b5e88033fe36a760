"""The published cases' scores beside those of our judges.

Our judges see what the appendix shows: the question, the response, and the memories listed with it; nothing else of the
user (as in `opbench.judges.calibration`, whose agreement this is). Repetition has a published score for each response
and with us one for all of a user's responses, which are different things: they stand beside each other and are never
subtracted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import pandas as pd
from pydantic import SecretStr

from opbench.cases.published import PublishedCase, published_cases
from opbench.errors import DataError, ModelError, StoreError, UsageError
from opbench.judges import is_rule_judge, make_judge
from opbench.judges.base import Evidence, Judge
from opbench.judges.calibration import Calibration, Case
from opbench.judges.llm import failed_call
from opbench.judges.repetition import repetition_score
from opbench.models import ModelClient, get_embedder, load_registry
from opbench.running.calls import CallStore
from opbench.running.prepare import call_store
from opbench.store.database import Store
from opbench.types import ChatRequest, ChatResult, Complete, Instance, Score, User

log = logging.getLogger(__name__)

Which = Literal["response", "reference"]
"""`response`: the over-personalised one that the paper shows; `reference`: the fitting one beside it."""
WHICH: tuple[Which, ...] = ("response", "reference")
REPETITION = "repetition is one score for all of a user's responses: see there"
NOT_THE_SAME = (
    "Not the same thing, and so without a difference: published is a judge's score of each response; ours is 1 − mean "
    "cosine similarity over the responses of the user, 0 when they are all the same."
)
SEEN = (
    "Judged by what the appendix shows: question, response and the memories listed with it; nothing else is told of "
    "the user."
)


@dataclass(frozen=True, slots=True)
class Rated:
    """A published score and a judge's for the same text, 0 to 1; `value` None with the reason when it is missing."""

    published_id: str
    """E.g. `fig-21`, `fig-26/2`."""
    case: str
    subtype: str
    method: str
    which: Which
    published: float
    judge: str
    value: float | None
    reason: str | None
    passing: bool = False
    """Whether it is missing because the judge couldn't be asked: another try may bring it."""


@dataclass(frozen=True, slots=True)
class RatedUser:
    """Our repetition score over the responses of one case (0 to 1 + 1/(n − 1)), and the published ones, one each."""

    case: str
    user: str
    method: str
    which: Which
    n: int
    """Responses that the score is made of."""
    value: float | None
    reason: str | None
    published: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Ratings:
    """What `rate` found. `judges` and `embedder` by their names in the registry."""

    cases: tuple[PublishedCase, ...]
    judges: tuple[str, ...]
    embedder: str
    rated: tuple[Rated, ...]
    repetition: tuple[RatedUser, ...]
    provenance: dict[str, dict[str, str]]
    """By judge, and of the embedder: what determines the numbers."""


Told = Callable[[int, int], None]
"""Is told how many judgements are done, and how many there are."""


async def rate(
    store: Store,
    judges: Sequence[str] = ("offline",),
    *,
    pack: str = "auto",
    embedder: str = "minilm",
    keys: Mapping[str, SecretStr] | None = None,
    only: str | None = None,
    told: Told | None = None,
) -> Ratings:
    """Score the published and the reference responses with our judges, and repetition by response embeddings.

    An LLM judge's calls go through the call store, so the same judgement is never paid twice, and each is written when
    it is made. `only` is the id of one case. A judge that fails leaves a missing score with its reason.

    Raises:
        UsageError: there is no such judge, pack, embedder or case.
        DataError: a file is damaged.
        StoreError: the store can't be read or written.
    """
    known = tuple(each for each in published_cases() if only in (None, each.id))
    if not known:
        raise UsageError(f"No published case is called {only!r}: `opbench data cases` lists them.")
    if not judges:
        raise UsageError("No judge named: use offline or the name of a model (`opbench models` lists them).")
    made = {name: make_judge(name, pack) for name in dict.fromkeys(judges)}
    registry = load_registry()
    for name in made:
        if not is_rule_judge(name):
            registry.model(name)
    async with ModelClient(registry, keys=keys) as client:
        calls = call_store(store, registry, client, lambda name: registry.model(name).concurrency)
        vectors = get_embedder(embedder, registry, client)
        repetition = [await _user(each, which, vectors.embed) for each in known for which in WHICH if _repeats(each)]
        count = len(made) * len(WHICH) * sum(len(each.case.exchanges) for each in known)
        done = 0

        async def one(name: str, each: PublishedCase, number: int, which: Which) -> Rated:
            nonlocal done
            found = await _one(each, number, which, name, made[name], calls)
            done += 1
            if told is not None:
                told(done, count)
            return found

        rated: list[Rated] = []
        for name in made:
            texts = [
                (each, number, which) for each in known for number in range(len(each.case.exchanges)) for which in WHICH
            ]
            limit = 1 if is_rule_judge(name) else registry.model(name).concurrency
            rated += await _all([partial(one, name, *text) for text in texts], limit)
    provenance = {name: judge.provenance() for name, judge in made.items()} | {embedder: vectors.identity()}
    return Ratings(known, tuple(made), embedder, tuple(rated), tuple(repetition), provenance)


def published_table(ratings: Ratings) -> pd.DataFrame:
    """A row a text: `id, case, subtype, method, text, published`, and for each judge its score, the difference (ours −
    published) and why it is missing, in the columns `<judge>`, `<judge> − published`, `<judge>: missing`."""
    rows: dict[tuple[str, Which], dict[str, object]] = {}
    for each in ratings.rated:
        row = rows.setdefault(
            (each.published_id, each.which),
            {
                "id": each.published_id,
                "case": each.case,
                "subtype": each.subtype,
                "method": each.method,
                "text": each.which,
                "published": each.published,
            },
        )
        row[each.judge] = each.value
        row[f"{each.judge} − published"] = None if each.value is None else each.value - each.published
        row[f"{each.judge}: missing"] = each.reason if each.value is None else None
    frame = pd.DataFrame(list(rows.values()))
    numbers = [name for judge in ratings.judges for name in (judge, f"{judge} − published")]
    return frame.astype(dict.fromkeys(numbers, "float64"))


def repetition_table(ratings: Ratings) -> pd.DataFrame:
    """A row a case and kind of text: `case, user, method, text, n, ours, missing, published` (the published scores of
    the single responses, in order)."""
    return pd.DataFrame(
        [
            {
                "case": each.case,
                "user": each.user,
                "method": each.method,
                "text": each.which,
                "n": each.n,
                "ours": each.value,
                "missing": each.reason,
                "published": ", ".join(f"{score:.2f}" for score in each.published),
            }
            for each in ratings.repetition
        ],
        columns=["case", "user", "method", "text", "n", "ours", "missing", "published"],
    ).astype({"ours": "float64"})


def agreement_table(ratings: Ratings) -> pd.DataFrame:
    """A row a judge and kind of texts: `judge, of, texts, n, missing, spearman, pearson, mean_absolute_error,
    separated, pairs`.

    `of` is `responses`, or `responses and references` (how well bad and good answers are told apart). `n` are the texts
    that both sides scored, repetition's are never among them. `separated` of `pairs` references score above the
    response beside them. Correlations are NaN where either side is constant, or below two.
    """
    rows = []
    for judge in ratings.judges:
        mine = [each for each in ratings.rated if each.judge == judge and each.subtype != "repetition"]
        responses, references = (_cases(mine, which) for which in WHICH)
        found = Calibration(responses, references, sum(each.subtype == "repetition" for each in ratings.rated))
        ours = {case.id for case in responses if case.score is not None}
        pairs = sum(case.id in ours for case in references if case.score is not None)
        for of, texts in (("responses", responses), ("responses and references", responses + references)):
            try:
                agreement = found.agreement if of == "responses" else found.pooled
            except DataError:
                agreement = None
            rows.append(
                {
                    "judge": judge,
                    "of": of,
                    "texts": len(texts),
                    "n": agreement.n if agreement else 0,
                    "missing": sum(case.score is None for case in texts),
                    "spearman": agreement.spearman if agreement else None,
                    "pearson": agreement.pearson if agreement else None,
                    "mean_absolute_error": agreement.mean_absolute_error if agreement else None,
                    "separated": found.separated,
                    "pairs": pairs,
                }
            )
    return pd.DataFrame(rows).astype({"spearman": "float64", "pearson": "float64", "mean_absolute_error": "float64"})


def _cases(rated: Sequence[Rated], which: Which) -> tuple[Case, ...]:
    return tuple(
        Case(each.published_id, each.subtype, each.published, each.value) for each in rated if each.which == which
    )


async def _one(each: PublishedCase, number: int, which: Which, name: str, judge: Judge, calls: CallStore) -> Rated:
    exchange = each.case.exchanges[number]
    text, published = (
        (exchange.response, exchange.score) if which == "response" else (exchange.fitting, exchange.fitting_score)
    )
    score = Score("score", None, REPETITION)
    if not _repeats(each):
        user = User("appendix", each.case.user, "", False)
        instance = Instance(f"op/{user.id}/{each.case.subtype}/0", "op", user, each.case.subtype, exchange.question)
        evidence = Evidence(instance, text, memories=exchange.memories, context=exchange.memories)
        score = await _score(judge, evidence, calls)
    return Rated(
        each.exchange_id(number),
        each.id,
        each.case.subtype,
        each.case.method,
        which,
        published,
        name,
        score.value,
        score.reason,
        "transport" in score.details,
    )


async def _score(judge: Judge, evidence: Evidence, calls: CallStore) -> Score:
    used: list[str] = []

    async def complete(request: ChatRequest) -> ChatResult:
        row, _ = await calls.chat(request)
        used.append(row.key)
        return ChatResult(
            row.response, row.finish_reason, row.prompt_tokens, row.completion_tokens, row.duration_ms, row.attempts
        )

    asking: Complete = complete
    try:
        scores = await judge.score(evidence, asking)
    except ModelError as failure:
        return failed_call("score", failure)
    except StoreError:
        raise
    except Exception as fault:
        # A plugin's fault is this score's, not the end of all.
        log.exception("judge %s on a published case", judge.name)
        return Score("score", None, f"judge: internal: {type(fault).__name__}: {fault}"[:500])
    finally:
        await calls.keep(used)
    return next((score for score in scores if score.metric == "score"), Score("score", None, "the judge gave no score"))


async def _user(each: PublishedCase, which: Which, embed: Callable[[Sequence[str]], Awaitable[object]]) -> RatedUser:
    bad = which == "response"
    texts = [exchange.response if bad else exchange.fitting for exchange in each.case.exchanges]
    texts = [text for text in texts if text.strip()]
    value: float | None = None
    reason: str | None = f"{len(texts)} responses, two are needed for a similarity"
    if len(texts) > 1:
        try:
            value, reason = repetition_score(await embed(texts)), None  # type: ignore[arg-type]
        except ModelError as failure:
            reason = f"embedder: {failure.kind}: {failure}"
    published = tuple(exchange.score if bad else exchange.fitting_score for exchange in each.case.exchanges)
    return RatedUser(each.id, each.case.user, each.case.method, which, len(texts), value, reason, published)


async def _all(jobs: Sequence[Callable[[], Awaitable[Rated]]], at_a_time: int) -> list[Rated]:
    """Their results in order."""
    limit = asyncio.Semaphore(at_a_time)

    async def within(job: Callable[[], Awaitable[Rated]]) -> Rated:
        async with limit:
            return await job()

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(within(job)) for job in jobs]
    except BaseExceptionGroup as several:
        raise several.exceptions[0] from None
    return [task.result() for task in tasks]


def _repeats(each: PublishedCase) -> bool:
    return each.case.subtype == "repetition"
