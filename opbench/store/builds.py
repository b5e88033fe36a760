"""Builds in the store: what was asked for, the units of work that are done, and the candidate questions.

A unit is written in one transaction with its candidates and its calls; one that is there is done. Who is at work on a
build is told by `worker` and its heartbeat: a second start is refused while the first lives.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from pydantic import ValidationError
from sqlalchemy import Connection, Row, bindparam, delete, func, select, update

from opbench.construction.spec import BuildSpec, State
from opbench.errors import LeaseLost, StoreError, UsageError
from opbench.store import schema as s
from opbench.store.claims import worker_alive
from opbench.store.database import Store, store_time
from opbench.store.finding import the_one
from opbench.store.writing import CallRow, insert_calls

LONGEST_NAME = 120
_HOST_LENGTH = 40
Request = Literal["go", "stop"]


@dataclass(frozen=True, slots=True)
class Build:
    """A build as it is known to the store; `working` as of when it was read."""

    id: str
    name: str
    spec: BuildSpec
    provenance: dict[str, Any]
    """`conversations` (name and sha256, `opbench.construction.loading.source_of`), `prompts`, `models`, `workbench`,
    `git_commit`."""
    maker: str
    created_at: float
    request: Request
    halted: str | None
    """Why the last start ended before its work did: a sentence; None when it didn't."""
    worker: str | None
    """The process at work, as `12 on host`; None when there is none."""

    @property
    def working(self) -> bool:
        return self.worker is not None


@dataclass(frozen=True, slots=True)
class Listed:
    """A build in a list; of one that can't be read any more `damage` says why, and the rest is what is known."""

    id: str
    name: str
    maker: str
    created_at: float
    build: Build | None
    counts: Mapping[State, int]
    """Candidates by state."""
    damage: str = ""


@dataclass(frozen=True, slots=True)
class Unit:
    """What one piece of work gave. `output` is JSON; tokens, dollars and time are None when unknown."""

    unit: str
    """stage/user/what/…; of a summary the conversation stands for the user."""
    stage: str
    user_id: str
    status: Literal["done", "failed"]
    reason: str | None
    output: Any
    role: str
    model: str
    prompt_sha256: str
    """Of the prompt's file or files, before it was filled."""
    calls: tuple[str, ...] = ()
    """Keys in the call store, in order."""
    repaired: bool = False
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cost_usd: float | None = None
    duration_ms: float | None = None
    made_at: float = 0.0

    @property
    def retriable(self) -> bool:
        """Whether its failure was one of transport, or of a unit that it needed: the next start does it again."""
        return self.status == "failed" and isinstance(self.output, dict) and bool(self.output.get("retriable"))


@dataclass(frozen=True, slots=True)
class Candidate:
    """A candidate question; fields as in `schema.candidates`."""

    id: str
    ordinal: int
    """The order of the build's candidates: the same however the work went."""
    unit: str
    user_id: str
    subtype: str
    kind: str | None
    topic: str | None
    subtopic: str | None
    question: str
    explanation: str | None
    falsifies: str | None
    evidence: tuple[str, ...]
    generator: str
    prompt_sha256: str
    state: State = "candidate"
    decided_by: str | None = None
    reason: str | None = None
    details: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Ruling:
    """What a filter or a review decided of a candidate; `state` candidate takes an earlier one back."""

    id: str
    state: State
    decided_by: str | None = None
    reason: str | None = None
    details: dict[str, Any] | None = None


def create_build(store: Store, spec: BuildSpec, provenance: Mapping[str, Any], *, maker: str = "") -> str:
    """Make a build without any work done; returns its id.

    Raises:
        UsageError: its name is too long.
    """
    build_id = secrets.token_hex(6)
    name = " ".join(spec.name.split()) or build_id
    if len(name) > LONGEST_NAME:
        raise UsageError(f"the name has {len(name):,} signs; at most {LONGEST_NAME}.")
    row = {
        "id": build_id,
        "name": name,
        "spec": spec.model_dump(mode="json"),
        "provenance": dict(provenance),
        "maker": " ".join(maker.split())[:LONGEST_NAME],
        "created_at": time.time(),
        "request": "go",
    }
    with store.begin() as connection:
        connection.execute(s.builds.insert().values(**row))
    return build_id


def load_build(store: Store, build_id: str) -> Build:
    """A build.

    Raises:
        UsageError: there is none of that id.
        StoreError: it can't be read any more; says why, and the mend.
    """
    with store.begin() as connection:
        row = connection.execute(select(s.builds).where(s.builds.c.id == build_id)).first()
        now = store_time(connection)
    if row is None:
        raise UsageError(f"no build '{build_id[:40]}'. It was deleted, or is in another store.")
    return _build(row, now)


def list_builds(store: Store) -> list[Listed]:
    """All builds, newest first; a damaged one never hides the others."""
    c = s.candidates.c
    with store.begin() as connection:
        rows = connection.execute(select(s.builds).order_by(s.builds.c.created_at.desc(), s.builds.c.id)).all()
        states = connection.execute(
            select(c.build_id, c.state, func.count()).group_by(c.build_id, c.state).order_by(c.build_id, c.state)
        ).all()
        now = store_time(connection)
    counts: dict[str, dict[State, int]] = {}
    for build_id, state, n in states:
        counts.setdefault(build_id, {})[state] = n
    found = []
    for row in rows:
        head = (row.id, row.name, row.maker, row.created_at)
        try:
            found.append(Listed(*head, _build(row, now), counts.get(row.id, {})))
        except StoreError as error:
            found.append(Listed(*head, None, counts.get(row.id, {}), str(error)))
    return found


def find_build(store: Store, wanted: str | None = None) -> str:
    """The id of the build that `wanted` is the id or the name of, or the beginning of the id; None: the newest.

    Raises:
        UsageError: none, or more than one.
    """
    b = s.builds.c
    with store.begin() as connection:
        rows = connection.execute(select(b.id, b.name).order_by(b.created_at.desc(), b.id)).all()
    if not rows:
        raise UsageError("there is no build in this store yet. Make one with 'opbench build run'.")
    if wanted is None:
        return str(rows[0].id)
    return the_one(rows, wanted, "build")


def rename_build(store: Store, build_id: str, name: str) -> None:
    """Give a build another name.

    Raises:
        UsageError: no such build, no name, or one that is too long.
    """
    line = " ".join(name.split())
    if not line:
        raise UsageError("the name is empty: give one.")
    if len(line) > LONGEST_NAME:
        raise UsageError(f"the name has {len(line):,} signs; at most {LONGEST_NAME}.")
    with store.begin() as connection:
        _one(connection.execute(update(s.builds).where(s.builds.c.id == build_id).values(name=line)), build_id)


def delete_build(store: Store, build_id: str) -> None:
    """Delete a build with its units and candidates. Its calls stay in the call store.

    Raises:
        UsageError: no such build, or a process is at work on it.
    """
    with store.begin() as connection:
        worker = _at_work(connection, build_id)
        if worker is not None:
            raise UsageError(f"build {build_id} is being worked on by process {worker}. Stop it first.")
        connection.execute(delete(s.builds).where(s.builds.c.id == build_id))


def request(store: Store, build_id: str, what: Request) -> None:
    """Ask whoever is at work on a build to stop after what is in hand, or take that back.

    Raises:
        UsageError: no such build.
    """
    with store.begin() as connection:
        _one(connection.execute(update(s.builds).where(s.builds.c.id == build_id).values(request=what)), build_id)


def set_halted(store: Store, build_id: str, why: str | None) -> None:
    """Say why the last start ended early, or that it didn't."""
    with store.begin() as connection:
        connection.execute(update(s.builds).where(s.builds.c.id == build_id).values(halted=why))


def add_provenance(store: Store, build_id: str, more: Mapping[str, Any]) -> None:
    """Add entries to a build's provenance; those of the same name are replaced.

    Raises:
        UsageError: no such build.
    """
    b = s.builds.c
    with store.begin() as connection:
        _lock(connection, build_id)
        known = connection.scalar(select(b.provenance).where(b.id == build_id))
        connection.execute(update(s.builds).where(b.id == build_id).values(provenance={**(known or {}), **more}))


# --- Who is at work -------------------------------------------------------------------------------------------------


def new_worker() -> str:
    """This process as `schema.builds.worker` names it: another one a start."""
    return f"{os.getpid()}@{socket.gethostname()[:_HOST_LENGTH]}#{secrets.token_hex(4)}"


def claim_build(store: Store, build_id: str, worker: str, *, keep_request: bool = False) -> None:
    """Take the build for this worker. Of two that start at once the second waits, looks, and is refused.

    `keep_request`: a stop that was asked for while this process started stays asked for.

    Raises:
        UsageError: no such build, or another process is at work on it.
    """
    with store.begin() as connection:
        other = _at_work(connection, build_id)
        if other is not None:
            raise UsageError(
                f"build {build_id} is being worked on by process {other}. Watch it with 'opbench build status "
                f"{build_id}', or stop it with 'opbench build stop {build_id}' first."
            )
        values: dict[str, Any] = {"worker": worker, "heartbeat_at": store_time(connection), "halted": None}
        if not keep_request:
            values["request"] = "go"
        connection.execute(update(s.builds).where(s.builds.c.id == build_id).values(**values))


def beat(store: Store, build_id: str, worker: str) -> Request:
    """A worker's sign of life; what people ask of the build.

    Raises:
        LeaseLost: another start has taken the build, or it was deleted.
    """
    with store.begin() as connection:
        _still_ours(connection, build_id, worker)
        asked: Request = connection.execute(select(s.builds.c.request).where(s.builds.c.id == build_id)).scalar_one()
    return asked


def release_build(store: Store, build_id: str, worker: str, halted: str | None = None) -> None:
    """The worker ends; `halted` says why before its work did. Does nothing when another one has the build."""
    b = s.builds.c
    with store.begin() as connection:
        connection.execute(
            update(s.builds)
            .where(b.id == build_id, b.worker == worker)
            .values(worker=None, heartbeat_at=None, halted=halted)
        )


# --- Units and candidates -------------------------------------------------------------------------------------------


def save_unit(
    store: Store,
    build_id: str,
    unit: Unit,
    candidates: Sequence[Candidate] = (),
    calls: Sequence[CallRow] = (),
    *,
    worker: str | None = None,
) -> None:
    """Keep a unit with its candidates and calls in one transaction; one of the same name is replaced with all of its
    candidates. With `worker` only while the build is this worker's.

    Raises:
        LeaseLost: another start has taken the build, or it was deleted; the calls are kept all the same.
        UsageError: no such build.
    """
    lost: LeaseLost | None = None
    c = s.candidates.c
    with store.begin() as connection:
        try:
            if worker is None:
                _lock(connection, build_id)
            else:
                _still_ours(connection, build_id, worker)
        except LeaseLost as error:
            lost = error
        insert_calls(connection, calls)
        if lost is None:
            of_unit = (s.build_units.c.build_id == build_id, s.build_units.c.unit == unit.unit)
            if connection.execute(delete(s.build_units).where(*of_unit)).rowcount:
                connection.execute(delete(s.candidates).where(c.build_id == build_id, c.unit == unit.unit))
            connection.execute(s.build_units.insert().values(build_id=build_id, **_unit_row(unit)))
            if candidates:
                rows = [{"build_id": build_id, **asdict(each), "evidence": list(each.evidence)} for each in candidates]
                connection.execute(s.candidates.insert(), rows)
    if lost is not None:
        raise lost


def read_units(store: Store, build_id: str, stage: str | None = None, *, prefix: str = "") -> dict[str, Unit]:
    """A build's units by name, in the order of their names; of a stage, and those whose name begins with `prefix`."""
    u = s.build_units.c
    query = select(*(column for column in u if column.name != "build_id")).where(u.build_id == build_id)
    if stage is not None:
        query = query.where(u.stage == stage)
    if prefix:
        query = query.where(u.unit.startswith(prefix, autoescape=True))
    with store.begin() as connection:
        rows = connection.execute(query.order_by(u.unit)).all()
    return {row.unit: Unit(**{**row._mapping, "calls": tuple(row.calls)}) for row in rows}


def read_candidates(
    store: Store,
    build_id: str,
    *,
    states: Sequence[State] = (),
    users: Sequence[str] = (),
    subtypes: Sequence[str] = (),
    ids: Sequence[str] = (),
) -> list[Candidate]:
    """A build's candidates in order; empty means all."""
    c = s.candidates.c
    query = select(*(column for column in c if column.name != "build_id")).where(c.build_id == build_id)
    for column, wanted in ((c.state, states), (c.user_id, users), (c.subtype, subtypes), (c.id, ids)):
        if wanted:
            query = query.where(column.in_(wanted))
    with store.begin() as connection:
        rows = connection.execute(query.order_by(c.ordinal, c.id)).all()
    return [Candidate(**{**row._mapping, "evidence": tuple(row.evidence)}) for row in rows]


def count_candidates(store: Store, build_id: str) -> list[tuple[str, str, State, str | None, int]]:
    """How many candidates there are by (generator, subtype, state, who decided)."""
    c = s.candidates.c
    by = (c.generator, c.subtype, c.state, c.decided_by)
    with store.begin() as connection:
        rows = connection.execute(
            select(*by, func.count()).where(c.build_id == build_id).group_by(*by).order_by(*by)
        ).all()
    return [(row[0], row[1], row[2], row[3], row[4]) for row in rows]


def set_states(
    store: Store,
    build_id: str,
    rulings: Iterable[Ruling],
    *,
    worker: str | None = None,
    unless: Sequence[State] = (),
) -> int:
    """Keep what was decided of candidates, all of it in one transaction; how many of them there are. With `worker`
    only while the build is this worker's. Candidates that are in one of the states `unless` by now stay as they are.

    Raises:
        LeaseLost: another start has taken the build.
        UsageError: no such build.
    """
    c = s.candidates.c
    rows = [{"its_id": each.id, **{k: v for k, v in asdict(each).items() if k != "id"}} for each in rulings]
    with store.begin() as connection:
        if worker is None:
            _lock(connection, build_id)
        else:
            _still_ours(connection, build_id, worker)
        if not rows:
            return 0
        known = set(connection.scalars(select(c.id).where(c.build_id == build_id, c.state.not_in(unless))))
        rows = [row for row in rows if row["its_id"] in known]
        if rows:
            connection.execute(update(s.candidates).where(c.build_id == build_id, c.id == bindparam("its_id")), rows)
    return len(rows)


# --- Parts ----------------------------------------------------------------------------------------------------------


def _build(row: Row[Any], now: float) -> Build:
    try:
        spec = BuildSpec.model_validate(row.spec)
    except ValidationError as error:
        place = ".".join(str(part) for part in error.errors()[0]["loc"]) or "spec"
        raise StoreError(
            f"build {row.id} '{row.name[:40]}' can't be read: spec: {place}: {error.errors()[0]['msg'][:120]}. A newer "
            f"version wrote it: update the workbench, or delete it with 'opbench build delete {row.id}'."
        ) from None
    alive = _alive(row.worker, row.heartbeat_at, now)
    return Build(
        row.id,
        row.name,
        spec,
        row.provenance,
        row.maker,
        row.created_at,
        row.request,
        row.halted,
        told(row.worker) if alive else None,
    )


def _unit_row(unit: Unit) -> dict[str, Any]:
    return {**asdict(unit), "calls": list(unit.calls), "made_at": unit.made_at or time.time()}


def _one(result: Any, build_id: str) -> None:
    if not result.rowcount:
        raise UsageError(f"no build '{build_id[:40]}'. It was deleted meanwhile.")


def _lock(connection: Connection, build_id: str) -> None:
    """Nobody else writes to the build until the transaction ends."""
    b = s.builds.c
    _one(connection.execute(update(s.builds).where(b.id == build_id).values(request=b.request)), build_id)


def _at_work(connection: Connection, build_id: str) -> str | None:
    """Who is at work on the build, which is locked: `12 on host`."""
    _lock(connection, build_id)
    b = s.builds.c
    row = connection.execute(select(b.worker, b.heartbeat_at).where(b.id == build_id)).one()
    return told(row.worker) if _alive(row.worker, row.heartbeat_at, store_time(connection)) else None


def _still_ours(connection: Connection, build_id: str, worker: str) -> None:
    b = s.builds.c
    done = connection.execute(
        update(s.builds).where(b.id == build_id, b.worker == worker).values(heartbeat_at=store_time(connection))
    )
    if not done.rowcount:
        raise LeaseLost(
            f"build {build_id} isn't this process's any more: it was silent for so long that another start took it, "
            "or the build was deleted. What it did since isn't kept, but the calls that it paid for are."
        )


def _parts(worker: str) -> tuple[int, str]:
    pid, _, rest = worker.partition("@")
    return int(pid), rest.rpartition("#")[0]


def told(worker: str) -> str:
    """A worker in words: `12 on host`."""
    pid, host = _parts(worker)
    return f"{pid} on {host}"


def _alive(worker: str | None, heartbeat_at: float | None, now: float) -> bool:
    if worker is None or heartbeat_at is None:
        return False
    pid, host = _parts(worker)
    here = socket.gethostname()
    return worker_alive(here if host == here[:_HOST_LENGTH] else host, pid, heartbeat_at, now)
