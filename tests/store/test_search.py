"""Finding records on SQLite and on PostgreSQL, and reading one whole."""

from __future__ import annotations

from typing import Any

import pytest

from opbench.errors import UsageError
from opbench.store import human
from opbench.store import schema as s
from opbench.store.database import Store
from opbench.store.record import configuration_id, read_record
from opbench.store.search import Search, check, found, hits, names_of, place_of
from opbench.store.writing import save_records
from tests.store.found_run import BASE, FACT, RAG, REMINDER, REPEAT, RUN, STUDY, WHEN, answered, write


@pytest.fixture(autouse=True)
def run(store: Store) -> None:
    write(store)


def look(store: Store, **wanted: Any) -> list[tuple[str, str, str]]:
    """Instance, memory system and post-processor of the hits, in order."""
    frame = hits(store, STUDY, list(found(store, RUN, STUDY, Search(**wanted))))
    return [tuple(row) for row in frame[["instance", "memory", "mitigation"]].itertuples(index=False)]


def test_everything_stands_in_the_order_of_the_slice(store: Store) -> None:
    assert look(store) == [
        (FACT, "base", "none"),
        (FACT, "rag", "none"),
        (FACT, "rag", "reminder"),
        (REPEAT, "base", "none"),
        (REPEAT, "rag", "none"),
        (REPEAT, "rag", "reminder"),
        (WHEN, "base", "none"),
        (WHEN, "rag", "none"),
    ]


@pytest.mark.parametrize(
    ("wanted", "hit"),
    [
        ({"memories": ("base",)}, [(FACT, "base"), (REPEAT, "base"), (WHEN, "base")]),
        ({"models": ("other",)}, []),
        ({"benchmark": "locomo"}, [(WHEN, "base"), (WHEN, "rag")]),
        ({"users": ("c1/Bo",), "memories": ("base",)}, [(REPEAT, "base")]),
        ({"subtypes": ("fact",), "mitigations": ("none",)}, [(FACT, "base"), (FACT, "rag")]),
        ({"first_only": True, "memories": ("base",)}, [(FACT, "base"), (WHEN, "base")]),
        ({"low": 0.9}, [(FACT, "base")]),
        ({"high": 0.2}, [(FACT, "rag"), (WHEN, "base")]),
        ({"outcome": "failed"}, [(FACT, "rag")]),
        ({"error_kinds": ("timeout",)}, [(FACT, "rag")]),
        ({"error_kinds": ("quota",)}, []),
        ({"outcome": "without a score"}, [(WHEN, "rag")]),
        ({"outcome": "scored"}, [(FACT, "base"), (FACT, "rag"), (WHEN, "base")]),
        ({"states": ("kept",)}, [(REPEAT, "rag")]),
        ({"human": True}, []),
    ],
)
def test_filters(store: Store, wanted: dict[str, Any], hit: list[tuple[str, str]]) -> None:
    assert [row[:2] for row in look(store, **wanted)] == hit


@pytest.mark.parametrize(
    ("text", "hit"),
    [
        ("it's WET", [(FACT, "base", "none")]),
        ("rain", [(WHEN, "base", "none"), (WHEN, "rag", "none")]),
        ("50%", [(FACT, "rag", "none")]),
        ("50% dry", []),
        ("100%", [(FACT, "base", "none"), (FACT, "rag", "none"), (FACT, "rag", "reminder")]),
        ("dry_as", [(FACT, "rag", "none")]),
        ("dryXas", []),
        ("s_up", []),
        ("élan", [(FACT, "rag", "none")]),
        ("\\", []),
    ],
)
def test_text_is_found_as_it_is_written(store: Store, text: str, hit: list[tuple[str, str, str]]) -> None:
    assert look(store, text=text) == hit


def test_orders(store: Store) -> None:
    # Missing scores come last, whichever way round.
    assert [row[:2] for row in look(store, order="lowest score")][:3] == [(WHEN, "base"), (FACT, "rag"), (FACT, "base")]
    assert [row[:2] for row in look(store, order="highest score")][:3] == [
        (FACT, "base"),
        (FACT, "rag"),
        (WHEN, "base"),
    ]
    assert look(store, order="newest")[0] == (REPEAT, "rag", "reminder")
    # 130 ms against 100 ms, and no time at all for the one that failed.
    assert look(store, order="slowest")[0] == (FACT, "rag", "none")
    assert look(store, order="slowest")[-1] == (FACT, "rag", "reminder")


def test_a_page_of_hits(store: Store) -> None:
    ids = list(found(store, RUN, STUDY, Search()))
    frame: Any = hits(store, STUDY, ids[1:3])
    assert frame["instance"].tolist() == [FACT, FACT]
    assert frame.loc[0, "score"] == pytest.approx(0.2)
    assert frame.loc[0, "total_ms"] == 130.0
    assert frame.loc[1, ["status", "error_kind"]].tolist() == ["error", "timeout"]
    assert frame["human"].isna().all()
    assert "response" not in hits(store, STUDY, ids, texts=False)


def test_a_method_that_answers_by_itself_took_the_time_of_its_other_stages(store: Store) -> None:
    """`abstain` has no response stage: what it took is the retrieval; it isn't without a time, nor the fastest."""
    with store.begin() as connection:
        one = configuration_id(connection, RUN, REMINDER)
    own = answered(one, WHEN, "I can't say.", 0.0, metric="f1", response_ms=None, retrieval_ms=900.0, state="nothing")
    save_records(store, RUN, [own])
    ids = list(found(store, RUN, STUDY, Search(order="slowest")))
    frame = hits(store, STUDY, ids)
    shown: list[object] = [frame[name].iloc[0] for name in ("instance", "mitigation", "total_ms")]
    assert shown == [WHEN, "reminder", 900.0]
    assert frame["response_ms"].isna()[0]
    assert frame["total_ms"].isna().tolist() == [False] * 8 + [True], "only the failed record has none"


def test_hits_that_are_gone_are_left_out(store: Store) -> None:
    assert len(hits(store, STUDY, [10_000])) == 0
    assert len(hits(store, STUDY, [])) == 0


def test_what_there_is_to_choose_from(store: Store) -> None:
    assert names_of(store, RUN) == {
        "users": ["c1/Ana", "c1/Bo"],
        "subtypes": ["fact", "repetition", "temporal"],
        "error_kinds": ["timeout"],
    }


@pytest.mark.parametrize(("low", "high"), [(0.5, 0.4), (-0.1, 1.0), (0.0, 1.5), (float("nan"), 1.0)])
def test_a_range_that_is_none_is_refused(low: float, high: float) -> None:
    with pytest.raises(UsageError, match="give a range within 0 and 1"):
        check(Search(low=low, high=high))


def test_one_record_with_its_calls(store: Store) -> None:
    record = read_record(store, RUN, RAG, FACT)
    assert (record.question, record.response) == ("Is water 100% dry?", "DRY_as 50% ash, Élan.")
    assert [(each.metric, each.value, each.raw) for each in record.judgements] == [("score", 0.2, "raw")]
    assert [(call.stage, call.reused, call.attempts) for call in record.calls] == [("response", True, 2)]
    assert record.user_score is None


def test_repetition_has_the_users_score(store: Store) -> None:
    record = read_record(store, RUN, REMINDER, REPEAT)
    assert record.judgements == ()
    assert record.user_score is not None
    assert (record.user_score.value, record.user_n) == (0.4, 3)


def test_a_record_that_is_not_made_yet(store: Store) -> None:
    record = read_record(store, RUN, REMINDER, WHEN)
    assert not record.made
    assert record.answer == "9 May 2024"
    assert place_of(store, RUN, REMINDER, WHEN) is None


def test_a_record_is_found_by_what_it_is_and_not_by_its_number(store: Store) -> None:
    before = place_of(store, RUN, BASE, FACT)
    write_again(store)
    assert place_of(store, RUN, BASE, FACT) != before
    assert read_record(store, RUN, BASE, FACT).response == "Another."


@pytest.mark.parametrize(
    ("key", "instance", "message"),
    [(("m", "mem0", "none"), FACT, "no configuration m · mem0 · none"), (BASE, "op/x", "no instance 'op/x'")],
)
def test_what_is_not_there_is_said(store: Store, key: Any, instance: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_record(store, RUN, key, instance)


def write_again(store: Store) -> None:
    """Make BASE's record of the fact anew, with another response."""
    with store.begin() as connection:
        of = configuration_id(connection, RUN, BASE)
    save_records(store, RUN, [answered(of, FACT, "Another.", 0.8)])


def test_a_persons_score_is_found(store: Store) -> None:
    human.rate(store, RUN, BASE, FACT, 0.3, rater="ann")
    assert look(store, human=True) == [(FACT, "base", "none")]
    assert len(look(store, human=False)) == 7
    assert hits(store, STUDY, list(found(store, RUN, STUDY, Search(human=True))))["human"].tolist() == [0.3]
    # Another response in its place: what was said of the earlier one isn't its score.
    with store.begin() as connection:
        connection.execute(s.records.update().where(s.records.c.response == "It’s wet.").values(response="It’s dry."))
    assert hits(store, STUDY, list(found(store, RUN, STUDY, Search(human=True))))["human"].isna().all()
    human.rate(store, RUN, BASE, FACT, None, rater="ann")
    assert look(store, human=True) == []
