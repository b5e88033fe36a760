"""Random memories: the control that retrieval has to beat."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from opbench.benchmarks import load
from opbench.memories import MemorySystem, make_memory
from opbench.memories.rag import turns
from tests.memories.test_rag import WordEmbedder, context

CORPUS = load("sample")
USER = CORPUS.users["sample-1/Ottilie"]
OTHER = CORPUS.users["sample-1/Corvin"]
HISTORY = CORPUS.conversations["sample-1"].sessions
UNITS = turns(HISTORY)
#: What a process of its own draws: hashing strings differs from process to process.
PROGRAM = """
import asyncio
from opbench.benchmarks import load
from opbench.memories.random import RandomMemories
corpus, memory = load("sample"), RandomMemories()
user = corpus.users["sample-1/Ottilie"]
asyncio.run(memory.ingest(user, corpus.conversations[user.conversation].sessions))
print([found.text for found in asyncio.run(memory.search(user, "tea", 5))])
"""


@pytest.fixture
def embedder() -> WordEmbedder:
    return WordEmbedder()


@pytest.fixture
def memory(tmp_path: Path, embedder: WordEmbedder) -> MemorySystem:
    return make_memory("random", context(embedder, tmp_path))


async def test_draws_are_dated_turns_without_repeats_and_nobody_is_asked(
    memory: MemorySystem, embedder: WordEmbedder
) -> None:
    await memory.ingest(USER, HISTORY)
    found = await memory.search(USER, "tea", 5)
    assert len(found) == 5
    assert all(each in UNITS for each in found), "the units of rag, each with its session's date"
    assert not Counter(found) - Counter(UNITS), "without replacement"
    assert {each.score for each in found} == {None}, "no similarity was asked for"
    assert embedder.texts == []


async def test_k_beyond_the_history_gives_all_of_it_and_an_empty_history_nothing(memory: MemorySystem) -> None:
    await memory.ingest(USER, HISTORY)
    assert Counter(await memory.search(USER, "tea", 10_000)) == Counter(UNITS)
    await memory.ingest(OTHER, [])
    assert await memory.search(OTHER, "tea", 5) == []


async def test_the_draw_hangs_on_user_query_and_k(memory: MemorySystem) -> None:
    await memory.ingest(USER, HISTORY)
    await memory.ingest(OTHER, HISTORY)
    drawn = await memory.search(USER, "tea", 5)
    assert await memory.search(USER, "tea", 5) == drawn
    assert await memory.search(USER, "coffee", 5) != drawn
    assert await memory.search(OTHER, "tea", 5) != drawn
    assert (await memory.search(USER, "tea", 6))[:5] != drawn


def test_the_draw_is_the_same_in_every_process() -> None:
    drawn = set()
    for seed in ("1", "2"):
        environment = dict(os.environ) | {"PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", PROGRAM]
        drawn.add(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
    assert len(drawn) == 1
    assert len(ast.literal_eval(drawn.pop())) == 5


async def test_every_unit_has_the_same_chance(memory: MemorySystem) -> None:
    """2,000 draws of five: the mean count is 10,000 / n, and chi-squared stays below its bound for one in 10^6."""
    await memory.ingest(USER, HISTORY)
    draws = [await memory.search(USER, f"question {number}", 5) for number in range(2000)]
    counts = Counter(found for draw in draws for found in draw)
    distinct = Counter(UNITS)
    expected = {unit: 10_000 * times / len(UNITS) for unit, times in distinct.items()}
    chi_squared = sum((counts[unit] - mean) ** 2 / mean for unit, mean in expected.items())
    freedom = len(distinct) - 1
    assert chi_squared < freedom + 4.9 * (2 * freedom) ** 0.5 + 10


async def test_users_of_other_conversations_stay_apart(memory: MemorySystem) -> None:
    """Also where they have the same name: there are three Johns in the benchmark."""
    namesake = replace(USER, conversation="sample-2")
    await memory.ingest(USER, HISTORY[:1])
    await memory.ingest(namesake, HISTORY[1:])
    assert Counter(await memory.search(USER, "tea", 10_000)) == Counter(turns(HISTORY[:1]))
    assert Counter(await memory.search(namesake, "tea", 10_000)) == Counter(turns(HISTORY[1:]))


def test_the_identity_names_the_draw_and_no_embedder(memory: MemorySystem) -> None:
    assert memory.identity() == {"memory": "random", "format": "1"}
