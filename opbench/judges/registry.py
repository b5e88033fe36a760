"""Finding a judge by name."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

from opbench.errors import UsageError
from opbench.judges.base import Judge
from opbench.judges.packs import load_pack
from opbench.protocol import JUDGE_RUNS, Protocol, by_memos
from opbench.study import Study
from opbench.types import Instance

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


def make_judge(name: str, pack: str = "auto", prompts_dir: Path | None = None, protocol: Protocol = "uniform") -> Judge:
    """The judge `offline`, a registered or installed one of that name, or an LLM judge with the model of that name.

    `pack` (`own`, `official`, `auto`) chooses the prompts of an LLM judge; `prompts_dir` is where the official ones
    are looked for instead of the data folder; `protocol` is LoCoMo's. Raises UsageError for an empty name, an unknown
    pack, an official pack that isn't there, a factory that gives no judge, or a judge of its own by protocol memos;
    DataError for a damaged prompt.
    """
    if not name.strip():
        raise UsageError("No judge named: use offline or the name of a model (`opbench models` lists them).")
    if protocol == "memos":
        return _by_memos(name, pack, prompts_dir)
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


def _by_memos(name: str, pack: str, prompts_dir: Path | None) -> Judge:
    """That judge for OP-Bench, and MemOS's evaluation for LoCoMo."""
    from opbench.judges.memos import MemosJudge

    if name != OFFLINE and is_rule_judge(name):
        raise UsageError(
            f"Judge '{name}' scores LoCoMo by rules of its own, which protocol memos doesn't know: judge with offline "
            "or a model, or take protocol uniform."
        )
    return MemosJudge(make_judge(name, pack, prompts_dir), None if name == OFFLINE else name)


def judge_calls(study: Study, instance: Instance) -> int:
    """How many calls to the judging model one answer to the instance takes."""
    if is_rule_judge(study.judge) or instance.subtype in ("repetition", "adversarial"):
        return 0
    return JUDGE_RUNS if by_memos(study, instance.benchmark) else 1
