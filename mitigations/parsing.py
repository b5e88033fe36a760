"""The one parser of all methods: from a model's reply to lines that are tied to memories.

In this order: clean the reply, cut where it repeats the prompt and at the last wanted label, split into lines, read
each line's memory numbers, drop a heading line, take off the model's verdict on a memory, align each line with the
memories, and, if none aligns, see whether the reply says "nothing".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from mitigations.base import Reply
from mitigations.evidence import Evidence
from mitigations.lines import FRAGMENT, Entry, is_marker, read_lines, read_numbers, says_nothing, strip_quotes
from mitigations.text import normalise

#: Part of every method's `prompt_sha256`: raise it with every change of what a reply is read as.
VERSION = 2
#: From this share of content words a cited line that doesn't align may still be replaced by its memory.
RESTORABLE = 0.4
_THOUGHT = re.compile(r"<(think|thinking|thought|reasoning)>.*?</\1>", re.IGNORECASE | re.DOTALL)
_THOUGHT_END = re.compile(r"^.*</(?:think|thinking|thought|reasoning)>", re.IGNORECASE | re.DOTALL)
_THOUGHT_START = re.compile(r"<(?:think|thinking|thought|reasoning)>.*$", re.IGNORECASE | re.DOTALL)
_FENCE_LINE = re.compile(r"^[ \t]*(?:```|~~~)[\w-]*[ \t]*$\n?", re.MULTILINE)
_BOLD = re.compile(r"\*\*|__")
_ITALIC = re.compile(r"(?<![\w*])[*_](?=\S)([^*_\n]+?)(?<=\S)[*_](?![\w*])")
_TAG_LINE = re.compile(r"^[ \t]*</?(?:memories|question|draft|examples?)>[ \t]*$\n?", re.IGNORECASE | re.MULTILINE)
_OPENING_TAG = re.compile(r"^[ \t]*<(?:memories|question|draft|examples?)>", re.IGNORECASE | re.MULTILINE)


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
        return Parsed(
            "", (), False, counts, "blank reply" if not labels else f"nothing stands after '{labels[0].capitalize()}:'"
        )
    entries = read_lines(wanted, evidence, threshold, least)
    nothing = not any(entry.aligned for entry in entries) and says_nothing(wanted)
    return Parsed(wanted, tuple(entries), nothing, counts, None, _rejects_all(entries, evidence.size, cut_off))


def may_be_restored(entry: Entry, entries: Sequence[Entry]) -> bool:
    """Whether a line's memories may stand in for it: it aligns, or it cites them and has some of their words or
    stands beside a line that aligns. A reply without any such line is made up."""
    if entry.aligned:
        return True
    return entry.cited and (entry.share >= RESTORABLE or any(other.aligned for other in entries))


def _before_repetition(text: str, evidence: Evidence, threshold: float) -> str:
    """Step 1b: without what follows when, after lines of its own, the reply opens the prompt's sections again."""
    for match in _OPENING_TAG.finditer(text):
        before = text[: match.start()]
        if any(_is_of_its_own(line, evidence, threshold) for line in before.splitlines() if line.strip()):
            return before
    return text


def _is_of_its_own(line: str, evidence: Evidence, threshold: float) -> bool:
    text, numbers, _ = read_numbers(line)
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
