"""What the columns of a case are answered with: data, models, memory systems, post-processors and judge."""

from __future__ import annotations

import asyncio
import platform
import threading
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from pydantic import SecretStr

from mitigations import BrokenPlugin, PostProcessor, UnknownMitigation, reworded
from mitigations import get as get_mitigation
from opbench import __version__
from opbench.benchmarks import load
from opbench.cases import drafts
from opbench.cases.published import plain
from opbench.cases.spec import CaseSpec, Column
from opbench.errors import OpbenchError, UsageError
from opbench.gateway.server import Gateway
from opbench.judges import is_rule_judge, make_judge
from opbench.judges.base import Evidence, Judge
from opbench.memories import MemoryContext, MemorySystem, make_memory, needs_extractor
from opbench.memories.history import history_sha256
from opbench.models import Embedder, ModelClient, Registry, get_embedder, load_registry
from opbench.models.endpoint import OnRetry
from opbench.plugins import loaded_plugins
from opbench.running.calls import CallStore
from opbench.running.pipeline import Tools
from opbench.running.prepare import call_store, git_commit
from opbench.running.response_prompts import prompts_sha256
from opbench.running.retrieval import Retrieval
from opbench.settings import settings
from opbench.store.database import Store
from opbench.study import BASE, Configuration, make_study
from opbench.types import OP_SUBTYPES, Complete, Corpus, Instance, Score


@dataclass(frozen=True)
class Kit:
    """Made anew for each work on a case, so that the registry's files count as they are then; closed at its end."""

    spec: CaseSpec
    corpus: Corpus
    instance: Instance
    registry: Registry
    client: ModelClient
    embedder: Embedder
    gateway: Gateway
    calls: CallStore
    _memories: dict[tuple[str, str | None], MemorySystem] = field(default_factory=dict)
    _made: dict[str, Judge] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def at_a_time(self, model: str) -> int:
        """Columns of a model that are answered side by side; an unknown one fails soon."""
        spec = self.registry.models.get(model)
        return 1 if spec is None or spec.kind == "embedded" else spec.concurrency

    def configuration(self, column: Column) -> Configuration:
        return Configuration(column.model, column.memory, column.mitigation)

    def judge(self) -> Judge:
        """The case's judge. May load for seconds, once.

        Raises:
            UsageError: there is no such judge, or its prompts aren't there.
            DataError: a prompt is damaged.
        """
        with self._lock:
            if "judge" not in self._made:
                self._made["judge"] = make_judge(self.spec.judge, self.spec.judge_pack)
            return self._made["judge"]

    def memory(self, column: Column) -> MemorySystem:
        """The column's memory system. May import a library for seconds, once.

        Raises:
            UsageError: there is no such memory system, or what it needs isn't installed.
        """
        extractor = (self.spec.extractor or column.model) if needs_extractor(column.memory) else None
        with self._lock:
            key = (column.memory, extractor)
            if key not in self._memories:
                context = MemoryContext(
                    self.embedder, settings().cache, settings().kept, self.registry, self.gateway, extractor
                )
                self._memories[key] = make_memory(column.memory, context)
            return self._memories[key]

    def tools(self, column: Column) -> Tools:
        """What the pipeline answers the column with.

        Raises:
            UsageError: the column names something that doesn't exist or isn't installed.
        """
        self.registry.model(column.model)
        user = self.instance.user
        study = make_study(
            {
                "models": (column.model,),
                "memories": (column.memory,),
                "mitigations": (column.mitigation,),
                "benchmarks": (self.instance.benchmark,),
                "users": (user.id,),
                "k": self.spec.k if column.k is None else column.k,
                "temperature": self.spec.temperature if column.temperature is None else column.temperature,
                "max_tokens": self.spec.max_tokens,
                "judge": self.spec.judge,
                "judge_pack": self.spec.judge_pack,
                "embedder": self.spec.embedder,
                "extractor": self.spec.extractor,
                "data": self.spec.data,
            },
            where="the column",
        )
        # Given memories need no memory system: it may not even be installed.
        searched = column.memory != BASE and column.given is None
        memories = {column.memory: self.memory(column)} if searched else {}
        history = {user.conversation: self.history_sha256()} if searched else {}
        return Tools(
            study,
            self.corpus,
            self.calls,
            Retrieval(study, self.corpus, memories, history),
            {column.mitigation: post_processor(column)},
            _Later(self),
            1,
            "case",
        )

    def history_sha256(self) -> str:
        return history_sha256(self.corpus.conversations[self.instance.user.conversation])

    def provenance(self) -> dict[str, Any]:
        """What the answers rest on, as JSON values; names what isn't there as what it is. Takes a moment."""
        judge = self.judge()
        plugins = loaded_plugins()
        memories = {
            f"{name} ({extractor})" if extractor else name: m for (name, extractor), m in self._memories.items()
        }
        return {
            "data": self.corpus.sha256,
            "data_source": self.corpus.source,
            "history": {self.instance.user.conversation: self.history_sha256()},
            "response_prompts": prompts_sha256(),
            "models": {name: self._identity(name) for name in sorted({column.model for column in self.spec.columns})},
            "answered_as": {name: sorted(names) for name, names in sorted(self.client.stats.answered_as.items())},
            "embedder": self.embedder.identity(),
            "memories": {name: memory.identity() for name, memory in sorted(memories.items())},
            "columns": [_prompts(column) for column in self.spec.columns],
            "judge": {
                **judge.provenance(),
                **({} if is_rule_judge(self.spec.judge) else {"model": self._identity(self.spec.judge)}),
            },
            "comparable": judge.comparable,
            **({"plugins": plugins} if plugins else {}),
            "workbench": __version__,
            "git_commit": _commit(),
            "python": platform.python_version(),
            "machine": platform.machine(),
        }

    def _identity(self, model: str) -> dict[str, str] | None:
        spec = self.registry.models.get(model)
        return None if spec is None else spec.identity()

    async def aclose(self) -> None:
        """Cancel calls under way and close all that is open."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self.client.aclose)
            stack.push_async_callback(self.gateway.aclose)
            for memory in self._memories.values():
                stack.push_async_callback(memory.aclose)
            stack.push_async_callback(self.calls.aclose)


class _Later:
    """The case's judge, made at the first response: what it loads must not keep the first column from answering."""

    comparable = False

    def __init__(self, kit: Kit) -> None:
        self._kit = kit
        self.name = kit.spec.judge

    def provenance(self) -> dict[str, str]:
        return self._kit.judge().provenance()

    async def score(self, evidence: Evidence, complete: Complete) -> list[Score]:
        try:
            judge = await asyncio.to_thread(self._kit.judge)
        except OpbenchError as error:
            return [Score("score", None, f"judge: {error}")]
        return await judge.score(evidence, complete)


def make_kit(
    store: Store, spec: CaseSpec, keys: Mapping[str, SecretStr] | None = None, on_retry: OnRetry | None = None
) -> Kit:
    """Load what the whole case needs. Makes no call to any model, and loads nothing that BASE could do without.

    Raises:
        UsageError: the case names a user, an instance, a judge or an embedder that doesn't exist, or they don't go
            together; a registry file is wrong.
        DataError: a benchmark file is damaged.
    """
    corpus = load("sample" if spec.data == "sample" else None)
    instance = asked(spec, corpus)
    registry = load_registry()
    if not is_rule_judge(spec.judge):
        registry.model(spec.judge)
    if spec.extractor is not None:
        registry.model(spec.extractor)
    client = ModelClient(registry, keys=keys, on_retry=on_retry)
    embedder = get_embedder(spec.embedder, registry, client)
    gateway = Gateway(registry, client, embedder)
    calls = call_store(store, registry, client, lambda name: min(len(spec.columns), registry.model(name).concurrency))
    gateway.connect(calls)
    return Kit(spec, corpus, instance, registry, client, embedder, gateway, calls)


def asked(spec: CaseSpec, corpus: Corpus) -> Instance:
    """What the case asks, as an instance: the benchmark's own, or one made of the free question.

    Raises:
        UsageError: there is no such user or instance, or it isn't that user's, or its question is another one.
    """
    user = corpus.users.get(spec.user)
    if user is None:
        raise UsageError(f"no user '{spec.user}' in this data. There are: {', '.join(corpus.users)}.")
    if spec.instance is None:
        if spec.subtype not in OP_SUBTYPES:
            raise UsageError(
                f"a free question can't be judged as '{spec.subtype}': take one of {', '.join(OP_SUBTYPES)}."
            )
        return Instance(f"case/{user.id}", "op", user, spec.subtype, spec.question)
    found = next((each for each in (*corpus.op, *corpus.locomo) if each.id == spec.instance), None)
    if found is None:
        raise UsageError(f"no instance '{spec.instance}' in this data. `opbench instances` lists them.")
    if found.user.id != user.id:
        raise UsageError(f"{found.id} is asked of {found.user.id}, and the case names {user.id}: name that user.")
    if plain(found.question) != plain(spec.question):
        raise UsageError(
            f"the question isn't that of {found.id}: take it as it is, or leave the instance out: a free question."
        )
    # The appendix prints some with other quotation marks: what is shown is what is asked.
    return replace(found, question=spec.question)


def post_processor(column: Column) -> PostProcessor:
    """The column's method: the registered one, reworded where the column says so, or its draft.

    Raises:
        UsageError: there is no such method, or it has no such section to be worded otherwise.
    """
    try:
        if (draft := column.draft) is not None:
            method: PostProcessor = drafts.method(draft)
        else:
            method = get_mitigation(column.mitigation)
        return reworded(method, column.prompts) if column.prompts else method
    except (UnknownMitigation, BrokenPlugin, ValueError) as error:
        raise UsageError(str(error)) from None


def _prompts(column: Column) -> dict[str, str | None]:
    try:
        sha256 = post_processor(column).prompt_sha256
    except UsageError:
        sha256 = None
    named = {"model": column.model, "memory": column.memory, "mitigation": column.mitigation}
    return {**named, "prompt_sha256": sha256}


@cache
def _commit() -> str:
    """Of the code that this process runs: asked once."""
    return git_commit()
