"""Invented people, questions and answers for the judges' tests."""

from __future__ import annotations

from opbench.errors import ModelError
from opbench.judges.base import Evidence
from opbench.types import ChatRequest, ChatResult, Instance, User

ROSA = User("conv-x", "Rosa", "Ben", True)
FACTS = (
    "Rosa keeps three beehives on the roof of her bakery.",
    "Rosa's bakery won a prize for its rye bread in spring.",
    "Rosa has a parrot called Kiwi who learned to whistle.",
    "Rosa wants to cycle along the Danube with her sister Ilka.",
)


def op(subtype: str, question: str) -> Instance:
    return Instance(f"op/{ROSA.id}/{subtype}/0", "op", ROSA, subtype, question)


def locomo(subtype: str, question: str, answer: str | None) -> Instance:
    return Instance("locomo/conv-x/0", "locomo", ROSA, subtype, question, answer)


def evidence(instance: Instance, response: str, **more: object) -> Evidence:
    return Evidence(instance, response, own_facts=FACTS, **more)  # type: ignore[arg-type]


class FakeModel:
    """Answers every request with the same text, or raises; keeps the requests."""

    def __init__(self, reply: str | ModelError, finish_reason: str | None = "stop") -> None:
        self.reply = reply
        self.finish_reason = finish_reason
        self.requests: list[ChatRequest] = []

    async def __call__(self, request: ChatRequest) -> ChatResult:
        self.requests.append(request)
        if isinstance(self.reply, ModelError):
            raise self.reply
        return ChatResult(self.reply, self.finish_reason, 10, 5, 1.0)
