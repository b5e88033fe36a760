"""Methods by name: those of this package, of installed packages (entry points), and of plugin files."""

from __future__ import annotations

import difflib
import importlib.util
import sys
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import cast

from mitigations.abstain import Abstain
from mitigations.base import PostProcessor
from mitigations.comorag import ComoRAG
from mitigations.empty import Empty
from mitigations.few_shot_cot import FewShotCoT, FewShotCoTOriginal
from mitigations.marag import MARAG, MARAGPerMemory
from mitigations.method import Method
from mitigations.none import NoMitigation
from mitigations.reminder import Reminder, ReminderOriginal
from mitigations.self_critic import SelfCritic, SelfCriticOriginal
from mitigations.self_recheck import SelfReCheck, SelfReCheckTwice, SelfReCheckVerdicts

GROUP = "opbench.mitigations"


class UnknownMitigation(ValueError):
    """No method has that name."""


class BrokenPlugin(ValueError):
    """A plugin file or entry point that can't be loaded; the message names it and the reason."""


_methods: dict[str, PostProcessor] = {}


def register(method: PostProcessor) -> PostProcessor:
    """Makes a method known under its `name`. Raises ValueError if the name is taken or the contract isn't met."""
    if isinstance(method, type) or not isinstance(method, PostProcessor):
        kind = method.__name__ if isinstance(method, type) else type(method).__name__
        raise ValueError(f"{kind} is no post-processor: register an instance that has all of mitigations.PostProcessor")
    if method.name in _methods and _methods[method.name] is not method:
        raise ValueError(f"a mitigation named '{method.name}' is registered already: give this one another name")
    _methods[method.name] = method
    return method


def get(name: str) -> PostProcessor:
    """The method of that name. Raises UnknownMitigation with the nearest names, BrokenPlugin for a broken package."""
    if name in _methods:
        return _methods[name]
    entry = _installed().get(name)
    if entry is not None:
        return _load(entry)
    near = difflib.get_close_matches(name.strip().lower().replace("_", "-").replace(" ", "-"), names(), n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(names())}"
    raise UnknownMitigation(f"unknown mitigation '{name}': {hint}")


def names() -> tuple[str, ...]:
    """All known names: the package's in the paper's order, controls, variants, then plugins and installed packages."""
    return tuple(dict.fromkeys((*_methods, *_installed())))


def prompt_sections(method: PostProcessor) -> dict[str, str]:
    """The pieces of a method's prompt that `reworded` can put in other words, text by name; empty for a method without
    a prompt, and for one that isn't built on `mitigations.method.Method`."""
    return method.prompt_sections() if isinstance(method, Method) else {}


def reworded(method: PostProcessor, sections: Mapping[str, str]) -> PostProcessor:
    """The method with prompt sections worded otherwise: a copy of the same name with another `prompt_sha256`, known to
    no registry. `method` itself stays as it is, and is the result where nothing differs.

    Raises ValueError for a section that it doesn't have, naming those that it has, and for a blank one.
    """
    if all(prompt_sections(method).get(name) == text for name, text in sections.items()):
        return method
    if not isinstance(method, Method):
        raise ValueError(f"{method.name} has no prompt that can be worded otherwise")
    return method.reworded(sections)


def load_plugin(path: Path | str) -> tuple[str, ...]:
    """Runs a Python file that calls `mitigations.register(…)`, and returns the names it added.

    Raises BrokenPlugin if the file isn't there, fails, or registers nothing.
    """
    file = Path(path).expanduser().resolve()
    if not file.is_file():
        raise BrokenPlugin(f"plugin {path}: no such file")
    module_name = f"mitigations_plugin_{file.stem}_{abs(hash(file)):x}"
    if module_name in sys.modules:
        return cast("tuple[str, ...]", sys.modules[module_name].__dict__["__registered__"])
    spec = importlib.util.spec_from_file_location(module_name, file)
    if spec is None or spec.loader is None:
        raise BrokenPlugin(f"plugin {path}: not a Python file")
    before = dict(_methods)
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        _forget(module_name, before)
        raise BrokenPlugin(f"plugin {path}: {type(error).__name__}: {error}") from error
    added = tuple(name for name in _methods if name not in before)
    if not added:
        _forget(module_name, before)
        raise BrokenPlugin(f"plugin {path}: registers no method: call mitigations.register(YourMethod()) in it")
    module.__dict__["__registered__"] = added
    return added


def _forget(module_name: str, before: dict[str, PostProcessor]) -> None:
    del sys.modules[module_name]
    _methods.clear()
    _methods.update(before)


def _installed() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def _load(entry: EntryPoint) -> PostProcessor:
    """An entry point names an instance, or a class or function that makes one without arguments."""
    try:
        loaded = entry.load()
        made = loaded if not isinstance(loaded, type) and isinstance(loaded, PostProcessor) else loaded()
        if getattr(made, "name", None) != entry.name:
            raise ValueError(f"its method is named '{getattr(made, 'name', None)}', not '{entry.name}'")
        return register(made)
    except Exception as error:
        package = entry.dist.name if entry.dist else "an installed package"
        raise BrokenPlugin(
            f"mitigation '{entry.name}' of {package} ({entry.value}): {type(error).__name__}: {error}"
        ) from error


_BUILT_IN: tuple[PostProcessor, ...] = (
    NoMitigation(),
    Reminder(),
    SelfCritic(),
    FewShotCoT(),
    ComoRAG(),
    MARAG(),
    SelfReCheck(),
    Empty(),
    Abstain(),
    ReminderOriginal(),
    SelfCriticOriginal(),
    FewShotCoTOriginal(),
    ComoRAG("comorag-invite-none", invite_none=True),
    MARAGPerMemory(),
    SelfReCheckVerdicts(),
    SelfReCheckTwice(),
)
for _method in _BUILT_IN:
    register(_method)
