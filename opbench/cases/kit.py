"""What the columns of a case are answered with: data, models, memory systems, post-processors and judge."""

from __future__ import annotations

import platform
import threading
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from pydantic import SecretStr

from mitigations import BrokenPlugin, PostProcessor, PromptOnly, UnknownMitigation, reworded
from mitigations import get as get_mitigation
from opbench import __version__
from opbench.benchmarks import load
from opbench.cases.spec import CaseSpec, Column
from opbench.errors import UsageError
from opbench.gateway.server import Gateway
from opbench.judges import is_rule_judge, make_judge
from opbench.judges.base import Judge
from opbench.memories import MemoryContext, MemorySystem, make_memory, needs_extractor
from opbench.memories.history import history_sha256
from opbench.models import Embedder, ModelClient, Registry, get_embedder, load_registry
from opbench.models.client import OnRetry
from opbench.plugins import loaded_plugins
from opbench.running.calls import CallStore
from opbench.running.pipeline import Tools
from opbench.running.prepare import PAPER_EMBEDDER, call_store, git_commit
from opbench.running.response_prompts import prompts_sha256
from opbench.running.retrieval import Retrieval
from opbench.settings import settings
from opbench.store.database import Store
from opbench.study import BASE, Configuration, make_study
from opbench.types import OP_SUBTYPES, Corpus, Instance


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
        memories = {} if column.memory == BASE else {column.memory: self.memory(column)}
        history = {} if column.memory == BASE else {user.conversation: self.history_sha256()}
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
        memories = {f"{name} ({extractor})" if extractor else name: m for (name, extractor), m in self._memories.items()}
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
