"""The ledger of a soak: what the provider answered against what the store holds.

An answer that is in no store was either in flight when its process ended (killed, or its store was gone), and then it
is among the last ones before that end and no more than what the process had in hands; or it is lost, or, where the same
body was answered again, paid twice. The last two must be 0.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select

from opbench.store import schema as s
from opbench.store.database import Store
from tests.soak.provider import ANSWERS, REASONS, REFUSAL, digest_of, name_of

#: Calls of one record whose answers may be in hands before it is written: draft, revision, judge, vector.
CALLS_A_RECORD = 4


@dataclass(frozen=True, slots=True)
class Break:
    """Something ended a process that had work in hands."""

    at: float
    """When, by the monotonic clock of this machine."""
    concurrency: int
    """Instances that it worked on at the most; as many more may have waited to be written."""
    what: str


@dataclass(slots=True)
class Line:
    """One line of the table."""

    name: str
    planned: int = 0
    requests: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    answers: int = 0
    done: int = 0
    missing: Counter[str] = field(default_factory=Counter)
    """Records without a response and scores without a value, by reason."""
    in_flight: int = 0
    breaks: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    double: int = 0
    wrong: list[str] = field(default_factory=list)
    """What doesn't add up, a sentence each."""
    said: list[str] = field(default_factory=list)
    """The line with which each process that wasn't killed told its end."""
    seconds: float = 0.0


def audit(name: str, log: dict[str, Any], store: Store, breaks: Sequence[Break], planned: int) -> Line:
    """Compare the provider's log with the store, which holds this run alone."""
    line = Line(name, planned, log["requests"], breaks=Counter(each.what for each in breaks))
    bodies: dict[str, dict[str, Any]] = log["bodies"]
    for known in bodies.values():
        for _, kind in known["events"]:
            if kind in ANSWERS:
                line.answers += 1
            if kind != "answer":
                line.faults[kind] += 1
    stored = _stored(store)
    deaths = [at for known in bodies.values() for at, kind in known["events"] if kind == "dead"]
    _calls(line, bodies, stored, breaks, was_away=bool(deaths))
    _vectors(line, bodies, breaks)
    _records(line, store, bodies, stored)
    return line


def _stored(store: Store) -> dict[str, Any]:
    """The chat calls of the store by their body's digest."""
    found: dict[str, Any] = {}
    with store.begin() as connection:
        for call in connection.execute(select(s.calls).where(s.calls.c.kind == "chat")):
            digest = digest_of(_body(call.request))
            assert digest not in found, f"two calls of one body: {call.key} and {found[digest].key}"
            found[digest] = call
    return found


def _body(request: dict[str, Any]) -> dict[str, Any]:
    """What was sent for a stored call's request."""
    endpoint = request["endpoint"]
    return {
        "model": endpoint["served"],
        "messages": [{"role": each["role"], "content": each["content"]} for each in request["messages"]],
        "temperature": request["temperature"],
        "max_tokens": request["max_tokens"],
        **json.loads(endpoint["extra_body"]),
    }


def _calls(
    line: Line, bodies: dict[str, dict[str, Any]], stored: dict[str, Any], breaks: Sequence[Break], *, was_away: bool
) -> None:
    """Every stored call is an answer that was given, and every answer is stored, or was in flight, or a blank one that
    was asked again. Of attempts while the provider `was_away` it knows nothing."""
    for digest, call in stored.items():
        if digest not in bodies:
            line.wrong.append(f"call {call.key[:12]} is stored and was never sent")
    unstored: list[tuple[float, str]] = []
    for digest, known in bodies.items():
        if known["role"] == "embed":
            continue
        call = stored.get(digest)
        events = known["events"]
        given = [number for number, (_, kind) in enumerate(events, 1) if kind in ANSWERS]
        kept = None
        if call is not None:
            kept = next((n for n in given if name_of(digest, n) in call.response), None)
            if kept is None and not call.response and given and events[given[-1] - 1][1] == "blank":
                kept = given[-1]
            if kept is None:
                line.wrong.append(f"call {call.key[:12]} holds what was never answered to its body")
            elif call.attempts > len(events) and not was_away:
                line.wrong.append(f"call {call.key[:12]} tells {call.attempts} attempts of {len(events)}")
        for number in given:
            # A blank answer is asked again; that is what it was paid for.
            if number != kept and events[number - 1][1] != "blank":
                unstored.append((events[number - 1][0], "double" if len(given) > 1 else "lost"))
    _attribute(line, unstored, breaks)


def _vectors(line: Line, bodies: dict[str, dict[str, Any]], breaks: Sequence[Break]) -> None:
    """No text is embedded twice but for those whose vectors were in flight. (Of vectors the store has no names.)"""
    again: list[tuple[float, str]] = []
    for known in bodies.values():
        if known["role"] == "embed":
            given = [at for at, kind in known["events"] if kind in ANSWERS]
            again += [(at, "double") for at in given[:-1]]
    _attribute(line, again, breaks)


def _attribute(line: Line, answers: Iterable[tuple[float, str]], breaks: Sequence[Break]) -> None:
    """Book answers (when given, what it is if it wasn't in flight) that nobody kept."""
    by_break: defaultdict[Break, list[tuple[float, str]]] = defaultdict(list)
    ends = sorted(breaks, key=lambda each: each.at)
    for at, what in answers:
        ending = next((each for each in ends if each.at >= at), None)
        if ending is None:
            _book(line, what)
        else:
            by_break[ending].append((at, what))
    for ending, unkept in by_break.items():
        unkept.sort(reverse=True)
        in_hands = 2 * ending.concurrency * CALLS_A_RECORD
        line.in_flight += len(unkept[:in_hands])
        for _, what in unkept[in_hands:]:
            _book(line, what)


def _book(line: Line, what: str) -> None:
    if what == "double":
        line.double += 1
    else:
        line.lost += 1


def _records(line: Line, store: Store, bodies: dict[str, dict[str, Any]], stored: dict[str, Any]) -> None:
    """Records, uses and scores add up, and what is missing tells why."""
    with store.begin() as connection:
        configurations = {row.id: row for row in connection.execute(select(s.configurations))}
        instances = {row.instance_id: row for row in connection.execute(select(s.instances))}
        records = connection.execute(select(s.records)).all()
        scores = connection.execute(select(s.scores)).all()
        uses = connection.execute(select(s.record_calls)).all()
        keys = set(connection.scalars(select(s.calls.c.key)))
        vectors = set(connection.scalars(select(s.embeddings.c.record_id)))
    if len(configurations) * len(instances) != line.planned:
        line.wrong.append(f"{len(configurations)} × {len(instances)} records are planned, not {line.planned}")
    at = Counter((row.configuration_id, row.instance_id) for row in records)
    line.double += sum(at.values()) - len(at)
    line.lost += line.planned - len(at)
    stages: defaultdict[int, list[str]] = defaultdict(list)
    for use in uses:
        stages[use.record_id].append(use.stage)
        if use.call_key not in keys:
            line.wrong.append(f"record {use.record_id} rests on a call that isn't there")
    of_record: defaultdict[int, list[Any]] = defaultdict(list)
    for score in scores:
        of_record[score.record_id].append(score)
    refused = _refused(bodies)
    unembedded = {text for known in bodies.values() if "body" in known for text in known["body"].get("input", ())}
    for row in records:
        instance, configuration = instances[row.instance_id], configurations[row.configuration_id]
        if row.status == "error":
            line.missing[row.error_kind] += 1
            meant = {
                kind for model, text, kind in refused if model == configuration.model and instance.question in text
            }
            if row.error_kind not in meant:
                line.wrong.append(f"{row.instance_id} is missing for {row.error_kind}; the provider did {meant}")
            if row.response is not None or of_record[row.id]:
                line.wrong.append(f"{row.instance_id} is an error and has a response or a score")
            continue
        line.done += 1
        if not row.response or "response" not in stages[row.id]:
            line.wrong.append(f"{row.instance_id} is done without a response")
        if instance.subtype == "repetition":
            if row.id not in vectors and row.response in unembedded:
                line.missing["vector"] += 1
            elif row.id not in vectors:
                line.wrong.append(f"{row.instance_id} is done and has no vector")
            continue
        metric = "correct" if instance.benchmark == "locomo" else "score"
        judged = [score for score in of_record[row.id] if score.metric == metric]
        if len(judged) != 1:
            line.wrong.append(f"{row.instance_id} is done and has {len(judged)} scores")
        for score in judged:
            if score.value is None:
                _missing_score(line, row, score, refused)
            elif "judge" not in stages[row.id]:
                line.wrong.append(f"{row.instance_id} has a score that rests on no call")
    if set(keys) != {use.call_key for use in uses}:
        line.wrong.append("a call is stored that no record rests on")
    _money(line, stored, bodies)


def _refused(bodies: dict[str, dict[str, Any]]) -> set[tuple[str, str, str]]:
    """(model, all that was asked, reason) of what the provider refuses for ever."""
    return {
        (
            known["model"],
            "\n".join(each["content"] for each in known["body"]["messages"]),
            REASONS[known["events"][-1][1]],
        )
        for known in bodies.values()
        if "body" in known and known["role"] != "embed"
    }


def _missing_score(line: Line, record: Any, score: Any, refused: set[tuple[str, str, str]]) -> None:
    if score.retriable:
        kind = score.reason.split(": ")[1]
        line.missing[f"judge {kind}"] += 1
        if not any(record.response in text and kind == reason for _, text, reason in refused):
            line.wrong.append(f"{record.instance_id} has no score for {kind}, which the provider didn't do")
        return
    said = score.raw or ""
    what = "refusal" if REFUSAL in said else "blank" if not said.strip() else "cut off"
    line.missing[f"judge's reply: {what}"] += 1
    if what == "cut off" and "cut off" not in score.reason:
        line.wrong.append(f"{record.instance_id} has no score: {score.reason}. The reply was {said!r}")


def _money(line: Line, stored: dict[str, Any], bodies: dict[str, dict[str, Any]]) -> None:
    """No call tells less or more dollars than its answer and the blank ones before it cost."""
    for digest, call in stored.items():
        if call.cost_usd is None:
            line.wrong.append(f"call {call.key[:12]} has no cost")
            continue
        blanks = sum(kind == "blank" for _, kind in bodies[digest]["events"])
        once = (call.prompt_tokens * 1.0 + call.completion_tokens * 2.0) / 1e6
        if not once - 1e-12 <= call.cost_usd <= once + blanks * (call.prompt_tokens + 2.0) / 1e6 + 1e-12:
            line.wrong.append(f"call {call.key[:12]} tells ${call.cost_usd:.6f}; its answer cost ${once:.6f}")


def table(lines: Sequence[Line]) -> str:
    """The ledger for people: a line a scenario, the sum, and the faults by kind."""
    head = (
        "scenario",
        "records",
        "done",
        "requests",
        "answers",
        "faults",
        "breaks",
        "in flight",
        "lost",
        "double",
        "s",
    )
    rows = [head]
    for line in [*lines, _sum(lines)]:
        rows.append(
            (
                line.name,
                f"{line.planned:,}",
                f"{line.done:,}",
                f"{line.requests:,}",
                f"{line.answers:,}",
                f"{line.faults.total():,}",
                str(line.breaks.total()),
                str(line.in_flight),
                str(line.lost),
                str(line.double),
                f"{line.seconds:.1f}",
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    text = []
    for name, *numbers in rows:
        cells = [number.rjust(width) for number, width in zip(numbers, widths[1:], strict=True)]
        text.append("  ".join([name.ljust(widths[0]), *cells]))
    whole = _sum(lines)
    for title, counts in (("faults", whole.faults), ("breaks", whole.breaks), ("missing", whole.missing)):
        text.append(f"{title}: " + (", ".join(f"{name} {n:,}" for name, n in sorted(counts.items())) or "none"))
    text += [f"{line.name}: {sentence}" for line in lines for sentence in dict.fromkeys(line.said)]
    return "\n".join(text)


def _sum(lines: Sequence[Line]) -> Line:
    whole = Line("all")
    for line in lines:
        for name in ("planned", "requests", "answers", "done", "in_flight", "lost", "double", "seconds"):
            setattr(whole, name, getattr(whole, name) + getattr(line, name))
        whole.faults += line.faults
        whole.missing += line.missing
        whole.breaks += line.breaks
    return whole
