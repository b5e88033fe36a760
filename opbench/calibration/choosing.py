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
from opbench.models import Registry
from opbench.protocol import Protocol

#: Between a judge and its prompt pack, on the command line.
AT = "@"


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
    """A judge as `NAME` or `NAME@PACK`; PACK is own, brief, official, auto or a folder.

    Raises:
        UsageError: no name, or a number out of its range.
    """
    name, _, pack = text.strip().partition(AT)
    if not name:
        raise UsageError(f"'{text[:80]}': write a judge as NAME or NAME{AT}PACK, e.g. gpt-4o-mini{AT}own.")
    try:
        return JudgeChoice(judge=name, pack=pack or "auto", repeats=repeats, temperature=temperature)
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
        if choice.judge == RANDOM:
            return Chosen(choice, RANDOM, None, RandomJudge().provenance(), RandomJudge)
        judge = make_judge(choice.judge, protocol=protocol)
        return Chosen(choice, choice.judge, None, judge.provenance(), partial(_same, judge))
    spec = registry.model(choice.judge)
    judge = make_judge(choice.judge, choice.pack, protocol=protocol)
    provenance: dict[str, Any] = {**judge.provenance(), "model": spec.identity(), "temperature": choice.temperature}
    parts = [choice.judge, str(judge.provenance().get("pack", choice.pack))]
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
