"""ComoRAG: up to five findings fitted to the question replace the memories (paper, B.2)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mitigations.base import Line, Memory, Reply
from mitigations.context import Prepared
from mitigations.evidence import Evidence
from mitigations.lines import Entry, is_marker, is_rejection
from mitigations.method import OneCall, newest_of_near_duplicates
from mitigations.parsing import Parsed, parse
from mitigations.prompting import fenced, messages, sections
from mitigations.questions import RECALL, asks_openly, asks_yes_or_no
from mitigations.shots import SEPARATOR, load_shots

#: From this share of content words a finding is its sources' own, when the question asks for something.
ALIGNED = 0.3
#: The same for questions that make a claim, ask yes or no, or ask what is remembered, and for findings without
#: sources: there a loose finding would turn the claim into evidence.
ALIGNED_CLAIM = 0.6
MAX_FINDINGS = 5
_NOT_ON_RECORD = re.compile(
    r"\bnot on record\b|\b(?:no|without) (?:record|memory|mention)\b|\bnothing (?:is )?(?:on record|recorded)\b"
    r"|\b(?:not|isn't|never|nowhere) (?:mentioned|stated|recorded)\b",
    re.IGNORECASE,
)


class ComoRAG(OneCall):
    """One call over all memories. By default the prompt doesn't invite an empty result (the original doesn't);
    `invite_none` does, with the examples S1, S2 and S4."""

    prompt = "comorag"

    def __init__(
        self,
        name: str = "comorag",
        *,
        invite_none: bool = False,
        max_tokens: int = 512,
        blank_means_nothing: bool = False,
    ) -> None:
        label = "ComoRAG (NONE invited)" if invite_none else "ComoRAG"
        super().__init__(name, "compression", label, max_tokens=max_tokens, blank_means_nothing=blank_means_nothing)
        self.invite_none = invite_none

    @property
    def prompt_files(self) -> tuple[str, ...]:
        return ("common", "comorag", "shots") if self.invite_none else ("common", "comorag")

    def settings(self) -> dict[str, str | int | float | bool]:
        return {**super().settings(), "invite_none": self.invite_none}

    def own_sections(self) -> dict[str, str]:
        if not self.invite_none:
            return super().own_sections()
        part = sections(self.prompt)
        shots = f"\n{SEPARATOR}\n".join(shot.as_outcome() for shot in load_shots() if shot.id in ("S1", "S2", "S4"))
        used = ("system", "invite_none", "before", "after", "invite_none_closing")
        return {**{name: part[name] for name in used}, "examples": shots}

    def messages(self, question: str, memories: Sequence[Memory]) -> list[tuple[str, str]]:
        part = self.prompt_sections()
        if not self.invite_none:
            return messages(part["system"], part["closing"], question, memories)
        before = f"{part['before']}\n\n{fenced('examples', part['examples'])}\n\n{part['after']}"
        system = f"{part['system']}\n\n{part['invite_none']}"
        return messages(system, part["invite_none_closing"], question, memories, before=before)

    def parse(self, reply: Reply, evidence: Evidence) -> Parsed:
        return parse_findings(reply, evidence)

    def lines(self, parsed: Parsed, prepared: Prepared, evidence: Evidence) -> list[Line]:
        found = finding_lines(parsed, prepared, evidence)
        parsed.counts["dropped_over_five"] += max(0, len(found) - MAX_FINDINGS)
        return found[:MAX_FINDINGS]


def parse_findings(reply: Reply, evidence: Evidence) -> Parsed:
    """Reads a reply of findings: lines in words of their own, each with the numbers of its memories."""
    return parse(
        reply, evidence, threshold=_threshold(evidence.question), labels=("findings", "key findings"),
        unindexed_threshold=ALIGNED_CLAIM,
    )  # fmt: skip


def finding_lines(parsed: Parsed, prepared: Prepared, evidence: Evidence) -> list[Line]:
    """The findings that their memories bear out, with the dates that they don't tell; others are dropped and counted.
    That something isn't on record may be found where the question asks what is remembered."""
    found: list[Line] = []
    recall = bool(RECALL.search(evidence.question))
    for entry in parsed.entries:
        if entry.rejected:
            parsed.counts[entry.refusal] += 1
            continue
        if is_marker(entry.text):
            continue
        absent = bool(_NOT_ON_RECORD.search(entry.text))
        if absent and recall and _speaks_of_the_question(entry, evidence):
            found.append(Line(entry.text, None, (), True))
        elif absent or not _is_supported(entry, evidence):
            parsed.counts["unaligned"] += 1
        else:
            text = entry.text
            if not text or entry.whole:
                found += [prepared.stored(number) for number in entry.sources]
                continue
            stored = len(entry.sources) == 1 and evidence.is_verbatim(text, entry.sources[0])
            parsed.counts["altered"] += not stored
            found.append(Line(text, prepared.missing_dates(text, entry.sources), entry.sources, not stored))
    return newest_of_near_duplicates(found, evidence)


def _threshold(question: str) -> float:
    return ALIGNED if asks_openly(question) else ALIGNED_CLAIM


def _is_supported(entry: Entry, evidence: Evidence) -> bool:
    text, sources = entry.text, entry.sources
    if not entry.aligned or (text and is_rejection(text) and not entry.whole):
        return False
    if not text or entry.whole:
        return True
    borrowed, held = evidence.borrowed(text, sources)
    too_much = borrowed >= max(held, 1) if asks_openly(evidence.question) else borrowed > _may_borrow(evidence.question)
    return not (
        too_much
        or evidence.invented(text, sources)
        or evidence.swaps_person(text, sources)
        or evidence.addresses_user(text, sources)
        or evidence.reorders(text, sources)
        or evidence.negation_added(text, sources)
        or (len(sources) == 1 and evidence.negation_changed(text, sources[0]))
    )


def _may_borrow(question: str) -> int:
    """How many words a finding may take from a question that doesn't ask openly: from a claim none."""
    return 1 if asks_yes_or_no(question) else 0


def _speaks_of_the_question(entry: Entry, evidence: Evidence) -> bool:
    """A finding that X isn't on record may hold nothing but the question's and the memories' own words."""
    everything = tuple(range(1, evidence.size + 1))
    borrowed, held = evidence.borrowed(entry.text, everything)
    return (
        borrowed + held > 0
        and not evidence.addresses_user(entry.text, everything)
        and not evidence.invented(entry.text, everything, also=evidence.question)
    )
