"""`opbench mechanism retrieval`, `language` and `repetition` on a made run."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence

import numpy as np
import pytest
from sqlalchemy import update
from typer.testing import CliRunner

import opbench.mechanism.similarity as similarity
from opbench.cli import app
from opbench.settings import settings
from opbench.store import schema as s
from opbench.store.database import open_store
from opbench.store.writing import FinishedRecord, create_run, save_records, save_user_scores
from opbench.study import make_study
from tests.mechanism.test_similarity import CORPUS, INSTANCES, Counting

RUN = "made"
ANSWERS = {"base": "It is a plain answer. However, it is short.", "rag": "I'm so glad! It is a really warm answer."}


@pytest.fixture
def made(home: object) -> str:
    """A run of BASE and RAG on 20 instances of two users, with the embeddings of repetition."""
    store = open_store(settings().store_url)
    study = make_study({"models": ["m"], "memories": ["base", "rag"], "data": "sample", "name": "by hand"})
    configurations = create_run(store, RUN, study, "d", {"data": CORPUS.sha256}, INSTANCES)
    rows = []
    for configuration, number in configurations.items():
        records = []
        for place, instance in enumerate(INSTANCES):
            held = [{"text": f"a memory of {instance.user.speaker}", "date": "1 May 2023", "score": 0.5}]
            values = {"status": "done", "response": ANSWERS[configuration.memory], "finished_at": 1.0}
            values |= {"retrieved": None if configuration.memory == "base" else held, "context": None}
            record = FinishedRecord(number, instance.id, values)
            if instance.subtype == "repetition":
                vector = np.eye(3, dtype=np.float32)[place % 3 if configuration.memory == "base" else 0]
                record.embedding = ("minilm", vector)
            records.append(record)
        save_records(store, RUN, records)
        for user in {instance.user.id for instance in INSTANCES}:
            value = {"base": 1.0, "rag": 0.0}[configuration.memory]
            row = {"configuration_id": number, "user_id": user, "metric": "repetition", "judge": "minilm"}
            rows.append(row | {"value": value, "n": 2, "reason": None})
    save_user_scores(store, rows)
    store.close()
    return RUN


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["mechanism", *arguments], env={"COLUMNS": "300"})
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


def refused(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["mechanism", *arguments], env={"COLUMNS": "300"})
    assert result.exit_code != 0
    return f"{result.output}{result.exception}"


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text.lstrip("\ufeff"))))


@pytest.fixture
def by_angle(monkeypatch: pytest.MonkeyPatch) -> Counting:
    embedder = Counting()
    monkeypatch.setattr(similarity, "get_embedder", lambda name, registry, client: embedder)
    return embedder


def test_retrieval_measures_when_told_to_and_then_tells(made: str, by_angle: Counting) -> None:
    assert "isn't measured by minilm: add --measure" in refused("retrieval", made)
    told = run("retrieval", made, "--measure")
    n = sum(1 for instance in INSTANCES if instance.subtype == "fully-irrelevant")
    assert f"RAG retrieved something for {n} of {n} fully irrelevant questions (100 %)" in told
    assert "Control: random memories, drawn for this" in told
    asked = len(by_angle.asked)
    rows = rows_of(run("retrieval", made, "--of", "cosines", "--memory", "rag", "--group", "baiting", "--csv"))
    assert {row["group"] for row in rows} == {"baiting"}
    assert {row["memory"] for row in rows} == {"rag"}
    assert {float(row["cosine"]) for row in rows} == {1.0}
    assert {(row["run"], row["embedder"], row["which"]) for row in rows} == {(RUN, "minilm", "top1")}
    assert len(by_angle.asked) == asked, "what is shown is what was measured"
    assert "no group 'weather' is measured here" in refused("retrieval", made, "--group", "weather")


@pytest.mark.parametrize("of", ["means", "differences", "abstain", "thresholds", "told-apart", "cosines"])
def test_every_table_of_retrieval_is_there_as_json(made: str, by_angle: Counting, of: str) -> None:
    run("retrieval", made, "--measure")
    told = json.loads(run("retrieval", made, "--of", of, "--json", "--all"))
    assert told["which"] == "all"
    assert told["rows"]
    assert told["notes"][0] == "cosine by minilm, all retrieved memories"


def test_language_holds_memory_against_base(made: str) -> None:
    told = run("language", made, "--order", "1", "--minimum", "1")
    assert "m/rag/none against m/base/none" in told
    assert "“really” (named by the paper)" in told
    rows = {row["word"]: row for row in rows_of(run("language", made, "--order", "1", "--minimum", "1", "--csv"))}
    n = sum(1 for instance in INSTANCES if instance.subtype in ("fact", "value", "memory"))
    assert (rows["really"]["count_with"], rows["really"]["count_without"]) == (str(n), "0")
    assert float(rows["plain"]["delta"]) < 0
    assert rows["plain"]["held_against"] == "m/base/none"
    assert "I'm" not in told, "words are lower-cased"


def test_language_names_what_it_cannot_do(made: str) -> None:
    assert "has no such other configuration. There are: base/none" in refused("language", made, "--against", "mem0")
    assert "name 1, 2 or 3" in refused("language", made, "--order", "4")
    assert "no question of these was answered by both" in refused("language", made, "--user", "nobody")


def test_repetition_tells_changes_users_pairs_memories_and_map(made: str) -> None:
    told = run("repetition", made)
    assert "RAG against BASE: dispersion 0.0 and 100.0 points, change −100.0, no interval" in told
    assert "No control: the run has no random memories." in told
    user = next(instance.user.id for instance in INSTANCES if instance.subtype == "repetition")
    held = [each for each in INSTANCES if each.subtype == "repetition" and each.user.id == user]
    pairs = rows_of(run("repetition", made, "--of", "pairs", "--user", user, "--csv"))
    assert len(pairs) == len(held) * (len(held) - 1) / 2
    assert {float(row["cosine"]) for row in pairs} == {1.0}
    memories = rows_of(run("repetition", made, "--of", "memories", "--user", user, "--csv"))
    assert [row["retrieved"] for row in memories] == [str(len(held))]
    assert len(rows_of(run("repetition", made, "--of", "users", "--csv"))) == 4
    points = rows_of(run("repetition", made, "--of", "map", "--csv"))
    assert len(points) == 2 * sum(1 for each in INSTANCES if each.subtype == "repetition")
    assert "name one user with --user" in refused("repetition", made, "--of", "pairs")


@pytest.mark.parametrize("command", ["retrieval --measure", "language", "repetition --of memories"])
def test_a_run_without_texts_says_so_in_a_sentence(made: str, command: str) -> None:
    store = open_store(settings().store_url)
    with store.begin() as connection:
        connection.execute(update(s.runs).values(text_left_out=True))
    store.close()
    name, *rest = command.split()
    users: Sequence[str] = ("--user", INSTANCES[0].user.id) if "memories" in rest else ()
    assert "came without texts" in refused(name, made, *rest, *users)
