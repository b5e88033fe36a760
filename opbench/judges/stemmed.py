"""rouge-score's tokens with stemming, as it makes them itself, by a stemmer that remembers words.

A benchmark's words are few and its records many, and stemming is most of what ROUGE takes.
"""

from __future__ import annotations

from functools import lru_cache

from opbench.judges.nltk_parts import Tokenizer, rouge_tokens
from opbench.judges.words import stem


class _Stemmer:
    stem = staticmethod(stem)


class StemmedWords(Tokenizer):  # type: ignore[misc]
    """For `RougeScorer(tokenizer=…)`: the same as its `use_stemmer=True`."""

    def tokenize(self, text: str) -> list[str]:
        return list(_tokenized(text))


@lru_cache(maxsize=8192)  # a gold answer is compared with the responses of all configurations
def _tokenized(text: str) -> tuple[str, ...]:
    return tuple(rouge_tokens(text, _Stemmer))
