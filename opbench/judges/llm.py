"""The LLM judge (paper, section 3.2 and appendix A.4): one call a record at temperature 0, prompts from a pack.

One call each for irrelevance (fully irrelevant, baiting) and the three sycophancy levels, and one for LoCoMo's
`correct`. An empty response is missing without a call; a call that fails or a reply without one clear score is
missing with its reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

from opbench.errors import ModelError
from opbench.judges.base import Evidence
from opbench.judges.locomo import locomo_scores
from opbench.judges.packs import PromptPack
from opbench.judges.parsing import parse_score, parse_verdict
from opbench.judges.text import strip_thinking
from opbench.types import ChatRequest, ChatResult, Complete, Message, Score

VERSION = "2"
"""Raised when the same replies would get other scores."""
PAPER_JUDGE = "gpt-4o-mini"
_MAX_TOKENS = 1024
_PROMPT_OF = {
    "fully-irrelevant": "irrelevance",
    "baiting": "irrelevance",
    "fact": "fact",
    "value": "value",
    "memory": "memory",
}


@dataclass(frozen=True, slots=True)
class LLMJudge:
    """Judges with the model `model` of the registry and the prompts of `pack`."""

    model: str
    pack: PromptPack

    @property
    def name(self) -> str:
        return self.model

    @property
    def comparable(self) -> bool:
        """True for the paper's judge with the public prompts: other models and prompts grade by other measures."""
        return self.pack.name == "official" and self.model == PAPER_JUDGE

    def provenance(self) -> dict[str, str]:
        return {"judge": self.model, "pack": self.pack.name, "prompts_sha256": self.pack.sha256, "version": VERSION}

    async def score(self, evidence: Evidence, complete: Complete) -> list[Score]:
        """OP-Bench: one `score` (none for repetition). LoCoMo: the rule-based metrics and `correct`."""
        instance = evidence.instance
        if instance.benchmark == "locomo":
            scores = locomo_scores(instance, evidence.response, evidence.finish_reason)
            if instance.subtype != "adversarial":
                scores.append(await self._ask("locomo", "correct", evidence, complete))
            return scores
        if instance.subtype == "repetition":
            return []
        return [await self._ask(_PROMPT_OF[instance.subtype], "score", evidence, complete)]

    async def _ask(self, prompt: str, metric: str, evidence: Evidence, complete: Complete) -> Score:
        if not evidence.answer:
            return Score(metric, None, evidence.no_answer)
        instance = evidence.instance
        text = self.pack.fill(
            prompt,
            {
                "question": instance.question,
                "response": evidence.answer,
                "context": _lines(evidence.context),
                "facts": _facts(evidence.own_facts),
                "profile": evidence.profile,
                "gold": instance.answer or "",
                "explanation": instance.explanation or "",
            },
        )
        try:
            result = await complete(ChatRequest(self.model, (Message("user", text),), 0.0, _MAX_TOKENS))
        except ModelError as error:
            return failed_call(metric, error)
        return read_reply(metric, result, partial(_value, metric), "verdict" if metric == "correct" else "score")


def failed_call(metric: str, error: ModelError) -> Score:
    """A score that is missing because the judge couldn't be asked: the next start asks again."""
    return Score(metric, None, f"judge: {error.kind}: {error}", details={"transport": 1.0, "kind": str(error.kind)})


def read_reply(metric: str, result: ChatResult, value_of: Callable[[str], float | None], what: str) -> Score:
    """The value in the judge's reply, or missing with what was wrong with it; `what` names what it should have held.

    A reply that was cut off at the token limit counts only when its last line, which the cut may have changed
    (`Score: 0` of `Score: 0.8`), isn't needed to read it.
    """
    value = value_of(result.text)
    cut = result.finish_reason == "length"
    if value is not None and cut and value_of(strip_thinking(result.text).rpartition("\n")[0]) != value:
        return Score(metric, None, "judge: the reply was cut off at the token limit", raw=result.text)
    if value is not None:
        return Score(metric, value, raw=result.text)
    state = "the reply is empty" if not result.text.strip() else f"no clear {what} in the reply"
    return Score(metric, None, f"judge: {state}{', cut off at the token limit' if cut else ''}", raw=result.text)


def _value(metric: str, reply: str) -> float | None:
    if metric != "correct":
        return parse_score(reply)
    verdict = parse_verdict(reply)
    return None if verdict is None else float(verdict)


def _lines(texts: tuple[str, ...]) -> str:
    return "\n".join(f"- {text}" for text in texts) or "(nothing)"


# A user's are hundreds, and the same for all questions.
_facts = lru_cache(maxsize=64)(_lines)
