"""A reply's lines: their memory numbers, the model's verdict on a memory, and how each aligns with the memories."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from mitigations.evidence import Evidence
from mitigations.text import persons
from mitigations.verdicts import Judged, is_only_rejection, is_rejecting_heading, split_verdict, tells_of_nothing

#: An unindexed line with fewer content words is an answer, not a memory.
FRAGMENT = 3
#: A reply that says in prose that nothing is needed has at most so many words.
NOTHING_WORDS = 15
#: From this share with another memory than the cited one, which it hardly shares with, a line is about that other.
MISCITED = 0.8
_ASKED = re.compile(
    r"\b(?:(?:to|for|with|about|in|of) )?your (?:\w+ )?(?:question|request|query|prompt)\b"
    r"|\bwhat you(?:'re| are|'ve| have)? ask(?:ed|ing)?\b",
    re.IGNORECASE,
)
_BULLET = re.compile(r"^\s*(?:[-*•·–—+>]\s+|#+\s+)+")
_NUMBER_LIST = r"\d{1,3}(?:\s*(?:,|;|&|and|-|–)\s*\d{1,3})*"
_STRONG = re.compile(
    rf"^(?:\[\s*(?:M|memor(?:y|ies)\s*)?(?P<b>{_NUMBER_LIST})\s*\]|(?:M|memory\s*\[?)(?P<m>\d{{1,3}})\]?(?=\W|$))[,;]?\s*",
    re.IGNORECASE,
)
_TRAILING = re.compile(rf"\s*\[\s*(?:M|memor(?:y|ies)\s*)?({_NUMBER_LIST})\s*\]\s*[.,;&]?(?:\s+and)?$", re.IGNORECASE)
_WEAK = re.compile(r"^(?:(\d{1,3})[.)](?=\s|$)|\((\d{1,3})\))\s*")
_INLINE = re.compile(r"(?<=[.!?;])\s+(?=\[\d{1,3}\]\s*[^\s\[.])")
_AFTER_NUMBER = re.compile(r"^[:–—-]+\s*(?=\S)|^[:–—-]+$")
_MARKER = re.compile(
    r"^[\W_]*(?:(?:answer|output|reply|result|context|memories|notes|findings|kept|(?:relevant|needed|useful) \w+)"
    r"\s*:\s*)?"
    r"(?:none|no relevant context|n/a|\[\s*\])[\W_]*$",
    re.IGNORECASE,
)
_EMPTY_LIST = re.compile(r"^\W*\[\s*\]\W*$")
_NO = re.compile(
    r"\b(?:no(?!\s*,)|none|nothing)\b(?:\W+\w+){0,6}?\W+(?:relevan\w+|useful|related|relates?|helpful|pertinent|applicable)\b"
    r"|\b(?:relevan\w+|useful|related|helpful|pertinent)\W+(?:\w+\W+){0,6}?(?:none|nothing)\b",
    re.IGNORECASE,
)
_MEMORIES_NOT = re.compile(
    r"\b(?:memor(?:y|ies)|context|these|they)\b(?:\W+\w+){0,3}?\W+(?:not|aren't|isn't)\W+(?:\w+\W+){0,3}?"
    r"(?:relevant|useful|related|helpful|needed)\b",
    re.IGNORECASE,
)
_REJECTION = re.compile(
    r"^\W*(?:(?:is|are|was)\s+)?(?:no|none|n/a|drop(?:ped)?|irrelevant|unrelated|not\s+(?:\w+\s+)?(?:relevant|useful|needed|related"
    r"|applicable|necessary))\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a reply. `sources` are the memories that it is read as speaking of: cited, or best-matching."""

    text: str
    """Without bullet, numbers and a leading source date; empty if the line held only numbers."""
    sources: tuple[int, ...]
    cited: bool
    """Whether the model named the sources itself."""
    share: float
    """Share of the content words that the sources hold."""
    aligned: bool
    """The share reaches the method's threshold, or only numbers were given."""
    whole: bool = False
    """Whether it is its memory, word for word."""
    corrected: bool = False
    """Whether the model named another memory than the one that the line is about, which `sources` is."""
    rejected: bool = False
    """Whether the model says on this line that the memory isn't needed; `text` is without that verdict."""

    @property
    def refusal(self) -> str:
        """As what the line is counted if nothing of it goes on: a rejected memory, or a mere remark."""
        return "rejected" if self.rejected and self.text else "unaligned"


def strip_quotes(text: str) -> str:
    """Without quotes that surround the whole text."""
    bare = text.strip()
    for mark in ('"', "'", "`"):
        if len(bare) > 1 and bare.startswith(mark) and bare.endswith(mark) and bare.count(mark) == 2:
            return bare[1:-1].strip()
    return bare


def says_nothing(text: str) -> bool:
    """Step 6: NONE, `[]` or `n/a` (the reply, or an unnumbered line of it), or up to 15 words."""
    lines = [read_numbers(line) for line in text.splitlines() if line.strip()]
    marked = [(bool(numbers), bool(_MARKER.match(line))) for line, numbers, _ in lines]
    if any(mark and not numbered for numbered, mark in marked) or all(mark for _, mark in marked):
        return True
    if len(text.split()) > NOTHING_WORDS or "second" in persons(_ASKED.sub("", text)):
        return False
    return bool(_NO.search(text) or _MEMORIES_NOT.search(text))


def is_rejection(text: str) -> bool:
    """Whether an indexed line only says that its memory isn't needed ("not relevant", "none")."""
    return bool(_REJECTION.match(text)) or (len(text.split()) <= NOTHING_WORDS and bool(_NO.search(text)))


def is_remark(text: str) -> bool:
    """Whether an indexed line says that its memory isn't needed, or that it holds nothing on the question."""
    return is_rejection(text) or is_only_rejection(text) or tells_of_nothing(text)


def is_marker(text: str) -> bool:
    """Whether the text is only NONE, n/a, or a public marker of the kind."""
    return bool(_MARKER.match(text))


def read_lines(wanted: str, evidence: Evidence, threshold: float, unindexed: float) -> list[Entry]:
    """Steps 3 to 5."""
    lines = [part for line in wanted.splitlines() if line.strip(" \t-*•_=`\"'") for part in _split_inline(line)]
    read = [read_numbers(line) for line in lines]
    if read and not read[0][1] and read[0][0].endswith(":") and not is_rejecting_heading(read[0][0]):
        read = read[1:]
    in_range = [
        (text, tuple(number for number in numbers if 1 <= number <= evidence.size), strong, bool(numbers))
        for text, numbers, strong in read
    ]
    counting = len(read) > 1 and [numbers for _, numbers, _ in read] == [(place + 1,) for place in range(len(read))]
    if counting and not any(evidence.share(text, numbers) for text, numbers, _, _ in in_range if text and numbers):
        bare = any(not text for text, *_ in in_range)
        remarks = all(is_remark(text) for text, *_ in in_range)
        in_range = in_range if bare or remarks else [(text, (), False, False) for text, *_ in in_range]
    entries = []
    rejecting = False
    for text, numbers, strong, had_number in in_range:
        if not text and (not numbers or not strong):
            continue
        if not had_number and text.endswith(":"):
            rejecting = is_rejecting_heading(text)
            if rejecting:
                continue
        entry = _align(text, numbers, strong, had_number, evidence, threshold, unindexed)
        under = rejecting and (entry.cited or entry.aligned)
        entries.append(replace(entry, aligned=False, rejected=True) if under else entry)
    return entries


def _align(
    text: str, numbers: tuple[int, ...], strong: bool, had_number: bool, evidence: Evidence, threshold: float,
    unindexed: float,
) -> Entry:  # fmt: skip
    if not text:
        return Entry("", numbers, True, 1.0, True)
    whole = _whole(text, numbers, evidence)
    said, verdict = (text, None) if whole else _judged(text, numbers, evidence)
    text = said or ("" if numbers and strong else text)
    if not text:
        rejected = verdict == "rejected"
        return Entry("", numbers, True, 1.0, not rejected, rejected=rejected)
    entry = _match(text, numbers, strong, had_number, whole or _whole(text, numbers, evidence), evidence, threshold,
                   unindexed)  # fmt: skip
    if verdict == "rejected" and (entry.cited or entry.aligned):
        return replace(entry, aligned=False, rejected=True)
    remark = is_remark(text) if entry.cited else is_only_rejection(text) or says_nothing(text)
    return replace(entry, rejected=True) if remark and not entry.aligned else entry


def _match(
    text: str, numbers: tuple[int, ...], strong: bool, had_number: bool, whole: int | None, evidence: Evidence,
    threshold: float, unindexed: float,
) -> Entry:  # fmt: skip
    bare = evidence.without_date(text, numbers or tuple(range(1, evidence.size + 1)))
    if whole is not None and whole not in numbers:
        return Entry(bare, (whole,), bool(numbers), 1.0, True, whole=True)
    plain = evidence.undated(bare)
    best, best_share = evidence.best(plain)
    share = evidence.share(plain, numbers) if numbers else 0.0
    enough = len(evidence.content(plain, (best,))) >= FRAGMENT
    if numbers and share < threshold and best_share >= max(MISCITED, threshold) and enough and whole is None:
        return Entry(plain, (best,), True, best_share, True, corrected=True)
    list_number = bool(numbers) and not strong and share < threshold and enough and best_share >= unindexed
    if numbers and (strong or share > 0) and not list_number:
        return Entry(bare, numbers, True, share, share >= threshold or whole is not None, whole=whole is not None)
    aligned = enough and best_share >= unindexed and not (had_number and strong)
    return Entry(bare, (best,) if aligned else (), False, best_share, aligned)


def _whole(text: str, numbers: tuple[int, ...], evidence: Evidence) -> int | None:
    """The memory that the text is, word for word; of equal ones a cited one."""
    bare = evidence.without_date(text, numbers or tuple(range(1, evidence.size + 1)))
    same = [number for number in range(1, evidence.size + 1) if evidence.is_whole(bare, number)]
    return next((number for number in same if number in numbers), same[0] if same else None)


def _judged(text: str, numbers: tuple[int, ...], evidence: Evidence) -> Judged:
    """The line without the model's verdict on its memory; words of the memories are none."""
    if any(evidence.is_verbatim(text, number) for number in range(1, evidence.size + 1)):
        return Judged(text, None)
    about = dict.fromkeys((*numbers, evidence.best(text)[0]))
    return split_verdict(text, " \n".join(evidence.texts[number - 1] for number in about))


def _split_inline(line: str) -> list[str]:
    """`[1] a text. [3] another.` are two lines."""
    return _INLINE.split(line) if _STRONG.match(_BULLET.sub("", line)) else [line]


def read_numbers(line: str) -> tuple[str, tuple[int, ...], bool]:
    """A line without bullet and numbers; the numbers; whether they stood in brackets or after an M."""
    text = strip_quotes(_BULLET.sub("", line)).strip()
    if _EMPTY_LIST.match(text):
        return text, (), False
    weak = _WEAK.match(text)
    rest = text[weak.end() :] if weak else text
    numbers: list[int] = []
    while match := _STRONG.match(rest):
        numbers += _numbers(match.group("b") or match.group("m"))
        rest = rest[match.end() :]
    led = bool(numbers)
    while not led and (match := _TRAILING.search(rest)):
        numbers = _numbers(match.group(1)) + numbers
        rest = rest[: match.start()]
    if numbers:
        return strip_quotes(_AFTER_NUMBER.sub("", rest)), tuple(dict.fromkeys(numbers)), True
    if weak:
        return strip_quotes(_AFTER_NUMBER.sub("", rest)), (int(weak.group(1) or weak.group(2)),), False
    return text, (), False


def _numbers(found: str) -> list[int]:
    ranges = re.fullmatch(r"(\d+)\s*[-–]\s*(\d+)", found)
    if ranges and 0 <= int(ranges.group(2)) - int(ranges.group(1)) < 50:
        return list(range(int(ranges.group(1)), int(ranges.group(2)) + 1))
    return [int(number) for number in re.findall(r"\d+", found)]
