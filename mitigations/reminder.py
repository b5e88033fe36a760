"""Reminder: retain only the parts of the memories that are directly useful (paper, B.2)."""

from __future__ import annotations

from collections.abc import Sequence

from mitigations.base import Ask, Line, Memory, Processed, Reply, Search
from mitigations.context import Prepared, prepare
from mitigations.evidence import Evidence
from mitigations.filtering import ALIGNED, filter_lines
from mitigations.method import Method, OneCall
from mitigations.parsing import Parsed, parse
from mitigations.prompting import sections


class Reminder(OneCall):
    """One call, no reasoning, no examples: lines of the memories, or NONE."""

    prompt = "reminder"

    def __init__(self, name: str = "reminder", *, max_tokens: int = 512, blank_means_nothing: bool = False) -> None:
        super().__init__(name, "filter", "Reminder", max_tokens=max_tokens, blank_means_nothing=blank_means_nothing)

    def parse(self, reply: Reply, evidence: Evidence) -> Parsed:
        return parse(reply, evidence, threshold=ALIGNED)

    def lines(self, parsed: Parsed, prepared: Prepared, evidence: Evidence) -> list[Line]:
        return filter_lines(parsed, prepared, evidence)


class ReminderOriginal(Method):
    """What the source of the name does: no filter and no call, but a sentence at the end of the response prompt that
    asks to honour stated preferences. It pushes towards personalisation: a control, not a mitigation."""

    def __init__(self, name: str = "reminder-original") -> None:
        super().__init__(name, "none", "Reminder (original)")

    @property
    def prompt_files(self) -> tuple[str, ...]:
        return ("common", "reminder")

    def own_sections(self) -> dict[str, str]:
        return {"note": sections("reminder")["note"]}

    async def process(
        self, question: str, memories: Sequence[Memory], ask: Ask, search: Search | None = None
    ) -> Processed:
        prepared = prepare(memories)
        return prepared.pass_through(note=self.prompt_sections()["note"] if prepared.memories else "")
