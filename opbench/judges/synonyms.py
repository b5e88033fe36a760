"""Synonyms of a word by WordNet 3.0, in the form in which nltk's METEOR asks for them.

nltk's own reader needs a corpus that is downloaded from elsewhere. `wordnet/synonyms.txt` holds what METEOR uses of it
(made by `tools/wordnet_synonyms.py`; Princeton's licence stands beside it): a line a synset, part of speech and words,
and with `!` irregular forms with their base forms. Base forms are found as by WordNet's `morphy`.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

_FILE = Path(__file__).parent / "wordnet" / "synonyms.txt"
_ENDINGS: dict[str, tuple[tuple[str, str], ...]] = {
    "n": (
        ("s", ""),
        ("ses", "s"),
        ("ves", "f"),
        ("xes", "x"),
        ("zes", "z"),
        ("ches", "ch"),
        ("shes", "sh"),
        ("men", "man"),
        ("ies", "y"),
    ),
    "v": (("s", ""), ("ies", "y"), ("es", "e"), ("es", ""), ("ed", "e"), ("ed", ""), ("ing", "e"), ("ing", "")),
    "a": (("er", ""), ("est", ""), ("er", "e"), ("est", "e")),
    "r": (),
}
"""Endings and what takes their place, by part of speech."""


@dataclass(frozen=True, slots=True)
class Lemma:
    """A word of a synset."""

    word: str

    def name(self) -> str:
        return self.word


@dataclass(frozen=True, slots=True)
class Synset:
    """Words of one meaning."""

    words: tuple[str, ...]

    def lemmas(self) -> list[Lemma]:
        return [Lemma(word) for word in self.words]


class WordNetSynonyms:
    """Stands for nltk's WordNet reader where only synonyms are asked for. Read once, when first asked."""

    def synsets(self, word: str) -> list[Synset]:
        """All synsets that the word, or a base form of it, is in."""
        return [
            synset for part in _ENDINGS for form in self._forms(word.lower(), part) for synset in self._of(part, form)
        ]

    def _forms(self, word: str, part: str) -> list[str]:
        """The word and its base forms: the irregular ones, or what is left of it without an ending."""
        irregular = self._known[1][part].get(word)
        forms = irregular or [word[: -len(old)] + new for old, new in _ENDINGS[part] if word.endswith(old)]
        return list(dict.fromkeys([word, *forms]))

    def _of(self, part: str, form: str) -> list[Synset]:
        return self._known[0][part].get(form, [])

    @cached_property
    def _known(self) -> tuple[dict[str, dict[str, list[Synset]]], dict[str, dict[str, list[str]]]]:
        return _read()


@lru_cache(maxsize=1)
def _read() -> tuple[dict[str, dict[str, list[Synset]]], dict[str, dict[str, list[str]]]]:
    """By part of speech: the synsets of each word in lower case, and the base forms of irregular ones."""
    synsets: dict[str, dict[str, list[Synset]]] = {part: defaultdict(list) for part in _ENDINGS}
    irregular: dict[str, dict[str, list[str]]] = {part: {} for part in _ENDINGS}
    for line in _FILE.read_text("ascii").splitlines():
        kind, *words = line.split(" ")
        if kind.endswith("!"):
            irregular[kind[0]][words[0]] = words[1:]
            continue
        synset = Synset(tuple(words))
        for word in dict.fromkeys(word.lower() for word in words):
            synsets[kind][word].append(synset)
    return synsets, irregular
