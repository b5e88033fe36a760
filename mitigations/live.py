"""How often a real model does what a method is for: `python -m mitigations.live BASE_URL MODEL [METHOD …]`.

The behavioural tests of every method, each asked in five paraphrases (`live_cases.json`). The outcome is a rate, not a
pass: a model of 135 million parameters is expected to fail most of them. The key is read from OPENAI_API_KEY.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mitigations.asking import ask_with
from mitigations.base import Ask, Memory
from mitigations.context import context_lines
from mitigations.registry import get

CASES = Path(__file__).parent / "live_cases.json"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one question: the state, the memories used (1-based), and the text that goes on."""

    state: str
    sources: frozenset[int]
    text: str


def load_cases() -> tuple[list[Memory], list[dict[str, Any]]]:
    """The test store and the cases."""
    data = json.loads(CASES.read_text(encoding="utf-8"))
    return [Memory(text, date) for date, text in data["memories"]], data["cases"]


def meets(outcome: Outcome, expect: dict[str, Any]) -> bool:
    """Whether an outcome is the expected one. A method that failed never is."""
    return outcome.state != "failed" and all(
        (
            outcome.state == expect.get("state", outcome.state),
            set(outcome.sources) == set(expect.get("sources", outcome.sources)),
            all(re.search(pattern, outcome.text) for pattern in expect.get("says", ())),
            not any(re.search(pattern, outcome.text) for pattern in expect.get("never", ())),
            len(outcome.text.split()) <= expect.get("max_words", 10_000),
        )
    )


async def outcome_of(case: dict[str, Any], question: str, memories: Sequence[Memory], ask: Ask) -> Outcome:
    """Asks one question of a case."""
    method = get(case["method"])
    store = [*memories, *(Memory(text, date) for date, text in case.get("extra", ()))]
    if method.revises:
        revised = await method.revise(question, store, case["draft"], ask)
        return Outcome(revised.state, frozenset(), revised.text)
    done = await method.process(question, store, ask)
    sources = frozenset(number for line in done.lines for number in line.sources)
    return Outcome(done.state, sources, "\n".join(context_lines(done)))


async def run(ask: Ask, methods: Sequence[str] = ()) -> None:
    """Asks all cases (of `methods`, if any are named) one after the other and prints the rate of each."""
    memories, cases = load_cases()
    for case in cases:
        if methods and case["method"] not in methods:
            continue
        outcomes = [await outcome_of(case, question, memories, ask) for question in case["questions"]]
        met = sum(meets(outcome, case["expect"]) for outcome in outcomes)
        failed = sum(outcome.state == "failed" for outcome in outcomes)
        print(f"{case['method']:<14} {case['test']}  {met}/{len(outcomes)}  failed {failed}", flush=True)


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(prog="python -m mitigations.live", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("base_url", help="of an OpenAI-compatible server, e.g. http://127.0.0.1:8000/v1")
    parser.add_argument("model")
    parser.add_argument("methods", nargs="*", help="only these")
    given = parser.parse_args()
    from openai import AsyncOpenAI  # the one part of this package that needs openai

    client = AsyncOpenAI(base_url=given.base_url, api_key=os.environ.get("OPENAI_API_KEY") or "none")
    asyncio.run(run(ask_with(client, given.model), given.methods))


if __name__ == "__main__":
    main()
