"""Building: from a spec and conversations to candidate questions in the store, resumable at any moment."""

from __future__ import annotations

import asyncio
import platform
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from pydantic import SecretStr

from opbench import __version__
from opbench.construction.asking import Asker
from opbench.construction.at_work import AtWork, at_work
from opbench.construction.loading import Source, keep, source_of
from opbench.construction.making import Making
from opbench.construction.people import facts_of, person
from opbench.construction.profiles import make_observations, make_profile, make_summaries
from opbench.construction.progress import Counting, Progress
from opbench.construction.prompting import prompt_digests
from opbench.construction.slots import Slot, needs_similarity, slots, users_of
from opbench.construction.spec import ROLES, BuildSpec
from opbench.construction.tasks import fill, fill_repetition, judge_topics
from opbench.errors import StoreError
from opbench.models import ModelClient, load_registry
from opbench.running.prepare import call_store, git_commit
from opbench.store.builds import Unit, add_provenance, create_build, load_build, read_units
from opbench.store.database import Store
from opbench.types import User


def start(store: Store, spec: BuildSpec, source: Source, *, maker: str = "") -> str:
    """Make a build in the store and keep its conversations; no model is asked. Returns its id.

    Raises:
        UsageError: a user, model or embedder isn't known, or isn't installed.
        DataError: the conversations can't be kept.
    """
    users_of(spec, source)
    registry = load_registry()
    models = {name: registry.model(name).identity() for role in ROLES for name in spec.model_of(role)}
    embedder = registry.embedder(spec.embedder).identity()
    keep(source)
    provenance = {
        "conversations": source.stamp(),
        "prompts": prompt_digests(),
        "models": models,
        "embedder": embedder,
        "workbench": __version__,
        "git_commit": git_commit(),
        "python": platform.python_version(),
    }
    return create_build(store, spec, provenance, maker=maker)


async def build(
    store: Store,
    build_id: str,
    *,
    concurrency: int = 8,
    keys: Mapping[str, SecretStr] | None = None,
    again: bool = False,
    keep_request: bool = False,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    on_stop: Callable[[], None] = lambda: None,
) -> Progress:
    """Do what is missing of stages 1 and 2; each unit is kept when it is done. The first Ctrl-C finishes what is in
    hand, the second leaves at once; `on_stop` is called at the first.

    `concurrency`: requests under way at most, also bounded by what each model may get. `keys` (by environment variable)
    live in memory only. Units that failed in transport are done again; with `again` also those whose answers were
    unusable, under another seed. `keep_request` is for a start by `launching.launch`.

    Raises:
        UsageError: no such build, another process is at work on it, or a model isn't known.
        DataError: its conversations aren't here.
        LeaseLost: another start took the build meanwhile.
        StoreError: the store can't be written; what was committed stays.
    """
    known = load_build(store, build_id)
    spec, source = known.spec, source_of(known.provenance)
    users = users_of(spec, source)
    registry = load_registry()
    async with ModelClient(registry, keys=dict(keys or {})) as client:
        calls = call_store(store, registry, client, lambda name: min(concurrency, client.at_a_time(name)))
        halt = client.stats.in_vain.reason_to_halt
        async with at_work(
            store, build_id, reason_to_halt=halt, on_stop=on_stop, keep_request=keep_request
        ) as work:
            await store.in_thread(add_provenance, store, build_id, _this_start(known.provenance, concurrency))
            units = await store.in_thread(read_units, store, build_id)
            counting = Counting(spec, source, units, work)

            def told(unit: Unit, candidates: int) -> None:
                counting.add(unit, candidates)
                on_progress(counting.progress())

            making = Making(spec, source, Asker(calls, registry), work, units, asyncio.Semaphore(concurrency), again, told)
            on_progress(counting.progress())
            try:
                await _everything(making, users)
            finally:
                # What was answered and belongs to no unit that could be written is paid for all the same.
                await calls.settle()
                await calls.keep_all()
            if not work.stopping:
                work.halted = counting.left()
        answered = {name: sorted(names) for name, names in client.stats.answered_as.items()}
        if answered:
            await store.in_thread(_add_answered_as, store, build_id, answered)
    return counting.progress()


async def _everything(making: Making, users: Sequence[User]) -> None:
    by_user: dict[str, list[Slot]] = defaultdict(list)
    for slot in slots(making.spec, users):
        by_user[slot.user.id].append(slot)
    summarised = {
        name: asyncio.ensure_future(make_summaries(making, name))
        for name in dict.fromkeys(user.conversation for user in users)
    }
    await _all(
        making.work,
        [_user(making, user, by_user[user.id], summarised[user.conversation]) for user in users],
    )


async def _user(making: Making, user: User, mine: Sequence[Slot], summarised: asyncio.Future[bool]) -> None:
    whole, _ = await asyncio.gather(summarised, make_observations(making, user))
    if not whole or not await make_profile(making, user):
        return
    known = person(making.source, making.units, user)
    if needs_similarity(making.spec):
        await judge_topics(making, known)
    chains: dict[tuple[object, ...], list[Slot]] = defaultdict(list)
    for slot in mine:
        repetition = slot.what in ("subtopics", "repetition")
        chains[(slot.generator, slot.topic) if repetition else (slot.generator, slot.what, slot.detail)].append(slot)
    await _all(
        making.work,
        [(fill_repetition if chain[0].topic else fill)(making, known, chain) for chain in chains.values()],
    )


async def _all(work: AtWork, jobs: Sequence[Coroutine[Any, Any, None]]) -> None:
    """All of them to their ends; after an error nothing new is begun, what is in hand is finished, and it is raised."""

    async def one(job: Coroutine[Any, Any, None]) -> None:
        try:
            await job
        except Exception as error:
            said = str(error) if isinstance(error, StoreError) else type(error).__name__
            work.stop(f"Ended by an error: {said}")
            raise

    ended = await asyncio.gather(*(one(job) for job in jobs), return_exceptions=True)
    for error in ended:
        if isinstance(error, BaseException):
            raise error


def _this_start(provenance: Mapping[str, Any], concurrency: int) -> dict[str, Any]:
    """This start among those before; prompts are told as they are now, since units carry the digests of their own."""
    now = {
        "at": time.time(),
        "workbench": __version__,
        "git_commit": git_commit(),
        "concurrency": concurrency,
        "prompts": prompt_digests(),
    }
    return {"starts": [*provenance.get("starts", []), now]}


def _add_answered_as(store: Store, build_id: str, names: Mapping[str, Sequence[str]]) -> None:
    known = load_build(store, build_id).provenance.get("answered_as", {})
    merged = {name: sorted({*known.get(name, []), *found}) for name, found in (dict.fromkeys(known, ()) | dict(names)).items()}
    add_provenance(store, build_id, {"answered_as": merged})


__all__ = ["build", "facts_of", "start"]
