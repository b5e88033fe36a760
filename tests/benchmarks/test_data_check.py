"""`check`: counts against the paper's, oddities by kind, and a verdict."""

import json
from dataclasses import replace

from opbench.benchmarks import check, load
from opbench.types import Corpus


def test_the_real_data_is_the_papers(real: Corpus) -> None:
    report = check(real)
    assert report.ok
    assert report.verdict == "The counts are the paper's."
    assert (report.total("op"), report.total("locomo")) == (1700, 1986)
    assert [(count.subtype, count.published) for count in report.counts if count.benchmark == "op"] == [
        ("fully-irrelevant", 318),
        ("baiting", 100),
        ("repetition", 882),
        ("fact", 100),
        ("value", 100),
        ("memory", 200),
    ]


def test_one_instance_less_is_noticed(real: Corpus) -> None:
    report = check(replace(real, op=real.op[1:]))
    assert not report.ok
    assert report.verdict == "The counts are not the paper's: fully-irrelevant 317 instead of 318."


def test_an_id_twice_is_noticed(real: Corpus) -> None:
    twice = replace(real, op=(*real.op[:-1], replace(real.op[-1], id=real.op[-2].id)))
    report = check(twice)
    assert not report.ok
    assert "ids are not unique" in report.verdict


def test_a_missing_user_is_noticed(real: Corpus) -> None:
    fewer = {identity: user for identity, user in real.users.items() if identity != "conv-50/Dave"}
    assert "10 conversations and 19 users instead of 10 and 20" in check(replace(real, users=fewer)).verdict


def test_the_sample_says_what_it_is() -> None:
    report = check(load("sample"))
    assert not report.ok
    assert "bundled sample" in report.verdict


def test_text_tells_counts_and_each_kind(real: Corpus) -> None:
    text = check(real).to_text()
    lines = text.splitlines()
    assert "op        repetition   repetition           882    882" in lines
    assert "locomo                 all                 1986   1986" in lines
    assert "≠" not in text
    assert any(line.startswith("  29 × duplicate-question: ") for line in lines)
    assert any(line.startswith("  444 × missing-answer: ") for line in lines)
    assert any("… and 26 more" in line for line in lines)
    assert lines[-1] == "The counts are the paper's."
    questions = {instance.question for instance in (*real.op, *real.locomo)}
    assert not any(question in text for question in questions), "the benchmark's sentences stay out of reports"


def test_differences_are_marked() -> None:
    assert check(load("sample")).to_text().count("≠") == 11


def test_dict_is_json_with_every_oddity(real: Corpus) -> None:
    data = json.loads(json.dumps(check(real).to_dict()))
    assert data["ok"] is True
    assert data["instances"] == {"op": 1700, "locomo": 1986, "unique_ids": 3686}
    assert len(data["oddities"]["duplicate-question"]) == 29
    assert data["counts"][2] == {
        "benchmark": "op",
        "category": "repetition",
        "subtype": "repetition",
        "found": 882,
        "published": 882,
        "ok": True,
    }
