"""What the memories say, and whether a model's line says no more than that."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache

from mitigations.base import Line, Memory
from mitigations.questions import asks_openly
from mitigations.roles import reorders
from mitigations.text import (
    Date,
    capitalised,
    content_words,
    find_dates,
    is_calendar_word,
    is_in,
    is_negated,
    normalise,
    numbers,
    persons,
    sentences,
    stem,
    tokens,
    without_dates,
    word_keys,
)

_LEADING_DATE = re.compile(r"^\(([^()]{4,60})\)[:,]?\s*")


class Evidence:
    """The prepared memories and the question; `numbers` in its methods are 1-based memory numbers."""

    def __init__(self, question: str, memories: Sequence[Memory]) -> None:
        self.question = normalise(question)
        self.texts = tuple(normalise(memory.text) for memory in memories)
        self._full = tuple(
            f"({normalise(memory.date)}) {text}" if memory.date else text
            for memory, text in zip(memories, self.texts, strict=True)
        )
        self.dates = tuple(tuple(find_dates(normalise(memory.date))) if memory.date else () for memory in memories)

    @property
    def size(self) -> int:
        """Number of memories."""
        return len(self.texts)

    @cached_property
    def users(self) -> frozenset[str]:
        """Stems of the names that most memories hold, and "user": whom the memories are about."""
        counts: Counter[str] = Counter()
        for text in self.texts:
            first, inside = capitalised(text)
            counts.update({stem(word) for word in first + inside if not is_calendar_word(word)})
        most = max(2, (self.size + 1) // 2)
        return frozenset({"user"} | {name for name, count in counts.items() if count >= most})

    def newness(self, line: Line) -> tuple[int, int, int]:
        """A sort key by the newest of a line's sources: newer dates are greater, undated memories oldest."""
        dates = [date for number in line.sources for date in self.dates[number - 1]]
        return max(((date.year or 0, date.month, date.day or 0) for date in dates), default=(0, 0, 0))

    def content(self, text: str, numbers: Iterable[int] = ()) -> set[str]:
        """Stems of the content words of `text`, without the user's name and the dates of the cited memories."""
        dates: list[Date] = [date for number in numbers for date in self.dates[number - 1]]
        return content_words(without_dates(text, dates), self.users)

    def share(self, text: str, numbers: Sequence[int]) -> float:
        """Share (0 to 1) of the content words of `text` that the cited memories hold; 0 if it has none."""
        words = self.content(text, numbers)
        known = set().union(*(content_words(self._full[number - 1]) for number in numbers))
        return sum(is_in(word, known) for word in words) / len(words) if words else 0.0

    def best(self, text: str) -> tuple[int, float]:
        """The memory that holds most of `text`'s content words, and their share; the better rank wins a tie."""
        shares = [(self.share(text, (number,)), -number) for number in range(1, self.size + 1)]
        share, number = max(shares)
        return -number, share

    def is_whole(self, text: str, number: int) -> bool:
        """Whether `text` is that memory, word for word, with or without its date."""
        words = _words(text)
        return words in (_words(self.texts[number - 1]), _words(self._full[number - 1]))

    def is_verbatim(self, text: str, number: int) -> bool:
        """Whether the words of `text` stand in that memory in one piece."""
        words, memory = _words(text), _words(self.texts[number - 1])
        return bool(words) and any(memory[at : at + len(words)] == words for at in range(len(memory) - len(words) + 1))

    def sentence(self, text: str, number: int) -> tuple[int, float]:
        """Place (0-based) of the sentence of a memory that is nearest to `text`, and the share of `text` it holds."""
        words = self.content(text, (number,))
        best, found = 0, -1.0
        for place, sentence in enumerate(sentences(self.texts[number - 1])):
            if _words(sentence) == _words(text):
                return place, 1.0
            known = content_words(sentence, self.users)
            share = sum(is_in(word, known) for word in words) / len(words) if words else 0.0
            if share > found:
                best, found = place, share
        return best, max(found, 0.0)

    def without_date(self, text: str, numbers: Sequence[int]) -> str:
        """`text` without a leading `(date)` that is the cited memories' own."""
        match = _LEADING_DATE.match(text)
        if not match:
            return text
        held = [date for number in numbers for date in self.dates[number - 1]]
        found = find_dates(match.group(1))
        own = found and all(date in held for date in found)
        as_stored = any(f"({match.group(1)}) " == self._full[number - 1][: match.end()] for number in numbers)
        return text[match.end() :].strip() if own or as_stored else text

    @staticmethod
    def undated(text: str) -> str:
        """`text` without a leading `(date)`, whosesoever it is."""
        match = _LEADING_DATE.match(text)
        return text[match.end() :].strip() if match and find_dates(match.group(1)) else text

    def invented(self, text: str, numbers_: Sequence[int], *, also: str = "") -> str | None:
        """`date`, `number` or `name` if `text` holds one that neither the cited memories nor `also` hold."""
        sources = " \n".join([*(self._full[number - 1] for number in numbers_), also])
        known_dates = find_dates(sources)
        dates = find_dates(text)
        if not all(any(_within(date, known) for known in known_dates) for date in dates):
            return "date"
        text = without_dates(text, dates)
        if not numbers(text) <= numbers(sources):
            return "number"
        known = word_keys(sources)
        return "name" if any(not is_in(stem(name), known) for name in self._names(text, known)) else None

    def swaps_person(self, text: str, numbers: Sequence[int]) -> bool:
        """Whether `text` says "I" or "the user" where the cited memories don't."""
        said = persons(" ".join(self.texts[number - 1] for number in numbers))
        return bool((persons(text) - said) & {"first", "user"})

    def addresses_user(self, text: str, numbers: Sequence[int]) -> bool:
        """Whether `text` says "you" where the cited memories don't: an answer, not a memory."""
        said = persons(" ".join(self.texts[number - 1] for number in numbers))
        return "second" in persons(text) - said

    def negation_added(self, text: str, numbers: Sequence[int]) -> bool:
        """Whether `text` holds a negation and no cited memory does."""
        return is_negated(text) and not any(is_negated(self.texts[number - 1]) for number in numbers)

    def negation_changed(self, text: str, number: int) -> bool:
        """Whether `text` and the sentence of the memory that it stems from differ in being negated."""
        stored = sentences(self.texts[number - 1])
        place, _ = self.sentence(text, number)
        return bool(stored) and is_negated(text) != is_negated(stored[place])

    def distorts(self, text: str, number: int) -> bool:
        """Whether `text` says something else than memory `number`: an invented detail, another person or order, a
        negation."""
        return bool(
            self.invented(text, (number,))
            or self.swaps_person(text, (number,))
            or self.reorders(text, (number,))
            or self.negation_changed(text, number)
        )

    def reorders(self, text: str, numbers: Sequence[int]) -> bool:
        """Whether `text` swaps what the cited memories tell: the from and the to, or the doer and another name."""
        return reorders(text, " \n".join(self.texts[number - 1] for number in numbers))

    def confirms(self, text: str, numbers: Sequence[int]) -> bool:
        """Whether `text` takes over words of a claim or false memory in the question that no cited memory holds."""
        return not asks_openly(self.question) and self.borrowed(text, numbers)[0] > 0

    def borrowed(self, text: str, numbers: Sequence[int]) -> tuple[int, int]:
        """How many content words of `text` come from the question alone, and how many from the cited memories."""
        words = self.content(text, numbers)
        known = set().union(*(content_words(self._full[number - 1]) for number in numbers))
        asked = content_words(self.question)
        held = sum(is_in(word, known) for word in words)
        return sum(is_in(word, asked) and not is_in(word, known) for word in words), held

    def has_name(self, text: str) -> bool:
        """Whether `text` names its subject: a known name, a speaker (`Name:`), or "the user"."""
        if "user" in persons(text) or re.match(r"^[^\W\d_][\w' -]{0,30}:\s", text):
            return True
        first, inside = capitalised(text)
        return any(not is_calendar_word(word) for word in inside) or any(self._known_name(word) for word in first)

    def _known_name(self, word: str) -> bool:
        if stem(word) in self.users - {"user"}:
            return True
        return any(word in capitalised(text)[1] for text in (self.question, *self.texts))

    def _names(self, text: str, known: set[str]) -> list[str]:
        """Words of `text` that are names; at its start also an unknown word where the user's name should be."""
        first, inside = capitalised(text)
        names = inside + [word for word in first if self._known_name(word)]
        subjects = self.users & known
        if first and subjects and not subjects & {stem(token) for token in tokens(text)}:
            asked = word_keys(self.question)
            lead = re.sub(r"^[\W\d_]+", "", text)
            names += [word for word in first if lead.startswith(word) and not is_in(stem(word), asked | known)]
        return names


def _within(date: Date, known: Date) -> bool:
    return all(part is None or part == other for part, other in zip(date, known, strict=True))


@lru_cache(maxsize=4096)
def _words(text: str) -> tuple[str, ...]:
    return tuple(token.casefold() for token in tokens(text))
