"""The test store, and a model whose replies are written down."""

from __future__ import annotations

from collections.abc import Sequence

from mitigations import Memory, Processed, Reply, Revised, context_lines, get

STORE = (
    Memory("Mara keeps bees on the roof of her building.", "2 Feb 2024", 0.81),
    Memory("Mara is allergic to walnuts.", "14 Mar 2024", 0.7),
    Memory("Mara moved from Ghent to Utrecht last weekend.", "9 May 2024", 0.6),
    Memory("Mara teaches woodworking to teenagers on Thursdays.", "20 Jun 2024", 0.5),
    Memory("Mara's woodworking class is now on Tuesdays, no longer Thursdays.", "3 Jul 2024", 0.4),
)
KILN = Memory("Mara rented a kiln. She fires cups there on Sundays.", "1 Aug 2024")
ORIGINAL = [
    "(2 Feb 2024) Mara keeps bees on the roof of her building.",
    "(14 Mar 2024) Mara is allergic to walnuts.",
    "(9 May 2024) Mara moved from Ghent to Utrecht last weekend.",
    "(20 Jun 2024) Mara teaches woodworking to teenagers on Thursdays.",
    "(3 Jul 2024) Mara's woodworking class is now on Tuesdays, no longer Thursdays.",
]
WALNUTS = ORIGINAL[1]
ANSWER = "A heat pump moves warmth from the outside air into the house."


class Model:
    """Gives its replies in turn (the last one for ever) and keeps what it was asked."""

    def __init__(self, *replies: str | Reply) -> None:
        self.replies = [reply if isinstance(reply, Reply) else Reply(reply, "stop") for reply in replies]
        self.asked: list[list[tuple[str, str]]] = []
        self.limits: list[tuple[int, float]] = []

    async def __call__(
        self, messages: Sequence[tuple[str, str]], *, max_tokens: int = 512, temperature: float = 0.0
    ) -> Reply:
        self.asked.append(list(messages))
        self.limits.append((max_tokens, temperature))
        return self.replies[min(len(self.asked), len(self.replies)) - 1]


async def process(
    name: str,
    reply: str | Reply,
    question: str = "How does a heat pump work?",
    memories: Sequence[Memory] = STORE,
) -> Processed:
    return await get(name).process(question, memories, Model(reply))


async def revise(
    reply: str | Reply, draft: str, question: str = "What's a good gift for a colleague?", name: str = "self-critic"
) -> Revised:
    return await get(name).revise(question, STORE, draft, Model(reply))


def is_untouched(done: Processed) -> bool:
    """Failed as it should: the five original memories with their dates, counted, and told why."""
    return (
        done.state == "failed" and context_lines(done) == ORIGINAL and done.counts["failed"] == 1 and bool(done.reason)
    )
