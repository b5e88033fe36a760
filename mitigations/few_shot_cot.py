"""Few-Shot-CoT: demonstrations of a relevance analysis; only its filtered context goes on (paper, B.2)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from mitigations.base import Ask, Line, Memory, Processed, Reply, Search
from mitigations.context import Prepared, prepare
from mitigations.evidence import Evidence
from mitigations.filtering import ALIGNED, filter_lines
from mitigations.method import Method, OneCall
from mitigations.parsing import Parsed, after_last, clean, label_pattern, parse
from mitigations.prompting import fenced, messages, sections
from mitigations.shots import SEPARATOR, load_shots

#: Where a model goes on to an example of its own after its context.
STOP = re.compile(
    r"^[#>*\-\s]*(?:[=\-_*]{3,}\s*$|(?:question|memories|need|check|example\b[^:\n]{0,12}|S\d|</?\w+>)[*_]*\s*:?\s*(?:$|(?<=:)))",
    re.IGNORECASE | re.MULTILINE,
)
#: Without a `Context:` label only numbered lines that are nearly verbatim are taken.
VERBATIM = 0.9
#: Above so many memories the check names only those that are kept, to stay under the token limit.
MANY = 8
_VERDICT = re.compile(r"\[\s*(\d{1,3})\s*\]\W*(keep|drop)", re.IGNORECASE)


class FewShotCoT(OneCall):
    """One call with six examples, S1 to S6, whose reply is need, check and context."""

    prompt = "few_shot_cot"

    def __init__(self, name: str = "few-shot-cot", *, max_tokens: int = 512, blank_means_nothing: bool = False) -> None:
        super().__init__(name, "filter", "Few-Shot-CoT", max_tokens=max_tokens, blank_means_nothing=blank_means_nothing)

    @property
    def prompt_files(self) -> tuple[str, ...]:
        return ("common", "few_shot_cot", "shots")

    def own_sections(self) -> dict[str, str]:
        part = sections(self.prompt)
        shots = f"\n{SEPARATOR}\n".join(shot.as_reasoning() for shot in load_shots())
        return {**{name: part[name] for name in ("system", "many", "before", "after", "closing")}, "examples": shots}

    def messages(self, question: str, memories: Sequence[Memory]) -> list[tuple[str, str]]:
        part = self.prompt_sections()
        before = f"{part['before']}\n\n{fenced('examples', part['examples'])}\n\n{part['after']}"
        system = f"{part['system']}\n\n{part['many']}" if len(memories) > MANY else part["system"]
        return messages(system, part["closing"], question, memories, before=before)

    def parse(self, reply: Reply, evidence: Evidence) -> Parsed:
        cut_off = reply.finish_reason == "length"
        if not cut_off and after_last(clean(reply.text), ("context",), stop=STOP) is None:
            unlabelled = parse(reply, evidence, threshold=VERBATIM)
            if unlabelled.problem:
                return unlabelled
            entries = tuple(entry for entry in unlabelled.entries if entry.cited and entry.aligned and entry.text)
            unlabelled.counts["unaligned"] += len(unlabelled.entries) - len(entries)
            rejects_all = unlabelled.rejects_all and not label_pattern(("need", "check")).search(clean(reply.text))
            problem = None if entries or rejects_all else "no line begins with 'Context:'"
            return replace(unlabelled, entries=entries, nothing=False, problem=problem)
        parsed = parse(reply, evidence, threshold=ALIGNED, labels=("context",), stop=STOP, needs_label=True)
        if parsed.problem is None:
            self._count_disagreement(reply, parsed)
        return parsed

    def lines(self, parsed: Parsed, prepared: Prepared, evidence: Evidence) -> list[Line]:
        return filter_lines(parsed, prepared, evidence)

    @staticmethod
    def _count_disagreement(reply: Reply, parsed: Parsed) -> None:
        """`Context` wins over `Check`; that they differ is counted."""
        before_context = re.split(r"^\W*context\b", clean(reply.text), maxsplit=1, flags=re.IGNORECASE | re.MULTILINE)
        verdicts = {int(number): verdict.lower() for number, verdict in _VERDICT.findall(before_context[0])}
        kept = {number for number, verdict in verdicts.items() if verdict == "keep"}
        tied = (entry for entry in parsed.entries if not entry.rejected and (entry.cited or entry.aligned))
        in_context = {number for entry in tied for number in entry.sources}
        if verdicts and kept != in_context:
            parsed.counts["disagreed"] = 1


class FewShotCoTOriginal(Method):
    """What the source of the name does: no call, but five examples of answers that take up preferences before the
    question in the response prompt. They teach use, not filtering: a control, not a mitigation."""

    def __init__(self, name: str = "few-shot-cot-original") -> None:
        super().__init__(name, "none", "Few-Shot-CoT (original)")

    @property
    def prompt_files(self) -> tuple[str, ...]:
        return ("common", "few_shot_cot")

    def own_sections(self) -> dict[str, str]:
        return {"preface": sections("few_shot_cot")["preface"]}

    async def process(
        self, question: str, memories: Sequence[Memory], ask: Ask, search: Search | None = None
    ) -> Processed:
        prepared = prepare(memories)
        return prepared.pass_through(preface=self.prompt_sections()["preface"] if prepared.memories else "")
