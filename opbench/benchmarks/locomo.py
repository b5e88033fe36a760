"""LoCoMo's file: conversations with dated sessions, and 1,986 questions (arXiv 2402.17753)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from opbench.benchmarks.oddities import oddity
from opbench.benchmarks.shape import Node, describe
from opbench.types import LOCOMO_CATEGORIES, Conversation, Instance, Observation, Oddity, Session, Turn, User

_TURN_ID = re.compile(r"D(\d+):(\d+)")
_DATE = re.compile(r"(\d{1,2}):(\d{2}) ([ap]m) on (\d{1,2}) ([A-Z][a-z]+), (\d{4})")
# Spelled out because strptime's %B follows the machine's locale.
_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)


@dataclass(slots=True)
class LocomoFile:
    """What the file holds. `users` are by user id, speaker_a before speaker_b, in file order."""

    conversations: dict[str, Conversation] = field(default_factory=dict)
    users: dict[str, User] = field(default_factory=dict)
    instances: list[Instance] = field(default_factory=list)
    oddities: list[Oddity] = field(default_factory=list)


def parse(root: Node) -> LocomoFile:
    """The file's conversations and questions.

    Raises:
        DataError: a wrong shape at any level, a session without a date, a turn id or conversation id that occurs twice.
    """
    result = LocomoFile()
    for node in root.items():
        conversation = _conversation(node, result.oddities)
        if conversation.id in result.conversations:
            raise node.key("sample_id").error(f'the conversation "{conversation.id}" is there twice')
        result.conversations[conversation.id] = conversation
        first, second = conversation.speakers
        users = (User(conversation.id, first, second, True), User(conversation.id, second, first, False))
        result.users.update({user.id: user for user in users})
        result.instances += _questions(node.key("qa"), conversation, users[0], result.oddities)
    if not result.conversations:
        raise root.error("no conversation in it")
    return result


def parse_date(node: Node) -> datetime:
    """A session's date as the file writes it: `1:56 pm on 8 May, 2023`."""
    text = node.text()
    match = _DATE.fullmatch(text.strip())
    if match and match[5] in _MONTHS and 1 <= int(match[1]) <= 12:
        hour = int(match[1]) % 12 + (12 if match[3] == "pm" else 0)
        try:
            return datetime(int(match[6]), _MONTHS.index(match[5]) + 1, int(match[4]), hour, int(match[2]))
        except ValueError as error:
            raise node.error(f"no such date: {describe(text)} ({error})") from error
    raise node.error(f"expected a date like 1:56 pm on 8 May, 2023, found {describe(text)}")


def _conversation(node: Node, oddities: list[Oddity]) -> Conversation:
    body = node.key("conversation")
    speakers = (body.key("speaker_a").name(), body.key("speaker_b").name())
    if speakers[0] == speakers[1]:
        raise body.key("speaker_b").error("the same name as speaker_a; the two speakers need different names")
    entries = body.entries()
    turns: dict[int, tuple[Turn, ...]] = {}
    dates: dict[int, datetime] = {}
    seen: set[str] = set()
    for key, entry in entries.items():
        if match := re.fullmatch(r"session_(\d+)", key):
            turns[int(match[1])] = tuple(_turn(turn, speakers, seen) for turn in entry.items())
        elif match := re.fullmatch(r"session_(\d+)_date_time", key):
            dates[int(match[1])] = parse_date(entry)
            if f"session_{match[1]}" not in entries:
                oddities.append(oddity("date-without-session", entry, f"there is no session_{match[1]}"))
    if not any(turns.values()):
        raise body.error("nobody says anything in it" if turns else "no session in it")
    if undated := sorted(turns.keys() - dates.keys()):
        raise body.error(f'the key "session_{undated[0]}_date_time" is missing')
    observations = _observations(node.key("observation"), speakers, turns.keys(), seen, oddities)
    sessions = [Session(number, dates[number], turns[number], tuple(observations.get(number, ()))) for number in turns]
    sessions.sort(key=lambda session: (session.date, session.number))
    return Conversation(node.key("sample_id").name(), speakers, tuple(sessions))


def _turn(node: Node, speakers: tuple[str, str], seen: set[str]) -> Turn:
    entries = node.entries()
    identity = node.key("dia_id")
    if not _TURN_ID.fullmatch(identity.text()):
        raise identity.error(f"expected a turn id like D1:3, found {describe(identity.value)}")
    if identity.text() in seen:
        raise identity.error(f"the turn id {identity.text()} is there twice in this conversation")
    seen.add(identity.text())
    speaker = node.key("speaker").choice(speakers)
    caption = f"[shares an image: {entries['blip_caption'].text().strip()}]" if "blip_caption" in entries else ""
    text = "" if caption and entries.get("text", node).value == "" else node.key("text").text()
    return Turn(identity.text(), speaker, f"{text} {caption}".strip() if caption else text)


def _observations(
    node: Node, speakers: tuple[str, str], sessions: Iterable[int], turns: set[str], oddities: list[Oddity]
) -> dict[int, list[Observation]]:
    keys = {f"session_{number}_observation": number for number in sessions}
    found: dict[int, list[Observation]] = {}
    for key, session in node.entries().items():
        if key not in keys:
            raise session.error("no session of this number in the conversation; expected session_N_observation")
        for speaker, facts in session.entries().items():
            if speaker not in speakers:
                raise facts.error(f"expected one of the speakers {' and '.join(speakers)}")
            for fact in facts.items():
                pair = fact.items()
                if len(pair) != 2:
                    raise fact.error(f"expected a pair of text and evidence, found {describe(fact.value)}")
                raw = pair[1].items() if isinstance(pair[1].value, list) else [pair[1]]
                evidence, odd = _evidence(raw, turns)
                oddities += [oddity("malformed-observation-evidence", at, detail) for _, at, detail in odd]
                found.setdefault(keys[key], []).append(Observation(speaker, pair[0].text(), evidence))
    return found


def _questions(node: Node, conversation: Conversation, user: User, oddities: list[Oddity]) -> list[Instance]:
    turns = {turn.id for session in conversation.sessions for turn in session.turns}
    seen: dict[str, str] = {}
    instances = []
    for number, item in enumerate(node.items(), start=1):
        identity = f"locomo/{conversation.id}/{number}"
        question = item.key("question").text()
        if question in seen:
            oddities.append(oddity("repeated-question", item.key("question"), f"{identity}: same as {seen[question]}"))
        seen.setdefault(question, identity)
        category = item.key("category")
        if type(category.value) is not int or category.value not in LOCOMO_CATEGORIES:
            raise category.error(f"expected a number from 1 to 5, found {describe(category.value)}")
        raw = item.key("evidence")
        evidence, odd = _evidence(raw.items(), turns)
        if not raw.items():
            odd = [("empty-evidence", raw, "no evidence")]
        oddities += [oddity(kind, at, f"{identity}: {detail}") for kind, at, detail in odd]
        instances.append(
            Instance(
                id=identity,
                benchmark="locomo",
                user=user,
                subtype=LOCOMO_CATEGORIES[category.value],
                question=question,
                answer=_answer(item, category.value == 5, identity, oddities),
                evidence=evidence,
            )
        )
    return instances


def _answer(item: Node, adversarial: bool, identity: str, oddities: list[Oddity]) -> str | None:
    """The gold answer as text. An adversarial question has none: what it asks isn't in the conversation."""
    if adversarial:
        if "answer" in item.entries():
            detail = f"{identity}: has an answer and the adversarial one"
            oddities.append(oddity("adversarial-with-answer", item.key("answer"), detail))
        else:
            oddities.append(oddity("missing-answer", item, f"{identity}: adversarial, without an answer"))
        return None
    answer = item.key("answer")
    if isinstance(answer.value, int | float) and not isinstance(answer.value, bool):
        oddities.append(oddity("numeric-answer", answer, f"{identity}: the number {answer.value}"))
        return str(answer.value)
    return answer.text()


def _evidence(raw: Sequence[Node], turns: set[str]) -> tuple[tuple[str, ...], list[tuple[str, Node, str]]]:
    """The turn ids that exist, in order and once each; and (kind, node, detail) of what was odd."""
    kept: list[str] = []
    odd: list[tuple[str, Node, str]] = []
    for node in raw:
        if not isinstance(node.value, str):
            raise node.error(f"expected a turn id like D1:3, found {describe(node.value)}")
        tokens = [token for token in re.split(r"[;,\s]+", node.value) if token]
        good = [token for token in tokens if _TURN_ID.fullmatch(token)]
        if len(tokens) != 1 or tokens != good:
            what = f"read as {', '.join(good)}" if good else "left out"
            odd.append(("malformed-evidence", node, f"{describe(node.value)}: {what}"))
        for token in good:
            turn = token
            if turn not in turns:
                turn = "D{}:{}".format(*(int(part) for part in token[1:].split(":")))
                what = f"read as {turn}" if turn in turns else "left out"
                odd.append(("evidence-nowhere", node, f"{token}: {what}"))
            if turn in kept:
                odd.append(("repeated-evidence", node, f"{turn} again"))
            elif turn in turns:
                kept.append(turn)
    return tuple(kept), odd
