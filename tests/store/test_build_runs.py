"""Which run is of which build, and which of its instances is which candidate; on both databases."""

from __future__ import annotations

from opbench.benchmarks import load
from opbench.construction.spec import BuildSpec
from opbench.store.build_runs import build_of_run, candidates_of_run, runs_of_build
from opbench.store.builds import Candidate, Unit, create_build, save_unit
from opbench.store.database import Store
from opbench.store.writing import create_run
from opbench.study import Study
from opbench.types import Instance, User

CORPUS = load("sample")
FIRST, SECOND = CORPUS.users.values()


def instance(number: int, question: str, user: User = FIRST, subtype: str = "fact") -> Instance:
    return Instance(f"op/{user.id}/{subtype}/{number}", "op", user, subtype, question)


def candidate(place: int, question: str, user_id: str = FIRST.id, subtype: str = "fact") -> Candidate:
    return Candidate(
        f"c{place}", place, "tasks/u/1", user_id, subtype, None, None, None, question, None, None, (), "m", "0" * 64
    )


def run_on(store: Store, run_id: str, data: str, *instances: Instance) -> None:
    study = Study(models=("m",), memories=("base", "rag"), benchmarks=("op",), data=data)
    create_run(store, run_id, study, run_id * 4, {}, list(instances))


def test_a_builds_runs_are_found_and_nobody_elses(store: Store) -> None:
    mine, other = (create_build(store, BuildSpec(name=name), {}) for name in ("mine", "other"))
    # An id that begins as another one does is another build.
    run_on(store, "r1", f"build:{mine}:0123456789ab", instance(1, "Q?"))
    run_on(store, "r2", f"build:{mine}0:0123456789ab", instance(1, "Q?"))
    run_on(store, "r3", f"build:{other}:0123456789ab", instance(1, "Q?"))
    run_on(store, "r4", "sample", instance(1, "Q?"))
    run_on(store, "r5", f"build:{mine}:ba9876543210", instance(1, "Q?"))
    assert runs_of_build(store, mine) == ["r5", "r1"]
    assert runs_of_build(store, other) == ["r3"]
    assert [build_of_run(store, run) for run in ("r1", "r2", "r3", "r4", "gone")] == [mine, None, other, None, None]


def test_instances_meet_their_candidates_by_user_subtype_and_question(store: Store) -> None:
    build_id = create_build(store, BuildSpec(), {})
    unit = Unit("tasks/u/1", "tasks", FIRST.id, "done", None, {}, "generator", "m", "0" * 64)
    save_unit(
        store,
        build_id,
        unit,
        [
            candidate(0, "One?"),
            candidate(1, "Two?"),
            # The same words of another user, and of another subtype, are other questions.
            candidate(2, "One?", SECOND.id),
            candidate(3, "One?", subtype="value"),
            candidate(4, "Two?"),
        ],
    )
    run_on(
        store,
        "r1",
        f"build:{build_id}:0123456789ab",
        instance(1, "Two?"),
        instance(2, "One?"),
        instance(1, "One?", SECOND),
        instance(1, "One?", subtype="value"),
        instance(3, "Nobody's?"),
    )
    assert candidates_of_run(store, "r1") == {
        f"op/{FIRST.id}/fact/1": "c1",
        f"op/{FIRST.id}/fact/2": "c0",
        f"op/{SECOND.id}/fact/1": "c2",
        f"op/{FIRST.id}/value/1": "c3",
    }
    run_on(store, "r2", "sample", instance(1, "One?"))
    assert candidates_of_run(store, "r2") == {}
