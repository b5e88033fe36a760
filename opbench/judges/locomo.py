"""LoCoMo's metrics that need no judge: token F1, BLEU-1, ROUGE-L, and the rule for adversarial questions.

F1 follows LoCoMo's official evaluation: lower case, punctuation and `a an the and` dropped, Porter stems; for
multi-hop questions gold answer and response are split at commas, and the mean over gold items of the best match
counts; of an open-domain gold answer the part before the first semicolon counts. Two things are added: dates written
in different ways are made equal (`dates.py`, for all three metrics), and the words zero to twelve equal their digits
(F1 alone). BLEU-1 is nltk's, smoothed by its method 1; ROUGE-L is the F-measure of rouge-score with stemming.

Adversarial questions have no answer in the conversation: `correct` is 1 when the response says so, and the overlap
metrics have no meaning and are left out.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from functools import lru_cache

from opbench.judges.dates import canonical_dates
from opbench.judges.nltk_parts import RougeScorer, SmoothingFunction, sentence_bleu
from opbench.judges.stemmed import StemmedWords
from opbench.judges.text import plain, strip_thinking
from opbench.judges.words import stem
from opbench.types import Instance, Score

_DIGITS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
_NUMBER_WORDS = {word: str(number) for number, word in enumerate(_DIGITS)}
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_BREAK = re.compile(r"[–—―…]|-{2,}|\.{2,}")
"""Dashes and dots that part words; `plain` writes `…` as three dots. A hyphen inside a word parts nothing."""
_ROUGE = RougeScorer(["rougeL"], tokenizer=StemmedWords())
_SMOOTHING = SmoothingFunction().method1
_KIND = r"(?:(?:relevant|specific|such|further|clear|more|other|detailed|exact|personal|explicit|direct) ){0,2}"
_KNOWN = r"(?:information|info|mention|record|details?|evidence|memory|memories|data|context|recollection|knowledge)"
_SOURCE = (
    r"(?:the|my|our|your|their|this|that|these|any|what i)(?: \w+){0,2}? "
    r"(?:memory|memories|conversations?|dialogues?|chats?|records?|notes|context|history|information|data|transcripts?|"
    r"messages|logs?)\b"
)
_NOT_THERE = re.compile(
    r"\bnot (?:explicitly |specifically |directly )?"
    r"(?:mention|specif|stat(?:e|ed)\b|discuss|available|provid|record|disclos|indicat|given\b|known\b)"
    r"|(?:\b(?:never|not)|n't) (?:been )?(?:explicitly |specifically |directly |ever )?"
    r"(?:mention|specif|stat(?:e|ed)\b|discuss|say\b|said\b|provid|indicat|contain|include)"
    rf"|\bno {_KIND}{_KNOWN}\b|\binsufficient {_KIND}{_KNOWN}\b"
    rf"|(?:\bnot|n't|\bnever) (?:have|had|got|have got|find|found|see|any|enough|sufficient) "
    rf"(?:any |enough |sufficient |the |that |a |an )?{_KIND}(?:{_KNOWN}|record|access)"
    rf"|(?:\bnot|n't) have (?:anything|a (?:memory|record)|notes)\b"
    rf"|\bnothing (?:\w+ ){{0,3}}?(?:in|from|on) {_SOURCE}"
    r"|\bnothing (?:is|was|has been|have been) (?:mentioned|said|stated|recorded|noted|specified)\b"
    r"|\bthere(?:'s| is| was) nothing about\b"
    r"|\b(?:no one|nobody|neither(?: of them| \w+ nor \w+)?) (?:ever )?"
    r"(?:mentions|mentioned|says|said|specif|states|stated)"
    r"|\b(?:i|we) (?:do not|don't) (?:know|recall|remember|see|find)\b"
    r"|\b(?:i|we)(?: have|'ve)(?: got)? (?:absolutely |really )?no (?:idea|clue|way of (?:knowing|telling))\b"
    r"|^\W*no idea\W*$"
    r"|\bi(?:'m| am) (?:not aware|unaware) of\b|\bi(?:'m| am) not (?:sure|certain)\b(?!.*\bbut\b)"
    r"|\bi (?:do not|don't) (?:think|believe) (?:[\w']+ ){1,6}?(?:mention|specif|discuss|stated\b)"
    r"|\bunanswerable\b|^\W*(?:unknown|n/a|not sure|no answer)\W*$"
    r"|\b(?:can't|cannot|can not|could not|couldn't|unable to) (?:be )?(?:determin|answer|find|tell|say|confirm|infer)",
    re.IGNORECASE | re.DOTALL,
)
_PERSON = (
    r"\b(?:she|he|they|who|(?-i:(?!(?:The|This|That|These|It|There|Information|Details?|Data|Answer|Memory|Memories|"
    r"Conversation|Context|We|Nothing)\b)[A-Z][a-z]+))"
)
_ANSWERS = re.compile(
    r"\b(?:do not|don't) (?:know|recall|remember) about (?:you|him|her|them|others|everyone|anyone else)\b"
    r"|(?:\b(?:never|not)|n't) say (?:no|yes|goodbye|bye|hello|hi|hey|sorry|thanks|thank|please)\b"
    r"|\bno (?:details?|expense|evidence|memory|data) (?:was |were |is |being )?"
    r"(?:spared|overlooked|left out|too small|neglected|forgotten|lost)\b"
    rf"|{_PERSON} (?:(?:was|were|is|are|has been|had been|have been) not|(?:was|were|is|are|had|has)n't(?: been)?) "
    r"(?:available|given|provided|included)\b"
    rf"|{_PERSON} (?:can't|cannot|could not|couldn't|(?:was|were|is|are) unable to) (?:find|tell|say|answer|confirm)\b"
    rf"|{_PERSON} (?:keeps?|kept|left|lost|found|made|took|leaves) (?:\w+ )?no {_KIND}{_KNOWN}\b",
    re.IGNORECASE,
)
"""Wordings of an answer that look like a refusal: `no details spared`, `she couldn't find her keys`."""


def locomo_scores(instance: Instance, response: str, finish_reason: str | None = None) -> list[Score]:
    """`f1`, `bleu1` and `rougeL` (0 to 1) of a LoCoMo response, or `correct` (0 or 1) for an adversarial question.

    Thinking blocks are taken off first. An empty response or a question without gold answer is missing, with reason.
    """
    answer = strip_thinking(response)
    metrics = ("correct",) if instance.subtype == "adversarial" else ("f1", "bleu1", "rougeL")
    if not answer:
        why = "only a thinking block" if response.strip() else finish_reason
        reason = "empty response" + (f" ({why})" if why not in (None, "stop") else "")
        return [Score(metric, None, reason) for metric in metrics]
    if instance.subtype == "adversarial":
        return [Score("correct", float(says_not_there(answer)))]
    if not instance.answer:
        return [Score(metric, None, "no gold answer") for metric in metrics]
    gold = instance.answer.split(";")[0].strip() if instance.subtype == "open-domain" else instance.answer
    f1, bleu, rouge = _overlap(answer, gold, instance.subtype == "multi-hop")
    return [Score("f1", f1), Score("bleu1", bleu), Score("rougeL", rouge)]


@lru_cache(maxsize=4096)
def _overlap(answer: str, gold: str, many: bool) -> tuple[float, float, float]:
    """F1, BLEU-1 and ROUGE-L. Post-processors of one memory system often end at the same response."""
    return list_f1(answer, gold) if many else token_f1(answer, gold), bleu1(answer, gold), rouge_l(answer, gold)


def token_f1(response: str, gold: str) -> float:
    """F1 over the multisets of normalised tokens; 0 when nothing is shared or one side has no token."""
    said, wanted = Counter(_tokens(response)), Counter(_tokens(gold))
    shared = (said & wanted).total()
    return 2 * shared / (said.total() + wanted.total()) if shared else 0.0


def list_f1(response: str, gold: str) -> float:
    """Mean over the gold answer's comma-separated items of the best token F1 with an item of the response."""
    said = canonical_dates(plain(response)).split(",")
    wanted = [item for item in canonical_dates(plain(gold)).split(",") if item.strip()]
    return sum(max(token_f1(item, want) for item in said) for want in wanted) / len(wanted) if wanted else 0.0


def bleu1(response: str, gold: str) -> float:
    """Unigram BLEU with brevity penalty."""
    said, wanted = _words(response), _words(gold)
    if not said or not wanted:
        return 0.0
    return float(sentence_bleu([wanted], said, weights=(1,), smoothing_function=_SMOOTHING))


def rouge_l(response: str, gold: str) -> float:
    """F-measure of the longest common subsequence of stemmed words."""
    pair = (canonical_dates(plain(gold)), canonical_dates(plain(response)))
    return float(_ROUGE.score(*pair)["rougeL"].fmeasure)


def says_not_there(response: str) -> bool:
    """Whether the response says that what was asked is not mentioned or not known."""
    return bool(_NOT_THERE.search(_ANSWERS.sub(" ", plain(response))))


@lru_cache(maxsize=8192)  # a gold answer is compared with the responses of all configurations
def _tokens(text: str) -> tuple[str, ...]:
    text = re.sub(r"(?<=\d)[-–/](?=\d)", " ", canonical_dates(plain(text)).lower())
    words = _BREAK.sub(" ", text).translate(_PUNCTUATION).split()
    return tuple(stem(_NUMBER_WORDS.get(word, word)) for word in words if word not in ("a", "an", "the", "and"))


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+(?:'[^\W_]+)?", canonical_dates(plain(text)).lower())
