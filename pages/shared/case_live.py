"""The case that this browser session asks: its sessions at work, what came of them, and how they end.

A case grows: what is asked beside it is a session of its own, whose columns stand behind the first ones.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field

import streamlit as st

from opbench.cases.desk import desk
from opbench.cases.outcome import Ablation, At, Outcome
from opbench.cases.session import Session
from opbench.cases.spec import MOST_COLUMNS, CaseSpec, Column
from opbench.errors import UsageError
from opbench.study import BASE
from pages.shared import access, chosen_models, results

_KEY = "live-case"


@dataclass(frozen=True, slots=True)
class _Part:
    """A session, and which of its columns are shown (a further one brings its BASE along, which is there already)."""

    session: Session
    columns: tuple[int, ...]


@dataclass(slots=True, weakref_slot=True)
class Live:
    """A case at work. Columns are counted from 0 over all its sessions."""

    spec: CaseSpec
    """With all columns, also those that were added."""
    parts: list[_Part] = field(default_factory=list)

    def outcomes(self) -> tuple[Outcome, ...]:
        """What has come of each column so far."""
        found: list[Outcome] = []
        for part in self.parts:
            mine = part.session.outcomes()
            found += [mine[place] for place in part.columns]
        return tuple(found)

    def ablations(self) -> tuple[Ablation, ...]:
        """The leave-one-outs so far, by the columns as they are counted here."""
        found = []
        start = 0
        for part in self.parts:
            for (place, _), ablation in part.session.ablations().items():
                if place in part.columns:
                    column = start + part.columns.index(place)
                    found.append(ablation.model_copy(update={"column": column}))
            start += len(part.columns)
        return tuple(sorted(found, key=lambda each: (each.column, each.at)))

    @property
    def error(self) -> str | None:
        """Why the case can't be asked, or a further column of it."""
        return next((part.session.error for part in self.parts if part.session.error), None)

    @property
    def working(self) -> bool:
        """Whether anything is at work: a column, or a leave-one-out."""
        return any(part.session.busy for part in self.parts)

    @property
    def seconds(self) -> float:
        """Seconds since the newest session began."""
        return time.time() - self.parts[-1].session.started_at

    @property
    def provenance(self) -> dict[str, object]:
        """What the first session rests on; the further ones are asked by the same process, of the same data."""
        return dict(self.parts[0].session.provenance)

    def cancel(self) -> None:
        for part in self.parts:
            part.session.cancel()

    def leave_one_out(self, column: int, at: At) -> None:
        session, place = self._place(column)
        session.leave_one_out(place, at)

    def cancel_ablation(self, column: int, at: At) -> None:
        session, place = self._place(column)
        session.cancel_ablation(place, at)

    def _place(self, column: int) -> tuple[Session, int]:
        for part in self.parts:
            if column < len(part.columns):
                return part.session, part.columns[column]
            column -= len(part.columns)
        raise IndexError(column)

    def add(self, session: Session, columns: Sequence[int]) -> None:
        self.parts.append(_Part(session, tuple(columns)))
        # Nobody can look at a session any more whose browser is gone: it would go on paying for nothing.
        weakref.finalize(self, session.cancel).atexit = False


def current() -> Live | None:
    """This browser session's case."""
    found: Live | None = st.session_state.get(_KEY)
    return found


def warm() -> None:
    """Begin to load what the first case would wait for."""
    desk()


def ask(spec: CaseSpec) -> None:
    """Ask a case; what the browser session asked before is cancelled.

    Raises:
        UsageError: the visitor is no editor, or too many cases are at work.
        StoreError: the store can't be opened.
    """
    access.demand_edit()
    forget()
    live = Live(spec)
    live.add(_open(spec), range(len(spec.columns)))
    st.session_state[_KEY] = live


def ask_beside(live: Live, column: Column) -> None:
    """Ask a further column beside the ones that are there.

    Raises:
        UsageError: the visitor is no editor, there are as many columns as a case can have, or too many cases at work.
        StoreError: the store can't be opened.
    """
    access.demand_edit()
    if len(live.spec.columns) >= MOST_COLUMNS:
        raise UsageError(f"A case has at most {MOST_COLUMNS} columns: ask it anew with fewer.")
    base = Column(model=column.model, memory=BASE)
    further = live.spec.model_copy(update={"columns": (base, column)})
    session = _open(further)
    live.spec = live.spec.model_copy(update={"columns": (*live.spec.columns, column)})
    live.add(session, (1,))


def forget() -> None:
    """End what is at work and show it no more."""
    live = current()
    if live is not None:
        live.cancel()
        del st.session_state[_KEY]


def _open(spec: CaseSpec) -> Session:
    return desk().open(results.opened().store, spec, keys=chosen_models.typed_keys())
