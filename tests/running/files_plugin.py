"""A plugin that brings the memory library `files` of the tests, for processes."""

from opbench.memories import LibraryFactory, register_memory
from tests.memories.test_ingesting import FileLibrary

register_memory("files", LibraryFactory("Files", FileLibrary))
