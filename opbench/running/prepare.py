"""From a study to something that can run: data, slice, identities of all parts, and so the run's id."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from mitigations.base import PostProcessor
from mitigations.registry import BrokenPlugin, UnknownMitigation
from mitigations.registry import get as get_mitigation
from opbench import __version__
from opbench.benchmarks import load, select
from opbench.benchmarks.built import corpus_of
from opbench.benchmarks.exclusions import excluded
from opbench.benchmarks.exclusions import get as exclusion_list
from opbench.errors import UsageError
from opbench.gateway.server import Gateway
from opbench.judges import is_rule_judge, make_judge
from opbench.judges.base import Judge
from opbench.memories import Ingesting, MemoryContext, MemorySystem, make_memory, needs_extractor
from opbench.memories.history import history_sha256
from opbench.models import Embedder, ModelClient, Registry, cost, get_embedder, load_registry
from opbench.plugins import loaded_plugins
from opbench.running.calls import CallStore
from opbench.running.response_prompts import memos_prompts_sha256, prompts_sha256
from opbench.settings import ROOT, settings
from opbench.store.database import Store
from opbench.store.writing import create_run
from opbench.study import Configuration, Study, study_hash
from opbench.types import Corpus, Instance

RUN_ID_LENGTH = 12
#: The paper's embedder for repetition (sections 3.2.3 and 4.3); half of OP-Bench's instances are scored by it.
PAPER_EMBEDDER = "text-embedding-3-small"


@dataclass(frozen=True, slots=True)
class Prepared:
    """A study with its parts at hand. `run_id` is the head of the study's hash: the same study is the same run."""

    study: Study
    corpus: Corpus
    instances: list[Instance]
    registry: Registry
    client: ModelClient
    embedder: Embedder
    gateway: Gateway
    memories: dict[str, MemorySystem]
    extractor: str | None
    """Registry name of the model that memory systems extract with; None when no system of the study needs one."""
    mitigations: dict[str, PostProcessor]
    judge: Judge
    history_sha256: dict[str, str]
    provenance: dict[str, Any]
    digest: str

    @property
    def run_id(self) -> str:
        return self.digest[:RUN_ID_LENGTH]

    def at_a_time(self, model: str, concurrency: int) -> int:
        """Requests that a model gets at a time in a run of that concurrency, when its endpoint bears them all."""
        return 1 if self.study.latency_probe else min(concurrency, self.registry.model(model).concurrency)

    def register(self, store: Store) -> dict[Configuration, int]:
        """Make the run in the store, or find it there; the ids of its configurations, in the study's order."""
        ids = create_run(store, self.run_id, self.study, self.digest, self.provenance, self.instances)
        return {configuration: ids[configuration] for configuration in self.study.configurations()}

    @property
    def ingesting(self) -> dict[str, Ingesting]:
        """The memory systems that take histories in through the gateway."""
        return {name: memory for name, memory in self.memories.items() if isinstance(memory, Ingesting)}

    async def aclose(self) -> None:
        await _close(self.memories, self.gateway, self.client)


@dataclass(frozen=True, slots=True)
class PreparedMemories:
    """Memory systems with all that they need to ingest and be searched outside of any study."""

    corpus: Corpus
    registry: Registry
    client: ModelClient
    embedder: Embedder
    gateway: Gateway
    memories: dict[str, MemorySystem]
    extractor: str | None

    @property
    def ingesting(self) -> dict[str, Ingesting]:
        """Those that take histories in through the gateway."""
        return {name: memory for name, memory in self.memories.items() if isinstance(memory, Ingesting)}

    def at_a_time(self, model: str, concurrency: int) -> int:
        """Requests that a model gets at a time at that concurrency, when its endpoint bears them all."""
        return min(concurrency, self.registry.model(model).concurrency)

    async def aclose(self) -> None:
        await _close(self.memories, self.gateway, self.client)


async def _close(memories: Mapping[str, MemorySystem], gateway: Gateway, client: ModelClient) -> None:
    async with AsyncExitStack() as stack:
        stack.push_async_callback(client.aclose)
        stack.push_async_callback(gateway.aclose)
        for memory in memories.values():
            stack.push_async_callback(memory.aclose)


def connect(store: Store, prepared: Prepared | PreparedMemories, concurrency: int, of: int = 1) -> CallStore:
    """The call store in front of the model client; the gateway answers through it from now on.

    Calls are kept with the number of requests that their model got at a time when they were made: from all the
    processes of the run together, of which this is one `of` so many.
    """

    def at_a_time(name: str) -> int:
        if of > 1:
            # Each of more processes than the endpoint takes requests at a time sends one all the same.
            return min(concurrency, prepared.client.at_a_time(name) * of)
        return min(prepared.at_a_time(name, concurrency), prepared.client.at_a_time(name))

    calls = call_store(store, prepared.registry, prepared.client, at_a_time)
    prepared.gateway.connect(calls)
    return calls


def call_store(store: Store, registry: Registry, client: ModelClient, at_a_time: Callable[[str], int]) -> CallStore:
    """The call store in front of a model client; `at_a_time` tells how many requests a model gets at a time."""
    return CallStore(
        store,
        client.complete,
        # Once a model: an identity asks files and packages, and every call's key holds one.
        cache(lambda name: registry.model(name).identity()),
        lambda name, tokens_in, tokens_out: cost(registry.model(name), tokens_in, tokens_out),
        at_a_time,
        client.complete,
    )


def prepare_memories(
    names: Sequence[str],
    *,
    extractor: str | None = None,
    embedder: str = "minilm",
    data: str = "auto",
    keys: Mapping[str, SecretStr] | None = None,
) -> PreparedMemories:
    """Memory systems for commands and pages that ingest, search or browse. Makes no call to any model.

    `extractor` is a registry name; None is for systems that need none. `data` and `keys` as in `prepare`.

    Raises:
        UsageError: something named doesn't exist or isn't installed, or an extractor is needed and none is named.
        DataError: a benchmark file is damaged.
    """
    return _with_memories(load("sample" if data == "sample" else None), names, extractor, embedder, keys)


def _with_memories(
    corpus: Corpus,
    names: Sequence[str],
    extractor: str | None,
    embedder: str,
    keys: Mapping[str, SecretStr] | None,
    share: int = 1,
) -> PreparedMemories:
    registry = load_registry()
    if extractor is not None:
        registry.model(extractor)
    client = ModelClient(registry, keys=dict(keys or {}), share=share)
    made = get_embedder(embedder, registry, client)
    gateway = Gateway(registry, client, made)
    context = MemoryContext(made, settings().cache, settings().kept, registry, gateway, extractor)
    memories = {name: make_memory(name, context) for name in names}
    return PreparedMemories(corpus, registry, client, made, gateway, memories, extractor)


def extractor_of(study: Study) -> str | None:
    """The model that the study's memory systems extract with; None when none of them needs one.

    Raises:
        UsageError: one is needed, and the study has several models and names none.
    """
    needing = [name for name in study.memories if needs_extractor(name)]
    if study.extractor is not None:
        return study.extractor
    if len(study.models) == 1:
        return study.models[0]
    if needing:
        raise UsageError(
            f"{' and '.join(needing)} extract memories with a model, and the study has {len(study.models)}: name one "
            f"with --extractor (in a study file: extractor), e.g. --extractor {study.models[0]}."
        )
    return None


def prepare(study: Study, keys: Mapping[str, SecretStr] | None = None, share: int = 1) -> Prepared:
    """Load what the study names and work out its hash. Makes no call to any model.

    `keys` are session keys by environment variable name; they are used and never kept. `share`: this process is one
    of so many that run the study, and keeps to its part of every endpoint's limits.

    Raises:
        UsageError: the study names something that doesn't exist.
        DataError: a benchmark file is damaged.
    """
    corpus = corpus_of(study.data)
    instances = select(
        corpus,
        study.benchmarks,
        users=study.users,
        subtypes=study.subtypes,
        limit=study.limit,
        seed=study.seed,
        adversarial=study.adversarial,
        exclude=excluded(study.exclude, corpus),
    )
    parts = _with_memories(corpus, study.memories, extractor_of(study), study.embedder, keys, share)
    registry = parts.registry
    for model in study.models:
        registry.model(model)
    try:
        mitigations = {name: get_mitigation(name) for name in study.mitigations}
    except (UnknownMitigation, BrokenPlugin) as error:
        raise UsageError(str(error)) from None
    judge = make_judge(study.judge, study.judge_pack, protocol=study.protocol)
    if not is_rule_judge(study.judge):
        registry.model(study.judge)
    conversations = {instance.user.conversation for instance in instances}
    history = {key: history_sha256(corpus.conversations[key]) for key in sorted(conversations)}
    decisive: dict[str, Any] = {
        "data": corpus.sha256,
        "history": history,
        "response_prompts": prompts_sha256(),
        "models": {name: registry.model(name).identity() for name in sorted(study.models)},
        "embedder": parts.embedder.identity(),
        "memories": {name: memory.identity() for name, memory in sorted(parts.memories.items())},
        "mitigations": {name: method.prompt_sha256 for name, method in sorted(mitigations.items())},
        "judge": {
            **judge.provenance(),
            **({} if is_rule_judge(study.judge) else {"model": registry.model(study.judge).identity()}),
        },
    }
    if study.protocol == "memos" and "locomo" in study.benchmarks:
        decisive["protocol"] = memos_identity()
    if study.exclude:
        decisive["exclusions"] = {name: exclusion_list(name).sha256 for name in sorted(study.exclude)}
    if plugins := loaded_plugins():
        decisive["plugins"] = plugins
    return Prepared(
        study,
        corpus,
        instances,
        registry,
        parts.client,
        parts.embedder,
        parts.gateway,
        parts.memories,
        next((memory.extractor for memory in parts.ingesting.values() if memory.extractor), None),
        mitigations,
        judge,
        history,
        {
            **decisive,
            "data_source": corpus.source,
            "comparable": judge.comparable and study.embedder == PAPER_EMBEDDER and corpus.source != "build",
            "workbench": __version__,
            "git_commit": git_commit(),
            "python": platform.python_version(),
            "machine": platform.machine(),
        },
        study_hash(study, decisive),
    )


def memos_identity() -> dict[str, str]:
    """All that makes LoCoMo's numbers by protocol memos, beside the judge's model."""
    # Its libraries take a second to load, which a study by the other protocol shouldn't wait for.
    from opbench.judges.memos import VERSION, judge_prompts_sha256

    return {
        "name": "memos",
        "answer_prompts": memos_prompts_sha256(),
        "judge_prompts": judge_prompts_sha256(),
        "version": VERSION,
    }


def git_commit(folder: Path = ROOT) -> str:
    """The commit that made the results, with `+` when files were changed since; `unknown` outside a checkout."""
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        return commit + ("+" if _git(folder, "status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True, timeout=10)
    return done.stdout.strip()
