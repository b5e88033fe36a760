"""Finding a judge by name."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

from opbench.errors import UsageError
from opbench.judges.base import Judge
from opbench.judges.packs import load_pack

GROUP = "opbench.judges"
"""Entry-point group of installed judges: each a callable without arguments that returns a `Judge`."""

OFFLINE = "offline"
"""Name of the judge that needs no model."""

JudgeFactory = Callable[[], Judge]
_REGISTERED: dict[str, JudgeFactory] = {}


def register_judge(name: str, factory: JudgeFactory) -> None:
    """Make a judge known under `name`; plugins call this when they are loaded."""
    _REGISTERED[name] = factory


def registered_judges() -> tuple[str, ...]:
    """The names under which plugins made judges known."""
    return tuple(_REGISTERED)


def is_rule_judge(name: str) -> bool:
    """Whether `name` is a judge of its own rather than a model of the registry that judges by prompts."""
    return name == OFFLINE or name in _REGISTERED or bool(entry_points(group=GROUP, name=name))


def make_judge(name: str, pack: str = "auto", prompts_dir: Path | None = None) -> Judge:
    """The judge `offline`, a registered or installed one of that name, or an LLM judge with the model of that name.

    `pack` (`own`, `official`, `auto`) chooses the prompts of an LLM judge; `prompts_dir` is where the official ones
    are looked for instead of the data folder. Raises UsageError for an empty name, an unknown pack, an official pack
    that isn't there, or a factory that gives no judge; DataError for a damaged prompt.
    """
    if not name.strip():
        raise UsageError("No judge named: use offline or the name of a model (`opbench models` lists them).")
    # Their libraries take seconds to load, which a command that judges nothing shouldn't wait for.
    from opbench.judges.llm import LLMJudge
    from opbench.judges.offline import OfflineJudge

    if name == OFFLINE:
        return OfflineJudge()
    factories = [_REGISTERED[name]] if name in _REGISTERED else [p.load() for p in entry_points(group=GROUP, name=name)]
    for factory in factories:
        judge = factory()
        if not isinstance(judge, Judge):
            raise UsageError(
                f"The factory of judge '{name}' gives no judge: see opbench/judges/base.py for what one has."
            )
        return judge
    return LLMJudge(name, load_pack(pack, prompts_dir))
