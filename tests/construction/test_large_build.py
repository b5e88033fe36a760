"""Twenty users and ten thousand candidates: built, filtered and decided on, with numbers that are known by design."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from opbench.analysis.funnel import funnel
from opbench.analysis.generators import generators
from opbench.benchmarks import load
from opbench.construction.building import build, start
from opbench.construction.export import export
from opbench.construction.filtering import run_filters
from opbench.construction.loading import read_bytes
from opbench.construction.prompting import load_prompt
from opbench.construction.spec import Counts
from opbench.settings import settings
from opbench.store.builds import Ruling, read_candidates, set_states
from opbench.store.database import open_store
from opbench.types import OP_SUBTYPES
from tests.construction.writer import changed, scripted_spec
from tests.scripted_endpoint import ScriptedEndpoint

CONVERSATIONS, GENERATORS = 10, ("first", "second")
#: 3 unrelated topics × 5, and 5 + 20 + 20 + 5 + 5, and 5 × 3 × 12 for repetition: 250 a user and generator.
COUNTS = Counts(topics=5, irrelevant=5, baiting=5, fact=20, value=20, fine=5, coarse=5, subtopics=3, repetition=12)
PERSONAL, TRUE = "ownaffair", "trulysaid"
SAME = "Would granite outlast marble under steady winter rain?"


def talks() -> bytes:
    """Ten conversations of two sessions, with summaries and twenty observations a speaker."""
    made = []
    for number in range(CONVERSATIONS):
        names = (f"Ann{number}", f"Ben{number}")
        turns = [
            {"speaker": names[turn % 2], "dia_id": f"D1:{turn + 1}", "text": f"{_words(f'{number}/{turn}', 6)}."}
            for turn in range(40)
        ]
        observed = {
            name: [[f"{name} {TRUE} {_words(f'{name}/{n}', 5)}.", f"D1:{2 * n + place + 1}"] for n in range(20)]
            for place, name in enumerate(names)
        }
        body = {"speaker_a": names[0], "speaker_b": names[1], "session_1_date_time": "9:00 am on 1 May, 2024"}
        made.append(
            {
                "sample_id": f"talk-{number}",
                "conversation": {**body, "session_1": turns},
                "observation": {"session_1_observation": observed},
                "session_summary": {"session_1_summary": f"{names[0]} and {names[1]} talked."},
            }
        )
    return json.dumps(made).encode()


def _words(seed: str, n: int) -> str:
    """Words that occur nowhere else."""
    digest = hashlib.sha512(seed.encode()).hexdigest()
    return " ".join(f"w{digest[7 * place : 7 * place + 7]}" for place in range(n))


def _planned(body: dict[str, Any], answer: dict[str, Any]) -> Any:
    """Good questions, with what each filter must find planted among them."""
    system, asked = (message["content"] for message in body["messages"][:2])
    seed = f"{body['model']}{asked}"
    if "verdict" in answer:
        if "missing" in answer:
            return answer | {"verdict": "personal" if PERSONAL in asked else "general"}
        question = asked.partition("Question: ")[2].splitlines()[0]
        label = re.search(rf"\[(\d+)\] .* {TRUE} ", asked)
        assert label, "the observation that was made false is among the lines"
        return {"line": label[1], "verdict": "true" if TRUE in question else "false"}
    for what in ("topics", "subtopics"):
        if what in answer:
            return {what: [_words(f"{seed}{n}", 3) for n in range(len(answer[what]))]}
    if "questions" in answer:
        texts = [_good(f"{seed}{n}") for n in range(len(answer["questions"]))]
        if len(texts) == COUNTS.irrelevant:
            texts[0] = f"{PERSONAL} {texts[0]}"
        return {"questions": texts}
    items = answer["items"] if "items" in answer else [each for each in answer.values() if isinstance(each, dict)]
    for place, item in enumerate(items):
        item["question"] = _good(f"{seed}{place}")
    if system == load_prompt("value").system:
        for item in items[:5]:
            item["question"] = f"As everyone surely knows {item['question']}"
        items[19]["question"] = "far too long " * 40
    elif system == load_prompt("fact").system:
        items[0]["question"] = f"1) {items[0]['question']}"
        items[1]["question"] = "Why then?"
        items[2]["question"] = SAME
    elif system == load_prompt("memory-fine").system:
        items[0]["question"] = f"{TRUE} {items[0]['question']}"
    return answer


def _good(seed: str) -> str:
    return f"{_words(seed, 8)}?"


def test_the_numbers_of_ten_thousand_candidates_add_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    with ScriptedEndpoint(reply=changed(_planned), models=GENERATORS) as endpoint:
        file = tmp_path / "models.toml"
        tables = [
            endpoint.registry_toml(name, served=name, price_in=price, price_out=price, concurrency=16, timeout_s=30.0)
            for name, price in (("first", 1.0), ("second", 3.0), ("scripted", 1.0))
        ]
        file.write_text("\n".join(tables))
        monkeypatch.setenv("OPBENCH_MODELS", str(file))
        settings.cache_clear()
        store = open_store(f"sqlite:///{tmp_path / 'store.sqlite3'}")
        build_id = start(store, scripted_spec(counts=COUNTS, generators=GENERATORS), read_bytes(talks(), "talks.json"))
        asyncio.run(build(store, build_id, concurrency=16))
        told = asyncio.run(run_filters(store, build_id, concurrency=16))

    # 20 users × 2 generators are 40 slots of each kind. Planted in each: a number before a question and a text that is
    # too long for an item; a question of two words; five questions that begin alike, of which a tenth of the value
    # questions that the reading left (40 × 19) may, 76; one text that is the same everywhere; a memory that is true;
    # and one question for each of three topics that is personal.
    dropped = {
        "format": 40 + 40,
        "length": 40,
        "template": 40 * 5 - 76,
        "duplicate": 40 - 1,
        "true-memory": 40,
        "personal": 3 * 40,
    }
    assert told.generated == 10_000
    assert told.dropped == dropped
    assert told.kept == 10_000 - sum(dropped.values()) == 9_557
    assert told.undecided == 0

    kept = read_candidates(store, build_id, states=["kept"])
    decided = [
        Ruling(each.id, "accepted" if n % 5 < 3 else "rejected", "review", "as planned")
        for n, each in enumerate(kept[:5_000])
    ]
    set_states(store, build_id, decided)
    steps = funnel(store, build_id)
    left = [10_000]
    for name in dropped:
        left.append(left[-1] - dropped[name])
    # 3 of 5 of the first 5,000 are accepted, 2,000 rejected, and 4,557 wait for people.
    assert list(steps["n"]) == [*left, 9_557, 7_557, 3_000]
    assert list(steps["dropped"]) == [0, *dropped.values(), 0, 2_000, 0]
    assert list(steps["undecided"]) == [0] * 7 + [0, 0, 4_557]
    assert sum(steps["dropped"]) + sum(steps["undecided"]) + 3_000 == 10_000
    assert steps["share"].iloc[-1] == 0.3
    parts = [funnel(store, build_id, generator=name, subtype=kind) for name in GENERATORS for kind in OP_SUBTYPES]
    for column in ("n", "dropped", "undecided"):
        assert [sum(row) for row in zip(*(part[column] for part in parts), strict=True)] == list(steps[column])

    table = generators(store, build_id)
    whole = table[table["subtype"] == "all"].set_index("generator")
    assert list(whole["generated"]) == [5_000, 5_000]
    for column in ("dropped", "undecided", "kept", "reviewed", "accepted"):
        of_subtypes = table[table["subtype"] != "all"].groupby("generator")[column].sum()
        assert dict(of_subtypes) == dict(whole[column])
    assert (whole["generated"] == whole[["dropped", "undecided", "kept", "reviewed"]].sum(axis=1)).all()
    assert (whole["reviewed"].sum(), whole["accepted"].sum()) == (5_000, 3_000)
    tokens = whole["prompt_tokens"] + whole["completion_tokens"]
    assert list(whole["cost_usd"]) == pytest.approx(list(tokens * [1e-6, 3e-6]))

    exported = export(store, build_id, tmp_path / "out", "accepted")
    corpus = load(tmp_path / "out")
    assert exported.total == len(corpus.op) == 3_000
    assert {instance.question for instance in corpus.op} == {
        each.question for each, ruling in zip(kept, decided, strict=False) if ruling.state == "accepted"
    }
    store.close()
