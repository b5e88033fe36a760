"""Measuring how alike a question and the memories retrieved for it are (paper, section 4.3 and figure 5).

Cosine of the question's and each memory's embedding, by one embedder for all memory systems: what systems tell as
similarity themselves is on scales of their own. Where the run has no memory system `random`, as many memories of the
same user are drawn at random and measured as `random`: the control. Vectors go through the call store, so that none is
paid twice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import SecretStr

from opbench.benchmarks.built import corpus_of
from opbench.errors import DataError, UsageError
from opbench.gateway.vectors import VectorStore
from opbench.memories.random import RandomMemories
from opbench.models import ModelClient, get_embedder, load_registry
from opbench.models.embeddings import Vectors
from opbench.running.call_keys import call_key
from opbench.running.prepare import call_store
from opbench.store import similarities as kept
from opbench.store.database import Store
from opbench.store.runs import run_study
from opbench.types import Corpus

Embed = Callable[[Sequence[str]], Awaitable[Vectors]]
#: Called with how many retrievals are measured and how many there are.
OnProgress = Callable[[int, int], None]
Control = Literal["run", "drawn", ""]
#: Instances measured and written at a time: what is lost when the process is killed.
_BATCH = 16


@dataclass(frozen=True, slots=True)
class Measured:
    """What a measurement did."""

    embedder: str
    planned: int
    """Retrievals of the run: memory systems × instances, as far as records are done."""
    made: int
    """Of them, those that were measured now."""
    control: Control
    """`run`: the run has random memories; `drawn`: they were drawn for this; empty: there are none, `note` says why."""
    note: str = ""
    cancelled: bool = False


def measure_similarities(
    store: Store,
    run_id: str,
    embedder: str | None = None,
    on_progress: OnProgress | None = None,
    *,
    keys: Mapping[str, SecretStr] | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> Measured:
    """Measure all retrievals of a run that aren't measured yet. Takes a network and time where the embedder does.

    `embedder` is a registry name, the study's own by default. `keys` are session keys by environment variable name;
    `cancelled` is asked between batches: what was measured until then is kept.

    Raises:
        UsageError: the run's texts were left out, it has no retrieval, or there is no such embedder.
        ModelError: the embedder failed for good; what was measured until then is kept.
    """
    study, _ = run_study(store, run_id)
    name = embedder or study.embedder
    registry = load_registry()
    spec = registry.embedder(name)

    async def work() -> Measured:
        client = ModelClient(registry, keys=dict(keys or {}))
        try:
            calls = call_store(store, registry, client, lambda model: registry.model(model).concurrency)
            made = get_embedder(name, registry, client)
            vectors = VectorStore(calls, made, spec)

            async def embed(texts: Sequence[str]) -> Vectors:
                return (await vectors.get(texts)).vectors

            identity = call_key("similarities", made.identity())[:16]
            return await measure(store, run_id, name, embed, on_progress, cancelled, identity=identity)
        finally:
            await client.aclose()

    return asyncio.run(work())


async def measure(
    store: Store,
    run_id: str,
    embedder: str,
    embed: Embed,
    on_progress: OnProgress | None = None,
    cancelled: Callable[[], bool] | None = None,
    *,
    identity: str = "",
) -> Measured:
    """As `measure_similarities`, by whatever `embed` does; `embedder` is the name that the numbers are kept under, and
    `identity` (at most 16 signs) what tells embedders of one name apart.

    `embed` takes texts that aren't blank and gives L2-normalised rows.

    Raises:
        UsageError: the run's texts were left out, or it has no retrieval.
    """
    everything = kept.retrieved_by(store, run_id)
    if not everything:
        raise UsageError(
            f"run {run_id} has no retrieval yet: it has no memory system, or none of its records is done. Go on with "
            "the run, or choose one with a memory system."
        )
    waiting = kept.waiting(store, run_id, embedder, identity)
    control = _ControlOf(store, run_id, embedder, identity, everything)
    # By instance, so that one is whole with its control when a batch is written.
    instances = list(dict.fromkeys([each.instance for each in waiting] + control.missing))
    done = len(everything) - len(waiting)
    made = 0
    if on_progress is not None:
        on_progress(done, len(everything))
    for start in range(0, len(instances), _BATCH):
        if cancelled is not None and cancelled():
            return Measured(embedder, len(everything), made, control.kind, control.note, cancelled=True)
        batch = set(instances[start : start + _BATCH])
        mine = [each for each in waiting if each.instance in batch]
        first = {each.instance: each.record_id for each in everything if each.instance in batch}
        read_at = time.time()
        texts = kept.retrieved_texts(store, [*(each.record_id for each in mine), *first.values()])
        lists = [(each.memory, each.instance, *texts[each.record_id]) for each in mine if each.record_id in texts]
        lists += [
            (kept.CONTROL, name, texts[first[name]][0], await control.draw(name, texts[first[name]][0]))
            for name in control.missing
            if name in batch and first[name] in texts
        ]
        rows = await _cosines(embed, lists)
        await asyncio.to_thread(kept.save_similarities, store, run_id, embedder, rows, read_at, identity=identity)
        made += len(mine)
        if on_progress is not None:
            on_progress(done + made, len(everything))
    return Measured(embedder, len(everything), made, control.kind, control.note)


async def _cosines(
    embed: Embed, lists: Sequence[tuple[str, str, str, Sequence[str]]]
) -> list[tuple[str, str, list[float | None]]]:
    """Of (memory system, instance, question, memories): the cosines of question and memories."""
    wanted = dict.fromkeys(
        text
        for _, _, question, memories in lists
        if question.strip() and any(each.strip() for each in memories)
        for text in (question, *memories)
        if text.strip()
    )
    if not wanted:
        return [(memory, instance, [None] * len(memories)) for memory, instance, _, memories in lists]
    vectors = (await embed(list(wanted))).astype(np.float64)
    at = {text: place for place, text in enumerate(wanted)}

    def cosine(question: str, text: str) -> float | None:
        if question not in at or text not in at:
            return None
        # Rounding makes 1.0000001 of what is equal.
        return float(np.clip(vectors[at[question]] @ vectors[at[text]], -1.0, 1.0))

    return [
        (memory, instance, [cosine(question, text) for text in memories])
        for memory, instance, question, memories in lists
    ]


class _ControlOf:
    """Draws random memories for the instances of a run that has no memory system of that kind."""

    def __init__(
        self, store: Store, run_id: str, embedder: str, identity: str, retrievals: Sequence[kept.Retrieved]
    ) -> None:
        study, provenance = run_study(store, run_id)
        self.kind: Control = "run"
        self.note = ""
        self.missing: list[str] = []
        """Instances whose control isn't measured yet."""
        self._k = study.k
        self._memories = RandomMemories()
        self._users = {each.instance: each.user for each in retrievals}
        if any(each.memory == kept.CONTROL for each in retrievals) or kept.CONTROL in study.memories:
            return
        try:
            self._corpus = _corpus(study.data, provenance.get("data"))
        except (DataError, UsageError) as error:
            self.kind, self.note = "", f"No control of random memories: {error}"
            return
        self.kind = "drawn"
        made = kept.measured_instances(store, run_id, kept.CONTROL, embedder, identity)
        self.missing = [name for name in self._users if name not in made]

    async def draw(self, instance: str, question: str) -> tuple[str, ...]:
        """Texts of k memories of the instance's user, the same at every draw."""
        user = self._corpus.users[self._users[instance]]
        await self._memories.ingest(user, self._corpus.conversations[user.conversation].sessions)
        return tuple(found.text for found in await self._memories.search(user, question, self._k))


def _corpus(data: str, sha256: object) -> Corpus:
    """Raises DataError when the data aren't here, UsageError when they aren't those of the run."""
    corpus = corpus_of(data)
    if corpus.sha256 != sha256:
        raise UsageError(
            "the data here aren't those that the run was made with (their digests differ). Set OPBENCH_DATA."
        )
    return corpus
