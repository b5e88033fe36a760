"""Finding memory systems: built in, the user's own, from an installed package's entry point, or from a plugin file."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import entry_points

from opbench.errors import UsageError
from opbench.memories.base import MemorySystem
from opbench.memories.context import MemoryContext
from opbench.memories.ingesting import Ingesting
from opbench.memories.library import Library
from opbench.memories.none import NoMemory
from opbench.memories.rag import Rag, observations, turns
from opbench.memories.random import RandomMemories

MemoryFactory = Callable[[MemoryContext], MemorySystem]


class LibraryFactory:
    """Makes a memory system of a library that is imported only when it is made: some take seconds to load."""

    extracts = True

    def __init__(self, label: str, place: str | Callable[[], Library]) -> None:
        """`place` is `module:class`, or the class itself; it is made without arguments."""
        self.label = label
        self._place = place
        if not isinstance(place, str):
            self.extracts = bool(getattr(place, "extracts", True))

    def library(self) -> Library:
        """A new object of the library's class."""
        if not isinstance(self._place, str):
            return self._place()
        module, _, name = self._place.partition(":")
        made: Library = getattr(import_module(module), name)()
        return made

    def __call__(self, context: MemoryContext) -> MemorySystem:
        return Ingesting(self.library(), context)


_SYSTEMS = "opbench.memories.systems"
_FACTORIES: dict[str, MemoryFactory] = {
    "base": lambda context: NoMemory(),
    "rag": lambda context: Rag("rag", "RAG", turns, context.embedder, context.folder / "rag"),
    "rag-observations": lambda context: Rag(
        "rag-observations", "RAG (observations)", observations, context.embedder, context.folder / "rag"
    ),
    "random": lambda context: RandomMemories(),
    "mem0": LibraryFactory("Mem0", f"{_SYSTEMS}.mem0:Mem0Library"),
    "memu": LibraryFactory("MemU", f"{_SYSTEMS}.memu:MemuLibrary"),
    "memos": LibraryFactory("MemOS", f"{_SYSTEMS}.memos:MemosLibrary"),
    "memos-tree": LibraryFactory("MemOS (tree)", f"{_SYSTEMS}.memos_tree:MemosTreeLibrary"),
}
BUILT_IN = frozenset(_FACTORIES)
"""Names that no server of the user's may have."""
_LABELS = {
    "base": NoMemory.label,
    "rag": "RAG",
    "rag-observations": "RAG (observations)",
    "random": RandomMemories.label,
}


def register_memory(name: str, factory: MemoryFactory) -> None:
    """Make a memory system known under `name`; plugins call this when they are loaded.

    A factory's attribute `label` is its name for people, and `extracts = True` says that the system needs an extractor.
    """
    _FACTORIES[name] = factory


def memory_names() -> list[str]:
    """All names that `make_memory` takes: the built-in ones first.

    Raises:
        UsageError: the user's memory registry file can't be read.
    """
    installed = [point.name for point in entry_points(group="opbench.memories")]
    return list(dict.fromkeys([*_FACTORIES, *_configured(), *installed]))


def memory_label(name: str) -> str:
    """A memory system's name for people; the name itself where nothing is known of it. Makes and imports nothing."""
    return _LABELS.get(name) or str(getattr(_factory(name), "label", name))


def needs_extractor(name: str) -> bool:
    """Whether a memory system extracts its memories with a model of the registry. Makes and imports nothing."""
    return bool(getattr(_factory(name), "extracts", False))


def ingesting_names() -> list[str]:
    """The memory systems that are made of a library and so have ingestions to look after."""
    return [name for name in memory_names() if isinstance(_factory(name), LibraryFactory)]


def library_factory(name: str) -> LibraryFactory | None:
    """What makes a memory system of a library; None when it isn't made of one."""
    factory = _factory(name)
    return factory if isinstance(factory, LibraryFactory) else None


def make_memory(name: str, context: MemoryContext) -> MemorySystem:
    """A memory system by name.

    Raises:
        UsageError: no such memory system; names the nearest. Or what it needs isn't installed or named.
    """
    factory = _factory(name)
    if factory is not None:
        return factory(context)
    for point in entry_points(group="opbench.memories"):
        if point.name == name:
            loaded: MemoryFactory = point.load()
            return loaded(context)
    near = difflib.get_close_matches(name, memory_names(), n=1)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    raise UsageError(f"no memory system '{name}'.{hint} There are: {', '.join(memory_names())}.")


def _factory(name: str) -> MemoryFactory | None:
    """The factory of a built-in or configured system; None for others, which only loading could tell of."""
    return _FACTORIES.get(name) or _configured().get(name)


def _configured() -> dict[str, MemoryFactory]:
    # Lately imported: it makes libraries out of the user's file, and they belong to this registry.
    from opbench.memories.configured import configured

    return configured()
