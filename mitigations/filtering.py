"""Reading the lines of a filter (Reminder, Few-Shot-CoT): memories, or parts of them, as they are stored."""

from __future__ import annotations

from mitigations.base import Line
from mitigations.context import Prepared
from mitigations.evidence import Evidence
from mitigations.lines import Entry
from mitigations.method import newest_of_near_duplicates
from mitigations.parsing import Parsed, may_be_restored
from mitigations.text import is_in, sentences

#: From this share of content words a kept sentence counts as the memory's own.
ALIGNED = 0.6
#: From this share, both ways, a line that isn't verbatim is a copy of the whole memory; the stored one passes.
COPIED = 0.9


def filter_lines(parsed: Parsed, prepared: Prepared, evidence: Evidence) -> list[Line]:
    """A kept line passes sentence by sentence. What doesn't align or says something else is dropped; if nothing of a
    cited line is left, the memory itself stands in for it, as it does for an unnumbered line in other words, unless
    the line has too little of it and no other line aligns. Of near-duplicates the newest stays."""
    lines: list[Line] = []
    for entry in parsed.entries:
        refused = entry.rejected or not may_be_restored(entry, parsed.entries)
        if refused or evidence.addresses_user(entry.text, entry.sources):
            parsed.counts[entry.refusal] += 1
        else:
            lines += _read(entry, parsed, prepared, evidence)
    return newest_of_near_duplicates(_without_parts(lines, prepared), evidence)


def _read(entry: Entry, parsed: Parsed, prepared: Prepared, evidence: Evidence) -> list[Line]:
    if not entry.text or len(entry.sources) > 1:
        parsed.counts["restored"] += len(entry.sources) if entry.text else 0
        return [prepared.stored(number) for number in entry.sources]
    number = entry.sources[0]
    if entry.whole:
        return [prepared.stored(number)]
    if entry.corrected:
        parsed.counts["restored"] += 1
        return [prepared.stored(number, altered=True)]
    found = sentences(entry.text)
    good = [
        sentence
        for sentence in found
        if evidence.share(sentence, (number,)) >= ALIGNED
        and not evidence.distorts(sentence, number)
        and (evidence.is_verbatim(sentence, number) or not evidence.confirms(sentence, (number,)))
    ]
    if not good and not entry.cited:
        parsed.counts["unaligned"] += 1
        return []
    verbatim = all(evidence.is_verbatim(sentence, number) for sentence in good)
    if not good or not (entry.cited or verbatim):
        parsed.counts["restored"] += 1
        return [prepared.stored(number, altered=True)]
    parsed.counts["unaligned"] += len(found) - len(good)
    if not verbatim and entry.cited and _is_copied(good, number, evidence):
        parsed.counts["restored"] += 1
        return [prepared.stored(number, altered=True)]
    text = " ".join(good)
    parsed.counts["altered"] += not verbatim
    return [Line(text, prepared.memories[number - 1].date, (number,), not verbatim)]


def _is_copied(found: list[str], number: int, evidence: Evidence) -> bool:
    """Whether the sentences hold nearly all of the memory and nearly nothing else: a copy with slips of the pen."""
    text = " ".join(found)
    words = evidence.content(text, (number,))
    stored = evidence.content(evidence.texts[number - 1], (number,))
    covered = sum(is_in(word, words) for word in stored) / len(stored) if stored else 0.0
    return covered >= COPIED and evidence.share(text, (number,)) >= COPIED


def _without_parts(lines: list[Line], prepared: Prepared) -> list[Line]:
    """Each line once, and no part of a memory beside the whole of it."""
    whole = {line.sources for line in lines if line.text == prepared.memories[line.sources[0] - 1].text}
    kept: dict[tuple[tuple[int, ...], str], Line] = {}
    for line in lines:
        stored = prepared.memories[line.sources[0] - 1].text
        if line.sources not in whole or line.text == stored:
            kept.setdefault((line.sources, line.text), line)
    return list(kept.values())
