"""Words, sentences, dates, numbers and names of short English texts, for checking a model's lines against memories.

Standard library only, so that the package can be taken alone; the stems need only be equal for forms of one word,
not be words. All functions expect text that went through `normalise`, except where they call it themselves.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Words that carry no fact of their own. Negations and first- and second-person words are among them and are checked
#: separately, since they change a fact without adding a content word.
STOP_WORDS = _words(
    """
    a about after again all also am an and any are as at be because been before being both but by can cannot could did
    do does doing done down each either else even ever every few for from had has have having he her here hers herself
    him himself his how however i if in into is it its itself just let like may me might mine more most much must my
    myself neither never no none nor not nothing of off on once one only or other our ours ourselves out over own per
    quite rather really same shall she should since so some such than that the their theirs them themselves then there
    these they this those though through to too under until up upon us very was we were what when where whether which
    while who whom whose why will with within without would yes yet you your yours yourself yourselves
    """
)
NEGATIONS = _words("cannot neither never no nobody none nor not nothing nowhere without")
FIRST_PERSON = _words("i me my mine myself we us our ours ourselves")
SECOND_PERSON = _words("you your yours yourself yourselves")
_NUMBER_WORDS = {
    word: str(value)
    for value, word in enumerate(
        ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"), start=2
    )
}
_MONTHS = {
    month: number
    for number, names in enumerate(
        (
            "january jan", "february feb", "march mar", "april apr", "may", "june jun", "july jul", "august aug",
            "september sep sept", "october oct", "november nov", "december dec",
        ),
        start=1,
    )
    for month in names.split()
}  # fmt: skip
_WEEKDAYS = _words("monday tuesday wednesday thursday friday saturday sunday")
_MONTH = r"(?P<{0}>" + "|".join(sorted(_MONTHS, key=len, reverse=True)) + r")\b\.?"
_DATE = re.compile(
    r"\b(?P<y1>\d{4})-(?P<m1>\d{2})-(?P<d1>\d{2})\b"
    rf"|\b(?P<d2>\d{{1,2}})(?:st|nd|rd|th)?\s+(?:of\s+)?{_MONTH.format('m2')}(?:,?\s+(?P<y2>\d{{4}})\b)?"
    rf"|\b{_MONTH.format('m3')}\s+(?P<d3>\d{{1,2}})(?:st|nd|rd|th)?\b(?!\d)(?:,?\s+(?P<y3>\d{{4}})\b)?"
    rf"|\b{_MONTH.format('m4')},?\s+(?P<y4>\d{{4}})\b",
    re.IGNORECASE,
)
_TOKEN = re.compile(r"\d+(?:[.,:]\d+)*|[^\W\d_]+(?:['-][^\W\d_]+)*")
#: Letters of a stem from which on it may differ from its word's other stems.
_LONG = 5
_QUOTES = str.maketrans("‘’‚‛“”„‟«»", "''''" + '"' * 6)
_INVISIBLE = re.compile("[\u200b-\u200f\u2060\ufeff\u00ad]")
_SENTENCE_END = re.compile(r"""(?<=[.!?])["')\]]*\s+(?=["'(\[]*[^\W_a-z])|\n+""")
_ABBREVIATION = re.compile(r"\b(?:mr|mrs|ms|dr|st|vs|prof|e\.g|i\.e|a\.m|p\.m|no|approx)\.$", re.IGNORECASE)


class Date(NamedTuple):
    """A calendar date; parts that the text leaves out are None."""

    year: int | None
    month: int
    day: int | None

    def agrees(self, other: Date) -> bool:
        """Whether no part that both have differs."""
        return all(mine is None or theirs is None or mine == theirs for mine, theirs in zip(self, other, strict=True))


def normalise(text: str) -> str:
    """NFKC, straight quotes, no invisible characters."""
    return _INVISIBLE.sub("", unicodedata.normalize("NFKC", text)).translate(_QUOTES)


def tokens(text: str) -> list[str]:
    """Words and numbers as written, possessive endings removed."""
    return list(_tokens(text))


# A memory is read for every configuration and for every line of a reply; what it holds is worked out once.
@lru_cache(maxsize=4096)
def _tokens(text: str) -> tuple[str, ...]:
    return tuple(found.removesuffix("'s") for found in _TOKEN.findall(text))


@lru_cache(maxsize=50_000)
def stem(word: str) -> str:
    """A key that common inflections of a word share; numbers lose leading zeros and thousands commas."""
    word = word.casefold()
    if word[:1].isdigit():
        return re.sub(r"^0+(?=\d)", "", word.replace(",", ""))
    if word in _NUMBER_WORDS:
        return _NUMBER_WORDS[word]
    if word in _MONTHS:
        return f"month{_MONTHS[word]}"
    if word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > 3:
        word = word[:-2] if word.endswith(("ches", "shes", "sses", "xes")) else word[:-1]
    for ending in ("ing", "ed", "ly"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word[: -len(ending)]
            if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsz":
                word = word[:-1]
            break
    if word.endswith("ie") and len(word) > 4:
        word = word[:-1]
    if word.endswith("y") and len(word) > 3:
        word = word[:-1] + "i"
    return word[:-1] if word.endswith("e") and len(word) > 3 else word


def same_word(one: str, other: str) -> bool:
    """Whether two stems belong to one word: equal, or long and different only in up to two last letters."""
    if one == other:
        return True
    short, long = (one, other) if len(one) <= len(other) else (other, one)
    return len(short) >= _LONG and len(long) - len(short) <= 2 and long.startswith(short)


def is_in(key: str, keys: Iterable[str]) -> bool:
    """Whether a stem occurs among stems, as `same_word` takes them for the same."""
    known = keys if isinstance(keys, set | frozenset) else set(keys)
    if key in known or len(key) < _LONG:
        return key in known
    return any(key[:_LONG] == other[:_LONG] and same_word(key, other) for other in known)


def content_words(text: str, ignored: frozenset[str] = frozenset()) -> set[str]:
    """Stems of all words that carry a fact; `ignored` are stems that don't count (the user's name)."""
    return set(_content_words(text) - ignored)


@lru_cache(maxsize=4096)
def _content_words(text: str) -> frozenset[str]:
    words = {
        stem(part)
        for token in _tokens(text)
        for part in token.split("-")
        if part.casefold() not in STOP_WORDS and "n't" not in part.casefold() and "'" not in part
    }
    return frozenset(words - {""})


def word_keys(text: str) -> set[str]:
    """Stems of all words, stop words too."""
    return {stem(part) for token in tokens(text) for part in (token, *token.split("-"))}


def sentences(text: str) -> list[str]:
    """Sentences in order, stripped; common abbreviations don't end one."""
    found: list[str] = []
    for part in _SENTENCE_END.split(text):
        if found and _ABBREVIATION.search(found[-1]):
            found[-1] += " " + part.strip()
        elif part.strip():
            found.append(part.strip())
    return found


def find_dates(text: str) -> list[Date]:
    """Dates written as `9 May 2024`, `May 9, 2024`, `2024-05-09`, `9 May` or `May 2024`."""
    return [_date_of(match) for match in _DATE.finditer(text)]


def without_dates(text: str, dates: Iterable[Date]) -> str:
    """The text without those of its full dates that are among `dates`."""
    full = set(dates)
    return _DATE.sub(lambda match: " " if _date_of(match) in full else match.group(), text)


def mentions(text: str, date: str) -> bool:
    """Whether `text` holds the date that `date` tells in prose (day, month and year, in any spelling)."""
    wanted = find_dates(normalise(date))
    if not wanted:
        return date.casefold() in text.casefold()
    return wanted[0] in find_dates(normalise(text))


def numbers(text: str) -> set[str]:
    """Numbers, also those written as words from two to twelve, and the digits of ordinals; without leading zeros."""
    spelled = {_NUMBER_WORDS[token.casefold()] for token in tokens(text) if token.casefold() in _NUMBER_WORDS}
    return spelled | {stem(number) for number in re.findall(r"\d+(?:[.,:]\d+)*", text)}


def is_calendar_word(word: str) -> bool:
    """Weekdays and months: capitalised, but nobody's name."""
    folded = word.casefold()
    return folded in _MONTHS or folded.removesuffix("s") in _WEEKDAYS


def capitalised(text: str) -> tuple[list[str], list[str]]:
    """Capitalised words that are no stop words: (at the start of a sentence, inside one)."""
    first, inside = _capitalised(text)
    return list(first), list(inside)


@lru_cache(maxsize=4096)
def _capitalised(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    first: list[str] = []
    inside: list[str] = []
    for sentence in sentences(text):
        for place, match in enumerate(_TOKEN.finditer(sentence)):
            word = re.sub(r"'.*$", "", match.group())
            if word[:1].isupper() and word.casefold() not in STOP_WORDS:
                opened = sentence[: match.start()].rstrip().endswith((":", '"'))
                (first if place == 0 or opened else inside).append(word)
    return tuple(first), tuple(inside)


def is_negated(text: str) -> bool:
    """Whether the text holds a negation."""
    return any(token.casefold() in NEGATIONS or token.casefold().endswith("n't") for token in tokens(text))


def persons(text: str) -> set[str]:
    """Which of `first`, `second` and `user` ("the user") the text speaks of."""
    words = {token.casefold().split("'")[0] for token in tokens(text)}
    found = {"first"} if words & FIRST_PERSON else set()
    if words & SECOND_PERSON:
        found.add("second")
    return found | ({"user"} if "user" in words else set())


def _date_of(match: re.Match[str]) -> Date:
    groups = match.groupdict()
    part = next(number for number in "1234" if groups.get(f"m{number}"))
    year, day, month = groups.get(f"y{part}"), groups.get(f"d{part}"), groups[f"m{part}"].casefold()
    return Date(int(year) if year else None, _MONTHS.get(month) or int(month), int(day) if day else None)
