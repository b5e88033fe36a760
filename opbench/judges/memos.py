"""LoCoMo as MemOS's evaluation scores it (protocol memos; the paper, B.4, used that evaluation).

With an LLM judge every answer is judged three times by a lenient prompt (the same topic; the same date in any format):
`memos_correct_run1` to `3` are 1 for CORRECT and 0 for WRONG, `memos_correct` is their mean over the runs that could be
read. A run that failed or can't be read is missing with its reason; in the original, a reply that isn't JSON ends the
evaluation. All three runs ask at temperature 0, as the original does: there they differ only as far as the provider
doesn't answer the same twice, and an endpoint that does gives three equal runs and a standard deviation of 0.

With the offline judge there are the lexical metrics (`memos_metrics`) alone.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from opbench.errors import ModelError
from opbench.judges.base import Evidence, Judge
from opbench.judges.llm import failed_call, read_reply
from opbench.judges.memos_metrics import lexical_scores
from opbench.judges.verdicts import parse_verdict
from opbench.protocol import RUN_METRICS
from opbench.types import ChatRequest, Complete, Message, Score

VERSION = "1"
"""Raised when the same replies or answers would get other scores."""
_PROMPTS = Path(__file__).parent / "prompts" / "memos"
_MAX_TOKENS = 1024


def judge_prompts_sha256() -> str:
    """SHA-256 (hex) over the judge's prompts of protocol memos."""
    digest = hashlib.sha256()
    for file in sorted(_PROMPTS.glob("*.txt")):
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class MemosJudge:
    """Scores LoCoMo by protocol memos, and OP-Bench as `judge` does."""

    judge: Judge
    model: str | None
    """The judging model's name in the registry; None gives the lexical metrics alone."""

    @property
    def name(self) -> str:
        return self.judge.name

    @property
    def comparable(self) -> bool:
        return self.judge.comparable

    def provenance(self) -> dict[str, str]:
        """Of `judge` alone: the protocol is told beside it, since OP-Bench's scores don't depend on it."""
        return self.judge.provenance()

    async def score(self, evidence: Evidence, complete: Complete) -> list[Score]:
        """OP-Bench: as `judge`. LoCoMo: the lexical metrics, and with a model `memos_correct` and its runs."""
        if evidence.instance.benchmark != "locomo":
            return await self.judge.score(evidence, complete)
        scores = lexical_scores(evidence)
        if self.model is not None:
            runs = [await self._run(number, self.model, evidence, complete) for number in range(len(RUN_METRICS))]
            scores += [_mean(runs), *runs]
        return scores

    async def _run(self, number: int, model: str, evidence: Evidence, complete: Complete) -> Score:
        """One of the judge's runs; `number` from 0 keeps its call apart from those of the others."""
        metric = RUN_METRICS[number]
        if not evidence.answer:
            return Score(metric, None, evidence.no_answer)
        values = {
            "question": evidence.instance.question,
            "gold": evidence.instance.answer or "",
            "response": evidence.answer,
        }
        messages = (Message("system", _prompt("system", {})), Message("user", _prompt("question", values)))
        try:
            result = await complete(ChatRequest(model, messages, 0.0, _MAX_TOKENS, repeat=number))
        except ModelError as error:
            return failed_call(metric, error)
        return read_reply(metric, result, _label, "label")


def _prompt(name: str, values: dict[str, str]) -> str:
    text = (_PROMPTS / f"{name}.txt").read_text(encoding="utf-8").strip()
    return re.sub(r"\{(\w+)\}", lambda match: values[match[1]], text)


def _label(reply: str) -> float | None:
    verdict = parse_verdict(reply)
    return None if verdict is None else float(verdict)


def _mean(runs: list[Score]) -> Score:
    """Over the runs that there are; what is missing is named, so that nobody takes it for a mean of all three."""
    known = [run.value for run in runs if run.value is not None]
    missing = [f"run {place}: {run.reason}" for place, run in enumerate(runs, 1) if run.value is None]
    if not known:
        reasons = dict.fromkeys(run.reason for run in runs)
        return Score("memos_correct", None, runs[0].reason if len(reasons) == 1 else "; ".join(missing))
    reason = f"mean of {len(known)} of {len(runs)} runs; {'; '.join(missing)}" if missing else None
    return Score("memos_correct", sum(known) / len(known), reason)
