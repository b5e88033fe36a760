"""The study of the benchmark is what it says it is."""

from __future__ import annotations

from collections import Counter

import numpy as np

from opbench.analysis.op import op_table
from opbench.benchmarks.check import LOCOMO_COUNTS, OP_COUNTS
from opbench.judges.repetition import repetition_score
from opbench.store.database import Store
from opbench.store.reading import read_run, run_status
from tests.speed.big_study import STUDY, instances, write_big_study


def test_its_size_is_the_papers() -> None:
    made = instances()
    assert len({instance.id for instance in made}) == 3_240
    counts = Counter((instance.benchmark, instance.subtype) for instance in made)
    usual = {name: count for name, count in LOCOMO_COUNTS.items() if name != "adversarial"}
    assert counts == {
        **{("op", name): n for name, n in OP_COUNTS.items()},
        **{("locomo", n): c for n, c in usual.items()},
    }
    assert len({instance.user.id for instance in made}) == 20
    assert len(STUDY.configurations()) == 40


def test_a_small_one_is_whole_and_its_numbers_fit_together(store: Store) -> None:
    run_id = write_big_study(store, every=30)
    status = run_status(store, run_id)
    assert (status.planned, status.waiting) == (40 * 108, 0)
    data = read_run(store, run_id)
    vectors = data.vectors
    assert vectors is not None
    of_user = dict(zip(data.instances["instance"], data.instances["user"], strict=True))
    row = data.user_scores[data.user_scores["n"] > 1].iloc[0]
    key = (row["model"], row["memory"], row["mitigation"])
    mine = [vector for name, vector in vectors.items() if name[:3] == key and of_user[name[3]] == row["user"]]
    assert len(mine) == row["n"]
    assert row["value"] == repetition_score(np.stack(mine))
    table = op_table(data, "task-mean")
    assert table["op"].notna().all()
    assert table["n_paired"].max() > 0
