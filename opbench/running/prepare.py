"""From a study to something that can run: data, slice, identities of all parts, and so the run's id."""

from __future__ import annotations

import hashlib
import json
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from mitigations.base import PostProcessor
from mitigations.registry import BrokenPlugin, UnknownMitigation
from mitigations.registry import get as get_mitigation
from opbench import __version__
from opbench.benchmarks import load, select
from opbench.benchmarks.exclusions import excluded
from opbench.benchmarks.exclusions import get as exclusion_list
from opbench.errors import UsageError
from opbench.judges import is_rule_judge, make_judge
from opbench.judges.base import Judge
from opbench.memories import MemoryContext, MemorySystem, make_memory
from opbench.models import Embedder, ModelClient, Registry, get_embedder, load_registry
from opbench.plugins import loaded_plugins
from opbench.running.response_prompts import prompts_sha256
from opbench.settings import ROOT, settings
from opbench.store.database import Store
from opbench.store.writing import create_run
from opbench.study import Configuration, Study, study_hash
from opbench.types import Conversation, Corpus, Instance

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
    memories: dict[str, MemorySystem]
    mitigations: dict[str, PostProcessor]
    judge: Judge
    history_sha256: dict[str, str]
    provenance: dict[str, Any]
    digest: str

    @property
    def run_id(self) -> str:
        return self.digest[:RUN_ID_LENGTH]

    def at_a_time(self, model: str, concurrency: int) -> int:
        """Requests that a model gets at a time in a run of that concurrency."""
        return 1 if self.study.latency_probe else min(concurrency, self.registry.model(model).concurrency)

    def register(self, store: Store) -> dict[Configuration, int]:
        """Make the run in the store, or find it there; the ids of its configurations."""
        return create_run(store, self.run_id, self.study, self.digest, self.provenance, self.instances)

    async def aclose(self) -> None:
        for memory in self.memories.values():
            await memory.aclose()
        await self.client.aclose()


def prepare(study: Study, keys: Mapping[str, SecretStr] | None = None) -> Prepared:
    """Load what the study names and work out its hash. Makes no call to any model.

    `keys` are session keys by environment variable name; they are used and never kept.

    Raises:
        UsageError: the study names something that doesn't exist.
        DataError: a benchmark file is damaged.
    """
    corpus = load("sample" if study.data == "sample" else None)
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
    registry = load_registry()
    for model in study.models:
        registry.model(model)
    client = ModelClient(registry, keys=dict(keys or {}))
    embedder = get_embedder(study.embedder, registry, client)
    context = MemoryContext(embedder, settings().cache)
    memories = {name: make_memory(name, context) for name in study.memories}
    try:
        mitigations = {name: get_mitigation(name) for name in study.mitigations}
    except (UnknownMitigation, BrokenPlugin) as error:
        raise UsageError(str(error)) from None
    judge = make_judge(study.judge, study.judge_pack)
    if not is_rule_judge(study.judge):
        registry.model(study.judge)
    conversations = {instance.user.conversation for instance in instances}
    history = {key: history_sha256(corpus.conversations[key]) for key in sorted(conversations)}
    decisive: dict[str, Any] = {
        "data": corpus.sha256,
        "history": history,
        "response_prompts": prompts_sha256(),
        "models": {name: registry.model(name).identity() for name in sorted(study.models)},
        "embedder": embedder.identity(),
        "memories": {name: memory.identity() for name, memory in sorted(memories.items())},
        "mitigations": {name: method.prompt_sha256 for name, method in sorted(mitigations.items())},
        "judge": {
            **judge.provenance(),
            **({} if is_rule_judge(study.judge) else {"model": registry.model(study.judge).identity()}),
        },
    }
    if study.exclude:
        decisive["exclusions"] = {name: exclusion_list(name).sha256 for name in sorted(study.exclude)}
    if plugins := loaded_plugins():
        decisive["plugins"] = plugins
    return Prepared(
        study,
        corpus,
        instances,
        registry,
        client,
        embedder,
        memories,
        mitigations,
        judge,
        history,
        {
            **decisive,
            "data_source": corpus.source,
            "comparable": judge.comparable and study.embedder == PAPER_EMBEDDER,
            "workbench": __version__,
            "git_commit": git_commit(),
            "python": platform.python_version(),
            "machine": platform.machine(),
        },
        study_hash(study, decisive),
    )


def history_sha256(conversation: Conversation) -> str:
    """SHA-256 (hex) of what the memory systems ingest of a conversation."""
    canonical = json.dumps(asdict(conversation), sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(canonical.encode()).hexdigest()


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
