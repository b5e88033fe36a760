"""RAG: what is indexed, what is found, and the index on disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from opbench.benchmarks import load
from opbench.errors import UsageError
from opbench.gateway.lease import Lease
from opbench.memories import MemoryContext, make_memory
from opbench.memories.rag import Rag, turns
from opbench.models import load_registry
from tests.scripted_endpoint import bag_of_words


class WordEmbedder:
    """Cosine grows with shared words; counts what it is asked."""

    def __init__(self, version: str = "1") -> None:
        self.version = version
        self.texts: list[str] = []
        self.warmed = False

    def identity(self) -> dict[str, str]:
        return {"version": self.version}

    async def warm(self) -> None:
        self.warmed = True

    async def embed(self, texts: Sequence[str]) -> np.ndarray:
        self.texts += texts
        vectors = np.array([bag_of_words(text) for text in texts], dtype=np.float32)
        normalised: np.ndarray = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return normalised


CORPUS = load("sample")
USER = CORPUS.users["sample-1/Ottilie"]
OTHER = CORPUS.users["sample-1/Corvin"]
HISTORY = CORPUS.conversations["sample-1"].sessions
TURNS = sum(len(session.turns) for session in HISTORY)


class NoGateway:
    """RAG asks no model: a lease would be a fault."""

    async def lease(self, label: str, model: str) -> Lease:
        raise AssertionError(label)

    async def release(self, lease: Lease) -> None:
        raise AssertionError(lease.label)


def context(embedder: WordEmbedder, folder: Path) -> MemoryContext:
    return MemoryContext(embedder, folder, folder / "kept", load_registry(), NoGateway())


def rag(folder: Path, embedder: WordEmbedder, name: str = "rag") -> Rag:
    memory = make_memory(name, context(embedder, folder))
    assert isinstance(memory, Rag)
    return memory


async def test_every_turn_is_embedded_with_speaker_and_date(tmp_path: Path) -> None:
    embedder = WordEmbedder()
    await rag(tmp_path, embedder).ingest(USER, HISTORY)
    assert len(embedder.texts) == TURNS
    first = HISTORY[0]
    assert embedder.texts[0] == f"({first.day}) {first.turns[0].speaker}: {first.turns[0].text}"


async def test_finds_the_turn_that_was_said_best_first(tmp_path: Path) -> None:
    memory = rag(tmp_path, WordEmbedder())
    await memory.ingest(USER, HISTORY)
    said = turns(HISTORY)[17]
    found = await memory.search(USER, f"({said.date}) {said.text}", 5)
    assert len(found) == 5
    assert (found[0].text, found[0].date) == (said.text, said.date)
    assert found[0].score == pytest.approx(1.0, abs=1e-5)
    scores = [each.score or 0.0 for each in found]
    assert scores == sorted(scores, reverse=True)


async def test_the_date_is_the_sessions_not_todays(tmp_path: Path) -> None:
    memory = rag(tmp_path, WordEmbedder())
    await memory.ingest(USER, HISTORY)
    days = {session.day for session in HISTORY}
    assert {found.date for found in await memory.search(USER, "anything at all", 50)} <= days


async def test_k_beyond_the_history_gives_all_of_it(tmp_path: Path) -> None:
    memory = rag(tmp_path, WordEmbedder())
    await memory.ingest(USER, HISTORY[:1])
    assert len(await memory.search(USER, "tea", 1000)) == len(HISTORY[0].turns)


async def test_an_empty_history_finds_nothing(tmp_path: Path) -> None:
    memory = rag(tmp_path, WordEmbedder())
    await memory.ingest(USER, [])
    assert await memory.search(USER, "tea", 5) == []


async def test_the_index_is_kept_and_shared_by_both_speakers(tmp_path: Path) -> None:
    await rag(tmp_path, WordEmbedder()).ingest(USER, HISTORY)
    again = WordEmbedder()
    memory = rag(tmp_path, again)
    await memory.ingest(OTHER, HISTORY)
    await memory.ingest(USER, HISTORY)
    assert again.texts == []
    assert again.warmed, "before any search, whose time is taken"
    assert await memory.search(OTHER, "tea", 3) == await memory.search(USER, "tea", 3)


async def test_another_embedder_history_or_unit_is_another_index(tmp_path: Path) -> None:
    await rag(tmp_path, WordEmbedder()).ingest(USER, HISTORY)
    for embedder, history, name in (
        (WordEmbedder("2"), HISTORY, "rag"),
        (WordEmbedder(), HISTORY[:-1], "rag"),
        (WordEmbedder(), HISTORY, "rag-observations"),
    ):
        await rag(tmp_path, embedder, name).ingest(USER, history)
        assert embedder.texts
    assert len(list((tmp_path / "rag").glob("*.faiss"))) == 4
    assert not list((tmp_path / "rag").glob("*.part"))


@pytest.mark.parametrize("damage", [b"", b"nonsense", None])
async def test_a_damaged_index_is_made_again(tmp_path: Path, damage: bytes | None) -> None:
    await rag(tmp_path, WordEmbedder()).ingest(USER, HISTORY)
    (file,) = (tmp_path / "rag").glob("*.faiss")
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2] if damage is None else damage)
    embedder = WordEmbedder()
    memory = rag(tmp_path, embedder)
    await memory.ingest(USER, HISTORY)
    assert len(embedder.texts) == TURNS
    assert file.read_bytes() == whole
    assert len(await memory.search(USER, "tea", 5)) == 5


async def test_observations_are_the_annotators_facts(tmp_path: Path) -> None:
    embedder = WordEmbedder()
    memory = rag(tmp_path, embedder, "rag-observations")
    await memory.ingest(USER, HISTORY)
    facts = [observation.text for session in HISTORY for observation in session.observations]
    assert [text.split(") ", 1)[1] for text in embedder.texts] == facts
    assert (await memory.search(USER, facts[0], 1))[0].text == facts[0]


def test_an_unknown_memory_system_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no memory system 'rag-observation'\. Did you mean 'rag-observations'\?"):
        make_memory("rag-observation", context(WordEmbedder(), tmp_path))
