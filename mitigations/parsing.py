"""The one parser of all methods: from a model's reply to lines that are tied to memories.

In this order: clean the reply, cut where it repeats the prompt and at the last wanted label, split into lines, read each line's memory numbers, drop
a heading line, align each line with the memories, and, if none aligns, see whether the reply says "nothing".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from mitigations.base import Reply
from mitigations.evidence import Evidence
from mitigations.text import normalise, persons
from mitigations.verdicts import Judged, is_only_rejection, is_rejecting_heading, split_verdict, tells_of_nothing

#: Part of every method's `prompt_sha256`: raise it with every change of what a reply is read as.
VERSION = 2

#: An unindexed line with fewer content words is an answer, not a memory.
FRAGMENT = 3
#: A reply that says in prose that nothing is needed has at most so many words.
NOTHING_WORDS = 15
#: From this share of content words a cited line that doesn't align may still be replaced by its memory.
RESTORABLE = 0.4
#: From this share with another memory than the cited one, which it hardly shares with, a line is about that other.
MISCITED = 0.8

_THOUGHT = re.compile(r"<(think|thinking|thought|reasoning)>.*?</\1>", re.IGNORECASE | re.DOTALL)
_THOUGHT_END = re.compile(r"^.*</(?:think|thinking|thought|reasoning)>", re.IGNORECASE | re.DOTALL)
_THOUGHT_START = re.compile(r"<(?:think|thinking|thought|reasoning)>.*$", re.IGNORECASE | re.DOTALL)
_FENCE_LINE = re.compile(r"^[ \t]*(?:```|~~~)[\w-]*[ \t]*$\n?", re.MULTILINE)
_BOLD = re.compile(r"\*\*|__")
_ITALIC = re.compile(r"(?<![\w*])[*_](?=\S)([^*_\n]+?)(?<=\S)[*_](?![\w*])")
_TAG_LINE = re.compile(r"^[ \t]*</?(?:memories|question|draft|examples?)>[ \t]*$\n?", re.IGNORECASE | re.MULTILINE)
_OPENING_TAG = re.compile(r"^[ \t]*<(?:memories|question|draft|examples?)>", re.IGNORECASE | re.MULTILINE)
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


@dataclass(frozen=True, slots=True)
class Parsed:
    """A reply, read. `problem` says why it holds nothing usable (blank, no label, cut off); then no entries."""

    wanted: str
    entries: tuple[Entry, ...]
    nothing: bool
    counts: Counter[str]
    problem: str | None = None
    rejects_all: bool = False
    """Whether every memory that the reply names is rejected, and the reply is whole or names all of them."""


def clean(text: str) -> str:
    """Step 1: without thoughts, code fences, bold marks and surrounding quotes; NFKC, straight quotes."""
    return _without_tags(_tidy(text))


def _tidy(text: str) -> str:
    """Step 1 but for the tag lines, which show where a reply begins to repeat the prompt."""
    text = _FENCE_LINE.sub("", strip_thoughts(normalise(text)) + "\n")
    return strip_quotes(_ITALIC.sub(r"\1", _BOLD.sub("", text)).strip("\r\n "))


def _without_tags(text: str) -> str:
    return strip_quotes(_TAG_LINE.sub("", text + "\n").strip("\r\n "))


def strip_thoughts(text: str) -> str:
    """Without thinking blocks, closed or not; a closing tag alone ends a block that began in the prompt."""
    return _THOUGHT_START.sub("", _THOUGHT_END.sub("", _THOUGHT.sub("", text)))


def strip_quotes(text: str) -> str:
    """Without quotes that surround the whole text."""
    bare = text.strip()
    for mark in ('"', "'", "`"):
        if len(bare) > 1 and bare.startswith(mark) and bare.endswith(mark) and bare.count(mark) == 2:
            return bare[1:-1].strip()
    return bare


def label_pattern(labels: Sequence[str]) -> re.Pattern[str]:
    """A line that starts with one of `labels`: any case, bold or heading marks, numbering; then a colon or nothing."""
    names = "|".join(r"\s+".join(map(re.escape, label.split())) for label in labels)
    return re.compile(
        rf"^[#>*_\-• \t]*(?:\(?\d{{1,2}}[.)][ \t]*)?[*_]*(?:{names})[*_]*[ \t]*(?::[ \t]*[*_]*|[–—-][ \t]+|$)[ \t]*",
        re.IGNORECASE | re.MULTILINE,
    )


def after_last(text: str, labels: Sequence[str], *, stop: re.Pattern[str] | None = None) -> str | None:
    """Step 2: what follows the last line that starts with one of `labels`; None if no line does.

    With `stop`, the text ends where `stop` first matches after the first label (a model that invents another example).
    """
    pattern = label_pattern(labels)
    first = pattern.search(text)
    if first is None:
        return None
    if stop is not None and (end := stop.search(text, first.end())):
        text = text[: end.start()]
    last = list(pattern.finditer(text))[-1]
    return text[last.end() :].strip()


def parse(
    reply: Reply,
    evidence: Evidence,
    *,
    threshold: float,
    labels: Sequence[str] = (),
    stop: re.Pattern[str] | None = None,
    needs_label: bool = False,
    unindexed_threshold: float | None = None,
) -> Parsed:
    """Reads a reply. `threshold` (0 to 1) is the share from which a line aligns with the memories that it cites.

    `unindexed_threshold`, by default the same, is for lines that cite none. `needs_label`: without one of `labels`
    the reply is a problem; else the whole reply is then read.
    """
    counts: Counter[str] = Counter()
    least = threshold if unindexed_threshold is None else unindexed_threshold
    cleaned = _tidy(reply.text)
    cut_off = reply.finish_reason == "length"
    if cut_off:
        counts["truncated"] = 1
        cleaned = cleaned.rpartition("\n")[0] if not reply.text.endswith("\n") else cleaned
        if not cleaned.strip():
            return Parsed("", (), False, counts, "cut off by the token limit before its first line was complete")
    first = label_pattern(labels).search(cleaned) if labels else None
    body = first.end() if first else 0
    cleaned = _without_tags(cleaned[:body] + _before_repetition(cleaned[body:], evidence, least))
    if not cleaned.strip(" \n\"'`"):
        counts["blank"] = 1
        return Parsed("", (), False, counts, "blank reply")
    wanted: str | None = cleaned
    if labels:
        wanted = after_last(cleaned, labels, stop=stop)
        if wanted is None:
            if needs_label:
                why = f"no line begins with '{labels[0].capitalize()}:'"
                return Parsed("", (), False, counts, f"cut off by the token limit: {why}" if cut_off else why)
            wanted = cleaned
    wanted = wanted or ""
    if not wanted:
        counts["blank"] = 1
        return Parsed("", (), False, counts, "blank reply" if not labels else f"nothing stands after '{labels[0].capitalize()}:'")
    entries = _entries(wanted, evidence, threshold, least)
    nothing = not any(entry.aligned for entry in entries) and says_nothing(wanted)
    return Parsed(wanted, tuple(entries), nothing, counts, None, _rejects_all(entries, evidence.size, cut_off))


def may_be_restored(entry: Entry, entries: Sequence[Entry]) -> bool:
    """Whether a line's memories may stand in for it: it aligns, or it cites them and has some of their words or
    stands beside a line that aligns. A reply without any such line is made up."""
    if entry.aligned:
        return True
    return entry.cited and (entry.share >= RESTORABLE or any(other.aligned for other in entries))


def says_nothing(text: str) -> bool:
    """Step 6: NONE, `[]` or `n/a` (the reply, or an unnumbered line of it), or up to 15 words."""
    lines = [_read_numbers(line) for line in text.splitlines() if line.strip()]
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


def _before_repetition(text: str, evidence: Evidence, threshold: float) -> str:
    """Step 1b: without what follows when, after lines of its own, the reply opens the prompt's sections again."""
    for match in _OPENING_TAG.finditer(text):
        before = text[: match.start()]
        if any(_is_of_its_own(line, evidence, threshold) for line in before.splitlines() if line.strip()):
            return before
    return text


def _is_of_its_own(line: str, evidence: Evidence, threshold: float) -> bool:
    text, numbers, _ = _read_numbers(line)
    number, share = evidence.best(text)
    aligned = share >= threshold and len(evidence.content(text, (number,))) >= FRAGMENT
    return bool(numbers) or is_marker(line) or aligned


def _rejects_all(entries: Sequence[Entry], size: int, cut_off: bool) -> bool:
    rejected = [entry for entry in entries if entry.rejected]
    others = [entry for entry in entries if not entry.rejected]
    if not rejected or any(entry.aligned or entry.cited for entry in others):
        return False
    named = {number for entry in rejected for number in entry.sources}
    return len(named) == size or (not named and len(rejected) == size) or bool(named and not others and not cut_off)


def _entries(wanted: str, evidence: Evidence, threshold: float, unindexed: float) -> list[Entry]:
    """Steps 3 to 5."""
    lines = [part for line in wanted.splitlines() if line.strip(" \t-*•_=`\"'") for part in _split_inline(line)]
    read = [_read_numbers(line) for line in lines]
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


def _read_numbers(line: str) -> tuple[str, tuple[int, ...], bool]:
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
