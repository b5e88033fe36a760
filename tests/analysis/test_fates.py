"""What became of retrieved memories, and which words of two texts differ."""

from __future__ import annotations

from typing import Any

import pytest

from opbench.analysis.fates import fates
from opbench.analysis.words import word_marks


def memory(text: str, date: str | None = "8 May 2023", score: float | None = 0.5) -> dict[str, Any]:
    return {"text": text, "date": date, "score": score}


def line(text: str, *sources: int, altered: bool = False) -> dict[str, Any]:
    return {"text": text, "date": None, "sources": list(sources), "altered": altered}


def test_kept_altered_restored_and_dropped() -> None:
    retrieved = [memory("Likes tea."), memory("Has a dog."), memory("Lives in Rome."), memory("Runs daily.")]
    context = [line("Likes tea.", 1), line("Owns a dog.", 2, altered=True), line("Lives in Rome.", 3, altered=True)]
    found = fates(retrieved, context)
    assert [(fate.rank, fate.became) for fate in found] == [
        (1, "kept"),
        (2, "altered"),
        (3, "restored"),
        (4, "dropped"),
    ]
    assert found[1].lines == ("Owns a dog.",)
    assert found[3].lines == ()
    assert (found[0].date, found[0].similarity) == ("8 May 2023", 0.5)


def test_merged_and_added() -> None:
    found = fates([memory("Likes tea."), memory("Has a dog.")], [line("Tea and a dog.", 1, 2), line("A remark.")])
    assert [(fate.rank, fate.became) for fate in found] == [(1, "merged"), (2, "merged"), (None, "added")]
    assert found[2].lines == ("A remark.",)


def test_a_line_of_unknown_sources_is_not_lost() -> None:
    found = fates([memory("Likes tea.")], [line("Likes tea.", 9)])
    assert [fate.became for fate in found] == ["dropped", "added"]


def test_sources_number_the_memories_without_blanks_and_duplicates() -> None:
    # The post-processor saw two memories: 1 is "Likes tea." (retrieved twice), 2 is "Has a dog.".
    retrieved = [memory("Likes tea."), memory(" "), memory("Likes tea."), memory("Has a dog.")]
    found = fates(retrieved, [line("Has a dog.", 2)])
    assert [fate.became for fate in found] == ["dropped", "dropped", "dropped", "kept"]


def test_a_context_without_sources_is_what_was_retrieved() -> None:
    retrieved = [memory("Likes tea."), memory("Has a dog.")]
    assert [fate.became for fate in fates(retrieved, retrieved)] == ["kept", "kept"]


def test_nothing_kept_and_nothing_retrieved() -> None:
    assert [fate.became for fate in fates([memory("Likes tea.")], [])] == ["dropped"]
    assert fates(None, None) == []
    assert fates([], []) == []


def test_differing_words_are_marked_on_both_sides() -> None:
    first, second = word_marks("The cat sat here.", "The dog sat  here.")
    assert first == [("The ", False), ("cat", True), (" sat here.", False)]
    assert second == [("The ", False), ("dog", True), (" sat  here.", False)]


def test_words_that_only_one_has() -> None:
    first, second = word_marks("Yes.", "Yes. I do remember.")
    assert first == [("Yes.", False)]
    assert second == [("Yes. ", False), ("I do remember.", True)]


def test_signs_without_spaces_between_are_told_apart() -> None:
    assert word_marks("私は猫", "私は犬")[0] == [("私は", False), ("猫", True)]


@pytest.mark.parametrize("texts", [("", ""), ("", "a b"), ("a\n\nb", "a b"), ("a b " * 4000, "a c " * 4000)])
def test_the_pieces_make_up_the_text(texts: tuple[str, str]) -> None:
    for text, runs in zip(texts, word_marks(*texts), strict=True):
        assert "".join(piece for piece, _ in runs) == text
