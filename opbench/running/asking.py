"""One free question through the pipeline, outside any run."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from opbench.running.pipeline import Pipeline, Trace
from opbench.running.prepare import prepare
from opbench.running.worker import make_tools
from opbench.store.database import Store
from opbench.store.writing import save_calls
from opbench.study import Study
from opbench.types import Instance


@dataclass(frozen=True, slots=True)
class Answer:
    """What came out of each stage. Milliseconds and reuse are by stage (retrieval, post, response) that happened."""

    user: str
    configuration: str
    question: str
    retrieved: list[dict[str, Any]]
    state: str | None
    state_reason: str | None
    context: list[str]
    draft: str | None
    critique: str | None
    response: str
    finish_reason: str | None
    milliseconds: dict[str, float]
    reused: dict[str, bool]
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float | None


async def ask(store: Store, study: Study, question: str) -> Answer:
    """Answer `question` for the study's first user with its first configuration. The calls go to the call store.

    Raises:
        UsageError: the study names something that doesn't exist.
        ModelError: a call failed for good.
        MemoryFault: the memory system failed, or hasn't taken in the user's history: nobody waits for that here.
    """
    prepared = prepare(study)
    try:
        configuration = study.configurations()[0]
        user = prepared.corpus.users[study.users[0]]
        tools = make_tools(store, prepared, concurrency=1, failures={})
        trace = Trace()
        try:
            await Pipeline(tools).respond(
                configuration, Instance(f"ask/{user.id}", "op", user, "fully-irrelevant", question), trace
            )
        finally:
            save_calls(store, tools.calls.unwritten([use.key for use in trace.uses]))
    finally:
        await prepared.aclose()
    values = trace.values
    stages = [stage for stage in ("retrieval", "post", "response") if f"{stage}_ms" in values]
    return Answer(
        user=user.id,
        configuration=configuration.label,
        question=question,
        retrieved=[asdict(memory) for memory in trace.retrieved],
        state=trace.state,
        state_reason=trace.state_reason,
        context=[f"({line.date}) {line.text}" if line.date else line.text for line in trace.context],
        draft=trace.draft,
        critique=trace.critique,
        response=trace.response,
        finish_reason=trace.finish_reason,
        milliseconds={stage: values[f"{stage}_ms"] for stage in stages},
        reused={stage: values[f"{stage}_reused"] for stage in stages},
        prompt_tokens=(values.get("post_prompt_tokens") or 0) + (values.get("response_prompt_tokens") or 0),
        completion_tokens=(values.get("post_completion_tokens") or 0) + (values.get("response_completion_tokens") or 0),
        cost_usd=None if None in trace.costs else sum(cost for cost in trace.costs if cost),
    )
