"""What in a response stands in a memory, what became of each memory, what changed between two texts: in marked pieces.

**Spans.** A piece of a response is marked with the memories that it shares wording with:

- a run: words in a row (within a sentence) that stand in a memory in the same order, up to inflection. It begins and
  ends with a content word, holds at least two of them, and at least one that is telling and that the question doesn't
  hold;
- a name (a capital inside a sentence of the memory, and in the response) or a number (three digits or more, not round)
  that the question doesn't hold;
- telling words that the question doesn't hold, where one sentence of the response holds at least three different ones
  of one memory.

Content words are those that are no stop words (`mitigations.text`); telling ones are neither grammar nor the common
stock of chat and advice (`opbench.judges.words`, the offline judge's), nor number words and round numbers. A name that
most memories hold is the user's, and marks nothing by itself; a memory's date marks as part of a run alone. English
alone: elsewhere only names, numbers and literal runs are found.

Measured with SmolLM2 on 114 OP-Bench instances of five users: against the memories that RAG retrieved, 2.9 % of the
words of RAG's responses are marked and 0.1 % of those of BASE, which saw none of them.

Shared wording is no proof of cause: a model may say by itself what a memory happens to hold, and use a memory in words
of its own. Leaving the memory out and asking again is a proof (`opbench.cases.ablating`).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from mitigations.base import Memory
from mitigations.context import prepare
from mitigations.text import STOP_WORDS, capitalised, is_calendar_word, normalise, stem, tokens
from opbench.analysis.fates import Became, fates
from opbench.analysis.words import word_changes, word_marks
from opbench.cases.outcome import Found, Shown
from opbench.judges.words import content

DEFINITION = (
    "Marked: words in a row, names, numbers, and three or more telling words of a sentence that stand in a memory and "
    "not in the question. It is shared wording, no proof of cause: leave the memory out to see what it did."
)

Kind = Literal["kept", "dropped", "added"]
Run = tuple[str, Kind]
"""A piece of text, and what became of it."""

#: Ordinary in chat, and not in the offline judge's stock, which can't be changed without changing its scores.
_CHAT = """
absolutely ago ah amazing bit bunch came congrats congratulations cool couple definitely eight eleven excited felt
five found four gave given glad gone guys haha heard held hello hey hi hmm kinda knew left lol made met nine oh ok
okay pleased pretty said saw seen seven six sorry spent stuff super sure ten thanks thought three told took totally
tried truly twelve two welcome went whoa wow yeah yep
"""
_ORDINARY = frozenset(_CHAT.split())
#: Longest run that is looked up in one piece; a longer one is found as runs that overlap.
_LONGEST_RUN = 8
#: Different telling words of one memory that make a sentence's single words marked.
_FEWEST_WORDS = 3
_JOINED = "[\u0300-\u036f\u00ad\u200b-\u200d\u2060]*"
_LETTER = rf"[^\W\d_]{_JOINED}"
_WORD = re.compile(rf"\d+(?:[.,:]\d+)*|(?:{_LETTER})+(?:['’-](?:{_LETTER})+)*")
_SENTENCE_END = re.compile(r"[.!?…][\"'”’)*\]]*\s|\n")


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a response, by places of signs: `response[start:end]`.

    `memories` are the numbers of those that it shares wording with, the one that holds most of it first. `words` are
    its content words, as the response writes them.
    """

    start: int
    end: int
    memories: tuple[int, ...]
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fated:
    """What the post-processor made of one memory.

    `runs` is the memory word by word: kept, dropped, and added in the line of the prompt that it went into, in reading
    order. Words that a line of several memories has from another of them are neither. `became` is None while the
    post-processor is at work; the runs are then the memory as found. `number` is None for a line that comes from no
    memory.
    """

    number: int | None
    became: Became | None
    date: str | None
    score: float | None
    runs: tuple[Run, ...]
    lines: tuple[str, ...] = ()
    """The prompt's lines that it went into."""


class _Word(NamedTuple):
    start: int
    end: int
    text: str
    key: str
    sentence: int


class _Held(NamedTuple):
    """What a memory's words are looked up in."""

    keys: frozenset[str]
    grams: frozenset[tuple[str, ...]]
    names: frozenset[str]


def spans(
    response: str,
    memories: Sequence[Found],
    question: str = "",
    *,
    numbers: Sequence[int] | None = None,
    known: Collection[str] = (),
) -> list[Span]:
    """The marked pieces in reading order; none overlaps another.

    `numbers` are those that the memories go by, 1, 2, 3 … if not given (a column without memory 2 has 1, 3 …). `known`
    are names that mark nothing by themselves: the user's and whoever else the prompt may have named.
    """
    by = list(numbers) if numbers is not None else list(range(1, len(memories) + 1))
    if len(by) != len(memories):
        raise ValueError(f"{len(memories)} memories with {len(by)} numbers")
    words = _words(response)
    asked = _words(question)
    told = {word.key for word in asked}
    asked_grams = _grams(asked)
    ignored = _common_names(memories) | {word.key for name in known for word in _words(name)}
    covered: dict[int, set[int]] = {}
    for number, memory in zip(by, memories, strict=True):
        held = _held(memory.text, memory.date)
        places = _runs(words, held.grams, asked_grams, told | ignored)
        places |= _single(words, held.names - ignored, held.keys, told)
        places |= _together(words, held.keys, told | ignored)
        covered[number] = places
    return _joined(words, covered)


def became(
    found: Sequence[Found] | None, shown: Sequence[Shown] | None, *, numbers: Sequence[int] | None = None
) -> list[Fated]:
    """What became of each memory, in rank order, then the lines that come from none; empty for BASE.

    `shown` None: post-processing isn't over.
    """
    memories = list(found or ())
    by = list(numbers) if numbers is not None else list(range(1, len(memories) + 1))
    if len(by) != len(memories):
        raise ValueError(f"{len(memories)} memories with {len(by)} numbers")
    if shown is None:
        return [
            Fated(number, None, memory.date, memory.score, ((memory.text, "kept"),))
            for number, memory in zip(by, memories, strict=True)
        ]
    context = [_line(line) for line in shown]
    prepared = prepare([Memory(memory.text, memory.date, memory.score) for memory in memories])
    return [
        Fated(
            number=None if fate.rank is None else by[fate.rank - 1],
            became=fate.became,
            date=fate.date,
            score=fate.similarity,
            runs=_run_of(fate.became, fate.text or "", fate.lines, context, [each.text for each in prepared.memories]),
            lines=fate.lines,
        )
        for fate in fates([memory.model_dump() for memory in memories], context)
    ]


def changed(before: str, after: str) -> tuple[list[Run], list[Run]]:
    """Both texts in pieces: what of the first was kept or dropped, what of the second was kept or added."""
    first, second = word_marks(before, after)
    return (
        [(text, "dropped" if differs else "kept") for text, differs in first],
        [(text, "added" if differs else "kept") for text, differs in second],
    )


def marked_share(response: str, found: Iterable[Span]) -> float | None:
    """Share (0 to 1) of the response's words that stand in a span; None for a response without a word."""
    words = _words(response)
    held = list(found)
    inside = sum(any(span.start <= word.start < span.end for span in held) for word in words)
    return inside / len(words) if words else None


def _line(line: Shown) -> dict[str, Any]:
    told = line.model_dump()
    if told["sources"] is None:
        del told["sources"]
    return told


def _run_of(
    fate: Became, text: str, lines: Sequence[str], context: Sequence[dict[str, Any]], stored: Sequence[str]
) -> tuple[Run, ...]:
    if fate in ("kept", "restored"):
        return ((text, "kept"),)
    if fate == "dropped":
        return ((text, "dropped"),)
    if fate == "added":
        return tuple((line, "added") for line in lines)
    # A line of several memories: what it has from the others is theirs.
    others = {
        word.key
        for line in context
        if line["text"] in lines and len(line["sources"]) > 1
        for number in line["sources"]
        if 1 <= number <= len(stored) and stored[number - 1] != text
        for word in _words(stored[number - 1])
    }
    runs = word_changes(text, "\n".join(lines))
    if not others:
        return tuple(runs)
    own = ((piece if kind != "added" else _not_in(piece, others), kind) for piece, kind in runs)
    return tuple((piece, kind) for piece, kind in own if piece)


def _not_in(piece: str, keys: Collection[str]) -> str:
    """The words of a piece that carry a fact which no word of `keys` tells."""
    kept = [part for part in piece.split() if any(_is_content(w.text) and w.key not in keys for w in _words(part))]
    return " ".join(kept) + " " if kept else ""


def _words(text: str) -> list[_Word]:
    """Words and numbers with their places, stems, and the sentence (0-based) that they are in."""
    found: list[_Word] = []
    sentence, end = 0, 0
    for match in _WORD.finditer(text):
        if found and _SENTENCE_END.search(text, end, match.start()):
            sentence += 1
        end = match.end()
        found.append(_Word(match.start(), end, match[0], _key(match[0]), sentence))
    return found


@lru_cache(maxsize=50_000)
def _key(word: str) -> str:
    return stem(next(iter(tokens(normalise(word))), word))


@lru_cache(maxsize=50_000)
def _is_content(word: str) -> bool:
    folded = normalise(word).casefold()
    return folded not in STOP_WORDS and "'" not in folded.removesuffix("'s")


@lru_cache(maxsize=50_000)
def _is_telling(word: str) -> bool:
    if word[:1].isdigit():
        return len(word.rstrip("0")) > 1
    return _is_content(word) and word.casefold() not in _ORDINARY and bool(content(word))


@lru_cache(maxsize=64)
def _held(text: str, date: str | None) -> _Held:
    """Kept, since a response is marked anew while it grows."""
    words = _words(text)
    return _Held(frozenset(word.key for word in words), _grams(words) | _grams(_words(date or "")), _names(text))


def _grams(words: Sequence[_Word]) -> frozenset[tuple[str, ...]]:
    """All runs of two words up to the longest, within a sentence."""
    return frozenset(
        tuple(word.key for word in words[start : start + size])
        for start in range(len(words))
        for size in range(2, _LONGEST_RUN + 1)
        if start + size <= len(words) and words[start].sentence == words[start + size - 1].sentence
    )


def _runs(
    words: Sequence[_Word], grams: frozenset[tuple[str, ...]], asked: frozenset[tuple[str, ...]], told: Collection[str]
) -> set[int]:
    """Places of the response's words that are in a run of the memory."""
    found: set[int] = set()
    for start, word in enumerate(words):
        if not _is_content(word.text):
            continue
        for size in range(_LONGEST_RUN, 1, -1):
            run = words[start : start + size]
            if len(run) < size or run[-1].sentence != word.sentence or not _is_content(run[-1].text):
                continue
            keys = tuple(each.key for each in run)
            if keys in grams:
                telling = any(_is_telling(each.text) and each.key not in told for each in run)
                if telling and keys not in asked:
                    found.update(range(start, start + size))
                break
    return found


def _single(words: Sequence[_Word], names: Collection[str], keys: Collection[str], told: Collection[str]) -> set[int]:
    """Places of names and of numbers."""
    return {
        place
        for place, word in enumerate(words)
        if word.key not in told
        and (
            (word.text[:1].isupper() and word.key in names)
            or (word.text[:1].isdigit() and len(word.text) > 2 and _is_telling(word.text) and word.key in keys)
        )
    }


def _together(words: Sequence[_Word], keys: Collection[str], told: Collection[str]) -> set[int]:
    """Places of telling words where their sentence holds enough different ones of the memory."""
    found: dict[int, list[int]] = defaultdict(list)
    for place, word in enumerate(words):
        if _is_telling(word.text) and word.key in keys and word.key not in told and not word.text[:1].isdigit():
            found[word.sentence].append(place)
    return {
        place
        for places in found.values()
        if len({words[place].key for place in places}) >= _FEWEST_WORDS
        for place in places
    }


def _names(text: str) -> frozenset[str]:
    """Stems of the words with a capital inside a sentence."""
    words = capitalised(normalise(text))[1]
    return frozenset(_key(word) for word in words if _is_telling(word) and not is_calendar_word(word))


def _common_names(memories: Sequence[Found]) -> set[str]:
    """Stems of the names that most memories hold, at least two: whom they are about."""
    counts = Counter(
        key
        for memory in memories
        for key in {_key(word) for words in capitalised(normalise(memory.text)) for word in words}
    )
    return {key for key, count in counts.items() if count >= max(2, (len(memories) + 1) // 2)}


def _joined(words: Sequence[_Word], covered: dict[int, set[int]]) -> list[Span]:
    """Neighbouring words of a sentence that share a memory make one span."""
    by_place: dict[int, set[int]] = defaultdict(set)
    for number, places in covered.items():
        for place in places:
            by_place[place].add(number)
    groups: list[list[int]] = []
    for place in sorted(by_place):
        last = groups[-1][-1] if groups else -2
        if place == last + 1 and words[place].sentence == words[last].sentence and by_place[place] & by_place[last]:
            groups[-1].append(place)
        else:
            groups.append([place])
    return [_span(words, group, by_place) for group in groups]


def _span(words: Sequence[_Word], group: Sequence[int], by_place: dict[int, set[int]]) -> Span:
    held = [place for place in group if _is_content(words[place].text)]
    counts = Counter(number for place in held for number in by_place[place])
    most = max(counts.values())
    # A memory that holds a word of a longer run of another isn't where that run comes from.
    numbers = sorted((number for number in counts if 2 * counts[number] >= most), key=lambda n: (-counts[n], n))
    return Span(
        words[group[0]].start,
        words[group[-1]].end,
        tuple(numbers),
        tuple(dict.fromkeys(words[place].text for place in held)),
    )
