"""Control rows in a whole run: what they ask, what they score, and that their figures are there or missing."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from opbench.analysis.latency import latency, spending
from opbench.running.prepare import prepare
from opbench.settings import settings
from opbench.store import schema as s
from opbench.store.database import Store, open_store
from opbench.store.reading import read_run
from opbench.study import Study
from tests.running.study import reply, run_here, use_endpoint
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


def test_a_run_with_the_offline_judge_knows_the_controls(home: Path) -> None:
    study = Study(models=("smollm2-135m",), data="sample", limit=2, **CONTROLS)
    prepared = prepare(study)
    assert prepared.provenance["memories"]["random"] == {"memory": "random", "format": "1"}
    assert prepared.provenance["mitigations"].keys() == {"none", "empty", "abstain"}
