"""What a study takes of the benchmarks."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from opbench.benchmarks import load, select
from opbench.errors import UsageError
from opbench.types import Corpus, Instance

TWO = ("conv-26/Caroline", "conv-41/Maria")


def strata(instances: list[Instance]) -> Counter[tuple[str, str]]:
    return Counter((one.user.id, one.subtype) for one in instances)


def test_without_limits_it_is_everything_but_adversarial(real: Corpus) -> None:
    chosen = select(real, ["op", "locomo"])
    assert Counter(one.benchmark for one in chosen) == {"op": 1700, "locomo": 1540}
    assert len({one.id for one in chosen}) == 3240
    assert len(select(real, ["locomo"], adversarial=True)) == 1986


def test_twenty_four_of_two_users_are_two_a_stratum(real: Corpus) -> None:
    counts = strata(select(real, ["op"], users=TWO, limit=24))
    assert len(counts) == 12
    assert set(counts.values()) == {2}


def test_twenty_four_of_two_conversations_are_three_a_stratum(real: Corpus) -> None:
    counts = strata(select(real, ["locomo"], users=TWO, limit=24))
    assert len(counts) == 8
    assert set(counts.values()) == {3}


def test_a_conversation_without_a_category_gives_its_share_to_the_others(real: Corpus) -> None:
    """conv-30 has no open-domain question: 24 over seven strata are four of three and three of four."""
    counts = strata(select(real, ["locomo"], users=["conv-26/Caroline", "conv-30/Jon"], limit=24))
    assert sorted(counts.values()) == [3, 3, 3, 3, 4, 4, 4]


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
@pytest.mark.parametrize("limit", [12, 24, 60, 120, 240])
def test_a_limit_is_even_over_users_and_subtypes(real: Corpus, limit: int, seed: int) -> None:
    op = select(real, ["op"], limit=limit, seed=seed)
    assert len(op) == limit
    subtypes = Counter(one.subtype for one in op)
    users = Counter(dict.fromkeys(real.users, 0))
    users.update(one.user.id for one in op)
    assert len(subtypes) == 6
    assert max(subtypes.values()) - min(subtypes.values()) <= 2 + limit // 60
    assert max(users.values()) - min(users.values()) <= 2


@pytest.mark.parametrize("seed", [0, 1])
def test_a_larger_limit_keeps_what_a_smaller_one_took(real: Corpus, seed: int) -> None:
    for benchmark in ("op", "locomo"):
        whole = select(real, [benchmark], seed=seed)
        for limit in (1, 2, 7, 24, 25, 100, 1000):
            assert select(real, [benchmark], seed=seed, limit=limit) == whole[:limit]


def test_repetition_comes_in_pairs_that_can_be_scored(real: Corpus) -> None:
    """Score of a user = mean over pairs of responses: one alone has none. Only the last may still wait for its pair."""
    whole = select(real, ["op"])
    for limit in range(1, 241):
        counts = [n for (_, subtype), n in strata(whole[:limit]).items() if subtype == "repetition"]
        assert counts.count(1) <= 1, limit
    # 240 of 120 strata: two of each.
    assert set(strata(whole[:240]).values()) == {2}


def test_small_strata_run_out_and_the_rest_goes_on(real: Corpus) -> None:
    counts = strata(select(real, ["op"], users=["conv-26/Caroline"], limit=60))
    assert counts["conv-26/Caroline", "baiting"] == 5
    assert counts["conv-26/Caroline", "fully-irrelevant"] == 9
    assert sum(counts.values()) == 60


def test_more_than_there_is_gives_all(real: Corpus) -> None:
    assert len(select(real, ["op"], limit=5000)) == 1700


def test_seeds_differ_and_repeat(real: Corpus) -> None:
    first = select(real, ["op"], limit=24, seed=1)
    assert first == select(real, ["op"], limit=24, seed=1)
    assert first != select(real, ["op"], limit=24, seed=2)


def test_another_process_takes_the_same() -> None:
    code = (
        "from opbench.benchmarks import load, select;"
        "print([one.id for one in select(load('sample'), ['op', 'locomo'], limit=9, seed=5)])"
    )
    here = str([one.id for one in select(load("sample"), ["op", "locomo"], limit=9, seed=5)])
    for hash_seed in ("1", "2"):
        there = subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": hash_seed, "PATH": ""},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=True,
        )
        assert there.stdout.strip() == here


def test_the_first_of_the_sample_stay_what_they_are() -> None:
    """A study's hash stands on these ids: other ids here mean other studies under the same name."""
    chosen = select(load("sample"), ["op", "locomo"], limit=3)
    assert [one.id for one in chosen] == [
        "op/sample-1/Corvin/repetition/3",
        "op/sample-1/Corvin/repetition/2",
        "op/sample-1/Ottilie/fully-irrelevant/4",
        "locomo/sample-1/21",
        "locomo/sample-1/27",
        "locomo/sample-1/7",
    ]


def test_both_speakers_share_the_questions_of_their_conversation(real: Corpus) -> None:
    one = select(real, ["locomo"], users=["conv-26/Melanie"])
    both = select(real, ["locomo"], users=["conv-26/Melanie", "conv-26/Caroline"])
    assert one == both
    assert len(both) == 152
    assert {instance.user.id for instance in both} == {"conv-26/Caroline"}


def test_subtypes(real: Corpus) -> None:
    chosen = select(real, ["op", "locomo"], subtypes=["baiting", "temporal"])
    assert Counter(one.subtype for one in chosen) == {"baiting": 100, "temporal": 321}
    assert len(select(real, ["locomo"], subtypes=["adversarial"])) == 446


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"users": ["conv-26/Carolin"]}, "unknown user 'conv-26/Carolin'; did you mean conv-26/Caroline"),
        ({"users": ["Caroline"]}, "conv-26/Caroline"),
        ({"users": ["John"]}, "did you mean conv-47/John or conv-43/John or conv-41/John?"),
        ({"users": ["xyz"]}, "there are conv-26/Caroline, conv-26/Melanie"),
        ({"subtypes": ["repetitions"]}, "unknown subtype 'repetitions'; did you mean repetition?"),
        ({"subtypes": ["xyz"]}, "there are fully-irrelevant, baiting, repetition, fact, value, memory, multi-hop"),
        ({"limit": 0}, "--limit 0: must be 1 or more"),
        ({"limit": -3}, "--limit -3"),
        ({"subtypes": ["temporal"]}, "no instance fits"),
        ({"users": "conv-26/Caroline"}, "must be a list"),
    ],
)
def test_wrong_use(real: Corpus, arguments: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError) as error:
        select(real, ["op"], **arguments)  # type: ignore[arg-type]
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_unknown_benchmark(real: Corpus) -> None:
    with pytest.raises(UsageError, match="unknown benchmark 'lokomo'; did you mean locomo"):
        select(real, ["op", "lokomo"])
