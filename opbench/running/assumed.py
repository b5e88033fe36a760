"""What a quote takes for granted where the run's own records tell nothing: prompt lengths, answers, times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from statistics import fmean

from sqlalchemy import func, select

from mitigations.base import Memory
from opbench.memories.rag import observations, turns
from opbench.running.prepare import Prepared
from opbench.running.response_prompts import answer_messages
from opbench.store import schema as s
from opbench.store.database import Store
from opbench.study import Study
from opbench.types import Instance, Session

#: Characters per token of English text, the rule of thumb that the estimate of prompt lengths rests on.
CHARACTERS_PER_TOKEN = 4.0
#: Answer lengths in tokens, and seconds a call, when the call store knows nothing of the model yet.
_UNKNOWN_ANSWER = 150.0
_UNKNOWN_SECONDS = 3.0
JUDGE_PROMPT_TOKENS = 600
JUDGE_ANSWER_TOKENS = 60
#: Memory systems whose memories are dialogue turns.
_OF_TURNS = ("rag", "random")


def prompt_tokens(study: Study, instance: Instance) -> float:
    """Tokens of the response prompt without memories."""
    messages = answer_messages(study, "", instance, [Memory("")])
    return sum(len(message.content) for message in messages) / CHARACTERS_PER_TOKEN


def memory_tokens(prepared: Prepared, memory: str) -> float:
    """Tokens of k memories of average length; systems other than RAG are taken to store facts like observations."""
    unit: Callable[[Sequence[Session]], list[Memory]] = turns if memory in _OF_TURNS else observations
    lengths = [
        len(text.text) + len(text.date or "") + 6
        for key in prepared.history_sha256
        for text in unit(prepared.corpus.conversations[key].sessions)
    ]
    return prepared.study.k * fmean(lengths) / CHARACTERS_PER_TOKEN if lengths else 0.0


class Pace:
    """Answer lengths and times of the models as the call store knows them."""

    def __init__(self, store: Store, kind: str = "chat") -> None:
        """`kind` as in `schema.calls`: a study's own calls, or those of memory libraries."""
        calls = s.calls.c
        with store.begin() as connection:
            rows = connection.execute(
                select(calls.model, func.avg(calls.completion_tokens), func.avg(calls.duration_ms), func.count())
                .where(calls.kind == kind)
                .group_by(calls.model)
            ).all()
        self._known = {row[0]: (float(row[1] or _UNKNOWN_ANSWER), float(row[2]) / 1000, row[3]) for row in rows}

    def answer(self, model: str) -> float:
        """Tokens of an answer."""
        return self._known[model][0] if model in self._known else _UNKNOWN_ANSWER

    def seconds(self, model: str) -> float:
        """Seconds of a call."""
        return self._known[model][1] if model in self._known else _UNKNOWN_SECONDS

    def basis(self, counts: Counter[str]) -> str:
        """What the numbers of these models rest on, in words."""
        known = [f"{self._known[m][2]} earlier calls of {m}" for m in counts if m in self._known]
        unknown = [m for m in counts if m not in self._known]
        parts = [f"from {', '.join(known)}"] if known else []
        if unknown:
            parts.append(
                f"assumed {_UNKNOWN_ANSWER:.0f} tokens and {_UNKNOWN_SECONDS:.0f} s an answer for {', '.join(unknown)}"
            )
        return "; ".join(parts) or "nothing left to do"
