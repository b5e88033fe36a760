"""`opbench ask` and `opbench case` as a user meets them: against a scripted endpoint, with the sample's people."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from opbench import cli
from opbench.cases.outcome import Outcome
from opbench.cases.spec import CaseSpec
from opbench.commands.case_choice import all_columns, read_draft, read_given, read_sections
from opbench.commands.case_text import ColumnTeller, marked
from opbench.errors import StoreError, UsageError
from opbench.settings import settings
from opbench.store.cases import list_cases, load_book, load_case, save_case
from opbench.store.database import open_store
from tests.cases.made import ABLATION, BASE, BREAD, OUTCOMES, PROVENANCE, QUESTION, RAG, REMINDER, SPEC
from tests.running.study import reply
from tests.scripted_endpoint import ScriptedEndpoint

INSTANCE = "op/sample-1/Ottilie/fact/1"
RAG_BESIDE_BASE = ["ask", "--sample", "--model", "scripted", "--columns", "rag,rag:reminder"]


@contextlib.contextmanager
def registered(home: Path, endpoint: ScriptedEndpoint, **fields: float | int | str) -> Iterator[None]:
    """The endpoint as the model `scripted`, and as the embedder `minilm`, which is the default."""
    home.mkdir(parents=True, exist_ok=True)
    file = home / "models.toml"
    entry = endpoint.registry_toml("minilm", **fields).split("\n\n")[1]
    file.write_text(endpoint.registry_toml("scripted", **fields) + entry)
    os.environ["OPBENCH_MODELS"] = str(file)
    try:
        yield
    finally:
        del os.environ["OPBENCH_MODELS"]


@pytest.fixture
def endpoint(home: Path) -> Iterator[ScriptedEndpoint]:
    with ScriptedEndpoint(reply=reply) as served, registered(home, served):
        yield served


@pytest.fixture
def opbench(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a command line in this process; returns (exit code, standard output, standard error)."""

    def run(*line: str) -> tuple[int, str, str]:
        settings.cache_clear()
        monkeypatch.setattr("sys.argv", ["opbench", *line])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return run


def saved_here(name: str = "Bread") -> str:
    store = open_store(settings().store_url)
    try:
        return save_case(
            store,
            name=name,
            note="a note",
            spec=SPEC,
            outcomes=OUTCOMES,
            ablations=(ABLATION,),
            provenance=PROVENANCE,
            maker="ann",
        )
    finally:
        store.close()


def test_base_is_always_asked_and_every_stage_is_told(opbench: Any, endpoint: ScriptedEndpoint) -> None:
    line = [*RAG_BESIDE_BASE, "--json", "A tip?"]
    code, out, err = opbench(*line)
    assert code == 0, err
    answer = json.loads(out)
    spec = CaseSpec.model_validate(answer["spec"])
    assert [(each.memory, each.mitigation) for each in spec.columns] == [
        ("base", "none"),
        ("rag", "none"),
        ("rag", "reminder"),
    ]
    base, rag, reminder = (Outcome.model_validate(each) for each in answer["outcomes"])
    assert base.retrieved is None
    assert len(rag.retrieved or ()) == 5
    assert set(base.milliseconds) == {"response"}
    assert set(rag.milliseconds) == {"retrieval", "response"}
    assert set(reminder.milliseconds) == {"retrieval", "post", "response"}
    assert reminder.post_state in ("kept", "nothing", "failed")
    assert all(each.response and each.scores for each in (base, rag, reminder))
    before = endpoint.ledger.total
    again = [Outcome.model_validate(each) for each in json.loads(opbench(*line)[1])["outcomes"]]
    assert all(each.at_once for each in again)
    assert [each.response for each in again] == [base.response, rag.response, reminder.response]
    assert endpoint.ledger.total == before, "what is in the call store isn't asked again"


def test_the_older_flags_still_name_a_column(opbench: Any, endpoint: ScriptedEndpoint) -> None:
    line = ["ask", "--sample", "--model", "scripted", "--memory", "rag", "--mitigation", "reminder", "A tip?"]
    code, out, err = opbench(*line)
    assert code == 0, err
    assert out.index("── BASE") < out.index("── RAG + Reminder")
    assert "post-processor: " in out
    assert "not comparable with the paper" in out


def test_an_instance_brings_question_user_and_subtype(opbench: Any, endpoint: ScriptedEndpoint) -> None:
    code, out, err = opbench(
        "ask", "--sample", "--model", "scripted", "--columns", "base", "--instance", INSTANCE, "--json"
    )
    assert code == 0, err
    spec = json.loads(out)["spec"]
    assert (spec["instance"], spec["user"], spec["subtype"]) == (INSTANCE, "sample-1/Ottilie", "fact")


def test_a_published_case_brings_its_memories(opbench: Any, endpoint: ScriptedEndpoint) -> None:
    code, out, err = opbench("ask", "--published", "invented-1", "--model", "scripted", "--json")
    assert code == 0, err
    spec = CaseSpec.model_validate(json.loads(out)["spec"])
    assert (spec.published, spec.data) == ("invented-1", "sample")
    assert spec.columns[1].given


def test_leaving_one_out_asks_without_each_and_is_saved(opbench: Any, endpoint: ScriptedEndpoint) -> None:
    line = [*RAG_BESIDE_BASE[:4], "--columns", "rag", "--k", "3", "--leave-one-out", "--save", "A tip", "A tip?"]
    code, out, err = opbench(*line)
    assert code == 0, err
    assert "── Which memory did it? RAG" in out
    for number in (1, 2, 3):
        assert f"without memory {number}: score " in out
    store = open_store(settings().store_url)
    (row,) = list_cases(store)
    assert f"saved as {row.id}" in out
    (ablation,) = load_case(store, row.id).ablations
    assert [item.number for item in ablation.items] == [1, 2, 3]
    assert ablation.over
    assert ablation.at == "retrieval"
    store.close()


def test_what_is_changed_stands_beside_its_column(opbench: Any, endpoint: ScriptedEndpoint, tmp_path: Path) -> None:
    memories, draft, closing = tmp_path / "m.txt", tmp_path / "My filter.txt", tmp_path / "c.txt"
    memories.write_text("Ottilie has a goose.\n\nOttilie has a boat.\n")
    draft.write_text("Keep what the question is about.")
    closing.write_text("Say it shortly.")
    code, out, err = opbench(
        *RAG_BESIDE_BASE[:4],
        *[
            "--columns",
            "rag",
            "--memories-file",
            str(memories),
            "--without",
            "2",
            "--draft",
            str(draft),
            "--json",
            "Hm?",
        ],
    )
    assert code == 0, err
    answer = json.loads(out)
    base, rag, changed, drafted, _ = CaseSpec.model_validate(answer["spec"]).columns
    assert not base.edited
    assert not rag.edited
    assert [memory.text for memory in changed.given or ()] == ["Ottilie has a goose.", "Ottilie has a boat."]
    assert changed.without == (2,)
    assert drafted.draft is not None
    assert (drafted.mitigation, drafted.draft.instructions) == ("my-filter", "Keep what the question is about.")
    # Number 2 of the given ones is left out.
    assert [memory["text"] for memory in answer["outcomes"][2]["retrieved"]] == ["Ottilie has a goose."]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["ask"], "nothing to ask"),
        (["ask", " "], "the question is empty"),
        (["ask", "x", "--instance", INSTANCE], "a QUESTION and --instance were given"),
        (["ask", "x", "--sample", "--user", "sample-1/Otilie"], "Did you mean sample-1/Ottilie"),
        (["ask", "x", "--sample", "--user", "sample-1"], "sample-1/Ottilie or sample-1/Corvin"),
        (["ask", "--sample", "--instance", "op/sample-1/Ottilie/fact/99"], INSTANCE),
        (["ask", "--sample", "--instance", INSTANCE, "--subtype", "value"], "--subtype goes with a QUESTION"),
        (["ask", "--published", "fig-99"], "No published case is called 'fig-99'"),
        (["ask", "x", "--columns", "rga"], "Did you mean 'rag'?"),
        (["ask", "x", "--columns", "rag:remindr"], "reminder"),
        (["ask", "x", "--columns", "base:reminder"], "takes no post-processor"),
        (["ask", "x", "--columns", "rag", "--memory", "rag"], "say the same thing"),
        (["ask", "x", "--model", "smollm2-135"], "smollm2-135m"),
        (["ask", "x", "--judge", "smollm2-135"], "smollm2-135m"),
        (["ask", "x", "--embedder", "minlm", "--sample"], "minilm"),
        (["ask", "x", "--sample", "--subtype", "facts"], "facts"),
        (["ask", "x", "--columns", "base", "--without", "1"], "no column with memories to change"),
        (["ask", "x", "--prompt", "system"], "write SECTION=FILE"),
        (["ask", "x", "--memories-file", "none.txt"], "none.txt: can't be read"),
        (["ask", "x", "--draft", "none.txt"], "none.txt: can't be read"),
        (["ask", "x", "--plugin", "none.py"], "none.py: no such plugin file"),
        (["ask", "x", "--save", " "], "--save: the name is empty"),
        (["case", "show", "x"], "there is no saved case in this store yet"),
        (["case", "export", "x"], "there is no case book in this store yet"),
        (["case", "book", "show", "x"], "there is no case book in this store yet"),
        (["case", "judge-published", "--judge", "smollm2-135"], "smollm2-135m"),
        (["case", "judge-published", "--csv", "--json"], "not both"),
    ],
)
def test_wrong_use_is_one_line_and_exit_code_2(opbench: Any, line: list[str], message: str) -> None:
    code, out, err = opbench(*line)
    assert code == 2, err
    assert out == ""
    assert err.startswith("opbench: ")
    assert err.count("\n") == 1
    assert message in err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[1]", "memory 1 is neither a text nor an object"),
        ('[{"text": ""}]', "memory 1: text"),
        ('[{"text": "a"}, {"words": "b"}]', "memory 2: text"),
        ('[{"text": "a", "score": NaN}]', "memory 1: score"),
        ("[", "isn't JSON"),
        (b"\xff\xfe", "isn't UTF-8"),
    ],
)
def test_a_damaged_file_of_memories_says_where(tmp_path: Path, content: str | bytes, message: str) -> None:
    file = tmp_path / "memories.json"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UsageError) as error:
        read_given(file)
    assert str(error.value).startswith(f"{file}: ")
    assert message in str(error.value)


def test_memories_come_as_json_or_a_line_each(tmp_path: Path) -> None:
    file = tmp_path / "m"
    file.write_text('["one", {"text": "two", "date": "9 May 2024", "score": 0.5}]')
    assert [(each.text, each.date, each.score) for each in read_given(file)] == [
        ("one", None, None),
        ("two", "9 May 2024", 0.5),
    ]
    file.write_text("one\n\n  two \n")
    assert [each.text for each in read_given(file)] == ["one", "two"]
    file.write_text("[]")
    assert read_given(file) == ()


def test_a_draft_is_a_text_or_a_plugin_that_was_saved_as_one(opbench: Any, tmp_path: Path) -> None:
    text = tmp_path / "Only needed.txt"
    text.write_text("Keep what is needed.\n")
    assert read_draft(text).name == "only-needed"
    code, out, err = opbench("case", "draft", str(text))
    assert code == 0, err
    saved = Path(out.strip())
    assert read_draft(saved) == read_draft(text)
    assert "--mitigations none,only-needed" in err
    text.write_text("Keep nothing.")
    assert "says something else" in opbench("case", "draft", str(text))[2]
    assert opbench("case", "draft", str(text), "--replace")[0] == 0
    assert read_draft(saved).instructions == "Keep nothing."
    for name, content, message in (
        ("reminder.txt", "x", "'reminder' is there already"),
        ("blank.txt", " \n", "instructions"),
        ("own.py", "print('run')", "isn't a saved draft"),
    ):
        file = tmp_path / name
        file.write_text(content)
        with pytest.raises(UsageError, match=message):
            read_draft(file)


def test_a_section_goes_to_the_columns_that_have_it(tmp_path: Path) -> None:
    file = tmp_path / "own.txt"
    file.write_text("Own words.\n")
    assert read_sections([f"system={file}"]) == {"system": "Own words."}
    columns = all_columns(["m"], [("rag", "none"), ("rag", "reminder")], prompts={"system": "Own words."})
    assert [column.prompts for column in columns] == [{}, {}, {}, {"system": "Own words."}]
    with pytest.raises(UsageError, match="--prompt nope: no column's post-processor has such a section"):
        all_columns(["m"], [("rag", "reminder")], prompts={"nope": "x"})


def test_a_column_is_told_as_it_grows(capsys: pytest.CaptureFixture[str]) -> None:
    teller = ColumnTeller(SPEC, 1, "RAG")
    said = []
    for outcome in (
        Outcome(state="retrieval"),
        RAG.model_copy(update={"state": "response", "response": "A book"}),
        RAG.model_copy(update={"state": "response", "response": "A book about sourdough"}),
        RAG.model_copy(update={"state": "response", "response": "Another"}),
        RAG,
    ):
        teller.tell(outcome)
        said.append(capsys.readouterr().out)
    assert said[0] == "── RAG\n"
    assert said[1].endswith("\nA book")
    assert "[1] 0.457 (9 May 2024) Ottilie bakes" in said[1]
    assert said[2] == " about sourdough"
    assert said[3] == "\n  (anew)\nAnother"
    assert "(anew)" in said[4]
    assert "from memory 1: “sourdough bread”" in said[4]
    assert "score 0.25 of 1, by offline (1 of 2 memories are used unasked)" in said[4]
    assert "retrieval 10 ms (reused), response 200 ms; 60 tokens in, 12 out; cost $0.001500" in said[4]
    # Nothing is told twice.
    teller.tell(RAG)
    assert capsys.readouterr().out == ""


def test_fates_and_missing_scores_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    ColumnTeller(SPEC, 2, "x").tell(REMINDER)
    out = capsys.readouterr().out
    assert "[1] altered, kept in other words: Ottilie bakes [-sourdough-] bread on Sundays." in out
    assert "[2] dropped: left out by the post-processor" in out
    assert "score missing of 1, by offline (the judge's reply has no number)" in out
    assert "cost unknown" in out
    assert marked([("a ", "kept"), ("b ", "dropped"), ("c", "added")]) == "a [-b-] {+c+}"


def test_text_of_models_doesn_t_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    ColumnTeller(SPEC, 0, "BASE").tell(BASE.model_copy(update={"response": "\x1b[2Jgone \u202etxt"}))
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "⟨ESC⟩[2Jgone ⟨RLO⟩txt" in out


def test_a_dead_endpoint_is_a_line_a_column_and_exit_code_1(opbench: Any, home: Path) -> None:
    home.mkdir(parents=True)
    with ScriptedEndpoint(reply=reply) as served, registered(home, served, attempts=1):
        with (home / "models.toml").open("a") as file:
            file.write('\n[models.dead]\nbase_url = "http://127.0.0.1:9/v1"\nattempts = 1\n')
        code, out, err = opbench(
            "ask", "--sample", "--model", "dead", "--model", "scripted", "--columns", "base", "Hm?"
        )
    assert code == 1
    assert "failed (connection)" in out
    assert "score" in out, "the other model's column is answered"
    assert err.count("\n") == 1
    assert "127.0.0.1:9/v1 can't be reached" in err


def test_answers_that_couldnt_be_kept_are_shown(
    opbench: Any, endpoint: ScriptedEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: Any) -> None:
        raise StoreError("the disk is full. Make room.")

    monkeypatch.setattr("opbench.running.calls.save_calls", refuse)
    code, out, err = opbench(*RAG_BESIDE_BASE, "A tip?")
    assert code == 1
    assert "── BASE" in out
    assert "score" in out
    assert err.startswith("opbench: the answers couldn't be kept, and are asked for again next time: the disk is full")


def test_a_saved_draft_is_deleted(opbench: Any, tmp_path: Path) -> None:
    file = tmp_path / "my-filter.txt"
    file.write_text("Keep what is needed.", encoding="utf-8")
    _, out, _ = opbench("case", "draft", str(file))
    assert Path(out.strip()).exists()
    code, said, _ = opbench("case", "draft", "my-filter", "--delete")
    assert (code, said) == (0, f"deleted {out}")
    assert not Path(out.strip()).exists()
    assert opbench("case", "draft", "my-filter", "--delete")[0] == 2


def test_saved_cases_are_listed_shown_renamed_and_deleted(opbench: Any) -> None:
    assert "no saved case yet" in opbench("case", "list")[1]
    case = saved_here()
    code, out, _ = opbench("case", "list")
    assert code == 0
    assert all(told in out for told in (case, "Bread", "ann", "sample-1/Ottilie", "1.00 0.25 –", QUESTION))
    (row,) = json.loads(opbench("case", "list", "--json")[1])
    assert (row["id"], row["scores"]) == (case, [1.0, 0.25, None])
    code, out, _ = opbench("case", "show", case[:6])
    assert code == 0
    for told in ("a note", "── BASE", "── RAG + Reminder", BREAD, "Memory 1 did it", "not comparable with the paper"):
        assert told in out
    assert json.loads(opbench("case", "show", "Bread", "--json")[1])["spec"]["question"] == QUESTION
    assert opbench("case", "rename", case, "Loaf", "--note", "other")[0] == 0
    assert opbench("case", "show", "Loaf")[1].startswith("Loaf")
    assert opbench("case", "delete", "Loaf", "--yes")[0] == 0
    assert "no saved case yet" in opbench("case", "list")[1]


def test_a_damaged_case_is_told_beside_the_others(opbench: Any) -> None:
    bad, good = saved_here("bad"), saved_here("good")
    store = open_store(settings().store_url)
    with store.begin() as connection:
        connection.exec_driver_sql("UPDATE cases SET outcomes = '[{' WHERE id = ?", (bad,))
    store.close()
    code, out, err = opbench("case", "list")
    assert code == 1
    assert good in out
    assert err.count("\n") == 1
    assert f"saved case {bad} 'bad' can't be read" in err


def test_books_are_made_set_shown_exported_and_deleted(opbench: Any, tmp_path: Path) -> None:
    one, two = saved_here("one"), saved_here("two")
    book = opbench("case", "book", "make", "Talk", "two", one, "--note", "for Monday")[1].strip()
    assert f"1. {two}  two" in opbench("case", "book", "show", "Talk")[1]
    assert opbench("case", "book", "set", "Talk", one, two)[0] == 0
    assert opbench("case", "delete", one, "--yes")[0] == 0
    out = opbench("case", "book", "show", book)[1]
    assert f"1. case {one} was deleted" in out
    assert f"2. {two}  two" in out
    assert "1" in opbench("case", "book", "list")[1]
    file = tmp_path / "talk.html"
    code, out, err = opbench("case", "export", "Talk", "--out", str(file), "--texts")
    assert (code, out) == (0, f"{file}\n")
    assert f"case {one} was deleted" in err
    html = file.read_text()
    assert "<h1>Talk</h1>" in html
    assert QUESTION in html
    # What is gone may stay where it is.
    assert opbench("case", "book", "set", book, two, one)[0] == 0
    store = open_store(settings().store_url)
    assert [entry.id for entry in load_book(store, book).entries] == [two, one]
    store.close()
    assert opbench("case", "book", "rename", "Talk", "Poster")[0] == 0
    assert opbench("case", "book", "delete", "Poster", "--yes")[0] == 0
    assert "no case book yet" in opbench("case", "book", "list")[1]


def test_an_exported_case_is_without_texts_unless_asked(opbench: Any, tmp_path: Path) -> None:
    saved_here()
    file = tmp_path / "out" / "bread.html"
    assert opbench("case", "export", "Bread", "--out", str(file))[0] == 0
    assert BREAD not in file.read_text()
    assert opbench("case", "export", "Bread", "--out", str(file), "--texts")[0] == 0
    assert BREAD in file.read_text()
    (tmp_path / "file").write_text("")
    code, _, err = opbench("case", "export", "Bread", "--out", str(tmp_path / "file" / "x.html"))
    assert code == 2
    assert "can't be written" in err


def test_the_invented_cases_are_judged_and_said_to_be_invented(opbench: Any, endpoint: ScriptedEndpoint) -> None:
    code, out, err = opbench("case", "judge-published", "--json")
    assert code == 0, err
    found = json.loads(out)
    assert (found["origin"], found["judges"]) == ("invented", ["offline"])
    assert all(0 <= row["offline"] <= 1 for row in found["scores"] if row["subtype"] != "repetition")
    assert "Invented for this project" in opbench("case", "judge-published")[1]
    table = opbench("case", "judge-published", "--csv")[1].splitlines()
    assert table[0].split(",")[:6] == ["id", "case", "subtype", "method", "text", "published"]
    assert len(table) == 1 + len(found["scores"])


def test_the_sixteen_published_responses_stand_beside_ours(
    opbench: Any, endpoint: ScriptedEndpoint, use_real_data: Path
) -> None:
    found = json.loads(opbench("case", "judge-published", "--judge", "scripted", "--json")[1])
    assert found["origin"] == "appendix"
    responses = [row for row in found["scores"] if row["text"] == "response"]
    assert len(responses) == 16
    single = [row for row in responses if row["subtype"] != "repetition"]
    assert len(single) == 10
    for row in single:
        for judge in found["judges"]:
            assert row[f"{judge} − published"] == pytest.approx(row[judge] - row["published"])
    assert found["judges"] == ["offline", "scripted"]


def test_ctrl_c_in_mid_stream_closes_the_connection_and_is_exit_code_130(home: Path) -> None:
    """On a terminal of its own: the first words come before the end, and the endpoint sees the connection close."""

    def slow(body: dict[str, Any]) -> str:
        return "word " * 2_000

    with ScriptedEndpoint(reply=slow, piece_s=0.05) as served, registered(home, served):
        environment = dict(os.environ) | {"OPBENCH_HOME": str(home), "TERM": "dumb"}
        terminal, end = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "opbench", "ask", "--sample", "--model", "scripted", "--columns", "base", "Hm?"],
            env=environment,
            stdin=end,
            stdout=end,
            stderr=end,
            start_new_session=True,
        )
        os.close(end)
        try:
            said = read_until(terminal, "word word word")
            assert process.poll() is None
            assert "── BASE" in said
            process.send_signal(signal.SIGINT)
            said = read_until(terminal, "cancelled; what was finished is in the call store")
            assert process.wait(60) == 130
        finally:
            process.kill()
            os.close(terminal)
        assert served.ledger.closed_by_client == 1


def read_until(terminal: int, wanted: str, patience_s: float = 120.0) -> str:
    said, end = "", time.monotonic() + patience_s
    while wanted not in said:
        assert time.monotonic() < end, said
        if select.select([terminal], [], [], 0.2)[0]:
            said += os.read(terminal, 65_536).decode(errors="replace")
    return said
