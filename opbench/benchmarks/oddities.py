"""The kinds of oddities in the public files, and what the loaders do about each."""

from __future__ import annotations

from opbench.benchmarks.shape import Node
from opbench.types import Oddity

#: What is done about each kind; the text is printed by `opbench data check`.
HANDLING = {
    # OP-Bench
    "empty-list": "an empty list among the repetition questions; no instance",
    "duplicate-question": "a text that an earlier instance has too; both stay, their ids differ",
    "typographic-marks": "curly quotes or long dashes, while other questions have straight ones; kept as in the file",
    "topic-case": "a topic in several capitalisations or in small letters; read as one topic",
    "shared-name": "a name that several people bear; a user is (conversation, speaker)",
    # LoCoMo
    "date-without-session": "a session's date without the session; left out",
    "missing-answer": "an adversarial question without a gold answer; its answer is None",
    "adversarial-with-answer": "an adversarial question that has a gold answer as well; its answer is None",
    "numeric-answer": "a gold answer that is a number; read as text",
    "repeated-question": "a question that its conversation has already; both stay, their ids differ",
    "empty-evidence": "a question without evidence",
    "malformed-evidence": "evidence that isn't a list of turn ids; the good ids in it are kept",
    "evidence-nowhere": "evidence that names no turn of the conversation; left out, unless only zeros are in the way",
    "repeated-evidence": "a turn named twice as evidence; kept once",
    "malformed-observation-evidence": "evidence of an observation that isn't a turn id; the good ids in it are kept",
}


def oddity(kind: str, node: Node, detail: str) -> Oddity:
    """An oddity at a node. `kind` must be one of HANDLING."""
    if kind not in HANDLING:
        raise KeyError(kind)
    return Oddity(kind, f"{node.file.name}: {node.place or 'top level'}", detail)
