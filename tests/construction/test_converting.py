"""Chats in JSON Lines become LoCoMo's format; what can't be read is told by file and line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from opbench.construction.converting import Converted, convert, convert_bytes
from opbench.construction.loading import read_bytes, read_source
from opbench.errors import DataError, UsageError

MESSAGES = [
    {
        "conversation": "kite",
        "role": "user",
        "speaker": "Wanda",
        "text": "The kite is up.",
        "time": "2024-05-01T09:58:00Z",
    },
    {"conversation": "kite", "role": "assistant", "text": "How high?", "time": "2024-05-01T09:59:00Z"},
    {"conversation": "kite", "role": "user", "speaker": "Wanda", "text": "Down again.", "time": "2024-05-01T15:59:00Z"},
    {"conversation": "kite", "role": "assistant", "text": "A pity.", "time": "2024-05-01T22:00:01Z"},
    {"conversation": "boat", "speaker": "Ivo", "text": "I caulked the boat.", "time": 1714557600},
    {"conversation": "boat", "speaker": "Pia", "text": "At last.", "time": 1714557660000},
]


def made(*messages: object, **settings: object) -> Converted:
    data = "\n".join(json.dumps(message) for message in messages).encode()
    return convert_bytes(data, "chats.jsonl", **settings)  # type: ignore[arg-type]


def test_messages_become_dated_sessions_of_two_speakers() -> None:
    converted = made(*MESSAGES)
    kite, boat = converted.conversations
    # 09:59 to 15:59 is exactly six hours, 15:59 to 22:00:01 more than that.
    assert kite["conversation"] == {
        "speaker_a": "Wanda",
        "speaker_b": "Assistant",
        "session_1_date_time": "9:58 am on 1 May, 2024",
        "session_1": [
            {"speaker": "Wanda", "dia_id": "D1:1", "text": "The kite is up."},
            {"speaker": "Assistant", "dia_id": "D1:2", "text": "How high?"},
            {"speaker": "Wanda", "dia_id": "D1:3", "text": "Down again."},
        ],
        "session_2_date_time": "10:00 pm on 1 May, 2024",
        "session_2": [{"speaker": "Assistant", "dia_id": "D2:1", "text": "A pity."}],
    }
    assert (kite["sample_id"], boat["sample_id"]) == ("kite", "boat")
    assert (boat["conversation"]["speaker_a"], boat["conversation"]["speaker_b"]) == ("Ivo", "Pia")
    # 1714557600 is 10:00 of that day in UTC; the second time is in milliseconds.
    assert boat["conversation"]["session_1_date_time"] == "10:00 am on 1 May, 2024"
    assert (converted.sessions, converted.turns, converted.left_out) == (3, 6, {})


def test_what_was_converted_can_be_built_from() -> None:
    source = read_bytes(made(*MESSAGES).json(), "chats.json")
    assert list(source.users) == ["kite/Wanda", "kite/Assistant", "boat/Ivo", "boat/Pia"]
    assert [session.date.hour for session in source.conversations["kite"].sessions] == [9, 22]
    assert source.locomo == ()
    assert source.summaries == {"kite": {}, "boat": {}}


def test_sessions_carry_the_clock_of_a_zone() -> None:
    at = ["2024-01-31T23:30:00Z", "2024-07-01T00:15:00", "2024-07-01T05:00:00+05:30"]
    turns = [{"speaker": "AB"[n % 2], "text": "hm", "time": time} for n, time in enumerate(at)]
    body = made(*turns, zone="Europe/Berlin").conversations[0]["conversation"]
    # Berlin is an hour ahead in January and two in July; 05:00+05:30 is 23:30 UTC of the day before, 1:30 in Berlin;
    # a time that names no zone is Berlin's already.
    dates = [body[key] for key in body if key.endswith("date_time")]
    assert dates == ["12:30 am on 1 February, 2024", "12:15 am on 1 July, 2024"]
    assert len(body["session_2"]) == 2


def test_messages_are_put_in_the_order_of_time_and_equal_times_stay_as_they_came() -> None:
    turns = [("later", "12:00"), ("first", "11:00"), ("second", "11:00"), ("third", "11:00")]
    messages = [
        {"speaker": "AB"[n % 2], "text": text, "time": f"2024-05-01T{time}"} for n, (text, time) in enumerate(turns)
    ]
    body = made(*messages, gap_hours=0.5).conversations[0]["conversation"]
    assert [turn["text"] for turn in body["session_1"]] == ["first", "second", "third"]
    assert [turn["text"] for turn in body["session_2"]] == ["later"]


def test_a_line_may_hold_a_whole_conversation() -> None:
    said = [
        {"role": "system", "content": "Be brief.", "timestamp": "2024-05-01T10:00"},
        {"role": "assistant", "content": "Hello.", "timestamp": "2024-05-01T10:00"},
        {"role": "user", "content": "Hello to you.", "timestamp": "2024-05-01T10:01"},
        {"role": "user", "content": "  ", "timestamp": "2024-05-01T10:02"},
    ]
    converted = made({"messages": said}, {"conversation": "named", "messages": said[1:3]})
    assert [each["sample_id"] for each in converted.conversations] == ["chat-1", "named"]
    assert converted.left_out == {"system": 1, "blank": 1}
    # The user stands first, though the assistant greets.
    assert converted.conversations[0]["conversation"]["speaker_a"] == "User"


def test_a_user_who_gets_no_answer_speaks_to_an_assistant() -> None:
    body = made({"role": "user", "text": "Anybody?", "time": "2024-05-01T10:00"}).conversations[0]["conversation"]
    assert (body["speaker_a"], body["speaker_b"]) == ("User", "Assistant")


GOOD = {"speaker": "A", "text": "hm", "time": "2024-05-01T10:00"}


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (b"", "no message in it"),
        (b"\n\n", "no message in it"),
        (b'{"speaker": "A"', "line 1: JSON over several lines"),
        (json.dumps([GOOD], indent=1).encode(), "line 1: JSON over several lines"),
        (json.dumps([GOOD]).encode(), "line 1: a list; write one object a line"),
        (json.dumps(GOOD).encode() + b"\n{nope}", "line 2: not JSON (column 2"),
        (json.dumps(GOOD).encode() + b'\n{"text": "\xff"}', "line 2: byte 11 isn't UTF-8"),
        ("{}".encode("utf-16"), "line 1: UTF-16"),
        (b"3", "line 1: expected an object, found the number 3"),
        (b'{"text": "hm", "time": "2024-05-01"}', "line 1: who speaks is missing"),
        (b'{"role": "narrator", "text": "hm", "time": "2024-05-01"}', 'line 1.role: no role the text "narrator"'),
        (b'{"speaker": "A", "time": "2024-05-01"}', "line 1: the text is missing"),
        (b'{"speaker": "A", "text": 7, "time": "2024-05-01"}', "line 1.text: expected a text, found the number 7"),
        (b'{"speaker": "A", "text": "a\\u0000b", "time": "2024-05-01"}', "can't be stored"),
        (b'{"speaker": "A/B", "text": "hm", "time": "2024-05-01"}', "line 1.speaker: expected a name without slashes"),
        (b'{"speaker": "A", "text": "hm"}', "line 1: the time is missing"),
        (b'{"speaker": "A", "text": "hm", "time": "yesterday"}', "line 1.time: expected a time like 2023-05-08T13:56"),
        (b'{"speaker": "A", "text": "hm", "time": 1e300}', "line 1.time: expected a time"),
        (b'{"speaker": "A", "text": "hm", "time": true}', "line 1.time: expected a time"),
        (json.dumps(GOOD).encode(), "line 1: A is the only speaker in the conversation chat-1"),
        (
            b"\n".join(json.dumps(GOOD | {"speaker": name}).encode() for name in "ABC"),
            "line 3: a third speaker in the conversation chat-1 (A, B, C)",
        ),
        (b'{"messages": {}}', "line 1.messages: expected a list"),
    ],
)
def test_each_kind_of_bad_input_is_one_clear_line(lines: bytes, told: str, tmp_path: Path) -> None:
    file = tmp_path / "chats.jsonl"
    file.write_bytes(lines)
    with pytest.raises(DataError) as caught:
        convert(file)
    assert told in str(caught.value)
    assert str(caught.value).startswith(f"{file}: ")
    assert "\n" not in str(caught.value)


def test_a_wrong_zone_or_gap_is_told() -> None:
    with pytest.raises(UsageError, match="no time zone 'Mars/Olympus'"):
        made(GOOD, zone="Mars/Olympus")
    with pytest.raises(UsageError, match="give a number above 0"):
        made(GOOD, gap_hours=0)


def test_a_file_is_never_overwritten(tmp_path: Path) -> None:
    converted = made(*MESSAGES)
    converted.write(tmp_path / "new" / "chats.json")
    assert list(read_source(tmp_path / "new" / "chats.json").conversations) == ["kite", "boat"]
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["chats.json"]
    with pytest.raises(UsageError, match="is there already"):
        converted.write(tmp_path / "new" / "chats.json")
