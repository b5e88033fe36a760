"""The lexical metrics of MemOS's LoCoMo evaluation: set-based token F1, ROUGE-1, 2 and L, BLEU-1 to 4, METEOR.

As there: tokens are nltk's of the lower-cased text, punctuation included; F1 is over the *sets* of tokens; BLEU is
nltk's sentence BLEU, smoothed by method 1, with weights 1, ½, 0.33 and ¼ (for BLEU-3 they sum to 0.99, as printed);
ROUGE is rouge-score's F-measure with stemming; METEOR is nltk's, with exact, stem and WordNet synonym matches
(`synonyms`; nltk looks for synonyms of what is left after stemming, so that `automobile` doesn't match `car`). The
whole gold answer counts, whatever the category, and dates are taken as they are written.

One thing differs. nltk finds sentences by a model that it downloads; here a full stop, question mark or exclamation
mark before white space ends one, save after an initial or a common abbreviation (`mr.`, `a.m.`). It matters only for
whether such a full stop is a token of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from opbench.judges.base import Evidence
from opbench.judges.nltk_parts import (
    NLTKWordTokenizer,
    RougeScorer,
    SmoothingFunction,
    sentence_bleu,
    single_meteor_score,
)
from opbench.judges.stemmed import StemmedWords
from opbench.judges.synonyms import WordNetSynonyms
from opbench.protocol import METRICS
from opbench.types import Score

METRIC_NAMES = tuple(name for name in METRICS["memos"] if not name.startswith("memos_correct"))

_TOKENIZER = NLTKWordTokenizer()
_SENTENCE_END = re.compile(
    r"(?<=[.!?])(?<!\b[a-z]\.)(?<!\b(?:mr|ms|dr|st|jr|sr|vs)\.)(?<!\b(?:mrs|etc)\.)(?<!\b[a-z]\.[a-z]\.)\s+"
)
_SMOOTHING = SmoothingFunction().method1
_BLEU_WEIGHTS = ((1, 0, 0, 0), (0.5, 0.5, 0, 0), (0.33, 0.33, 0.33, 0), (0.25, 0.25, 0.25, 0.25))
_ROUGE_TYPES = ("rouge1", "rouge2", "rougeL")
_ROUGE = RougeScorer(list(_ROUGE_TYPES), tokenizer=StemmedWords())
_SYNONYMS = WordNetSynonyms()


def lexical_scores(evidence: Evidence) -> list[Score]:
    """All of `METRIC_NAMES`, 0 to 1; an empty response or a question without gold answer is missing, with reason."""
    answer, gold = evidence.answer, evidence.instance.answer
    if not answer or not gold:
        reason = "no gold answer" if answer else evidence.no_answer
        return [Score(metric, None, reason) for metric in METRIC_NAMES]
    values = _overlap(answer, gold)
    return [Score(metric, values[metric]) for metric in METRIC_NAMES]


@lru_cache(maxsize=4096)
def _overlap(answer: str, gold: str) -> Mapping[str, float]:
    """All metrics by name. Post-processors of one memory system often end at the same response."""
    said, wanted = tokens(answer), tokens(gold)
    return {
        "memos_f1": set_f1(said, wanted),
        **{f"memos_{name}": value for name, value in rouge(answer, gold).items()},
        **{f"memos_bleu{n}": value for n, value in enumerate(bleu(said, wanted), 1)},
        "memos_meteor": meteor(said, wanted),
    }


def tokens(text: str) -> list[str]:
    """nltk's words and punctuation marks of the lower-cased text."""
    return [token for sentence in _SENTENCE_END.split(text.lower()) for token in _TOKENIZER.tokenize(sentence)]


def set_f1(said: list[str], wanted: list[str]) -> float:
    """F1 over the sets of tokens: how often one stands there doesn't count."""
    shared = len(set(said) & set(wanted))
    return 2 * shared / (len(set(said)) + len(set(wanted))) if shared else 0.0


def rouge(response: str, gold: str) -> dict[str, float]:
    """F-measures of `rouge1`, `rouge2` and `rougeL`."""
    found = _ROUGE.score(gold, response)
    return {name: float(found[name].fmeasure) for name in _ROUGE_TYPES}


def bleu(said: list[str], wanted: list[str]) -> list[float]:
    """BLEU-1 to BLEU-4."""
    if not said or not wanted:
        return [0.0] * len(_BLEU_WEIGHTS)
    found = sentence_bleu([wanted], said, weights=list(_BLEU_WEIGHTS), smoothing_function=_SMOOTHING)
    return [float(value) for value in found]


def meteor(said: list[str], wanted: list[str]) -> float:
    """METEOR with exact, stem and synonym matches."""
    return float(single_meteor_score(wanted, said, wordnet=_SYNONYMS))


def context_tokens(memories: str) -> int:
    """Tokens of the memories as they stand in the prompt, by the same rule (the original counts `cl100k_base`'s)."""
    return len(tokens(memories))
