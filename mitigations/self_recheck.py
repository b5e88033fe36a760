"""Self-ReCheck: only original sentences that are directly useful pass (version 1 of the paper; strictly extractive)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Self

from mitigations.base import Ask, Line, Memory, Processed, Reply, Search
from mitigations.context import Prepared, prepare
from mitigations.evidence import Evidence
from mitigations.lines import is_rejection
from mitigations.method import OneCall
from mitigations.parsing import Parsed, parse
from mitigations.text import find_dates, is_calendar_word, normalise, sentences, tokens

#: From this share of content words a line is the sentence itself.
SAME = 0.9
#: From this share (user's name not counted) it is the sentence with a word changed; the stored one passes.
CHANGED = 0.5
_TIME = re.compile(
    r"\b(?:yesterday|today|tonight|tomorrow|ago|(?:last|next|this|past|since)\s+(?:\w+\s+)?"
    r"(?:night|day|week|weekend|month|year|summer|winter|spring|autumn|fall|morning|evening))\b",
    re.IGNORECASE,
)
_VERDICT = re.compile(r"^\W*(?:M|memory\s*)?\[?\s*(\d{1,3})\s*[\])]?\W+(?:memory\s+)?(yes|no)\b", re.IGNORECASE)
_VERDICT_AFTER = re.compile(
    r"^\W*(?:M|memory\s*)?\[?\s*(\d{1,3})\s*[\])]?\W.*(?:[:(–—]|\s-|->|→)\s*(yes|no)\W*$", re.IGNORECASE
)


class SelfReCheck(OneCall):
    """One call; lines are replaced by the stored sentences that they quote, so that no fact can be rewritten."""

    prompt = "self_recheck"

    def __init__(
        self, name: str = "self-recheck", label: str = "Self-ReCheck", *, max_tokens: int = 512,
        blank_means_nothing: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(name, "filter", label, max_tokens=max_tokens, blank_means_nothing=blank_means_nothing)

    def parse(self, reply: Reply, evidence: Evidence) -> Parsed:
        return parse(reply, evidence, threshold=CHANGED, unindexed_threshold=SAME)

    def lines(self, parsed: Parsed, prepared: Prepared, evidence: Evidence) -> list[Line]:
        kept: dict[int, set[int]] = {}
        altered: set[int] = set()
        for entry in parsed.entries:
            dropped = (
                entry.rejected
                or not entry.aligned
                or (entry.text and is_rejection(entry.text) and entry.share < SAME)
                or (entry.text and evidence.addresses_user(entry.text, entry.sources))
            )
            if dropped:
                parsed.counts[entry.refusal] += 1
                continue
            for number in entry.sources:
                places, changed, lost = _places(entry.text, number, evidence)
                parsed.counts["unaligned"] += lost
                parsed.counts["altered"] += changed
                if places:
                    kept.setdefault(number, set()).update(places)
                if changed:
                    altered.add(number)
        return [_line(number, kept[number], number in altered, prepared, evidence) for number in kept]


class SelfReCheckVerdicts(SelfReCheck):
    """A yes or no for every memory; code assembles the text. A missing verdict is a yes, under half a failure."""

    system_section, closing_section = "verdict_system", "verdict_closing"

    def __init__(
        self, name: str = "self-recheck-verdicts", *, max_tokens: int = 512, blank_means_nothing: bool = False
    ) -> None:
        super().__init__(
            name, "Self-ReCheck (verdicts)", max_tokens=max_tokens, blank_means_nothing=blank_means_nothing
        )

    def read(self, question: str, prepared: Prepared, reply: Reply) -> Processed:
        parsed = self.parse(reply, Evidence(question, prepared.memories))
        if parsed.problem is not None and not (self.blank_means_nothing and parsed.counts["blank"]):
            return prepared.failed(parsed.problem, (reply,), parsed.counts)
        rejected = {number: False for entry in parsed.entries if entry.rejected for number in entry.sources}
        verdicts = rejected | _verdicts(parsed.wanted, len(prepared.memories))
        counts = parsed.counts
        if not verdicts and (parsed.nothing or parsed.problem):
            return prepared.nothing("the model said that no memory is needed", (reply,), counts)
        missing = len(prepared.memories) - len(verdicts)
        if missing:
            counts["missing_verdicts"] = missing
        if 2 * len(verdicts) < len(prepared.memories):
            return prepared.failed(
                f"verdicts on {len(verdicts)} of {len(prepared.memories)} memories only", (reply,), counts
            )
        numbers = [number for number in range(1, len(prepared.memories) + 1) if verdicts.get(number, True)]
        if not numbers:
            return prepared.nothing("no to every memory", (reply,), counts)
        return prepared.kept([prepared.stored(number) for number in numbers], (reply,), counts)


class SelfReCheckTwice(SelfReCheck):
    """Two calls: first what is on the question's topic, then, among that, what is needed."""

    def __init__(
        self, name: str = "self-recheck-twice", *, max_tokens: int = 512, blank_means_nothing: bool = False
    ) -> None:
        super().__init__(name, "Self-ReCheck (twice)", max_tokens=max_tokens, blank_means_nothing=blank_means_nothing)
        self.calls = 2
        self.topic = _Topic(name, max_tokens=max_tokens, blank_means_nothing=blank_means_nothing)

    def settings(self) -> dict[str, str | int | float | bool]:
        return {**super().settings(), "passes": 2}

    def own_sections(self) -> dict[str, str]:
        return {**self.topic.own_sections(), **super().own_sections()}

    def reworded(self, sections: Mapping[str, str]) -> Self:
        made = super().reworded(sections)
        worded = made.prompt_sections()
        made.topic = self.topic.reworded({name: worded[name] for name in self.topic.own_sections()})
        return made

    async def process(
        self, question: str, memories: Sequence[Memory], ask: Ask, search: Search | None = None
    ) -> Processed:
        first = await self.topic.process(question, memories, ask)
        if first.state != "kept":
            return first
        prepared = prepare(memories)
        second = await super().process(question, [Memory(line.text, line.date) for line in first.lines], ask)
        replies = first.replies + second.replies
        counts: Counter[str] = Counter(first.counts) + Counter(second.counts)
        if second.state == "failed":
            return prepared.failed(f"second pass: {second.reason}", replies, counts)
        if second.state == "nothing":
            return prepared.nothing(f"second pass: {second.reason}", replies, counts)
        sources = {Memory(line.text, line.date): line.sources for line in first.lines}
        lines = [
            replace(line, sources=sources[replace(second.prepared[line.sources[0] - 1], score=None)])
            for line in second.lines
        ]
        return prepared.kept(lines, replies, counts)


class _Topic(SelfReCheck):
    system_section, closing_section = "topic_system", "topic_closing"


def _places(text: str, number: int, evidence: Evidence) -> tuple[set[int], int, int]:
    """Which sentences of a memory a line quotes; how many of them with changes; how many that it doesn't have."""
    if not text or evidence.is_whole(text, number):
        return set(range(len(sentences(evidence.texts[number - 1])))), 0, 0
    places: set[int] = set()
    changed = lost = 0
    for sentence in sentences(text):
        place, share = evidence.sentence(sentence, number)
        if share < CHANGED:
            lost += 1
            continue
        places.add(place)
        changed += share < SAME or evidence.distorts(sentence, number)
    return places, changed, lost


def _line(number: int, places: set[int], altered: bool, prepared: Prepared, evidence: Evidence) -> Line:
    """The stored sentences, with those that tell a time; the whole memory if a kept one doesn't name its subject."""
    stored = prepared.stored(number, altered=altered)
    parts = sentences(stored.text)
    normal = [normalise(part) for part in parts]
    if not all(evidence.has_name(normal[place]) for place in places):
        return stored
    wanted = places | {place for place, part in enumerate(normal) if _tells_time(part)}
    if len(wanted) == len(parts):
        return stored
    return Line(" ".join(parts[place] for place in sorted(wanted)), stored.date, (number,), altered)


def _tells_time(sentence: str) -> bool:
    return bool(
        find_dates(sentence)
        or _TIME.search(sentence)
        or any(is_calendar_word(token) and token[:1].isupper() and token != "May" for token in tokens(sentence))
    )


def _verdicts(wanted: str, size: int) -> dict[int, bool]:
    matches = filter(None, (_VERDICT.match(line) or _VERDICT_AFTER.match(line) for line in wanted.splitlines()))
    found = {int(match.group(1)): match.group(2).lower() == "yes" for match in matches}
    return {number: verdict for number, verdict in found.items() if 1 <= number <= size}
