"""The third stage: which candidates are kept, and why the others are dropped (paper, A.3.1).

Filters come in a fixed order, each over what those before it left. What is decided is a function of the candidates,
the filters' settings and the models' answers: done again, it gives the same, and with other settings it gives what
these give. What people have decided stays, and counts among the kept ones. Dropped candidates stay in the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import SecretStr

from opbench.construction.asking import Asker
from opbench.construction.at_work import AtWork, at_work
from opbench.construction.checking import Checker, check_of, was_checked
from opbench.construction.duplicates import near_duplicates
from opbench.construction.likeness import Likeness
from opbench.construction.loading import Source, source_of
from opbench.construction.spec import Filters, State
from opbench.construction.wording import Question, Why, bad_format, bad_length, template_redundant
from opbench.errors import OpbenchError, UsageError
from opbench.gateway.vectors import VectorStore
from opbench.models import ModelClient, get_embedder, load_registry
from opbench.running.prepare import call_store
from opbench.store.builds import (
    Build,
    Candidate,
    Ruling,
    count_candidates,
    load_build,
    read_candidates,
    read_units,
    set_states,
)
from opbench.store.database import Store

#: Who drops a candidate, in the order in which they look; `format` is also what the reading of answers drops.
FILTERS = ("format", "length", "template", "duplicate", "true-memory", "personal")
#: What people decided, which no filter changes.
_SETTLED: tuple[State, ...] = ("accepted", "rejected")

OnProgress = Callable[[str, int, int], None]
"""Told (filter, looked at, to look at)."""
#: Rulings of checks that are written at a time: a killed process finds the answers to these in the call store.
_RULINGS = 64


@dataclass(frozen=True, slots=True)
class FilterReport:
    """How many candidates there are, and what became of them: generated = kept + dropped + undecided."""

    generated: int
    dropped: Mapping[str, int]
    """By filter, in `FILTERS`' order."""
    kept: int
    """Those that people accepted or rejected since are among them."""
    undecided: int
    """Not looked at yet, or their check failed (their reason says so): the next start makes it."""


async def run_filters(
    store: Store,
    build_id: str,
    *,
    concurrency: int = 8,
    keys: Mapping[str, SecretStr] | None = None,
    keep_request: bool = False,
    on_progress: OnProgress = lambda *_: None,
    on_stop: Callable[[], None] = lambda: None,
) -> FilterReport:
    """Filter a build's candidates without making new ones. The first Ctrl-C finishes what is in hand, the second leaves
    at once; `on_stop` is called at the first.

    `concurrency`: questions that the checker is asked at a time, at most. `keys` (by environment variable) live in
    memory only. `keep_request`: a stop that was asked for while this process started counts.

    Raises:
        UsageError: no such build, another process is at work on it, it has no candidates, or a model isn't known.
        DataError: its conversations aren't here.
        ModelError: the embedder failed for good.
        StoreError: the store can't be read or written.
    """
    build = load_build(store, build_id)
    source = source_of(build.provenance)
    registry = load_registry()
    registry.model(build.spec.checker)
    async with ModelClient(registry, keys=dict(keys or {})) as client:
        embedder = get_embedder(build.spec.embedder, registry, client)

        def at_a_time(name: str) -> int:
            return min(concurrency, client.at_a_time(name))

        calls = call_store(store, registry, client, at_a_time)
        vectors = VectorStore(calls, embedder, registry.embedder(build.spec.embedder))
        halt = client.stats.in_vain.reason_to_halt
        async with at_work(store, build_id, reason_to_halt=halt, on_stop=on_stop, keep_request=keep_request) as work:
            asker = Asker(calls, registry)
            try:
                return await filter_candidates(work, build, source, asker, vectors, concurrency, on_progress)
            finally:
                # What was answered and belongs to no unit that could be written is paid for all the same.
                await calls.settle()
                await calls.keep_all()


async def filter_candidates(
    work: AtWork,
    build: Build,
    source: Source,
    asker: Asker,
    vectors: VectorStore,
    at_a_time: int,
    on_progress: OnProgress = lambda *_: None,
) -> FilterReport:
    """Filter the candidates of a build that this process holds, asking the checker `at_a_time` questions at a time.
    Stopped in between, it leaves the rest undecided.

    Raises:
        UsageError: there is no candidate.
        ModelError: the embedder failed for good.
        LeaseLost: another start has taken the build.
        StoreError: the store can't be read or written.
    """
    store, filters = work.store, build.spec.filters
    candidates = await store.in_thread(read_candidates, store, build.id)
    if not candidates:
        raise UsageError(f"build {build.id} has no candidate yet. Make some with 'opbench build run'.")
    units = await store.in_thread(read_units, store, build.id)
    before = {each.id: each for each in candidates}
    settled = [_question(each) for each in candidates if each.state in _SETTLED]
    pool = [_question(each) for each in candidates if not (each.state in _SETTLED or _formless(each))]
    likeness = Likeness(vectors, build.spec.embedder)

    dropped = _by_wording(pool, settled, filters, on_progress)
    left = [each for each in pool if each.id not in dropped]
    compared = [*settled, *left]
    embedded = await likeness.of(
        [each.text for each in compared],
        lambda done: on_progress("duplicate", done, len(compared)),
        lambda: work.stopping,
    )
    if embedded is not None:
        dropped |= await asyncio.to_thread(_by_likeness, compared, embedded, filters.cosine, len(settled))
        left = [each for each in left if each.id not in dropped]
        to_check = [each for each in left if check_of(each, filters) is not None]
        await _write(work, _rulings(dropped, left, {each.id for each in to_check}, before))
        of = {each.id: vector for each, vector in zip(compared, embedded, strict=True)}
        checker = Checker(work, build, source, asker, likeness, units)
        await _check_all(work, checker, to_check, of, before, at_a_time, on_progress)
        await work.save(likeness.unit(), (), asker.calls)
    return await store.in_thread(report, store, build.id)


def report(store: Store, build_id: str) -> FilterReport:
    """What the filters have decided so far."""
    dropped = dict.fromkeys(FILTERS, 0)
    generated = kept = undecided = 0
    for _, _, state, decided_by, n in count_candidates(store, build_id):
        generated += n
        if state == "dropped":
            dropped[decided_by or "format"] += n
        elif state == "candidate":
            undecided += n
        else:
            kept += n
    return FilterReport(generated, dropped, kept, undecided)


# --- Parts ----------------------------------------------------------------------------------------------------------

_Dropped = dict[str, tuple[str, Why]]
"""By candidate: the filter, and why."""


def _question(candidate: Candidate) -> Question:
    return Question(
        candidate.id,
        candidate.user_id,
        candidate.subtype,
        candidate.question,
        candidate.kind,
        candidate.topic,
        candidate.falsifies,
        candidate.evidence,
    )


def _formless(candidate: Candidate) -> bool:
    """Whether its form can't be used: no setting changes that."""
    return candidate.state == "dropped" and candidate.decided_by in (None, "format")


def _by_wording(
    pool: Sequence[Question], settled: Sequence[Question], filters: Filters, on_progress: OnProgress
) -> _Dropped:
    looks: tuple[tuple[str, Callable[[Question], Why | None]], ...] = (
        ("format", bad_format),
        ("length", lambda question: bad_length(question, filters)),
    )
    found: _Dropped = {}
    left = list(pool)
    for name, look in looks:
        found |= {each.id: (name, why) for each in left if (why := look(each)) is not None}
        on_progress(name, len(left), len(left))
        left = [each for each in left if each.id not in found]
    redundant = template_redundant([*settled, *left], filters, len(settled))
    on_progress("template", len(left), len(left))
    return found | {each: ("template", why) for each, why in redundant.items()}


def _by_likeness(questions: Sequence[Question], embedded: np.ndarray, limit: float, settled: int) -> _Dropped:
    found: _Dropped = {}
    for question, near in zip(questions, near_duplicates(embedded, limit, settled), strict=True):
        if near is not None:
            of = questions[near.row]
            whose = "the same user" if of.user == question.user else of.user
            details = {"of": of.id, "of_user": of.user, "cosine": round(near.cosine, 6), "limit": limit}
            why = Why(f"cosine {near.cosine:.3f} to “{of.text}” of {whose}; below {limit:g} stays", details)
            found[question.id] = ("duplicate", why)
    return found


def _rulings(
    dropped: _Dropped, left: Sequence[Question], to_check: set[str], before: Mapping[str, Candidate]
) -> list[Ruling]:
    """What is decided without asking a model, as far as it isn't so already."""
    rulings = [
        Ruling(each, "dropped", name, why.reason, {"filter": name, **why.details})
        for each, (name, why) in dropped.items()
    ]
    rulings += [Ruling(each.id, "kept") for each in left if each.id not in to_check]
    # One that its check kept or dropped stays so until the check is done again.
    undecided = [each.id for each in left if each.id in to_check and not was_checked(before[each.id])]
    rulings += [Ruling(each, "candidate") for each in undecided]
    return [ruling for ruling in rulings if _changes(ruling, before[ruling.id])]


def _changes(ruling: Ruling, candidate: Candidate) -> bool:
    was = (candidate.state, candidate.decided_by, candidate.reason, candidate.details)
    return was != (ruling.state, ruling.decided_by, ruling.reason, ruling.details)


async def _write(work: AtWork, rulings: Sequence[Ruling]) -> None:
    # What people decide meanwhile stays.
    await work.store.in_thread(set_states, work.store, work.build_id, rulings, worker=work.worker, unless=_SETTLED)


async def _check_all(
    work: AtWork,
    checker: Checker,
    questions: Sequence[Question],
    vectors: Mapping[str, np.ndarray],
    before: Mapping[str, Candidate],
    at_a_time: int,
    on_progress: OnProgress,
) -> None:
    """Check the questions, several at a time, as long as nobody asks to stop."""
    waiting = iter(questions)
    rulings: list[Ruling] = []
    done = 0

    async def one_after_the_other() -> None:
        nonlocal done
        for question in waiting:
            if work.stopping:
                return
            try:
                ruling = await checker.check(question, vectors[question.id])
            except OpbenchError as error:
                work.stop(f"Ended by an error: {error}")
                raise
            if _changes(ruling, before[question.id]):
                rulings.append(ruling)
            done += 1
            on_progress("checks", done, len(questions))
            if len(rulings) >= _RULINGS:
                ready = rulings.copy()
                rulings.clear()
                await _write(work, ready)

    workers = (one_after_the_other() for _ in range(min(at_a_time, len(questions))))
    ended = await asyncio.gather(*workers, return_exceptions=True)
    if work.lost is None:
        await _write(work, rulings)
    for error in ended:
        if isinstance(error, BaseException):
            raise error
