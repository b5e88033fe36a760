"""From what somebody asks for (`JudgeChoice`) to a judge that can be asked, its name in tables and its identity."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from pydantic import ValidationError

from opbench.calibration.random_judge import NAME as RANDOM
from opbench.calibration.random_judge import RandomJudge
from opbench.calibration.spec import JudgeChoice
from opbench.errors import UsageError
from opbench.judges import is_rule_judge, make_judge
from opbench.judges.base import Judge
from opbench.judges.forced import ForcedJudge
from opbench.models import Registry
from opbench.protocol import Protocol
from opbench.running.prepare import memos_identity

#: Between a judge and its prompt pack, on the command line.
AT = "@"
#: Behind both, when the model is held to the form of the answer.
FORCED = "+schema"
#: As a pack: LoCoMo judged three times by MemOS's generous prompt (`judges/memos.py`), OP-Bench by `auto`.
MEMOS: Protocol = "memos"


@dataclass(frozen=True, slots=True)
class Chosen:
    """A judge ready to be asked."""

    choice: JudgeChoice
    label: str
    """`offline`, `smollm2-135m · own`, `smollm2-135m · own · temperature 0.7`."""
    model: str | None
    """Registry name of the model that is asked; None for judges by rule."""
    provenance: dict[str, Any]
    judge: Callable[[int], Judge]
    """The judge for a repeat, from 0: all the same one, but for the control."""


def parse_choice(text: str, *, repeats: int = 1, temperature: float = 0.0) -> JudgeChoice:
    """A judge as `NAME` or `NAME@PACK`; PACK is own, brief, official, auto, memos (LoCoMo) or a folder. `+schema`
    behind it holds a model to the form of the answer.

    Raises:
        UsageError: no name, or a number out of its range.
    """
    given = text.strip()
    name, _, pack = given.removesuffix(FORCED).partition(AT)
    if not name:
        raise UsageError(f"'{text[:80]}': write a judge as NAME or NAME{AT}PACK, e.g. gpt-4o-mini{AT}own.")
    try:
        return JudgeChoice(
            judge=name,
            pack=pack or "auto",
            forced=given.endswith(FORCED),
            repeats=repeats,
            temperature=temperature,
        )
    except ValidationError as error:
        first = error.errors()[0]
        raise UsageError(f"judge {name[:80]}: {first['loc'][0]}: {first['msg'].lower()}.") from None


def choose(choice: JudgeChoice, registry: Registry, protocol: Protocol = "uniform") -> Chosen:
    """The judge of a choice; `protocol` is LoCoMo's.

    Raises:
        UsageError: there is no such judge, model or pack, or a judge by rule is given a pack or a temperature.
        DataError: a prompt is damaged.
    """
    if choice.judge == RANDOM or is_rule_judge(choice.judge):
        if choice.pack != "auto":
            raise UsageError(
                f"judge {choice.judge} judges by rule and has no prompts: name it without {AT}{choice.pack}."
            )
        if choice.forced:
            raise UsageError(f"judge {choice.judge} judges by rule: name it without {FORCED}, which is for models.")
        if choice.judge == RANDOM:
            return Chosen(choice, RANDOM, None, RandomJudge().provenance(), RandomJudge)
        judge = make_judge(choice.judge, protocol=protocol)
        return Chosen(choice, choice.judge, None, judge.provenance(), partial(_same, judge))
    spec = registry.model(choice.judge)
    by_memos = choice.pack == MEMOS
    if by_memos:
        protocol = MEMOS
    judge = make_judge(choice.judge, "auto" if by_memos else choice.pack, protocol=protocol)
    if choice.forced:
        judge = ForcedJudge(judge)
    provenance: dict[str, Any] = {**judge.provenance(), "model": spec.identity(), "temperature": choice.temperature}
    if protocol == MEMOS:
        provenance["protocol"] = memos_identity()
    parts = [choice.judge, MEMOS if by_memos else str(judge.provenance().get("pack", choice.pack))]
    if choice.forced:
        parts.append("by schema")
    if choice.temperature:
        parts.append(f"temperature {choice.temperature:g}")
    return Chosen(choice, " · ".join(parts), choice.judge, provenance, partial(_same, judge))


def choose_all(choices: list[JudgeChoice], registry: Registry, protocol: Protocol = "uniform") -> list[Chosen]:
    """As `choose`, of several; two that come to the same judge are one.

    Raises:
        UsageError: as `choose`, or none is named.
    """
    if not choices:
        raise UsageError("No judge named: use offline, random (the control) or NAME@PACK of a model.")
    found: dict[str, Chosen] = {}
    for choice in choices:
        chosen = choose(choice, registry, protocol)
        before = found.get(chosen.label)
        if before is None or before.choice.repeats < choice.repeats:
            found[chosen.label] = chosen
    return list(found.values())


def _same(judge: Judge, repeat: int) -> Judge:
    return judge
