"""Chats in JSON Lines to LoCoMo's format: messages with roles or names, text and time, cut into dated sessions."""

from __future__ import annotations

import json
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from opbench.benchmarks import files
from opbench.benchmarks.shape import Node, describe
from opbench.errors import DataError, UsageError

#: Names of the fields of a message; the first one that is there is taken.
CONVERSATION_KEYS = ("conversation", "conversation_id", "chat", "chat_id", "thread_id")
SPEAKER_KEYS = ("speaker", "name", "author", "sender")
TEXT_KEYS = ("text", "content", "message", "body")
TIME_KEYS = ("time", "timestamp", "date", "created_at", "create_time")
#: Who speaks where only a role is told.
ROLES = {"user": "User", "human": "User", "assistant": "Assistant", "ai": "Assistant", "bot": "Assistant"}
#: Roles whose messages nobody said.
NOT_SAID = ("system", "developer", "tool", "function")
_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_MEND = "correct it there, or leave the line out"
_DIGITS = re.compile(r"-?\d{9,}(\.\d+)?")
#: Unix times from here on are milliseconds (as seconds, it would be the year 5138).
_MILLISECONDS_FROM = 1e11
_DEFAULT_CONVERSATION = "chat-1"


@dataclass(frozen=True, slots=True)
class Converted:
    """Conversations in LoCoMo's format, and what became of the messages."""

    conversations: list[dict[str, Any]]
    sessions: int
    turns: int
    left_out: dict[str, int]
    """Messages that are no turns, by why: `blank`, or the role (`system`)."""

    def json(self) -> bytes:
        """The LoCoMo file."""
        return (json.dumps(self.conversations, ensure_ascii=False, indent=1) + "\n").encode()

    def write(self, path: Path) -> None:
        """Write the LoCoMo file, whole or not at all.

        Raises:
            UsageError: there is a file already, or it can't be written.
        """
        if path.exists():
            raise UsageError(f"{path}: is there already; name another file.")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".part", delete=False) as part:
                part.write(self.json())
            Path(part.name).replace(path)
        except OSError as error:
            raise UsageError(f"{path}: can't be written ({error.strerror}); name another file.") from error


@dataclass(frozen=True, slots=True)
class _Message:
    node: Node
    conversation: str
    speaker: str
    is_user: bool
    """Whether its role says that a user speaks."""
    text: str
    time: datetime


def convert(path: Path, *, gap_hours: float = 6.0, zone: str = "UTC") -> Converted:
    """The chats of a JSON Lines file in LoCoMo's format; see `convert_bytes`.

    Raises:
        DataError: the file can't be read, or a line isn't what it should be.
        UsageError: as `convert_bytes`.
    """
    return convert_bytes(files.read_bytes(path), str(path), gap_hours=gap_hours, zone=zone)


def convert_bytes(data: bytes, name: str, *, gap_hours: float = 6.0, zone: str = "UTC") -> Converted:
    """Chats in LoCoMo's format; `name` is the file's, for messages.

    A line is a message, `{"conversation": …, "role": "user" or "speaker": …, "text": …, "time": …}`, or a whole
    conversation that holds a list of them under `messages`. Times are ISO 8601, or Unix seconds or milliseconds;
    sessions carry them as clocks in `zone` show them, and times that name no zone are taken to be of it. Messages are
    put in the order of their times; a new session begins after `gap_hours` without a message. A conversation has
    exactly two speakers: the user comes first where roles are told, else who speaks first.

    Raises:
        DataError: a line isn't what it should be; file, line and mend are named.
        UsageError: no such zone, or a gap that isn't above 0.
    """
    if not gap_hours > 0:
        raise UsageError(f"a gap of {gap_hours:g} hours: give a number above 0.")
    clock = _zone(zone)
    left_out: Counter[str] = Counter()
    chats: dict[str, list[_Message]] = {}
    for message in _messages(data, Path(name), clock, left_out):
        chats.setdefault(message.conversation, []).append(message)
    if not chats:
        raise DataError(f"{name}: no message in it; give one JSON object a line, with role or speaker, text and time")
    made = [_conversation(identity, chat, timedelta(hours=gap_hours)) for identity, chat in chats.items()]
    sessions = [value for each in made for value in each["conversation"].values() if isinstance(value, list)]
    return Converted(made, len(sessions), sum(len(session) for session in sessions), dict(left_out))


def _zone(name: str) -> tzinfo:
    if name.upper() == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise UsageError(f"no time zone '{name}': write it as Europe/Berlin or UTC.") from None


def _messages(data: bytes, path: Path, clock: tzinfo, left_out: Counter[str]) -> Iterator[_Message]:
    for line in _lines(data, path):
        entries = line.entries()
        whole = entries.get("messages")
        identity = _first(entries, CONVERSATION_KEYS)
        if whole is None:
            yield from _message(line, identity, clock, left_out)
        else:
            number = re.search(r"\d+", line.place)
            inside = identity or Node(path, f"chat-{number[0]}" if number else _DEFAULT_CONVERSATION, line.place, _MEND)
            for node in whole.items():
                yield from _message(node, inside, clock, left_out)


def _lines(data: bytes, path: Path) -> Iterator[Node]:
    """The JSON values of the lines that aren't blank."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\x00" in data[:4]:
        raise DataError(f"{path}: line 1: UTF-16 or UTF-32 text; save it as UTF-8")
    # Not splitlines: it would cut inside texts, at separators that JSON allows there.
    for number, raw in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if not raw.strip():
            continue
        at = Node(path, None, f"line {number}", _MEND)
        try:
            value = json.loads(raw.decode())
        except UnicodeDecodeError as error:
            raise at.error(f"byte {error.start + 1} isn't UTF-8") from error
        except json.JSONDecodeError as error:
            if number == 1 and raw.lstrip()[:1] in (b"[", b"{") and error.pos >= len(raw.decode().rstrip()):
                raise DataError(
                    f"{path}: line 1: JSON over several lines; write one object a line (jq -c '.[]' does that)"
                ) from error
            raise at.error(f"not JSON (column {error.colno}: {error.msg})") from error
        except (RecursionError, ValueError) as error:
            raise at.error("not JSON that can be read (nested too deeply, or a number that is too long)") from error
        if isinstance(value, list):
            raise DataError(f"{path}: line {number}: a list; write one object a line (jq -c '.[]' does that)")
        yield Node(path, value, f"line {number}", _MEND)


def _message(node: Node, identity: Node | None, clock: tzinfo, left_out: Counter[str]) -> Iterator[_Message]:
    """The message, or none when nobody said anything."""
    entries = node.entries()
    own = _first(entries, CONVERSATION_KEYS) or identity
    conversation = _DEFAULT_CONVERSATION if own is None else _identity(own)
    role = _first(entries, ("role",))
    said = role.text().strip().lower() if role else ""
    if said in NOT_SAID:
        left_out[said] += 1
        return
    named = _first(entries, SPEAKER_KEYS)
    if named is not None:
        speaker = named.name()
    elif role is None:
        raise node.error(f"who speaks is missing: give role, or {' or '.join(SPEAKER_KEYS)}")
    elif said in ROLES:
        speaker = ROLES[said]
    else:
        raise role.error(f"no role {describe(said)}; there are {', '.join((*ROLES, *NOT_SAID))}, or give a speaker")
    text = _first(entries, TEXT_KEYS)
    if text is None:
        raise node.error(f"the text is missing: give {' or '.join(TEXT_KEYS)}")
    if isinstance(text.value, str) and not text.value.strip():
        left_out["blank"] += 1
        return
    time = _first(entries, TIME_KEYS)
    if time is None:
        raise node.error(f"the time is missing: give {' or '.join(TIME_KEYS)}")
    yield _Message(node, conversation, speaker, ROLES.get(said) == "User", text.text().strip(), _time(time, clock))


def _first(entries: dict[str, Node], names: tuple[str, ...]) -> Node | None:
    return next((entries[name] for name in names if name in entries and entries[name].value is not None), None)


def _identity(node: Node) -> str:
    if isinstance(node.value, int) and not isinstance(node.value, bool):
        return f"chat-{node.value}"
    return node.name()


def _time(node: Node, clock: tzinfo) -> datetime:
    """The clock's time, without its zone."""
    value = node.value
    if isinstance(value, str) and _DIGITS.fullmatch(value.strip()):
        value = float(value)
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            seconds = value / 1000 if abs(value) >= _MILLISECONDS_FROM else value
            return datetime.fromtimestamp(seconds, clock).replace(tzinfo=None)
        if isinstance(value, str):
            given = datetime.fromisoformat(value.strip())
            return given if given.tzinfo is None else given.astimezone(clock).replace(tzinfo=None)
    except (ValueError, OverflowError, OSError):
        pass
    raise node.error(f"expected a time like 2023-05-08T13:56:00+02:00 or Unix seconds, found {describe(node.value)}")


def _conversation(identity: str, chat: list[_Message], gap: timedelta) -> dict[str, Any]:
    # Stable: messages of one time stay as they came.
    chat = sorted(chat, key=lambda message: message.time)
    first, second = _speakers(identity, chat)
    body: dict[str, Any] = {"speaker_a": first, "speaker_b": second}
    number = 0
    before: datetime | None = None
    for message in chat:
        if before is None or message.time - before > gap:
            number += 1
            body[f"session_{number}_date_time"] = _prose(message.time)
            body[f"session_{number}"] = []
        session = body[f"session_{number}"]
        turn = f"D{number}:{len(session) + 1}"
        session.append({"speaker": message.speaker, "dia_id": turn, "text": message.text})
        before = message.time
    return {
        "qa": [],
        "conversation": body,
        "event_summary": {},
        "observation": {},
        "session_summary": {},
        "sample_id": identity,
    }


def _speakers(identity: str, chat: list[_Message]) -> tuple[str, str]:
    first_of: dict[str, _Message] = {}
    for message in chat:
        first_of.setdefault(message.speaker, message)
    names = list(first_of)
    if len(names) > 2:
        listed = ", ".join(names[:5])
        raise first_of[names[2]].node.error(
            f"a third speaker in the conversation {identity} ({listed}); LoCoMo's format has two, so split it"
        )
    users = {message.speaker for message in chat if message.is_user}
    if len(names) == 1:
        if users == set(names) and names[0] != ROLES["assistant"]:
            return names[0], ROLES["assistant"]
        raise first_of[names[0]].node.error(
            f"{names[0]} is the only speaker in the conversation {identity}; it needs two"
        )
    if len(users) == 1 and names[0] not in users:
        names.reverse()
    return names[0], names[1]


def _prose(time: datetime) -> str:
    """As LoCoMo writes it: `1:56 pm on 8 May, 2023`."""
    hour = time.hour % 12 or 12
    half = "am" if time.hour < 12 else "pm"
    return f"{hour}:{time.minute:02d} {half} on {time.day} {_MONTHS[time.month - 1]}, {time.year:04d}"
