"""What judges use of nltk and rouge-score, loaded without SciPy and scikit-learn.

nltk loads both where they are installed, for parts of its that nobody here uses: 85 MB and a second for every process
that judges. It does without them where they are missing, and its stems and metrics are the same.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class _Missing(MetaPathFinder):
    """Packages that can't be found, in the thread that made it: others may load them meanwhile."""

    def __init__(self, packages: Sequence[str]) -> None:
        self._packages = packages
        self._thread = threading.get_ident()

    def find_spec(self, name: str, path: object, target: ModuleType | None = None) -> ModuleSpec | None:
        if threading.get_ident() == self._thread and name.partition(".")[0] in self._packages:
            raise ModuleNotFoundError(f"{name} isn't loaded here", name=name)
        return None


@contextmanager
def _without(*packages: str) -> Iterator[None]:
    missing = _Missing(packages)
    sys.meta_path.insert(0, missing)
    try:
        yield
    finally:
        sys.meta_path.remove(missing)


with _without("scipy", "sklearn"):
    from nltk.stem import PorterStemmer
    from nltk.tokenize.destructive import NLTKWordTokenizer
    from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu
    from nltk.translate.meteor_score import single_meteor_score
    from rouge_score.rouge_scorer import RougeScorer
    from rouge_score.tokenize import tokenize as rouge_tokens
    from rouge_score.tokenizers import Tokenizer

__all__ = [
    "NLTKWordTokenizer",
    "PorterStemmer",
    "RougeScorer",
    "SmoothingFunction",
    "Tokenizer",
    "rouge_tokens",
    "sentence_bleu",
    "single_meteor_score",
]
