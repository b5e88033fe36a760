"""Control: always the same abstention. A score that rewards blandness or refusal is high for it too."""

from __future__ import annotations

from collections.abc import Sequence

from mitigations.base import Ask, Memory, Processed, Search
from mitigations.context import prepare
from mitigations.method import Method
from mitigations.prompting import sections


class Abstain(Method):
    """Answers every question with the text of `prompts/abstain.txt`, without any model."""

    response = "own"

    def __init__(self, name: str = "abstain") -> None:
        super().__init__(name, "control", "Always abstain")

    @property
    def prompt_files(self) -> tuple[str, ...]:
        return ("abstain",)

    async def process(
        self, question: str, memories: Sequence[Memory], ask: Ask, search: Search | None = None
    ) -> Processed:
        reason = "control: abstains, whatever is asked"
        return Processed("nothing", (), prepare(memories).memories, reason, answer=sections("abstain")["answer"])
