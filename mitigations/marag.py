"""MARAG: standalone notes with their evidence replace the memories (paper, B.2: the extractor of MA-RAG)."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from mitigations.base import Ask, Line, Memory, Processed, Reply, Search
from mitigations.context import Prepared, prepare
from mitigations.evidence import Evidence
from mitigations.lines import Entry, is_marker, is_rejection, strip_quotes
from mitigations.method import OneCall, newest_of_near_duplicates
from mitigations.parsing import Parsed, may_be_restored, parse
from mitigations.prompting import messages, sections
from mitigations.verdicts import tells_of_nothing

#: From this share of content words a note may stand for its memory.
ALIGNED = 0.5
#: From this share the quoted evidence is the memory's own.
EVIDENCE = 0.8
#: Memories that are retrieved for a question in the paper (B.4); what `MARAGPerMemory` is expected to call for.
USUAL_MEMORIES = 5
#: From this share of the smaller of two notes' words a newer note that tells of a change replaces an older one.
SAME_MATTER = 0.4
_CHANGE = re.compile(
    r"\b(?:now|no longer|not any ?more|any ?more|instead|used to|changed?|switched|since then)\b", re.IGNORECASE
)


class MARAG(OneCall):
    """One short call over all memories together."""

    prompt = "marag"

    def __init__(
        self, name: str = "marag", label: str = "MARAG", *, max_tokens: int = 512, blank_means_nothing: bool = False
    ) -> None:
        super().__init__(name, "compression", label, max_tokens=max_tokens, blank_means_nothing=blank_means_nothing)

    def parse(self, reply: Reply, evidence: Evidence) -> Parsed:
        parsed = parse(reply, evidence, threshold=ALIGNED, labels=("notes",), unindexed_threshold=EVIDENCE)
        return replace(parsed, entries=tuple(_judged(entry, evidence) for entry in parsed.entries))

    def lines(self, parsed: Parsed, prepared: Prepared, evidence: Evidence) -> list[Line]:
        notes = [line for entry in parsed.entries for line in _read(entry, parsed, prepared, evidence)]
        unique = {(line.sources, line.text): line for line in notes}
        return newest_of_near_duplicates(list(unique.values()), evidence)


class MARAGPerMemory(MARAG):
    """A call for every memory, all at once: no order effects. Of notes that contradict each other the newest stays."""

    def __init__(
        self, name: str = "marag-per-memory", *, max_tokens: int = 512, blank_means_nothing: bool = False
    ) -> None:
        super().__init__(name, "MARAG (per memory)", max_tokens=max_tokens, blank_means_nothing=blank_means_nothing)
        self.calls = USUAL_MEMORIES

    def settings(self) -> dict[str, str | int | float | bool]:
        return {**super().settings(), "per_memory": True}

    def own_sections(self) -> dict[str, str]:
        part = sections(self.prompt)
        return {name: part[name] for name in ("system", "one_closing")}

    async def process(
        self, question: str, memories: Sequence[Memory], ask: Ask, search: Search | None = None
    ) -> Processed:
        prepared = prepare(memories)
        if not prepared.memories:
            return prepared.pass_through()
        part = self.prompt_sections()
        tasks = [
            asyncio.ensure_future(
                ask(
                    messages(part["system"], part["one_closing"], question, [memory]),
                    max_tokens=self.max_tokens, temperature=0.0,
                )
            )
            for memory in prepared.memories
        ]  # fmt: skip
        try:
            replies = await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        return self._join(question, prepared, replies)

    def _join(self, question: str, prepared: Prepared, replies: Sequence[Reply]) -> Processed:
        """A memory whose call failed stays as it is; if all failed, so did the method."""
        lines: list[Line] = []
        counts: Counter[str] = Counter()
        reasons: list[str] = []
        for number, (memory, reply) in enumerate(zip(prepared.memories, replies, strict=True), start=1):
            one = self.read(question, prepare([memory]), reply)
            counts.update({key: count for key, count in one.counts.items() if key != "failed"})
            lines += [replace(line, sources=(number,)) for line in one.lines]
            if one.state == "failed":
                counts["failed_calls"] += 1
                reasons.append(one.reason or "")
        if len(reasons) == len(replies):
            return prepared.failed(f"every call failed: {reasons[0]}", replies, counts)
        lines = _newest_of_contradictions(lines, Evidence(question, prepared.memories))
        if not lines:
            return prepared.nothing("the model said of every memory that it isn't needed", replies, counts)
        return prepared.kept(lines, replies, counts)


def _judged(entry: Entry, evidence: Evidence) -> Entry:
    """A note that only says that its memory has nothing is a rejection of that memory."""
    note = entry.text.partition("|")[0].strip()
    says_so = bool(note and entry.sources) and _holds_nothing(note) and evidence.share(note, entry.sources) < ALIGNED
    return replace(entry, aligned=False, rejected=True) if says_so else entry


def _read(entry: Entry, parsed: Parsed, prepared: Prepared, evidence: Evidence) -> list[Line]:
    """The note without its evidence; or the memory itself, if the note isn't borne out by it."""
    counts = parsed.counts
    if entry.rejected:
        counts[entry.refusal] += 1
        return []
    note, bar, quoted = (part.strip() for part in entry.text.partition("|"))
    sources = entry.sources
    if not note and not bar and entry.cited:
        return [prepared.stored(number) for number in sources]
    quoted = strip_quotes(re.sub(r"^\s*evidence\s*:\s*", "", quoted, flags=re.IGNORECASE))
    if bar and not entry.cited:
        number, share = evidence.best(quoted)
        enough = evidence.is_whole(quoted, number) or len(evidence.content(quoted)) > 2
        sources = (number,) if share >= EVIDENCE and enough else ()
    proven = bool(bar and sources) and _proves(quoted, sources, evidence)
    tied = bool(sources) and (proven or may_be_restored(entry, parsed.entries))
    held = bool(sources) and _holds_nothing(note) and evidence.share(note, sources) < ALIGNED
    if not tied or held or is_marker(note) or (not bar and evidence.addresses_user(note, sources)):
        counts["unaligned"] += 1
        return []
    note = evidence.without_date(note, sources)
    if proven and _is_borne_out(note, sources, evidence):
        verbatim = len(sources) == 1 and evidence.is_verbatim(note, sources[0])
        counts["altered"] += not verbatim
        return [Line(note, prepared.missing_dates(note, sources), sources, not verbatim)]
    counts["restored"] += len(sources)
    return [prepared.stored(number, altered=True) for number in sources]


def _holds_nothing(note: str) -> bool:
    return is_rejection(note) or tells_of_nothing(note)


def _proves(quoted: str, sources: Sequence[int], evidence: Evidence) -> bool:
    return evidence.share(quoted, sources) >= EVIDENCE or any(evidence.is_verbatim(quoted, one) for one in sources)


def _is_borne_out(note: str, sources: Sequence[int], evidence: Evidence) -> bool:
    return not (
        evidence.share(note, sources) < ALIGNED
        or evidence.invented(note, sources)
        or evidence.confirms(note, sources)
        or evidence.reorders(note, sources)
        or evidence.swaps_person(note, sources)
        or evidence.addresses_user(note, sources)
        or evidence.negation_added(note, sources)
        or any(evidence.negation_changed(note, number) for number in sources if len(sources) == 1)
    )


def _newest_of_contradictions(lines: Sequence[Line], evidence: Evidence) -> list[Line]:
    """Without older lines on the same matter as a newer one that tells of a change."""
    words = [evidence.content(line.text, line.sources) for line in lines]

    def replaced(place: int) -> bool:
        return any(
            evidence.newness(other) > evidence.newness(lines[place])
            and _CHANGE.search(other.text)
            and len(words[place] & words[at]) >= SAME_MATTER * max(1, min(len(words[place]), len(words[at])))
            for at, other in enumerate(lines)
        )

    return newest_of_near_duplicates([line for at, line in enumerate(lines) if not replaced(at)], evidence)
