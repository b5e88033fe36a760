"""Finding memory systems: built in, from an installed package's entry point, or from a plugin file."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

from opbench.errors import UsageError
from opbench.memories.base import MemorySystem
from opbench.memories.none import NoMemory
from opbench.memories.rag import Rag, TextEmbedder, observations, turns
from opbench.memories.random import RandomMemories


@dataclass(frozen=True, slots=True)
class MemoryContext:
    """What a memory system is made with: the study's embedder and a folder of its own to keep things in."""

    embedder: TextEmbedder
    folder: Path


MemoryFactory = Callable[[MemoryContext], MemorySystem]

_FACTORIES: dict[str, MemoryFactory] = {
    "base": lambda context: NoMemory(),
    "rag": lambda context: Rag("rag", "RAG", turns, context.embedder, context.folder / "rag"),
    "rag-observations": lambda context: Rag(
        "rag-observations", "RAG (observations)", observations, context.embedder, context.folder / "rag"
    ),
    "random": lambda context: RandomMemories(),
}


def register_memory(name: str, factory: MemoryFactory) -> None:
    """Make a memory system known under `name`; plugins call this when they are loaded."""
    _FACTORIES[name] = factory


def memory_names() -> list[str]:
    """All names that `make_memory` takes: the built-in ones first."""
    installed = [point.name for point in entry_points(group="opbench.memories")]
    return [*_FACTORIES, *(name for name in installed if name not in _FACTORIES)]


def make_memory(name: str, context: MemoryContext) -> MemorySystem:
    """A memory system by name.

    Raises:
        UsageError: no such memory system; names the nearest.
    """
    if name in _FACTORIES:
        return _FACTORIES[name](context)
    for point in entry_points(group="opbench.memories"):
        if point.name == name:
            factory: MemoryFactory = point.load()
            return factory(context)
    near = difflib.get_close_matches(name, memory_names(), n=1)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    raise UsageError(f"no memory system '{name}'.{hint} There are: {', '.join(memory_names())}.")
