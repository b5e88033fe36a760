"""Control rows in a whole run: what they ask, what they score, and that their figures are there or missing."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from opbench.analysis.latency import latency, spending
from opbench.running.assumed import memory_tokens, prompt_tokens
from opbench.running.prepare import prepare
from opbench.running.quote import quote
from opbench.settings import settings
from opbench.store import schema as s
from opbench.store.database import Store, open_store
from opbench.store.reading import read_run
from opbench.study import Study
from tests.running.study import STUDY, reply, run_here, use_endpoint
from tests.scripted_endpoint import ScriptedEndpoint

CONTROLS: dict[str, Any] = {"memories": ("base", "rag", "random"), "mitigations": ("none", "empty", "abstain")}
#: BASE, and two memory systems under three post-processors, on 14 instances of each benchmark.
PLANNED = 7 * 28


def response_calls(store: Store) -> dict[tuple[str, str], set[str]]:
    """The response calls that each (memory system, post-processor) rests on."""
    with store.begin() as connection:
        rows = connection.execute(
            select(s.configurations.c.memory, s.configurations.c.mitigation, s.record_calls.c.call_key)
            .join(s.records, s.records.c.configuration_id == s.configurations.c.id)
            .join(s.record_calls, s.record_calls.c.record_id == s.records.c.id)
            .where(s.record_calls.c.stage == "response")
        ).all()
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for memory, mitigation, key in rows:
        found[memory, mitigation].add(key)
    return dict(found)


async def test_controls_in_a_run(home: Path) -> None:
    store = open_store(settings().store_url)
    with ScriptedEndpoint(reply=reply) as endpoint:
        use_endpoint(home, endpoint)
        progress, run_id, _ = await run_here(store, **CONTROLS)
    assert (progress.done, progress.errors) == (PLANNED, 0)
    calls = response_calls(store)
    assert set(calls) == {("base", "none"), ("rag", "none"), ("rag", "empty"), ("random", "none"), ("random", "empty")}
    assert calls["rag", "empty"] == calls["random", "empty"] == calls["base", "none"], "no response of its own"
    assert not calls["random", "none"] & (calls["base", "none"] | calls["rag", "none"])

    data = read_run(store, run_id)
    alike = data.user_scores[(data.user_scores["mitigation"] == "abstain") & (data.user_scores["n"] > 1)]
    assert len(alike) >= 2
    assert alike["value"].tolist() == pytest.approx([0.0] * len(alike)), "all responses are equal"
    judged = data.scores[data.scores["mitigation"] == "abstain"]
    assert judged["value"].notna().any(), "the LLM judge reads an abstention like any response"

    times = latency(data).set_index(["memory", "mitigation", "stage"])
    assert times.loc[("rag", "abstain", "response"), "n"] == 0
    assert times.loc[("rag", "abstain", "total"), "n"] == 28
    assert times.loc[("rag", "abstain", "total"), "mean_ms"] == pytest.approx(
        times.loc[("rag", "abstain", "retrieval"), "mean_ms"]
    )
    costs = spending(data).set_index(["memory", "mitigation"])
    assert (costs.loc[("rag", "abstain"), "cost_usd"], costs.loc[("rag", "abstain"), "n_priced"]) == (0, 28)
    assert costs.loc[("rag", "empty"), "cost_usd"] == pytest.approx(costs.loc[("base", "none"), "cost_usd"])


@pytest.mark.parametrize(
    ("memories", "naive", "calls"),
    [
        # Plain responses of three memory systems, and two emptied memories; abstaining asks nobody. An emptied memory
        # is answered as BASE is: two calls an instance less.
        (("base", "rag", "random"), 5, 3),
        # Without BASE the two emptied memories share one response of their own.
        (("rag", "random"), 4, 3),
    ],
)
def test_a_quote_knows_what_the_controls_ask(home: Path, memories: tuple[str, ...], naive: int, calls: int) -> None:
    store = open_store(settings().store_url)
    with ScriptedEndpoint(reply=reply) as endpoint:
        use_endpoint(home, endpoint)
        prepared = prepare(Study(**STUDY | CONTROLS | {"memories": memories}))
        found = quote(store, prepared, concurrency=4)
        responses = [line for line in found.lines if line.stage == "response"]
        assert sum(line.calls_naive for line in responses) == 28 * naive
        assert sum(line.calls for line in responses) == 28 * calls
        assert not [line for line in responses if line.mitigation == "abstain"]
        # A prompt to an emptied memory is as long as BASE's; one to random turns as one to RAG's turns, on average.
        tokens = {(line.memory, line.mitigation): line.prompt_tokens for line in responses}
        assert tokens["random", "none"] == pytest.approx(tokens["rag", "none"])
        emptied = sum(amount for (_, mitigation), amount in tokens.items() if mitigation == "empty")
        assert emptied == pytest.approx(
            0 if "base" in memories else sum(prompt_tokens(prepared.study, instance) for instance in prepared.instances)
        )


def test_memories_are_as_long_as_turns_on_average(home: Path) -> None:
    study = Study(models=("smollm2-135m",), data="sample", k=3, memories=("rag", "random", "rag-observations"))
    prepared = prepare(study)
    # Each turn as `speaker: text`, its day as prose, and 6 characters of brackets and marks; 4 characters a token.
    lengths = [
        len(f"{turn.speaker}: {turn.text}") + len(session.day) + 6
        for name in prepared.history_sha256
        for session in prepared.corpus.conversations[name].sessions
        for turn in session.turns
    ]
    expected = 3 * sum(lengths) / len(lengths) / 4
    assert memory_tokens(prepared, "random") == memory_tokens(prepared, "rag") == pytest.approx(expected)
    assert memory_tokens(prepared, "rag-observations") != pytest.approx(expected)


def test_a_run_with_the_offline_judge_knows_the_controls(home: Path) -> None:
    study = Study(models=("smollm2-135m",), data="sample", limit=2, **CONTROLS)
    prepared = prepare(study)
    assert prepared.provenance["memories"]["random"] == {"memory": "random", "format": "1"}
    assert prepared.provenance["mitigations"].keys() == {"none", "empty", "abstain"}
