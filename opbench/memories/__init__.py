"""Memory systems: BASE and RAG, the libraries Mem0, MemU and MemOS, and what users and plugins add."""

from opbench.memories.base import MemorySystem
from opbench.memories.context import MemoryContext
from opbench.memories.ingesting import Ingesting
from opbench.memories.registry import (
    LibraryFactory,
    make_memory,
    memory_label,
    memory_names,
    needs_extractor,
    register_memory,
)

__all__ = [
    "Ingesting",
    "LibraryFactory",
    "MemoryContext",
    "MemorySystem",
    "make_memory",
    "memory_label",
    "memory_names",
    "needs_extractor",
    "register_memory",
]
