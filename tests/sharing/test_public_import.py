"""The public evaluator's files as a recorded run: whose answers they are, and what their numbers are worth."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from opbench.analysis.op import op_table
from opbench.benchmarks import load
from opbench.errors import DataError, UsageError
from opbench.sharing.public_import import PublicPart, configuration, import_public
from opbench.store import schema as s
from opbench.store.database import Store, open_store
from opbench.store.reading import read_run, run_ids
from opbench.store.runs import run_study
from opbench.types import Corpus
from tests.sharing.public import judged, packed, responses

NONE = configuration("gpt-4o-mini", "MemOS", "none")
CRITIC = configuration("gpt-4o-mini", "memos", "self_critic")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(f"sqlite:///{tmp_path / 'store.sqlite3'}")
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def sample() -> Corpus:
    return load("sample")


def bring(store: Store, value: Any, corpus: Corpus, of: Any = NONE, **more: Any) -> Any:
    content = value if isinstance(value, bytes) else packed(value)
    return import_public(store, [PublicPart(content, "judged.json", of)], corpus=corpus, **more)


def test_every_answer_finds_its_instance(store: Store, sample: Corpus) -> None:
    imported = bring(store, judged(responses(sample)), sample, judge="gpt-4o-mini")
    data = read_run(store, imported.run_id)
    assert imported.notes == ()
    assert data.instances["instance"].tolist() == [instance.id for instance in sample.op]
    assert len(data.records) == len(sample.op)
    assert (data.records["status"] == "done").all()
    row = op_table(data, "task-mean").iloc[0]
    # every judged answer 0.75, every user's repetition 0.4: (75 + 75 + 40 + 75) / 4
    assert row["op"] == pytest.approx(66.25)
    assert (row["fully_irrelevant"], row["repetition"], row["memory_level"]) == (75.0, 40.0, 75.0)
    assert (row["memory"], row["n_scored"], row["n_planned"]) == ("memos", len(sample.op), len(sample.op))


def test_it_is_recorded_with_where_it_came_from(store: Store, sample: Corpus) -> None:
    run = bring(store, judged(responses(sample)), sample, judge="gpt-4o-mini", name="theirs").run_id
    data = read_run(store, run)
    study, provenance = run_study(store, run)
    assert data.recorded
    assert (study.name, study.judge, study.memories, study.benchmarks) == ("theirs", "gpt-4o-mini", ("memos",), ("op",))
    assert provenance["source"] == "public evaluator"
    assert provenance["data"] == sample.sha256
    assert provenance["files"][0]["frame"] == "memos-api-online"
    assert data.comparable
    assert provenance["told_at_import"] == ["model", "memory", "mitigation", "judge"]


def test_a_judge_that_isnt_told_isnt_the_papers(store: Store, sample: Corpus) -> None:
    data = read_run(store, bring(store, judged(responses(sample)), sample).run_id)
    assert not data.comparable
    assert data.study.judge == "public-evaluator"


def test_the_same_files_are_the_same_run_and_other_names_another(store: Store, sample: Corpus) -> None:
    value = judged(responses(sample))
    first = bring(store, value, sample).run_id
    assert bring(store, value, sample).run_id == first
    assert bring(store, value, sample, CRITIC).run_id != first
    assert len(run_ids(store)) == 2


def test_a_zero_stays_and_is_told_with_the_count(store: Store, sample: Corpus) -> None:
    value = judged(responses(sample))
    value["results"][0]["scores"]["response_0_irrelevance_score"] = 0.0
    value["results"][2]["scores"]["response_1_sycophancy_score"] = 0
    imported = bring(store, value, sample)
    data = read_run(store, imported.run_id)
    zeros = data.scores[data.scores["value"] == 0.0]
    assert len(zeros) == 2
    assert imported.notes == ("2 scores of 0 may mean that the judge failed",)
    assert data.provenance["marks"] == ["public evaluator", "2 scores of 0 may mean that the judge failed"]


def test_a_failed_answer_is_an_error_without_a_score(store: Store, sample: Corpus) -> None:
    """The evaluator judges the blank answer, and writes 0 or whatever the judge said of nothing."""
    groups = responses(sample)
    group = groups[next(iter(groups))]
    group["responses"][0] |= {"answer": "", "error": "timeout: no answer in 60 s"}
    group["responses"][1] |= {"answer": "  ", "error": None}
    value = judged(groups)
    value["results"][0]["scores"] |= {"response_0_irrelevance_score": 0.0, "response_1_irrelevance_score": 1.0}
    imported = bring(store, value, sample)
    data = read_run(store, imported.run_id)
    errors = data.records[data.records["status"] == "error"]
    assert errors["error_kind"].tolist() == ["timeout", "empty"]
    assert not set(errors["instance"]) & set(data.scores["instance"])
    assert imported.notes == ("2 questions have no answer: they failed there",)


def test_repetition_that_wasnt_computed_is_missing_with_the_reason(store: Store, sample: Corpus) -> None:
    value = judged(responses(sample))
    users = [result for result in value["results"] if result["task_type"] == "diversity"]
    users[0]["scores"] = {"overall_diversity_score": 0.0, "error": "embedding_error: quota"}
    users[1]["scores"] = {"overall_diversity_score": 0.0, "answer_count": 1, "error": "too_few_valid_answers"}
    data = read_run(store, bring(store, value, sample).run_id)
    assert data.user_scores["value"].isna().all()
    assert set(data.user_scores["reason"]) == {"embedding_error: quota", "too_few_valid_answers"}
    assert op_table(data, "task-mean").iloc[0]["missing"] == "nothing scored: repetition"


def test_a_repetition_of_zero_is_a_score(store: Store, sample: Corpus) -> None:
    """All answers the same: the evaluator writes 0 without an error."""
    data = read_run(store, bring(store, judged(responses(sample), diversity=0.0), sample).run_id)
    assert data.user_scores["value"].tolist() == [0.0, 0.0]


def test_a_score_that_isnt_in_the_file_is_missing(store: Store, sample: Corpus) -> None:
    value = judged(responses(sample))
    del value["results"][0]["scores"]["response_0_irrelevance_score"]
    value["results"][0]["scores"]["response_1_irrelevance_score"] = None
    data = read_run(store, bring(store, value, sample).run_id)
    missing = data.scores[data.scores["value"].isna()]
    assert missing["reason"].tolist() == ["no score in the file"] * 2


def test_responses_alone_come_without_scores(store: Store, sample: Corpus) -> None:
    data = read_run(store, bring(store, responses(sample), sample).run_id)
    assert len(data.records) == len(sample.op)
    assert data.scores["value"].isna().all()
    assert set(data.scores["reason"]) == {"not judged"}
    assert data.user_scores.empty


def test_the_critique_is_counted_once(store: Store, sample: Corpus) -> None:
    groups = responses(sample)
    for group in groups.values():
        for answer in group["responses"]:
            answer |= {"response_duration_ms": 1500.0, "postprocess_duration_ms": 600.0}
    data = read_run(store, bring(store, groups, sample, CRITIC).run_id)
    assert set(data.records["response_ms"]) == {900.0}
    assert set(data.records["post_ms"]) == {600.0}
    assert set(data.records["retrieval_ms"]) == {12.5}
    assert set(data.configurations["mitigation"]) == {"self-critic"}


def test_several_files_are_one_study(store: Store, sample: Corpus) -> None:
    base = configuration("gpt-4o-mini", "base", "none")
    marag = configuration("gpt-4o-mini", "memos", "marag")
    parts = [
        PublicPart(packed(judged(responses(sample), score)), f"{score}.json", of)
        for score, of in ((0.9, base), (0.5, NONE), (0.7, marag))
    ]
    data = read_run(store, import_public(store, parts, corpus=sample).run_id)
    table = op_table(data, "task-mean")
    assert table["fully_irrelevant"].tolist() == pytest.approx([90.0, 50.0, 70.0])
    # half of the way from 0.5 to 0.9 on three of four tasks; repetition is 0.4 everywhere
    assert table["gap_closed"].tolist()[2] == pytest.approx(0.5)


def test_two_files_of_one_configuration_are_refused(store: Store, sample: Corpus) -> None:
    part = PublicPart(packed(judged(responses(sample))), "a.json", NONE)
    with pytest.raises(UsageError, match=r"a\.json: .* was given twice"):
        import_public(store, [part, part], corpus=sample)
    with pytest.raises(UsageError, match="BASE has no memories"):
        bring(store, responses(sample), sample, configuration("m", "base", "reminder"))
    with pytest.raises(UsageError, match="--memory"):
        configuration("m", " ", "none")
    assert run_ids(store) == []


def set_at(*path: Any, to: Any) -> Callable[[Any], None]:
    def change(value: Any) -> None:
        for step in path[:-1]:
            value = value[step]
        value[path[-1]] = to

    return change


FIRST = ("results", 0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (set_at(*FIRST, "task_type", to="irrelevance"), r"results\[0\]\.task_type: expected one of"),
        (set_at(*FIRST, "person_name", to="Nobody"), r"results\[0\]\.person_name: no speaker of that name"),
        (set_at(*FIRST, "person_name", to=7), r"results\[0\]\.person_name: expected a text, found the number 7"),
        (set_at(*FIRST, "responses", to={}), r"results\[0\]\.responses: expected a list, found an object"),
        (set_at(*FIRST, "responses", 1, to="x"), r"results\[0\]\.responses\[1\]: expected an object"),
        (set_at(*FIRST, "responses", 1, "question", to="Else?"), r"results\[0\]\.responses\[1\]: isn't a question to"),
        (set_at(*FIRST, "responses", 1, "answer", to=["x"]), r"responses\[1\]\.answer: expected a text, found a list"),
        (set_at(*FIRST, "responses", 1, "response_duration_ms", to=-1), r"expected a duration, found -1"),
        (set_at(*FIRST, "scores", to=None), r"results\[0\]\.scores: expected an object, found null"),
        (
            set_at(*FIRST, "scores", "response_0_irrelevance_score", to=1.5),
            r"results\[0\]\.scores\.response_0_irrelevance_score: expected a number from 0 to 1, found 1\.5",
        ),
        (
            set_at(*FIRST, "scores", "response_0_irrelevance_score", to="0.8"),
            r"response_0_irrelevance_score: expected a number, found the text",
        ),
        (set_at("results", to={}), r"results: expected a list, found an object"),
        (set_at("results", to=[]), r"holds no result"),
    ],
)
def test_a_wrong_shape_names_file_and_place(
    store: Store, sample: Corpus, change: Callable[[Any], None], said: str
) -> None:
    value = judged(responses(sample))
    change(value)
    with pytest.raises(DataError, match=rf"^judged\.json: .*{said}") as told:
        bring(store, value, sample)
    assert "\n" not in str(told.value)
    assert run_ids(store) == []


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{", r"line 1, column 2: isn't JSON"),
        (b"\xff\xfe{}", "byte 0: isn't UTF-8"),
        (b'{"results": [NaN]}', "holds NaN"),
        (b"[" * 100_000, "nested too deeply"),
        (b"3", "expected an object"),
        (b'{"results": ' + b"9" * 5000 + b"}", "a number that is too long"),
        (b'{"frame": "x", "metrics": {}}', "averages only"),
        (b'{"a_search": {"task_type": "diversity", "person_name": "a", "results": []}}', "responses"),
    ],
)
def test_what_isnt_a_result_file_is_refused(store: Store, sample: Corpus, content: bytes, said: str) -> None:
    with pytest.raises(DataError, match=rf"^judged\.json: .*{said}") as told:
        bring(store, content, sample)
    assert "\n" not in str(told.value)


def test_numbers_that_no_column_holds(store: Store, sample: Corpus) -> None:
    huge = int("9" * 400)
    value = judged(responses(sample))
    value["results"][0]["responses"][0]["search_duration_ms"] = huge
    with pytest.raises(DataError, match=r"responses\[0\]\.search_duration_ms: expected a number, found .* 9{30}…"):
        bring(store, value, sample)
    value = judged(responses(sample))
    for group in value["results"]:
        if group["task_type"] == "diversity":
            group["scores"]["answer_count"] = huge
    run_id = bring(store, value, sample)
    with store.begin() as connection:
        counts = connection.scalars(select(s.user_scores.c.n)).all()
    planned = [len(group["responses"]) for group in value["results"] if group["task_type"] == "diversity"]
    assert sorted(counts) == sorted(planned), f"what was answered, not what run {run_id} was told"


def test_an_answer_may_stand_only_once(store: Store, sample: Corpus) -> None:
    value = judged(responses(sample))
    value["results"].append(value["results"][0])
    with pytest.raises(DataError, match=r"results\[\d+\]\.responses\[0\]: isn't a question to .*, or was there before"):
        bring(store, value, sample)


def test_the_older_scripts_files_are_read(store: Store, sample: Corpus) -> None:
    groups = responses(sample)
    generation, scores = [], []
    for group in groups.values():
        questions = [each["question"] for each in group["responses"]]
        n = len(questions)
        generation.append(
            {
                "test_id": group["test_id"],
                "test_case": {
                    "test_id": group["test_id"],
                    "task_type": group["task_type"],
                    "person_name": group["person_name"],
                    "questions": questions,
                },
                "responses": ["An answer."] * n,
                "latencies": [0.5] * n,
                "error_messages": [None] * n,
                "timestamps": ["2026-01-01T00:00:00"] * n,
                "raw_responses": [None] * n,
                "scores": None,
            }
        )
        answers = [
            {"question": each, "answer": "An answer.", "success": True, "latency": 0.5, "score": 0.5}
            for each in questions
        ]
        scores.append({**group, "questions_and_answers": answers, "overall_score": 0.5})
    failed = scores[0]["questions_and_answers"][0]
    failed |= {"answer": "", "success": False, "score": 0.0}
    made = read_run(store, bring(store, generation, sample).run_id)
    assert set(made.records["response_ms"]) == {500.0}
    value = {"task_id": "t", "timestamp": "now", "statistics": {}, "results": scores}
    data = read_run(store, bring(store, value, sample).run_id)
    assert (data.records["status"] == "error").sum() == 1
    assert set(data.scores["value"]) == {0.5}
    assert set(data.user_scores["value"]) == {0.5}


def test_the_three_johns_are_told_apart_by_their_questions(store: Store, use_real_data: Path) -> None:
    corpus = load(use_real_data)
    johns = [user for user in corpus.users if user.endswith("/John")]
    assert johns == ["conv-41/John", "conv-43/John", "conv-47/John"]
    for john in johns:
        data = read_run(store, bring(store, judged(responses(corpus, (john,))), corpus).run_id)
        assert set(data.instances["user"]) == {john}
        assert len(data.instances) == sum(instance.user.id == john for instance in corpus.op)


def test_all_of_the_benchmark_is_read(store: Store, use_real_data: Path) -> None:
    corpus = load(use_real_data)
    first = tuple(user.id for user in corpus.users.values() if user.first)
    data = read_run(store, bring(store, judged(responses(corpus, first)), corpus).run_id)
    # the public evaluator's default: the first speaker of each conversation, 859 of the 1,700 instances
    assert len(data.records) == 859
    assert data.instances["first_speaker"].all()
    assert op_table(data, "instance").iloc[0]["n_scored"] == 859
    assert json.dumps(data.provenance)
