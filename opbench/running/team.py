"""The leader's part of a run of several processes: it has members started, starts others for those that die, hands out
the budget, and adds up how far all are."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sqlalchemy import func, select

from opbench.running.budget import dollars, reached, spent_before, unpriced
from opbench.running.crew import Crew, Member, Part
from opbench.running.engine import Progress
from opbench.running.plan import DONE, Plan
from opbench.running.repetition import score_users
from opbench.running.shards import cut
from opbench.running.silent import left_out
from opbench.store import leases
from opbench.store import schema as s
from opbench.store.claims import Pulse
from opbench.store.database import Store

#: Seconds between two looks at the members' processes, and at their rows in the store.
_LOOK_S, _ROWS_EVERY_S = 0.1, 1.0
#: Seconds between two goes at the repetition scores of the users whose answers are new.
_SCORES_EVERY_S = 10.0
#: How often a member is replaced in all, and how many that did nothing before they died may follow each other.
_REPLACED, _IDLE_DEATHS = 5, 2
#: A share of the budget that a member is still started for.
_LEAST_SHARE = 0.01

_COUNTS = ("done", "errors", "calls_made", "calls_reused", "calls_failed", "requests", "waited_s", "spent_usd")
_TALLIES = ("error_kinds", "retries")


@dataclass(slots=True)
class _Seat:
    """A member's number, who sits there now, and what the present member's row said last."""

    number: int
    concurrency: int
    member: Member | None = None
    share_usd: float | None = None
    row: Any = None
    pulse: Pulse = field(default_factory=Pulse)
    deaths: int = 0
    idle_deaths: int = 0
    """Of the last ones, those that had done nothing."""
    replaced: int = 0
    before: Counter[str] = field(default_factory=Counter)
    """What earlier members did here: done and errors."""

    @property
    def stats(self) -> dict[str, Any]:
        return dict(self.row.stats) if self.row is not None else {}


@dataclass(slots=True)
class _Sums:
    """What members did, added up."""

    counts: Counter[str] = field(default_factory=Counter)
    tallies: dict[str, Counter[str]] = field(default_factory=lambda: {name: Counter() for name in _TALLIES})
    embeddings_usd: float = 0.0
    answered_as: dict[str, set[str]] = field(default_factory=dict)

    def add(self, stats: Mapping[str, Any]) -> None:
        self.counts.update({name: stats.get(name, 0) for name in _COUNTS})
        for name in _TALLIES:
            self.tallies[name].update(stats.get(name, {}))
        self.embeddings_usd += stats.get("embeddings_usd", 0.0)
        for name, names in stats.get("answered_as", {}).items():
            self.answered_as.setdefault(name, set()).update(names)


class Team:
    """The members of a run's execution. Belongs to the leader's event loop."""

    def __init__(
        self,
        store: Store,
        run_id: str,
        plan: Plan,
        crew: Crew,
        *,
        leader: str,
        concurrency: int,
        embedder: str,
        budget_usd: float | None,
        spent: Callable[[], float],
        on_news: Callable[[str], None],
    ) -> None:
        """`leader` is the id of this process's row in `schema.workers`, `concurrency` the whole run's.

        `spent` gives what the run has cost without this team, in dollars. `on_news` is told in a sentence what happened
        to members.
        """
        self._store = store
        self._run_id = run_id
        self._plan = plan
        self._crew = crew
        self._leader = leader
        self._embedder = embedder
        self._budget = budget_usd
        self._spent = spent
        self._on_news = on_news
        self._size = max(1, min(crew.size, concurrency))
        least, more = divmod(concurrency, self._size)
        self._seats = [_Seat(number, least + (number < more)) for number in range(self._size)]
        self._shards = cut(plan.jobs.instances)
        self._past = _Sums()
        self._asked_to_stop = False
        self._last_death = ""
        self._unpriced = ""
        """A model whose calls have no known cost, with a budget to be kept."""
        self._share_is_spent = False
        self._in_vain = ""
        """Why asking on makes no sense, as the first member says that saw it."""
        self._passed_over: dict[str, str] = {}
        """Models whose records members left, with the reason."""
        self._scored_at = time.time()
        self.reason: str | None = None
        """Why the work ended before it was done; None when it was done, or people stopped it."""

    @property
    def size(self) -> int:
        """Members: never more than instances at a time."""
        return self._size

    async def run(self, progress: Progress, stopping: Callable[[], bool]) -> None:
        """Have the plan done. Returns when no member is left: all is done, the budget is spent, none could be replaced,
        or `stopping` said True and what was in flight is finished. `progress` is kept up to date.

        Raises:
            StoreError: the store can't be read or written.
            LeaseLost: this leader was silent for so long that another took the run.
            UsageError: no member can be started.
        """
        progress.started = time.monotonic()
        states = self._plan.jobs.states
        idle = [n for n, shard in enumerate(self._shards) if bool(np.all(states[:, shard] == DONE))]
        await self._store.in_thread(leases.begin, self._store, self._run_id, self._leader, idle)
        for seat in self._seats:
            self._start(seat, self._share(len(self._seats) - seat.number))
        looked = 0.0
        while any(seat.member is not None for seat in self._seats):
            await asyncio.sleep(_LOOK_S)
            if stopping():
                self.stop()
            ended = {seat.number: said for seat in self._at_work() if (said := _ended(seat)) is not None}
            if ended or time.monotonic() - looked >= _ROWS_EVERY_S:
                looked = time.monotonic()
                await self._read_rows()
                self._tell(progress)
            for number, said in ended.items():
                await self._over(self._seats[number], said)
            await self._score_users()
        await self._conclude(progress)

    def stop(self) -> None:
        """Ask all members to finish what is in flight and end."""
        if not self._asked_to_stop:
            self._asked_to_stop = True
            self._end_members()

    def close(self) -> None:
        """End what is left of the members at once."""
        self._crew.close()

    def stats(self, own: Mapping[str, Any]) -> dict[str, Any]:
        """What the leader's row shows: its own numbers with the members' added, and the members by themselves."""
        sums = self._sums()
        sums.add({**own, "done": 0, "errors": 0})
        return {
            **own,
            **{name: sums.counts[name] for name in _COUNTS},
            **{name: dict(tally) for name, tally in sums.tallies.items()},
            "workers": [_shown(seat) for seat in self._seats],
        }

    @property
    def embeddings_usd(self) -> float:
        """What the members' embeddings cost so far."""
        return self._sums().embeddings_usd

    @property
    def answered_as(self) -> dict[str, set[str]]:
        """Under which names the models answered to members."""
        return self._sums().answered_as

    # --- members ---------------------------------------------------------------------------------------------------

    def _end_members(self) -> None:
        for seat in self._at_work():
            seat.member.stop()  # type: ignore[union-attr]

    def _at_work(self) -> list[_Seat]:
        return [seat for seat in self._seats if seat.member is not None]

    def _start(self, seat: _Seat, share: float | None) -> None:
        part = Part(self._run_id, self._leader, seat.number, self._size, seat.concurrency, share)
        seat.share_usd, seat.row, seat.pulse = share, None, Pulse()
        seat.member = self._crew.start(part)

    async def _read_rows(self) -> None:
        rows = await self._store.in_thread(leases.members, self._store, self._leader)
        newest: dict[int, Any] = {}
        for row in sorted(rows, key=lambda row: row.started_at):
            newest[row.stats.get("member", -1)] = row
        for seat in self._at_work():
            row = newest.get(seat.number)
            if row is None:
                continue
            seat.row = row
            if seat.member is not None and not seat.pulse.alive(row.host, row.pid, row.heartbeat_at):
                # It may be there and hang, or its machine is gone: in either case it must not go on.
                seat.member.kill()

    async def _over(self, seat: _Seat, said: str) -> None:
        """A member has ended: what it did is counted, what it held comes free, and another may take its place."""
        stats, row = seat.stats, seat.row
        self._past.add(stats)
        seat.before.update({name: stats.get(name, 0) for name in ("done", "errors")})
        if row is not None:
            await self._store.in_thread(leases.take_away, self._store, self._run_id, row.id)
        seat.member, seat.row = None, None
        self._unpriced = stats.get("unpriced") or self._unpriced
        in_vain = stats.get("in_vain") if stats.get("halted") else None
        if in_vain:
            self._in_vain = self._in_vain or in_vain
            self._end_members()
        self._passed_over.update(stats.get("passed_over", {}))
        self._share_is_spent = self._share_is_spent or bool(stats.get("halted") and not in_vain)
        if said:
            self._last_death = said
            seat.deaths += 1
            seat.idle_deaths = 0 if stats.get("done") else seat.idle_deaths + 1
        left = await self._store.in_thread(leases.undone, self._store, self._run_id, self._leader, len(self._shards))
        if not left or self._asked_to_stop or self._in_vain or (stats.get("halted") and stats.get("unpriced")):
            if said:
                self._on_news(said)
            return
        may = seat.deaths <= _REPLACED and seat.idle_deaths < _IDLE_DEATHS
        share = await self._store.in_thread(self._exact_share, len(self._seats) - len(self._at_work()))
        enough = self._budget is None or (share or 0.0) >= _LEAST_SHARE * self._budget
        if said:
            self._on_news(f"{said} {'Another takes its place.' if may and enough else 'It is not replaced.'}")
        # Who ended by itself found nothing to do or to wait for; or its share is spent, and others left some.
        if may and enough and (said or stats.get("halted")):
            seat.replaced += bool(said)
            self._start(seat, share)

    # --- money -----------------------------------------------------------------------------------------------------

    def _share(self, among: int) -> float | None:
        """An equal part, for one of so many members, of what isn't spent and isn't another's share."""
        if self._budget is None:
            return None
        taken = self._spent() + self._past.counts["spent_usd"]
        reserved = sum(seat.share_usd or 0.0 for seat in self._at_work())
        return max(0.0, self._budget - taken - reserved) / among

    def _exact_share(self, among: int) -> float | None:
        share = self._share(among)
        if share is None or not any(seat.deaths for seat in self._seats):
            return share
        return max(0.0, share - self._untold() / among)

    def _untold(self) -> float:
        """Dollars that members spent in the seconds before they were killed: they told nobody, but their records do.
        Of those at work it holds the last seconds too, so that too little is shared out rather than too much."""
        sums = self._sums()
        # What an execution's embeddings cost is booked at its end.
        told = self._spent() + sums.counts["spent_usd"] - sums.embeddings_usd
        return max(0.0, spent_before(self._store, self._run_id) - told)

    # --- how far it is ---------------------------------------------------------------------------------------------

    def _sums(self) -> _Sums:
        sums = _Sums()
        sums.counts.update(self._past.counts)
        for name in _TALLIES:
            sums.tallies[name].update(self._past.tallies[name])
        sums.embeddings_usd = self._past.embeddings_usd
        sums.answered_as = {name: set(names) for name, names in self._past.answered_as.items()}
        for seat in self._at_work():
            sums.add(seat.stats)
        return sums

    def _tell(self, progress: Progress) -> None:
        sums = self._sums()
        progress.done = min(sums.counts["done"], progress.to_do)
        progress.errors = sums.counts["errors"]
        progress.error_kinds = Counter(sums.tallies["error_kinds"])

    async def _conclude(self, progress: Progress) -> None:
        left = await self._store.in_thread(leases.undone, self._store, self._run_id, self._leader, len(self._shards))
        await self._store.in_thread(leases.end, self._store, self._run_id, self._leader)
        self._tell(progress)
        stopped = self._asked_to_stop or await self._store.in_thread(self._stop_is_asked)
        if not left and self._passed_over:
            self.reason = None if stopped else self._in_vain or left_out(self._passed_over, self._passed_over)
        elif not left:
            # Nobody told of what a member did in the seconds before it was killed; the records do.
            progress.done = progress.to_do
            progress.error_kinds = Counter(await self._store.in_thread(self._errors))
            progress.errors = progress.error_kinds.total()
        elif not stopped:
            self.reason = await self._store.in_thread(self._why)

    def _stop_is_asked(self) -> bool:
        """By people, of whom the members may know before this process."""
        with self._store.begin() as connection:
            return connection.scalar(select(s.runs.c.request).where(s.runs.c.id == self._run_id)) == "stop"

    def _why(self) -> str:
        if self._in_vain:
            return self._in_vain
        if self._budget is not None:
            if self._unpriced:
                return unpriced(self._unpriced, self._budget)
            spent = self._spent() + self._past.counts["spent_usd"] + self._untold()
            if spent >= self._budget:
                return reached(spent, self._budget)
            if self._share_is_spent or spent >= (1 - _LEAST_SHARE) * self._budget:
                return (
                    f"Stopped: the budget of {dollars(self._budget)} is all but reached, {dollars(spent)} are spent, "
                    "and the rest is too little for another worker. To go on, give a higher one."
                )
        return f"Stopped: no worker is left. {self._last_death} Start the study again to go on."

    def _errors(self) -> dict[str, int]:
        r = s.records.c
        query = select(r.error_kind, func.count()).where(r.run_id == self._run_id, r.status == "error")
        with self._store.begin() as connection:
            return {str(kind): count for kind, count in connection.execute(query.group_by(r.error_kind))}

    async def _score_users(self) -> None:
        """Keep the repetition scores in step with the records, for those who watch; the end of the run does all."""
        now = time.time()
        if now - self._scored_at < _SCORES_EVERY_S:
            return
        # With the last seconds once more: a record is in the store a while after it was finished.
        since, self._scored_at = self._scored_at - _SCORES_EVERY_S, now
        touched = await self._store.in_thread(self._touched, since)
        await self._store.in_thread(score_users, self._store, self._run_id, self._embedder, touched)

    def _touched(self, since: float) -> set[tuple[int, str]]:
        """(configuration id, user id) of repetition records that are new."""
        r, i = s.records.c, s.instances.c
        query = (
            select(r.configuration_id, i.user_id)
            .join(s.instances, (i.run_id == r.run_id) & (i.instance_id == r.instance_id))
            .where(r.run_id == self._run_id, r.finished_at >= since, i.subtype == "repetition")
            .distinct()
        )
        with self._store.begin() as connection:
            return {(row.configuration_id, row.user_id) for row in connection.execute(query)}


def _ended(seat: _Seat) -> str | None:
    return None if seat.member is None else seat.member.ended()


def _shown(seat: _Seat) -> dict[str, Any]:
    row, stats = seat.row, seat.stats
    return {
        "number": seat.number + 1,
        "state": "ended" if seat.member is None else "starting" if row is None else "at work",
        "host": None if row is None else row.host,
        "pid": None if row is None else row.pid,
        "concurrency": seat.concurrency,
        "done": seat.before["done"] + stats.get("done", 0),
        "errors": seat.before["errors"] + stats.get("errors", 0),
        "replaced": seat.replaced,
    }
