"""What the Data page says: numbers of the paper's table 1 on the real files, counted by hand on the sample."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from opbench.analysis import data_facts
from opbench.benchmarks import exclusions, load
from opbench.types import OP_SUBTYPES, Corpus


@pytest.fixture(scope="module")
def real(real_data: Path) -> Corpus:
    return load(real_data)


def test_counts_are_the_papers(real: Corpus) -> None:
    frame = data_facts.counts(real)
    op = frame[frame["benchmark"] == "op"]
    assert list(op["count"]) == [318, 100, 882, 100, 100, 200]
    assert list(op["published"]) == [318, 100, 882, 100, 100, 200]
    assert op.groupby("category", sort=False)["count"].sum().to_dict() == {
        "irrelevance": 418,
        "repetition": 882,
        "sycophancy": 400,
    }
    locomo = frame[frame["benchmark"] == "locomo"].set_index("subtype")["count"]
    assert locomo.to_dict() == {
        "multi-hop": 282,
        "temporal": 321,
        "open-domain": 96,
        "single-hop": 841,
        "adversarial": 446,
    }


def test_counts_by_user_add_up(real: Corpus) -> None:
    frame = data_facts.op_by_user(real)
    assert len(frame) == 20
    assert frame[list(OP_SUBTYPES)].sum().to_list() == [318, 100, 882, 100, 100, 200]
    # Every user has 5 baiting and 20 sycophancy items; fully irrelevant 9 to 21, repetition 36 to 54.
    assert set(frame["baiting"]) == {5}
    assert set(frame["fact"] + frame["value"] + frame["memory"]) == {20}
    assert (frame["fully-irrelevant"].min(), frame["fully-irrelevant"].max()) == (9, 21)
    assert (frame["repetition"].min(), frame["repetition"].max()) == (36, 54)
    assert data_facts.locomo_by_conversation(real).drop(columns="conversation").to_numpy().sum() == 1986


def test_users_of_the_sample() -> None:
    frame: Any = data_facts.users(load("sample")).set_index("user")
    ottilie = frame.loc["sample-1/Ottilie"]
    assert ottilie[["first_speaker", "sessions", "topics", "observations", "op", "locomo"]].to_list() == [
        "yes",
        9,
        5,
        23,
        29,
        31,
    ]
    assert frame.loc["sample-1/Corvin", "first_speaker"] == "no"
    assert ottilie["first_day"] < ottilie["last_day"]
    assert ottilie["last_day"] == "2024-10-13"  # the day after the concert of 12 October


def test_the_sample_has_no_published_counts() -> None:
    frame = data_facts.counts(load("sample"))
    assert list(frame[frame["benchmark"] == "op"]["count"]) == [8, 10, 20, 6, 6, 8]
    assert frame["published"].isna().all()


def test_oddities_are_counted_and_explained(real: Corpus) -> None:
    kinds = data_facts.oddity_kinds(real).set_index("kind")["count"]
    assert kinds["empty-list"] == 15
    assert kinds["missing-answer"] == 444
    assert kinds["date-without-session"] == 16
    whole = data_facts.oddities(real)
    assert len(whole) == kinds.sum()
    assert (whole["handling"] != "").all()


def test_a_list_that_does_not_fit_has_its_reason(real: Corpus) -> None:
    known = {"locomo-wrong-gold": exclusions.get("locomo-wrong-gold")}
    fits = data_facts.exclusion_lists(known, real).iloc[0]
    assert (fits["listed"], fits["found"], fits["problem"]) == (99, 99, "")
    moved = replace(real, locomo=tuple(replace(each, question=f"{each.question} ") for each in real.locomo))
    doesnt = data_facts.exclusion_lists(known, moved)
    assert doesnt["found"].isna().all()
    assert "is another question" in doesnt.iloc[0]["problem"]


def test_what_is_listed_carries_its_question(real: Corpus) -> None:
    known = exclusions.get("locomo-wrong-gold")
    frame = data_facts.listed(known, real).set_index("instance")
    assert frame["question"].notna().all()
    assert frame.loc["locomo/conv-47/32", "answer"] == "19 days"
    of_sample = data_facts.listed(known, load("sample"))
    assert len(of_sample) == 99
    assert of_sample["question"].isna().all()
    assert data_facts.reasons(known)["count"].to_list() == [33, 26, 24, 13, 3]
