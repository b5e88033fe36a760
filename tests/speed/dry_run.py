"""What the paper's full grid takes by dry run, and how long that takes to tell: 6 × 5 × 6 × 3,240 = 583,200 records.

A driver that shares nothing does BASE under every post-processor; of ours it is one record, so 486,000 are planned.
`rag-observations` stands in for MemOS, which needs an environment of its own; what is shared is the same.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any

from opbench.running.prepare import prepare
from opbench.running.quote import quote
from opbench.settings import settings
from opbench.store.database import open_store
from opbench.study import Study
from tests.speed.studies import EMBEDDER, JUDGE, at_home

MODELS = tuple(f"scripted-{number}" for number in range(6))
STUDY = Study(
    models=MODELS,
    memories=("base", "rag", "mem0", "memu", "rag-observations"),
    mitigations=("none", "reminder", "self-critic", "few-shot-cot", "marag", "self-recheck"),
    judge=JUDGE,
    judge_pack="own",
    embedder=EMBEDDER,
    extractor=JUDGE,
)
NAIVE_RECORDS = len(STUDY.models) * len(STUDY.memories) * len(STUDY.mitigations) * 3_240


def measure() -> dict[str, Any]:
    """The quote's counts, and `seconds` for working it out, data and libraries loaded."""
    url = "http://127.0.0.1:1/v1"  # Nobody is asked.
    with tempfile.TemporaryDirectory() as folder, at_home(Path(folder), url) as home:
        home.use(url, MODELS)
        store = open_store(settings().store_url)
        prepared = prepare(STUDY)
        start = time.perf_counter()
        found = quote(store, prepared, concurrency=64)
        seconds = time.perf_counter() - start
        store.close()
    return {
        "seconds": seconds,
        "planned": found.planned,
        "calls_naive": found.calls_naive,
        "calls": found.calls,
        "saved": {saving.why: saving.calls for saving in found.saved},
        "retrievals_naive": found.retrievals_naive,
        "retrievals": found.retrievals,
    }


if __name__ == "__main__":
    print(json.dumps(measure()))
