"""Where sets come from: files with all their faults, a run's human scores, a review's, the published cases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from opbench.calibration.choosing import parse_choice
from opbench.calibration.csv_sets import COLUMNS, csv_set, read_csv, write_csv
from opbench.calibration.judging import judge_set
from opbench.calibration.pairs import paired
from opbench.calibration.sets import AUTHORS, INVENTED, JUDGE_OF_PAPER, published_set, review_set, run_set
from opbench.calibration.spec import Rated, Response
from opbench.calibration.statistics import agreement_with_people
from opbench.errors import DataError, UsageError
from opbench.settings import settings
from opbench.store.database import Store, open_store
from opbench.store.human import rate
from opbench.store.judgings import find_set, read_set
from tests.review.made import make_review, people, say
from tests.running.study import reply, run_here, use_endpoint
from tests.scripted_endpoint import ScriptedEndpoint

HEAD = "item,question,response,subtype,score,rater"


@pytest.fixture
def one_store(home: Path) -> Iterator[Store]:
    opened = open_store(settings().store_url)
    yield opened
    opened.close()


def test_rows_of_one_item_are_its_raters() -> None:
    text = f"{HEAD}\na,Why?,Because.,fact,0.25,ann\na,Why?,Because.,fact,0.75,bo\nb,Why?,No.,fact,,\n"
    first, second = read_csv(text.encode(), "x.csv")
    assert (first.item, first.human, first.people) == ("a", (("ann", 0.25), ("bo", 0.75)), 0.5)
    assert (second.human, second.people) == ((), None)
    # Two responses to one question of one user belong together.
    assert first.response.pair == second.response.pair == "csv/user: Why?"


def test_a_set_comes_back_from_its_file_as_it_was() -> None:
    items = [
        Rated(
            item="=1+1",
            response=Response(
                question="-why, “so”?",
                response='He said "no",\nand left.',
                subtype="memory",
                user="conv-1/Ann",
                profile="@home",
                memories=("one", "two\nlines"),
                context=("[bracket",),
                facts=(),
                explanation="'=quoted",
                kind="k",
                pair="p",
            ),
            human=(("ann", 1 / 3), ("bo", 0.0)),
        ),
        Rated(
            item="locomo",
            response=Response(
                question="When?",
                response="In May.",
                benchmark="locomo",
                subtype="temporal",
                user="c/s",
                gold="May",
                pair="w",
            ),
        ),
    ]
    text = write_csv(items)
    assert read_csv(text.encode(), "x.csv") == items
    # Nothing in it is a formula to a spreadsheet.
    assert "\n'=1+1," in text
    assert ",'@home," in text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("question,response,subtype\n", "line 1: no column 'score'"),
        (f"{HEAD},mood\n", "line 1: column 'mood' isn't known"),
        (f"{HEAD},item\n", "line 1: column 'item' is there twice"),
        (f"{HEAD}\n", "no response in it"),
        (f"{HEAD}\na,Why?,Because.,fact,2,ann\n", "line 2: score '2': give a number from 0 to 1"),
        (f"{HEAD}\na,Why?,Because.,fact,nan,ann\n", "line 2: score 'nan'"),
        (f'{HEAD}\na,Why?,"0,5",fact,"0,5",ann\n', "line 2: score '0,5'"),
        (f"{HEAD}\na,Why?,Because.,repetition,1,ann\n", "line 2: 'repetition' is no subtype that a judge scores"),
        (f"{HEAD}\na,Why?,Because.,temporal,1,ann\n", "line 2: no gold answer"),
        (f"{HEAD}\na,,Because.,fact,1,ann\n", "line 2: no question"),
        (f"{HEAD}\na,Why?,Because.,fact,1,ann\na,Why?,Because.,fact,0,ann\n", "line 3: ann scored 'a' above"),
        (f"{HEAD}\na,Why?,Because.,fact,1,ann\na,Why?,So.,fact,0,bo\n", "line 3: item 'a' stands above with other"),
        (f"{HEAD}\na,Why?,Because, well,fact,1,ann\n", "line 2: not 6 cells"),
        (f'{HEAD}\na,"Why?,Because.,fact,1,ann\n', "not CSV"),
    ],
)
def test_a_fault_is_named_with_its_line(text: str, message: str) -> None:
    with pytest.raises(DataError) as caught:
        read_csv(text.encode(), "x.csv")
    assert message in str(caught.value)
    assert str(caught.value).startswith("x.csv: ")
    assert "\n" not in str(caught.value)


def test_a_file_that_isn_t_text_says_so(one_store: Store) -> None:
    with pytest.raises(DataError, match=r"x\.csv: isn't UTF-8 text"):
        csv_set(one_store, b"question\xff", "x.csv")
    assert len(COLUMNS) == len(set(COLUMNS)) == 15


def test_without_the_appendix_the_cases_are_invented_and_say_so(one_store: Store) -> None:
    row = find_set(one_store, published_set(one_store))
    assert row.source["origin"] == INVENTED
    assert row.name.startswith("invented cases")
    assert {each.human[0][0] for each in read_set(one_store, row.id)} == {INVENTED}


def test_the_published_cases(use_real_data: Path, one_store: Store) -> None:
    """Of 16 responses 6 are repetitions; each of the others has a fitting one beside it."""
    row = find_set(one_store, published_set(one_store))
    assert (row.items, row.rated, row.source["left_out"]) == (20, 20, 6)
    items = read_set(one_store, row.id)
    assert len({each.response.pair for each in items}) == 10
    by = {which: [each for each in items if each.response.kind == which] for which in ("response", "reference")}
    assert {each.human[0][0] for each in by["response"]} == {JUDGE_OF_PAPER}
    assert {each.human[0][0] for each in by["reference"]} == {AUTHORS}
    assert all(0.1 <= (each.people or 0) <= 0.5 for each in by["response"])


async def test_the_offline_judge_and_the_control_on_the_published_cases(use_real_data: Path, one_store: Store) -> None:
    """The correlations are those that docs/offline-judge.md states."""
    set_id = published_set(one_store)
    await judge_set(one_store, set_id, [parse_choice("offline"), parse_choice("random")])
    pairs = paired(one_store, set_id)
    rows: list[dict[str, Any]] = agreement_with_people(pairs).to_dict("records")  # type: ignore[assignment]
    offline, control = rows
    assert (offline["label"], offline["n"], offline["clusters"]) == ("offline", 20, 10)
    assert offline["spearman"] == pytest.approx(0.901, abs=0.0006)
    assert offline["pearson"] == pytest.approx(0.946, abs=0.0006)
    assert offline["absolute_error"] == pytest.approx(0.106, abs=0.0006)
    assert offline["spearman_low"] > 0.5
    assert control["label"] == "random"
    assert control["spearman_low"] < 0 < control["spearman_high"]
    assert control["pearson_low"] < 0 < control["pearson_high"]
    alone: list[dict[str, Any]] = agreement_with_people(pairs, by="kind").to_dict("records")  # type: ignore[assignment]
    (bad,) = (row for row in alone if (row["label"], row["group"]) == ("offline", "response"))
    assert bad["n"] == 10
    assert bad["spearman"] == pytest.approx(0.714, abs=0.0006)
    assert bad["pearson"] == pytest.approx(0.677, abs=0.0006)


async def test_what_people_said_of_a_run(one_store: Store, home: Path) -> None:
    with ScriptedEndpoint(reply=reply) as endpoint:
        use_endpoint(home, endpoint)
        _, run_id, _ = await run_here(one_store, mitigations=("none",), limit=8)
    with pytest.raises(UsageError, match="no response that people scored"):
        run_set(one_store, run_id)
    from opbench.store.reading import read_run

    instances = read_run(one_store, run_id).instances
    fact = instances[instances["subtype"] == "fact"]["instance"].iloc[0]
    for key in (("scripted", "base", "none"), ("scripted", "rag", "none")):
        rate(one_store, run_id, key, fact, 0.25, rater="ann")
        rate(one_store, run_id, key, fact, 0.75, rater="bo")
        rate(one_store, run_id, key, fact, 0.5, rater="ann")  # ann changes her mind
    items = read_set(one_store, run_set(one_store, run_id))
    assert [sorted(each.human) for each in items] == [[("ann", 0.5), ("bo", 0.75)]] * 2
    assert {each.response.pair for each in items} == {fact}
    assert [each.response.kind for each in items] == ["scripted · base · none", "scripted · rag · none"]
    assert items[0].response.memories == ()
    assert len(items[1].response.memories) == 5
    assert items[0].response.facts


async def test_what_reviewers_said_of_both_responses(one_store: Store) -> None:
    review = make_review(one_store, subtypes=("fact",), limit=6)
    ann, bo = people(one_store, review, "ann", "bo")
    with pytest.raises(UsageError, match="no answer with a score"):
        review_set(one_store, review)
    for _ in range(6):
        say(one_store, ann, base_score=0.9, memory_score=0.2)
    task, _ = say(one_store, bo, base_score=0.7)
    set_id = review_set(one_store, review)
    items = {each.item: each for each in read_set(one_store, set_id)}
    assert len(items) == 12
    assert dict(items[f"{task.item}|base"].human) == {"ann": 0.9, "bo": 0.7}
    assert dict(items[f"{task.item}|memory"].human) == {"ann": 0.2}
    assert items[f"{task.item}|base"].response.response == f"plain {task.item}"
    await judge_set(one_store, set_id, [parse_choice("offline")])
    (row,) = agreement_with_people(paired(one_store, set_id)).to_dict("records")
    assert (row["n"], row["clusters"]) == (12, 6)
    # Somebody answers on: that is another set.
    say(one_store, bo, base_score=0.1)
    assert review_set(one_store, review) != set_id
