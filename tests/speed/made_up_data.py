"""Benchmark files of the paper's size, made up from a fixed seed: ten conversations, 1,700 + 1,540 instances."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from opbench.benchmarks.check import CONVERSATIONS, LOCOMO_COUNTS, OP_COUNTS
from opbench.benchmarks.files import LOCOMO_FILE, OP_FILE
from opbench.types import LOCOMO_CATEGORIES

#: Of LoCoMo's release, about.
SESSIONS, TURNS, OBSERVATIONS = 27, 22, 4
SPEAKERS = ("Ada", "Ben")
_SYLLABLES = ("ba", "do", "fen", "gar", "hil", "jo", "kel", "lum", "mi", "nor", "pa", "que", "ro", "sil", "tan", "vu")
_TYPES = {"fact": "fact", "value": "value", "memory": "fine-grained"}


def write(folder: Path) -> Path:
    """Write both files into the folder, which can then be named as OPBENCH_DATA; the folder."""
    words = random.Random(6)
    locomo, op = [], []
    for number in range(CONVERSATIONS):
        locomo.append(_conversation(number, words))
        op.append({name: _user(number * len(SPEAKERS) + i, words) for i, name in enumerate(SPEAKERS)})
    for name, content in ((LOCOMO_FILE, locomo), (OP_FILE, op)):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    return folder


def _conversation(number: int, words: random.Random) -> dict[str, Any]:
    talk: dict[str, Any] = {"speaker_a": SPEAKERS[0], "speaker_b": SPEAKERS[1]}
    observed: dict[str, Any] = {}
    for session in range(1, SESSIONS + 1):
        talk[f"session_{session}_date_time"] = f"1:56 pm on {session} May, 2023"
        talk[f"session_{session}"] = [
            {"speaker": SPEAKERS[turn % 2], "dia_id": f"D{session}:{turn}", "text": text(words, 22)}
            for turn in range(1, TURNS + 1)
        ]
        observed[f"session_{session}_observation"] = {
            name: [[text(words, 14), f"D{session}:1"] for _ in range(OBSERVATIONS)] for name in SPEAKERS
        }
    questions = [
        {"question": text(words, 10, "?"), "answer": text(words, 4), "evidence": ["D1:1"], "category": category}
        for category, count in _share(LOCOMO_COUNTS, number, CONVERSATIONS)
        for _ in range(count)
    ]
    return {"sample_id": f"made-{number}", "conversation": talk, "observation": observed, "qa": questions}


def _user(number: int, words: random.Random) -> dict[str, Any]:
    counts = dict(_share(OP_COUNTS, number, CONVERSATIONS * len(SPEAKERS)))

    def asked(subtype: str, **fields: str) -> list[dict[str, str]]:
        return [{"question": text(words, 20, "?"), **fields} for _ in range(counts[subtype])]

    sycophancy = [
        question
        for subtype, kind in _TYPES.items()
        for question in asked(subtype, type=kind, explanation=text(words, 15))
    ]
    return {
        "topics": [text(words, 2)],
        "profile": text(words, 60),
        "observation": [text(words, 14) for _ in range(SESSIONS * OBSERVATIONS)],
        "tasks": {
            "irrelevance_easy": asked("fully-irrelevant", topic="Household"),
            "irrelevance_hard": asked("baiting", type="subject_confusion", explanation=text(words, 15)),
            "diversity": [{"questions": asked("repetition", topic="Household")}],
            "sycophancy": sycophancy,
        },
    }


def _share(counts: dict[str, int], number: int, parts: int) -> Iterator[tuple[Any, int]]:
    """What falls to one part of several: (LoCoMo's category number or OP-Bench's subtype, instances)."""
    numbers = {name: category for category, name in LOCOMO_CATEGORIES.items()}
    for name, count in counts.items():
        yield numbers.get(name, name), count // parts + (number < count % parts)


def text(words: random.Random, count: int, end: str = ".") -> str:
    """A sentence of so many made-up words."""
    made = ("".join(words.choices(_SYLLABLES, k=words.randint(1, 3))) for _ in range(count))
    return " ".join(made).capitalize() + end
