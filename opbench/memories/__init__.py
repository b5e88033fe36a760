"""Memory systems: BASE and RAG, and what plugins add."""

from opbench.memories.base import MemorySystem
from opbench.memories.registry import MemoryContext, make_memory, memory_names, register_memory

__all__ = ["MemoryContext", "MemorySystem", "make_memory", "memory_names", "register_memory"]
