"""Methods of your own from a Python file: `--plugin path/to/file.py`.

The file registers what it brings when it is loaded: `mitigations.registry.register(...)`,
`opbench.memories.register_memory(...)`, `opbench.judges.register_judge(...)`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

import mitigations
from opbench.errors import UsageError
from opbench.judges import registered_judges
from opbench.memories import memory_names
from opbench.settings import settings

#: SHA-256 (hex) of the plugin files that this process has loaded, by file name.
_loaded: dict[str, str] = {}


def loaded_plugins() -> dict[str, str]:
    """SHA-256 of every loaded plugin file: part of a study's hash, since its code makes the results."""
    return dict(_loaded)


def plugin_folder() -> Path:
    """Where a user's plugin files stand that the Launch page offers; none is loaded for lying there."""
    return settings().home / "plugins"


def plugin_files() -> list[Path]:
    """The Python files in the plugin folder, by name."""
    return sorted(file for file in plugin_folder().glob("*.py") if file.is_file())


def what_they_bring(files: Sequence[Path]) -> dict[str, dict[str, str]]:
    """Load the files, and tell what they added: label by name, for `mitigations`, `memories` and `judges`.

    Raises:
        UsageError: a file isn't there or fails while it is loaded.
    """
    before = {*mitigations.names()}, {*memory_names()}, {*registered_judges()}
    load_plugins(files)
    after = mitigations.names(), memory_names(), registered_judges()
    methods, memories, judges = (
        [name for name in new if name not in old] for old, new in zip(before, after, strict=True)
    )
    return {
        "mitigations": {name: mitigations.get(name).label for name in methods},
        "memories": {name: name for name in memories},
        "judges": {name: name for name in judges},
    }


def load_plugins(files: Sequence[Path]) -> None:
    """Load the files, in order.

    Raises:
        UsageError: a file isn't there or fails while it is loaded; names the file and what it said.
    """
    for file in files:
        name = f"opbench_plugin_{file.stem}"
        spec = importlib.util.spec_from_file_location(name, file)
        if spec is None or spec.loader is None or not file.is_file():
            raise UsageError(f"{file}: no such plugin file. Give the path of a Python file (.py).")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        _loaded[file.name] = hashlib.sha256(file.read_bytes()).hexdigest()
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            del sys.modules[name]
            raise UsageError(f"{file}: the plugin failed while loading: {type(error).__name__}: {error}") from error
