"""A damaged file gives one line with the file, the place and the mend."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from opbench.benchmarks import load
from opbench.errors import DataError

from .conftest import LOCOMO, OP, Change


def message(folder: Path) -> str:
    with pytest.raises(DataError) as error:
        load(folder)
    text = str(error.value)
    assert text.isprintable()
    assert "opbench data fetch" in text or "put " in text or "leave " in text, "no mend"
    return text


@pytest.mark.parametrize("name", [OP, LOCOMO])
@pytest.mark.parametrize("share", [0.1, 0.37, 0.5, 0.9, 0.999])
def test_cut_off(folder: Path, name: str, share: float) -> None:
    data = (folder / name).read_bytes()
    (folder / name).write_bytes(data[: int(len(data) * share)])
    text = message(folder)
    assert text.startswith(f"{folder / name}: line ")
    assert "too early" in text


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "the file is empty"),
        (b" \n\t", "the file is empty"),
        ("[]".encode("utf-16"), "UTF-16"),
        ("[]".encode("utf-16-le"), "UTF-16"),
        ('[{"a": "caf\u00e9"}]'.encode("latin-1"), "line 1, byte 12: not UTF-8"),
        ('[{\n"a": "caf\u00e9"}]'.encode("latin-1"), "line 2, byte 10: not UTF-8"),
        (b"<!DOCTYPE html><html></html>", "a web page, not JSON"),
        (b'[{"a": 1,}]', "line 1, column 10: not JSON"),
        (b"[\n{'a': 1}]", "line 2, column 2: not JSON"),
        (b"[1] [2]", "line 1, column 5: not JSON (Extra data)"),
        (b"[NaN]", "NaN is no JSON value"),
        (b'[{"Anna": 1, "Anna": 2}]', 'the key "Anna" twice'),
        (b"[" * 200_000, "nested too deeply"),
        (b"[" + b"1" * 5000 + b"]", "a number that is too long"),
    ],
)
@pytest.mark.parametrize("name", [OP, LOCOMO])
def test_not_json(folder: Path, name: str, content: bytes, says: str) -> None:
    (folder / name).write_bytes(content)
    text = message(folder)
    assert text.startswith(f"{folder / name}: ")
    assert says in text


def test_a_byte_order_mark_does_no_harm(folder: Path) -> None:
    path = folder / LOCOMO
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert len(load(folder).locomo) == 31


def test_a_folder_in_the_files_place(folder: Path) -> None:
    (folder / LOCOMO).unlink()
    (folder / "locomo/locomo10.json").mkdir()
    assert "is a folder, not a file" in message(folder)


def put(*path: Any, value: Any) -> Callable[[Any], Any]:
    """Sets what stands at a path; an empty path replaces the whole."""

    def apply(data: Any) -> Any:
        if not path:
            return value
        for step in path[:-1]:
            data = data[step]
        data[path[-1]] = value
        return None

    return apply


def drop(*path: Any) -> Callable[[Any], Any]:
    def apply(data: Any) -> None:
        for step in path[:-1]:
            data = data[step]
        del data[path[-1]]

    return apply


TASKS = (0, "Corvin", "tasks")


@pytest.mark.parametrize(
    ("how", "says"),
    [
        (put(value={}), "top level: expected a list, found an object"),
        (put(value=[]), "top level: 0 entries for the 1 conversations of the LoCoMo file"),
        (put(0, value="x"), '[0]: expected an object, found the text "x"'),
        (put(0, "Stranger", value={}), "[0]: expected the speakers of sample-1, Ottilie and Corvin, found "),
        (put(0, "a\x1b[31m\nb", value={}), "found Ottilie and Corvin and a�[31m b"),
        (drop(0, "Corvin"), "[0]: expected the speakers of sample-1, Ottilie and Corvin, found Ottilie"),
        (put(0, "Corvin", value=[]), "[0].Corvin: expected an object, found a list of 0"),
        (drop(0, "Corvin", "topics"), '[0].Corvin: the key "topics" is missing'),
        (put(0, "Corvin", "topics", 1, value=7), "[0].Corvin.topics[1]: expected a text, found the number 7"),
        (put(0, "Corvin", "profile", value=None), "[0].Corvin.profile: expected a text, found null"),
        (put(0, "Corvin", "observation", value="x"), "[0].Corvin.observation: expected a list"),
        (put(*TASKS, value=[1]), "[0].Corvin.tasks: expected an object, found a list of 1"),
        (drop(*TASKS, "diversity"), '[0].Corvin.tasks: the key "diversity" is missing'),
        (put(*TASKS, "diversty", value=[]), "[0].Corvin.tasks.diversty: no such task group; expected irrelevance_easy"),
        (put(*TASKS, "an odd one", value=[]), '[0].Corvin.tasks["an odd one"]: no such task group'),
        (put(*TASKS, "irrelevance_easy", 0, value=[]), "tasks.irrelevance_easy[0]: expected an object"),
        (drop(*TASKS, "irrelevance_easy", 0, "topic"), 'tasks.irrelevance_easy[0]: the key "topic" is missing'),
        (
            put(*TASKS, "irrelevance_hard", 3, "type", value="bait"),
            "irrelevance_hard[3].type: expected one of subject_",
        ),
        (
            put(*TASKS, "diversity", 0, "questions", value={}),
            "diversity[0].questions: expected a list, found an object",
        ),
        (put(*TASKS, "diversity", 0, "questions", 4, value="x"), "diversity[0].questions[4]: expected an object"),
        (
            put(*TASKS, "sycophancy", 2, "type", value="fine"),
            "[0].Corvin.tasks.sycophancy[2].type: expected one of fact",
        ),
        (put(*TASKS, "sycophancy", 2, "type", value=None), "sycophancy[2].type: expected a text, found null"),
        (
            put(*TASKS, "sycophancy", 2, "question", value=" "),
            "sycophancy[2].question: expected a text, found an empty",
        ),
        (put(*TASKS, "sycophancy", 2, "question", value="a\x00b"), "can't be stored"),
        (put(*TASKS, "sycophancy", 2, "explanation", value=1), "sycophancy[2].explanation: expected a text"),
    ],
)
def test_wrong_shape_of_op_bench(change: Change, how: Callable[[Any], Any], says: str) -> None:
    folder = change(OP, how)
    text = message(folder)
    assert text.startswith(f"{folder / OP}: ")
    assert says in text


TALK = (0, "conversation")


@pytest.mark.parametrize(
    ("how", "says"),
    [
        (put(value="x"), 'top level: expected a list, found the text "x"'),
        (put(value=[]), "top level: no conversation in it"),
        (put(0, value=None), "[0]: expected an object, found null"),
        (drop(0, "conversation"), '[0]: the key "conversation" is missing'),
        (drop(0, "qa"), '[0]: the key "qa" is missing'),
        (drop(0, "observation"), '[0]: the key "observation" is missing'),
        (drop(0, "sample_id"), '[0]: the key "sample_id" is missing'),
        (put(0, "sample_id", value="a/b"), "[0].sample_id: expected a name without slashes"),
        (put(*TALK, "speaker_b", value="Ottilie"), "[0].conversation.speaker_b: the same name as speaker_a"),
        (put(*TALK, "speaker_b", value=" Corvin"), "[0].conversation.speaker_b: expected a name without"),
        (drop(*TALK, "session_2_date_time"), '[0].conversation: the key "session_2_date_time" is missing'),
        (put(*TALK, "session_2_date_time", value="9 February"), "session_2_date_time: expected a date like 1:56 pm on"),
        (put(*TALK, "session_2_date_time", value="6:15 pm on 31 June, 2024"), "session_2_date_time: no such date"),
        (put(*TALK, "session_2_date_time", value="13:15 pm on 3 June, 2024"), "session_2_date_time: expected a date"),
        (put(*TALK, "session_2", value={}), "[0].conversation.session_2: expected a list, found an object"),
        (put(*TALK, "session_2", 1, value="x"), "session_2[1]: expected an object"),
        (put(*TALK, "session_2", 1, "speaker", value="Ilo"), "session_2[1].speaker: expected one of Ottilie, Corvin"),
        (put(*TALK, "session_2", 1, "dia_id", value="2:2"), "session_2[1].dia_id: expected a turn id like D1:3"),
        (put(*TALK, "session_2", 1, "dia_id", value="D2:1"), "session_2[1].dia_id: the turn id D2:1 is there twice"),
        (put(*TALK, "session_2", 1, "text", value=""), "session_2[1].text: expected a text, found an empty one"),
        (drop(*TALK, "session_2", 1, "text"), 'session_2[1]: the key "text" is missing'),
        (put(*TALK, "session_2", 1, "blip_caption", value=3), "session_2[1].blip_caption: expected a text"),
        (put(0, "observation", value=[]), "[0].observation: expected an object, found a list of 0"),
        (
            put(0, "observation", "session_99_observation", value={}),
            "session_99_observation: no session of this number",
        ),
        (put(0, "observation", "session_1_observation", "Ilo", value=[]), "Ilo: expected one of the speakers"),
        (
            put(0, "observation", "session_1_observation", "Corvin", 0, value=["x"]),
            "Corvin[0]: expected a pair of text and evidence, found a list of 1",
        ),
        (put(0, "qa", value=None), "[0].qa: expected a list, found null"),
        (put(0, "qa", 4, value=[]), "[0].qa[4]: expected an object, found a list of 0"),
        (put(0, "qa", 4, "question", value=4), "[0].qa[4].question: expected a text, found the number 4"),
        (put(0, "qa", 4, "category", value=6), "[0].qa[4].category: expected a number from 1 to 5, found the number 6"),
        (
            put(0, "qa", 4, "category", value="4"),
            '[0].qa[4].category: expected a number from 1 to 5, found the text "4"',
        ),
        (put(0, "qa", 4, "category", value=True), "[0].qa[4].category: expected a number from 1 to 5, found true"),
        (drop(0, "qa", 4, "answer"), '[0].qa[4]: the key "answer" is missing'),
        (put(0, "qa", 4, "answer", value=True), "[0].qa[4].answer: expected a text, found true"),
        (put(0, "qa", 4, "evidence", value="D1:1"), "[0].qa[4].evidence: expected a list"),
        (
            put(0, "qa", 4, "evidence", value=[3]),
            "[0].qa[4].evidence[0]: expected a turn id like D1:3, found the number",
        ),
    ],
)
def test_wrong_shape_of_locomo(change: Change, how: Callable[[Any], Any], says: str) -> None:
    folder = change(LOCOMO, how)
    text = message(folder)
    assert text.startswith(f"{folder / LOCOMO}: ")
    assert says in text


def test_a_conversation_twice(change: Change) -> None:
    assert 'the conversation "sample-1" is there twice' in message(change(LOCOMO, lambda data: data * 2))


def test_half_a_surrogate_pair(folder: Path) -> None:
    path = folder / OP
    path.write_text(path.read_text("utf-8").replace('"profile": "', '"profile": "\\ud83d ', 1), "utf-8")
    assert "[0].Ottilie.profile: the text holds a character that can't be stored" in message(folder)


def test_conversations_in_another_order(change: Change) -> None:
    """Two conversations, of which OP-Bench's entries stand in the other order."""

    def second(data: Any) -> None:
        text = json.dumps(data[0])
        other = text.replace("Ottilie", "Wenzel").replace("Corvin", "Ludo").replace("sample-1", "sample-2")
        data.append(json.loads(other))

    change(LOCOMO, second)
    folder = change(OP, lambda data: data.insert(0, {"Wenzel": data[0]["Ottilie"], "Ludo": data[0]["Corvin"]}))
    assert "[0]: expected the speakers of sample-1, Ottilie and Corvin, found Wenzel and Ludo" in message(folder)
