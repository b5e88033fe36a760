"""Names, labels and needs of memory systems, without loading what takes long to load."""

from __future__ import annotations

import subprocess
import sys

import pytest

from opbench.errors import UsageError
from opbench.memories import make_memory, memory_label, memory_names, needs_extractor, registry
from opbench.memories.registry import ingesting_names

LIBRARIES = ["mem0", "memu", "memos", "memos-tree"]


def test_names_labels_and_needs() -> None:
    assert memory_names()[:8] == ["base", "rag", "rag-observations", "random", *LIBRARIES]
    assert {name: memory_label(name) for name in memory_names()} == {
        "base": "BASE",
        "rag": "RAG",
        "rag-observations": "RAG (observations)",
        "random": "Random memories",
        "mem0": "Mem0",
        "memu": "MemU",
        "memos": "MemOS",
        "memos-tree": "MemOS (tree)",
    }
    assert memory_label("of-a-bundle") == "of-a-bundle"
    assert [name for name in memory_names() if needs_extractor(name)] == LIBRARIES == ingesting_names()
    assert not needs_extractor("of-a-bundle")


@pytest.mark.parametrize("name", LIBRARIES)
def test_labels_are_the_libraries_own(name: str) -> None:
    factory = registry.library_factory(name)
    assert factory is not None
    library = factory.library()
    assert (library.name, library.label) == (name, memory_label(name))


def test_a_typing_error_gets_the_nearest_name() -> None:
    with pytest.raises(UsageError, match=r"no memory system 'men0'. Did you mean 'mem0'\? There are: base, rag"):
        make_memory("men0", None)  # type: ignore[arg-type]


def test_asking_names_loads_no_library() -> None:
    code = (
        "import sys; from opbench.memories import memory_names, memory_label, needs_extractor\n"
        "for name in memory_names(): memory_label(name), needs_extractor(name)\n"
        "print([name for name in ('mem0', 'memu', 'memos', 'torch', 'sentence_transformers') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
