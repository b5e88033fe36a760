"""The invented examples: balanced, unknown to both benchmarks, and never part of an output."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from mitigations import context_lines, get
from mitigations.shots import load_shots
from tests.mitigations.scripted import STORE, process

NAMES = ("Oskar", "Thandi", "Bertil", "Wiebke", "Ruairi", "Leocadia")
SUBJECTS = (
    "zither",
    "penicillin",
    "ferry",
    "fennel",
    "sauna",
    "euphonium",
    "quail",
    "vertigo",
    "lichen",
    "windmill",
    "lighthouse",
    "canary",
    "bagpipe",
    "thatch",
    "goat",
    "puppet",
    "lace",
    "Vilnius",
)


def test_the_order_is_balanced_and_ends_on_keep() -> None:
    shots = load_shots()
    assert [shot.id for shot in shots] == ["S1", "S3", "S2", "S5", "S4", "S6"]
    assert [shot.context == "NONE" for shot in shots] == [True, False, True, False, True, False]
    assert shots[-1].context.count("\n") == 1  # two memories
    assert len({name for shot in shots for name in NAMES if name in shot.memories}) == len(shots)


def test_context_lines_are_copies_of_their_memories() -> None:
    for shot in load_shots():
        for line in shot.context.splitlines() if shot.context != "NONE" else ():
            number, text = line[:3], line[4:]
            assert re.search(rf"^{re.escape(number)} \([^)]+\) {re.escape(text)}$", shot.memories, re.MULTILINE)


@pytest.mark.parametrize("name", ["few-shot-cot", "comorag-invite-none"])
async def test_the_prompt_shows_them_before_the_real_case(name: str) -> None:
    asked: list[str] = []

    async def ask(messages: Any, **_: Any) -> Any:
        asked.append(messages[1][1])
        raise StopAsyncIteration

    with pytest.raises(StopAsyncIteration):
        await get(name).process("Where?", STORE, ask)
    assert asked[0].index("Oskar") < asked[0].index("</examples>") < asked[0].index("Mara keeps bees")


def test_names_and_subjects_occur_in_neither_benchmark(real_data: Path) -> None:
    benchmarks = "\n".join(
        json.dumps(json.loads(file.read_text(encoding="utf-8")), ensure_ascii=False)
        for file in sorted(real_data.glob("[ol]*/*.json"))
    )
    assert len(benchmarks) > 1_000_000
    words = "|".join((*NAMES, *SUBJECTS))
    assert sorted(set(re.findall(rf"\b(?:{words})", benchmarks, re.IGNORECASE))) == []


@pytest.mark.parametrize(
    "name", ["reminder", "few-shot-cot", "comorag", "comorag-invite-none", "marag", "self-recheck"]
)
async def test_no_shot_turns_up_in_an_output(name: str) -> None:
    leaks = re.compile("|".join((*NAMES, *SUBJECTS)), re.IGNORECASE)
    for shot in load_shots():
        for memory in shot.memories.splitlines():
            bare = re.sub(r"^\[\d\] ", "", memory)
            for line in (memory, bare, f"[2] {bare}", f"[2] Mara is allergic to walnuts. {bare}"):
                reply = f"Need: x\nCheck: y\nContext:\n{line}" if name == "few-shot-cot" else line
                done = await process(name, reply, shot.question)
                assert not any(leaks.search(text) for text in context_lines(done)), (line, context_lines(done))
