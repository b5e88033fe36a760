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

from opbench.errors import UsageError

#: SHA-256 (hex) of the plugin files that this process has loaded, by file name.
_loaded: dict[str, str] = {}


def loaded_plugins() -> dict[str, str]:
    """SHA-256 of every loaded plugin file: part of a study's hash, since its code makes the results."""
    return dict(_loaded)


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
