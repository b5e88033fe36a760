"""The case that this browser session asks: its sessions at work, what came of them, and how they end.

A case grows: what is asked beside it is a session of its own, whose columns stand behind the first ones. The page's
link carries the case's id, so that the page finds it again when the browser loads it anew.
"""

from __future__ import annotations

import secrets
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field

import streamlit as st
from streamlit import runtime
from streamlit.runtime.scriptrunner import get_script_run_ctx

from opbench.cases.desk import desk
from opbench.cases.outcome import Ablation, At, Outcome
from opbench.cases.session import Session
from opbench.cases.spec import MOST_COLUMNS, CaseSpec, Column
from opbench.errors import UsageError
from opbench.study import BASE
from pages.shared import access, chosen_models, link, results

_KEY = "live-case"


@dataclass(frozen=True, slots=True)
class _Part:
    """A session, and which of its columns are shown (a further one brings its BASE along, which is there already)."""

    session: Session
    columns: tuple[int, ...]


@dataclass(slots=True, weakref_slot=True, eq=False)
class Live:
    """A case at work. Columns are counted from 0 over all its sessions."""

    spec: CaseSpec
    """With all columns, also those that were added."""
    asker: str
    """Who asks it, as `access.name` says."""
    parts: list[_Part] = field(default_factory=list)
    id: str = field(default_factory=lambda: secrets.token_hex(16))
    browsers: set[str] = field(default_factory=set)
    """Browser sessions that show it, also some that are gone."""

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
        """Why the case, or a further column of it, can't be asked, or what was answered couldn't be kept."""
        sessions = [part.session for part in self.parts]
        return next((said for each in sessions if (said := each.error or each.unkept)), None)

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


#: Those that a browser session still has; Streamlit keeps a session for two minutes after its browser is gone.
_LIVE: weakref.WeakValueDictionary[str, Live] = weakref.WeakValueDictionary()


def current() -> Live | None:
    """This browser session's case."""
    found: Live | None = st.session_state.get(_KEY)
    return found


def find_again() -> Live | None:
    """This browser session's case; else the one that the link names, where it is the same person's: the page was
    loaded anew. The link says which one it is from now on."""
    live = current()
    if live is None and (named := st.query_params.get(link.LIVE)):
        live = _LIVE.get(named)
        if live is not None and live.asker == access.name():
            _show(live)
        else:
            live = None
    if live is None:
        st.query_params.pop(link.LIVE, None)
    elif st.query_params.get(link.LIVE) != live.id:
        st.query_params[link.LIVE] = live.id
    return live


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
    live = Live(spec, access.name())
    live.add(_open(spec), range(len(spec.columns)))
    _LIVE[live.id] = live
    _show(live)


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
    """Show the case no more, and end what is at work, unless another tab shows it too."""
    live = current()
    if live is None:
        return
    del st.session_state[_KEY]
    live.browsers.discard(_browser())
    if not any(_is_open(each) for each in live.browsers):
        live.cancel()


def _show(live: Live) -> None:
    st.session_state[_KEY] = live
    live.browsers.add(_browser())


def _browser() -> str:
    context = get_script_run_ctx()
    return "" if context is None else context.session_id


def _is_open(browser: str) -> bool:
    return runtime.exists() and runtime.get_instance().is_active_session(browser)


def _open(spec: CaseSpec) -> Session:
    return desk().open(results.opened().store, spec, keys=chosen_models.typed_keys())
