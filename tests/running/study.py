"""A study against the scripted endpoint, as a process and in this one, and what came of it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from sqlalchemy import select

from opbench.running.engine import Progress
from opbench.running.prepare import prepare
from opbench.running.worker import execute
from opbench.settings import settings
from opbench.store import schema as s
from opbench.store.database import Store
from opbench.study import Study
from tests.scripted_endpoint import ScriptedEndpoint, default_reply

STUDY: dict[str, Any] = {
    "models": ("scripted",),
    "memories": ("base", "rag"),
    "mitigations": ("none", "reminder", "self-critic"),
    "judge": "scripted",
    "judge_pack": "own",
    "embedder": "scripted",
    "data": "sample",
    "limit": 14,
}
#: BASE, and RAG under three post-processors, on 14 instances of each benchmark.
PLANNED = 4 * 28


def reply(body: dict[str, Any]) -> str:
    """As the endpoint's default, and a verdict for the LoCoMo judge."""
    text = body["messages"][-1]["content"]
    if "WRONG" in text or "WRONG" in body["messages"][0]["content"]:
        return "Verdict: CORRECT" if len(text) % 2 else "Verdict: WRONG"
    return default_reply(body)


def use_endpoint(home: Path, endpoint: ScriptedEndpoint, **fields: float | int | str) -> dict[str, str]:
    """Register the endpoint as the model and embedder `scripted`; the environment that a process needs for it."""
    home.mkdir(parents=True, exist_ok=True)
    file = home / "models.toml"
    file.write_text(endpoint.registry_toml("scripted", **fields))
    os.environ["OPBENCH_MODELS"] = str(file)
    settings.cache_clear()
    return dict(os.environ) | {"OPBENCH_HOME": str(home), "OPBENCH_MODELS": str(file)}


def hold(endpoint: ScriptedEndpoint, after: int = 100) -> None:
    """Let a study come into its middle, so many requests, and no further until `endpoint.held` is None: whoever kills
    or pauses it isn't late, however quick the machine is. All of its requests are some 250. The model's `timeout_s`
    must be longer than it is held."""
    endpoint.held = lambda: endpoint.ledger.total > after


def start(environment: dict[str, str], store_url: str, concurrency: int = 6) -> subprocess.Popen[bytes]:
    """`opbench run` as people start it."""
    flags = [
        f"--{key.replace('_', '-')}={','.join(value) if isinstance(value, tuple) else value}"
        for key, value in STUDY.items()
    ]
    return subprocess.Popen(
        [sys.executable, "-m", "opbench", "run", *flags, f"--concurrency={concurrency}"],
        env=environment | {"OPBENCH_STORE": store_url},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


async def run_here(store: Store, concurrency: int = 6, **fields: Any) -> tuple[Progress, str, Any]:
    """Run the study in this process: progress, run id, the client's statistics."""
    prepared = prepare(Study(**STUDY | fields))
    try:
        progress = await execute(store, prepared, concurrency=concurrency, on_progress=lambda progress: None)
    finally:
        await prepared.aclose()
    return progress, prepared.run_id, prepared.client.stats


def outcome(store: Store) -> dict[str, Any]:
    """All that a run leaves behind, but for times: to be equal however it came about."""
    left_out = ("id", "run_id", "configuration_id", "instance_id", "finished_at", "concurrency")
    timeless = [
        column.name
        for column in s.records.columns
        if not column.name.endswith(("_ms", "_reused")) and column.name not in left_out
    ]
    with store.begin() as connection:
        names = {
            row.id: f"{row.model}/{row.memory}/{row.mitigation}" for row in connection.execute(select(s.configurations))
        }
        records = connection.execute(select(s.records)).mappings().all()
        keys = {row["id"]: (names[row["configuration_id"]], row["instance_id"]) for row in records}
        scores = connection.execute(select(s.scores)).all()
        users = connection.execute(select(s.user_scores)).all()
        uses = connection.execute(select(s.record_calls)).all()
        calls = connection.execute(select(s.calls.c.key, s.calls.c.response)).all()
    return {
        "records": {keys[row["id"]]: {name: row[name] for name in timeless} for row in records},
        "record count": len(records),
        "scores": {(keys[row.record_id], row.judge, row.metric): (row.value, row.reason, row.raw) for row in scores},
        "user scores": {(names[row.configuration_id], row.user_id, row.metric): (row.value, row.n) for row in users},
        "uses": Counter((keys[row.record_id], row.stage, row.call_key) for row in uses),
        "calls": {row.key: row.response for row in calls},
    }
