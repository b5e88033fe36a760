"""Cases in words and tables: what a column is called, what leaving memories out showed, how two columns differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from opbench.cases.outcome import Ablation, LeftOut, Outcome
from opbench.cases.saved import edits
from opbench.cases.spec import CaseSpec, Column
from opbench.figures import theme
from opbench.study import NO_MITIGATION

_STAGES = {"retrieval": "memory retrieval", "post": "post-processing", "response": "response"}


def name_of(column: Column, *, model: str | None = None) -> str:
    """A column as people write it, e.g. `RAG + Few-Shot-CoT`; with `model`, the model's label, before it."""
    parts = [theme.name(column.memory)]
    if column.draft is not None:
        parts.append(f"{column.draft.label} (draft)")
    elif column.mitigation != NO_MITIGATION:
        parts.append(theme.name(column.mitigation))
    own = " + ".join(parts)
    return own if model is None else f"{model}: {own}"


def named(spec: CaseSpec, models: Mapping[str, str]) -> list[str]:
    """The columns' names, each with what was changed in it, told apart where two are the same. `models`: labels."""
    several = len({column.model for column in spec.columns}) > 1
    names = []
    for place, column in enumerate(spec.columns):
        name = name_of(column, model=models.get(column.model, column.model) if several else None)
        changed = [edit for edit in edits(spec, place) if edit != "a draft"]
        names.append(f"{name} ({'; '.join(changed)})" if changed else name)
    numbers = [names[: place + 1].count(name) for place, name in enumerate(names)]
    return [name if number == 1 else f"{name} [{number}]" for name, number in zip(names, numbers, strict=True)]


def parent_of(spec: CaseSpec, place: int) -> int | None:
    """The earlier column that a changed one belongs beside: of the same model, memory system and post-processor, for a
    draft the one without post-processor; None for a column as the case has it, and where there is none."""
    column = spec.columns[place]
    if not column.edited:
        return None
    method = NO_MITIGATION if column.draft is not None else column.mitigation
    for earlier in range(place - 1, -1, -1):
        other = spec.columns[earlier]
        same = (other.model, other.memory) == (column.model, column.memory)
        if same and (other.mitigation == column.mitigation or other.mitigation == method):
            return earlier
    return None


def ablation_table(ablation: Ablation) -> pd.DataFrame:
    """A row a memory left out, in rank order; the control (number 0: nothing left out, drawn again) last.

    `score_change` is −1 to 1, without minus with; `response_change` is 1 − cosine of the two responses, 0 to 2, 0 for
    the same text. Either is NaN where it isn't known, and `missing` then tells why.
    """
    ordered = sorted(ablation.items, key=lambda item: (item.number == 0, item.number))
    rows = [
        {
            "number": item.number,
            "left_out": _left_out(item),
            "memory": item.text if item.number else None,
            "score_with": ablation.base.score,
            "score_without": item.outcome.score,
            "score_change": item.score_change,
            "similarity": item.similarity,
            "response_change": _response_change(item),
            "same": item.same,
            "missing": _missing(ablation, item),
            "response": item.outcome.response,
        }
        for item in ordered
    ]
    numbers = ("score_with", "score_without", "score_change", "similarity", "response_change")
    # As objects, so that what isn't there is None in every column that holds text.
    columns = ["number", "left_out", "memory", *numbers, "same", "missing", "response"]
    frame = pd.DataFrame(rows, columns=columns, dtype="object")
    return frame.astype({"number": "int64"} | dict.fromkeys(numbers, "float64"))


def verdict(ablation: Ablation) -> str:
    """Which memory did it, in a sentence or two; what hinders saying so is said. Empty before the end."""
    if not ablation.over:
        return ""
    memories = [item for item in ablation.items if item.number]
    if not memories:
        return "There is no memory to leave out."
    told = [item for item in memories if item.outcome.state == "done"]
    lacking = _lacking(memories)
    if not told:
        return f"No answer without a memory came, so nothing can be said:{lacking}"
    if (strongest := ablation.strongest) is not None:
        said = _named(ablation, strongest)
    elif all(item.same for item in told):
        said = "Leaving out any one memory changes nothing: the response stays the same, word for word."
    else:
        said = _not_raised(told)
    return f"{said}{_unknown(told)}{lacking}{_control(ablation.control)}"


def _lacking(memories: Sequence[LeftOut]) -> str:
    """How many answers there are none of; empty when all came."""
    failed, stopped = (sum(item.outcome.state == state for item in memories) for state in ("failed", "cancelled"))
    told = [
        *([f"{_count(failed, 'answer', 'answers')} of {len(memories)} failed"] if failed else []),
        *([f"{_count(stopped, 'answer', 'answers')} of {len(memories)} stopped"] if stopped else []),
    ]
    return f" {', '.join(told)}, and can't be compared." if told else ""


def _not_raised(told: Sequence[LeftOut]) -> str:
    scored = any(item.score_change is not None for item in told)
    return "No memory left out raises the score." if scored else "There are no two scores to compare."


def _unknown(told: Sequence[LeftOut]) -> str:
    """What of the answers that came isn't known, so that a finding may miss it; empty when all is."""
    unscored = sum(item.score_change is None for item in told)
    unlike = sum(item.similarity is None and not item.same for item in told)
    scores = f" There is no score to compare for {unscored} of {len(told)} answers." if 0 < unscored < len(told) else ""
    responses = (
        f" How much the response changes isn't known for {unlike} of {len(told)}: not embedded." if unlike else ""
    )
    return scores + responses


def _named(ablation: Ablation, strongest: LeftOut) -> str:
    number, raising, by_chance = strongest.number, ablation.raising, ablation.by_chance
    if not raising:
        first = _not_raised([item for item in ablation.items if item.number and item.outcome.state == "done"])
        if by_chance:
            return f"{first} The response changes no more without any memory than when it is drawn again with all."
        return (
            f"{first} The response changes most without memory {number} (cosine {strongest.similarity:.2f} to the one "
            "with all memories)."
        )
    if by_chance is not False:
        again = (
            "drawing again with all memories raises it as much."
            if by_chance
            else "drawn again with all memories the response has no score, so that may be chance."
        )
        rise = f"without memory {number} the score rises by {strongest.score_change:.2f}"
        return f"No memory can be named: {rise}, but {again}"
    rise = f"the score rises from {ablation.base.score:.2f} to {strongest.outcome.score:.2f}"
    if len(raising) > 1:
        *others, last = (item.number for item in raising)
        return (
            f"No single memory did it: without any one of {', '.join(map(str, others))} or {last} {rise}. The response "
            f"changes most without memory {number}."
        )
    return f"Memory {number} did it: without it {rise}."


def _control(control: LeftOut | None) -> str:
    if control is None:
        return ""
    score = "no score" if control.score_change is None else f"score {_signed(control.score_change)}"
    response = "" if control.similarity is None else f", cosine {control.similarity:.2f}"
    said = f" Control: drawn again with all memories, {score}{response}."
    return f"{said} It is one draw; changes of that size are chance."


def differences(before: Outcome, after: Outcome) -> pd.DataFrame:
    """What is otherwise in the second of two columns: a row for the score (0 to 1), each stage's time (ms) and the
    tokens; `change` is NaN where either isn't known. A stage that neither had has no row."""
    pairs: list[tuple[str, float | None, float | None]] = [("score (0–1)", before.score, after.score)]
    for stage, label in _STAGES.items():
        if stage in before.milliseconds or stage in after.milliseconds:
            pairs.append((f"{label}, ms", before.milliseconds.get(stage), after.milliseconds.get(stage)))
    pairs += [
        ("tokens in", before.prompt_tokens, after.prompt_tokens),
        ("tokens out", before.completion_tokens, after.completion_tokens),
    ]
    frame = pd.DataFrame(pairs, columns=["what", "before", "after"]).astype({"before": "float64", "after": "float64"})
    return frame.assign(change=frame["after"] - frame["before"])


def _left_out(item: LeftOut) -> str:
    return f"memory {item.number}" if item.number else "none (control)"


def _response_change(item: LeftOut) -> float | None:
    if item.same:
        return 0.0
    return None if item.similarity is None else 1.0 - item.similarity


def _missing(ablation: Ablation, item: LeftOut) -> str | None:
    outcome = item.outcome
    if not outcome.over:
        return "not there yet"
    if outcome.state != "done":
        return outcome.error or outcome.state
    if item.score_change is None:
        judged = outcome if ablation.base.score is not None else ablation.base
        return next((each.reason for each in judged.scores if each.reason), None) or "no score"
    return None


def _signed(change: float) -> str:
    rounded = round(change, 2)
    return "unchanged" if rounded == 0 else f"{rounded:+.2f}".replace("-", "−")


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
