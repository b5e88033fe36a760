"""Whether a question that should need no personalisation needs it after all (paper, 3.2.1)."""

from __future__ import annotations

from typing import Any

from opbench.construction.asking import Shape, Wrong
from opbench.construction.prompting import Prompt, load_prompt
from opbench.construction.wording import Checked, Question, Why
from opbench.types import Message

PROMPT = "check_need"
_VERDICTS = ("general", "personal")
_LONGEST = 200


def prompt() -> Prompt:
    return load_prompt(PROMPT)


def messages(question: Question, profile: str) -> tuple[Message, ...]:
    """What the checker is asked."""
    return prompt().messages({"question": question.text, "profile": profile or "(nothing)"})


def shape() -> Shape:
    """The answer to `messages`."""
    properties = {
        "missing": {"type": "string", "minLength": 1, "maxLength": _LONGEST},
        "verdict": {"type": "string", "enum": list(_VERDICTS)},
    }
    return Shape(
        "check",
        {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False},
    )


def read(value: Any) -> Checked:
    """Dropped when it can't be answered well without knowing who asks.

    Raises:
        Wrong: no verdict.
    """
    verdict = str(value.get("verdict", "")).strip().lower()
    if verdict not in _VERDICTS:
        raise Wrong(f'"verdict" must be one of {", ".join(_VERDICTS)}')
    missing = " ".join(str(value.get("missing") or "").split())[:_LONGEST]
    answer = {"verdict": verdict, "missing": missing}
    if verdict == "general":
        return Checked(None, answer)
    told = f": {missing}" if missing and missing.casefold() != "nothing" else ""
    return Checked(Why(f"needs personalisation after all{told}", {"missing": missing}), answer)
