"""The job that reads records of a run with a reading model and keeps where the attention went."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest

from sqlalchemy import select

from opbench.errors import UsageError
from opbench.mechanism.prompts import GONE, Read, read_prompt
from opbench.mechanism.reader import ReadingModel
from opbench.mechanism.spans import Unreadable
from opbench.store import schema as s
from opbench.store.attention import SEGMENTS, Measured, same_text, save_attention, stored_texts
from opbench.store.database import Store
from opbench.store.frames import CONFIGURATION
from opbench.store.rundata import Key
from opbench.types import OP_SUBTYPES

#: Instances of a subtype that are read unless told otherwise.
LIMIT = 8


@dataclass(frozen=True, slots=True)
class Chosen:
    """A record to be read."""

    record: int
    key: Key
    instance: str
    subtype: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be read: every configuration on the same instances."""

    run_id: str
    configurations: tuple[Key, ...]
    uncalled: tuple[Key, ...]
    """Configurations that were left out since they answer without any call to a model."""
    instances: dict[str, int]
    """Instances by subtype."""
    users: int
    unpaired: int
    """Instances that were passed over since a configuration has no response to them yet."""
    records: tuple[Chosen, ...]
    """Instance by instance, over all subtypes in turn: a job that stops half way has read of every subtype."""
    tokens: int | None
    """Of prompts and responses, as endpoints counted them; None where one didn't."""


@dataclass(slots=True)
class Outcome:
    """What a job has done."""

    planned: int
    measured: int = 0
    alike: int = 0
    """Of the same text as another record: not read twice."""
    kept: int = 0
    """Measured before."""
    skipped: Counter[str] = field(default_factory=Counter)
    """Records that couldn't be read, by reason."""
    stopped: bool = False

    @property
    def done(self) -> int:
        return self.measured + self.alike + self.kept + sum(self.skipped.values())


def plan(
    store: Store,
    run_id: str,
    *,
    configurations: Sequence[Key] = (),
    subtypes: Sequence[str] = (),
    limit: int | None = LIMIT,
) -> Plan:
    """Choose what to read: of each subtype `limit` instances (None: all), spread over the users, to which all of the
    configurations have responded.

    `configurations` empty: all of the run that ask a model for their responses. `subtypes` empty: OP-Bench's.

    Raises:
        UsageError: the run came from a bundle, or there is nothing to read.
    """
    r, c, i = s.records.c, s.configurations.c, s.instances.c
    with store.begin() as connection:
        run = connection.execute(select(s.runs.c.recorded, s.runs.c.text_left_out).where(s.runs.c.id == run_id)).one()
        if run.recorded or run.text_left_out:
            raise UsageError(
                f"run {run_id} came from a bundle, which holds no calls: there is no prompt to read. Measure attention "
                "in the store where the run was made."
            )
        slice_ = connection.execute(
            select(i.instance_id, i.user_id, i.subtype).where(i.run_id == run_id).order_by(i.ordinal)
        ).all()
        known = connection.execute(select(c.id, *CONFIGURATION).where(c.run_id == run_id).order_by(c.id)).all()
        called = select(s.record_calls.c.record_id).where(s.record_calls.c.stage == "response")
        rows = connection.execute(
            select(r.id, r.configuration_id, r.instance_id, r.response_prompt_tokens, r.response_completion_tokens)
            .where(r.run_id == run_id, r.status == "done", r.id.in_(called))
            .order_by(r.id)
        ).all()
        done = set(
            connection.scalars(
                select(r.configuration_id).where(r.run_id == run_id, r.status == "done").group_by(r.configuration_id)
            )
        )
    keys: dict[int, Key] = {row.id: (row.model, row.memory, row.mitigation) for row in known}
    responding = {row.configuration_id for row in rows}
    wanted = [number for number, key in keys.items() if not configurations or key in configurations]
    uncalled = [number for number in wanted if number in done - responding]
    if configurations and uncalled:
        raise UsageError(
            f"{' · '.join(keys[uncalled[0]])} answers without any call to a model: there is nothing to read."
        )
    taken = [number for number in wanted if number not in uncalled]
    records = {(row.configuration_id, row.instance_id): row for row in rows}
    within = set(subtypes or OP_SUBTYPES)
    fitting = [row for row in slice_ if row.subtype in within]
    if not fitting:
        there = ", ".join(dict.fromkeys(row.subtype for row in slice_))
        raise UsageError(f"run {run_id} has no instances of these subtypes. It has {there}: choose with --subtypes.")
    paired = [row for row in fitting if all((number, row.instance_id) in records for number in taken)]
    if not paired or not taken:
        raise UsageError(
            f"run {run_id} has no instance to which all of these configurations have responded yet. Go on with it "
            "('opbench run'), or choose fewer with --configurations."
        )
    instances = spread([(row.instance_id, row.user_id, row.subtype) for row in paired], limit)
    of = {row.instance_id: row for row in paired}
    chosen = [(number, name) for name in instances for number in taken]
    counts = [(records[place].response_prompt_tokens, records[place].response_completion_tokens) for place in chosen]
    return Plan(
        run_id,
        tuple(keys[number] for number in taken),
        tuple(keys[number] for number in uncalled),
        dict(Counter(of[name].subtype for name in instances)),
        len({of[name].user_id for name in instances}),
        len(fitting) - len(paired),
        tuple(Chosen(records[place].id, keys[place[0]], place[1], of[place[1]].subtype) for place in chosen),
        sum(a + b for a, b in counts) if all(None not in pair for pair in counts) else None,
    )


def spread(instances: Sequence[tuple[str, str, str]], limit: int | None) -> list[str]:
    """Instances (id, user, subtype) of which each subtype has `limit`, taken from its users in turn; then one of each
    subtype after the other."""
    by_subtype: dict[str, dict[str, list[str]]] = {}
    for name, user, subtype in instances:
        by_subtype.setdefault(subtype, {}).setdefault(user, []).append(name)
    taken = [_in_turn(list(by_user.values()))[:limit] for by_user in by_subtype.values()]
    return _in_turn(taken)


def _in_turn(groups: Sequence[Sequence[str]]) -> list[str]:
    return [name for together in zip_longest(*groups) for name in together if name is not None]


def measure(
    store: Store,
    chosen: Plan,
    reader: ReadingModel,
    *,
    texts: bool = True,
    again: bool = False,
    on_progress: Callable[[Outcome, float | None], None] = lambda outcome, seconds_left: None,
    stopping: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Read the plan's records one by one, each kept when it is done; what is kept of the same text isn't read again.

    `texts`: keep the prompt's words beside their weights. `again`: read also what is kept. `on_progress` gets the
    outcome so far and the seconds left, None before the first reading. `stopping` is asked before each record.
    """
    outcome = Outcome(len(chosen.records))
    known = {} if again else stored_texts(store, chosen.run_id, reader.name)
    waiting = sum(each.record not in known for each in chosen.records)
    started, worked = time.monotonic(), 0
    instance, read_now = "", dict[str, Measured]()
    for each in chosen.records:
        if stopping():
            outcome.stopped = True
            break
        if each.instance != instance:
            # Configurations of one instance often have one prompt: a method that failed has that of none.
            instance, read_now = each.instance, {}
        try:
            prompt = read_prompt(store, each.record)
            digest, with_words = known.get(each.record, ("", False))
            if digest == prompt.text_sha256 and (with_words or not texts):
                outcome.kept += 1
            else:
                found = read_now.get(prompt.text_sha256) or (
                    None if again else _as_before(store, reader, prompt, texts)
                )
                measured = found or _measured(reader, prompt)
                read_now[prompt.text_sha256] = measured
                kept = measured if texts else _bare(measured)
                if not save_attention(store, each.record, reader.name, kept, prompt.finished_at):
                    raise Unreadable(GONE)
                outcome.measured += found is None
                outcome.alike += found is not None
        except Unreadable as reason:
            outcome.skipped[str(reason)] += 1
        worked += each.record not in known
        pace = (time.monotonic() - started) / worked if worked else None
        on_progress(outcome, None if pace is None else pace * max(0, waiting - worked))
    return outcome


def _as_before(store: Store, reader: ReadingModel, prompt: Read, texts: bool) -> Measured | None:
    found = same_text(store, reader.name, prompt.text_sha256)
    return None if found is None or (texts and found.words is None) else found


def _bare(measured: Measured) -> Measured:
    return replace(measured, words=None)


def _measured(reader: ReadingModel, prompt: Read) -> Measured:
    layout = reader.lay_out(prompt.turns)
    response = reader.tokens(prompt.response)
    where = reader.attend(layout, response)
    counts = Counter(SEGMENTS[place] for place in layout.segments) | Counter({"response": len(response)})
    words = tuple((SEGMENTS[place], text) for place, text in zip(layout.segments, layout.texts, strict=True))
    tokens = tuple(counts[name] for name in SEGMENTS)
    return Measured(prompt.text_sha256, tokens, where.masses, words, where.weights)
