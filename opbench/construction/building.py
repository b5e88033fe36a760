"""Building: from a spec and conversations to candidate questions in the store, resumable at any moment."""

from __future__ import annotations

import asyncio
import platform
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from pydantic import SecretStr

from opbench import __version__
from opbench.construction.asking import Asker
from opbench.construction.at_work import AtWork, at_work
from opbench.construction.loading import Source, keep, source_of
from opbench.construction.making import Making, together
from opbench.construction.people import person
from opbench.construction.profiles import make_observations, make_profile, make_summaries
from opbench.construction.progress import Counting, Progress, candidate_states, read_progress
from opbench.construction.prompting import prompt_digests
from opbench.construction.slots import MOST_SLOTS, Outline, Slot, needs_similarity, slots, users_of
from opbench.construction.spec import ROLES, BuildSpec
from opbench.construction.tasks import fill, fill_repetition, judge_topics
from opbench.errors import OpbenchError, UsageError
from opbench.models import ModelClient, load_registry
from opbench.running.prepare import call_store, git_commit
from opbench.store.builds import add_provenance, create_build, load_build, read_units
from opbench.store.database import Store
from opbench.types import User


def start(store: Store, spec: BuildSpec, source: Source, *, maker: str = "") -> str:
    """Make a build in the store and keep its conversations; no model is asked. Returns its id.

    Raises:
        UsageError: a user, model or embedder isn't known, or isn't installed; or it is too much for one build.
        DataError: the conversations can't be kept.
    """
    outline = Outline(spec, source)
    if len(outline.slots) > MOST_SLOTS:
        raise UsageError(
            f"{len(outline.slots):,} calls of generators are too many for one build; at most {MOST_SLOTS:,}."
        )
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
    for role in ROLES:
        for name in spec.model_of(role):
            registry.model(name)
    async with ModelClient(registry, keys=dict(keys or {})) as client:
        calls = call_store(store, registry, client, lambda name: min(concurrency, client.at_a_time(name)))
        halt = client.stats.in_vain.reason_to_halt
        async with at_work(store, build_id, reason_to_halt=halt, on_stop=on_stop, keep_request=keep_request) as work:
            await store.in_thread(add_provenance, store, build_id, _this_start(known.provenance, concurrency))
            units = await store.in_thread(read_units, store, build_id)
            states = await store.in_thread(candidate_states, store, build_id)
            counting = Counting(spec, source, units, states, work, on_progress)
            making = Making(
                spec, source, Asker(calls, registry), work, units, asyncio.Semaphore(concurrency), again, counting.add
            )
            try:
                await _everything(making, users)
            finally:
                # What was answered and belongs to no unit that could be written is paid for all the same.
                await calls.settle()
                await calls.keep_all()
            if not work.stopping:
                work.halted = counting.left()
            answered = {name: set(names) for name, names in client.stats.answered_as.items()}
            await store.in_thread(_add_answered_as, store, build_id, answered)
    return await store.in_thread(read_progress, store, build_id)


async def _everything(making: Making, users: Sequence[User]) -> None:
    by_user: dict[str, list[Slot]] = defaultdict(list)
    for slot in slots(making.spec, users):
        by_user[slot.user.id].append(slot)
    summarised = {
        name: asyncio.ensure_future(make_summaries(making, name))
        for name in dict.fromkeys(user.conversation for user in users)
    }
    of_users = [_user(making, user, by_user[user.id], summarised[user.conversation]) for user in users]
    await together(_stopping_others(making.work, job) for job in of_users)


async def _user(making: Making, user: User, mine: Sequence[Slot], summarised: asyncio.Future[bool]) -> None:
    async def observed() -> bool:
        await make_observations(making, user)
        return True

    if not all(await together([summarised, observed()])) or not await make_profile(making, user):
        return
    known = person(making.source, making.units, user)
    if needs_similarity(making.spec):
        await judge_topics(making, known)
    chains: dict[tuple[object, ...], list[Slot]] = defaultdict(list)
    for slot in mine:
        chains[(slot.generator, slot.topic) if slot.topic else (slot.generator, slot.what, slot.detail)].append(slot)
    await together(
        _stopping_others(making.work, (fill_repetition if chain[0].topic else fill)(making, known, chain))
        for chain in chains.values()
    )


async def _stopping_others(work: AtWork, job: Awaitable[None]) -> None:
    """The job; after an error nothing new is begun."""
    try:
        await job
    except Exception as error:
        work.stop(f"Ended by an error: {error if isinstance(error, OpbenchError) else type(error).__name__}")
        raise


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


def _add_answered_as(store: Store, build_id: str, names: Mapping[str, set[str]]) -> None:
    known = load_build(store, build_id).provenance.get("answered_as", {})
    merged = {name: sorted({*known.get(name, ()), *names.get(name, ())}) for name in {**known, **names}}
    add_provenance(store, build_id, {"answered_as": merged})
