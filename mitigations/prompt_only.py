"""A method that is a prompt: somebody's own instructions in one call, with a reply form that the package can read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from mitigations.base import Line, Memory, Reply
from mitigations.comorag import finding_lines, parse_findings
from mitigations.context import Prepared
from mitigations.evidence import Evidence
from mitigations.filtering import ALIGNED, filter_lines
from mitigations.method import OneCall, Setting
from mitigations.parsing import Parsed, parse
from mitigations.prompting import messages, sections

PromptFamily = Literal["filter", "compression"]


class PromptOnly(OneCall):
    """One call over all memories together, whose system message is `instructions` followed by the reply form.

    `family` says what the reply holds, and how it is read. `filter`: memories or parts of them, as for Reminder.
    `compression`: findings in the model's own words, as for ComoRAG, but with no limit to their number. Whatever else
    comes back is a failure, as for every method: the memories then go on as retrieved.

    Instructions are sent as they are; braces in them mean nothing. Raises ValueError for blank instructions, another
    family, or a limit below one token.
    """

    prompt = "prompt_only"

    def __init__(
        self,
        name: str,
        label: str,
        instructions: str,
        family: PromptFamily = "filter",
        max_tokens: int = 512,
        *,
        blank_means_nothing: bool = False,
    ) -> None:
        if not instructions.strip():
            raise ValueError(f"{name}: the instructions are blank: write what the model is to do with the memories")
        if family not in get_args(PromptFamily):
            raise ValueError(f"{name}: no family '{family}': a prompt filters (filter) or condenses (compression)")
        if max_tokens < 1:
            raise ValueError(f"{name}: max_tokens is {max_tokens}: a reply needs at least one token")
        super().__init__(name, family, label, max_tokens=max_tokens, blank_means_nothing=blank_means_nothing)
        self.instructions = instructions

    def settings(self) -> dict[str, Setting]:
        return {**super().settings(), "family": self.family, "instructions": self.instructions}

    def own_sections(self) -> dict[str, str]:
        return {"instructions": self.instructions}

    @property
    def reply_form(self) -> str:
        """What stands in the system message after the instructions: how the reply must look to be read."""
        return sections(self.prompt)[self.family]

    def messages(self, question: str, memories: Sequence[Memory]) -> list[tuple[str, str]]:
        system = f"{self.prompt_sections()['instructions'].strip()}\n\n{self.reply_form}"
        return messages(system, sections(self.prompt)[f"{self.family}_closing"], question, memories)

    def parse(self, reply: Reply, evidence: Evidence) -> Parsed:
        if self.family == "compression":
            return parse_findings(reply, evidence)
        return parse(reply, evidence, threshold=ALIGNED)

    def lines(self, parsed: Parsed, prepared: Prepared, evidence: Evidence) -> list[Line]:
        if self.family == "compression":
            return finding_lines(parsed, prepared, evidence)
        return filter_lines(parsed, prepared, evidence)
