"""The ingestions that are kept, as the Memories page reads and shows them: state, what they took, their settings."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pandas as pd
import streamlit as st

from opbench.analysis import ingestions
from opbench.figures import ingestion as figures
from opbench.memories.manifest import Manifest, read_manifests
from opbench.settings import settings
from opbench.sharing.visible import one_line
from pages.shared import collecting, link, parts, wording

STATES = {"complete": "green", "at work": "blue", "partial": "orange", "failed": "red"}
_ICONS = {"complete": "check_circle", "at work": "sync", "partial": "pause_circle", "failed": "error"}
#: Rows of a table that is shown whole; a longer one scrolls.
_MOST_ROWS = 12


@st.cache_data(ttl=2, max_entries=1, show_spinner=False)
def _read(home: str) -> list[Manifest]:
    return read_manifests(settings().kept)


def read() -> list[Manifest]:
    """All ingestions, the one that changed last first; up to two seconds old."""
    return _read(str(settings().home))


def forget() -> None:
    """Read them anew: one was started, stopped or removed."""
    _read.clear()


def badges(manifests: Sequence[Manifest]) -> None:
    """How many there are of each state."""
    with st.container(horizontal=True, gap="small"):
        for state, colour in STATES.items():
            if count := sum(each.state == state for each in manifests):
                st.badge(f"{count:,} {state}", icon=f":material/{_ICONS[state]}:", color=colour)  # type: ignore[arg-type]


def table(manifests: Sequence[Manifest]) -> None:
    """One row an ingestion."""
    whole = ingestions.overview(manifests)
    shown = whole.assign(
        progress=[f"{done} of {planned}" for done, planned in zip(whole["sessions"], whole["planned"], strict=True)],
        barren=[f"{empty} of {read}" for empty, read in zip(whole["empty"], whole["extractions"], strict=True)],
        store=whole["store_bytes"] / 1e3,
        minutes=whole["seconds"] / 60,
        failure=[one_line(each, 300) for each in whole["failure"]],
        at=pd.to_datetime(whole["finished_at"], unit="s", utc=True),
        version=whole["digest"].str[:12],
    )
    number, text = st.column_config.NumberColumn, st.column_config.TextColumn
    columns: dict[str, Any] = {
        "name": text("memory system", width=115),
        "user": text("user", width=125),
        "state": text("state", width=75),
        "progress": text("sessions", help="Taken in, of those of the history", width=75),
        "failure": text("why it stopped", width=220),
        "memories": number("memories", format="localized", width=80),
        "barren": text("empty", width=70, help="Extractions that gave no memory, of those that were read"),
        "calls": number("calls", format="localized", width=60, help="Of the extractor, reused ones included"),
        "reused": number("reused", format="localized", width=65, help="Answered from the call store, unpaid"),
        "tokens_in": number("tokens in", format="localized", width=85),
        "tokens_out": number("tokens out", format="localized", width=85),
        "cost_usd": number("cost", format="$%.4f", width=75, help="By list price, reused calls included"),
        "spent_usd": number("paid", format="$%.4f", width=75, help="Without the reused calls"),
        "minutes": number(
            "time",
            format="%.1f min",
            width=80,
            help="All sessions one after the other; a reused call as long as when made",
        ),
        "store": number("store", format="%.0f kB", width=75, help="Size of the store on disk"),
        "extractor": text("extractor", width=110),
        "embedder": text("embedder", width=90),
        "at": st.column_config.DatetimeColumn("last session (UTC)", format="YYYY-MM-DD HH:mm", width=130),
        "version": text("digest", width=100, help="Of settings and history: another one is another ingestion"),
    }
    if not shown["failure"].any():
        del columns["failure"]
    height = "content" if len(shown) <= _MOST_ROWS else "auto"
    parts.table(shown, columns, "ingestions", whole.assign(finished_at=_iso(whole["finished_at"])), height=height)


def notes(manifests: Sequence[Manifest]) -> None:
    """What results must say of the systems that stand here."""
    for label, note in sorted({(each.label, each.note) for each in manifests if each.note}):
        parts.remark(f"{label}: {note}")


def charts(manifests: Sequence[Manifest]) -> None:
    """What a session gave and took, by memory system."""
    frame = ingestions.by_session(manifests)
    parts.heading("What a session gives and takes")
    if frame.empty:
        st.info("No session is taken in yet.", icon=":material/hourglass_empty:")
        return
    measure = link.one_of("A session's", list(figures.MEASURES), "measure", kind="segmented")
    title = f"A session's {measure}, by memory system"
    parts.chart(
        figures.session_means(frame, measure, title),
        "ingestion-means",
        f"{title}: the mean of all sessions, and each user's; the table below holds them session by session",
    )
    with st.expander("Session by session, as a table", icon=":material/table:"):
        number, text = st.column_config.NumberColumn, st.column_config.TextColumn
        columns: dict[str, Any] = {
            "name": text("memory system"),
            "user": text("user"),
            "session": number("session"),
            "day": text("date"),
            "memories": number("memories", help="New ones"),
            "total": number("in all", help="Memories in the store after it"),
            "empty": number("empty", help="Extractions that gave no memory"),
            "calls": number("calls"),
            "reused": number("reused"),
            "tokens_in": number("tokens in", format="localized"),
            "tokens_out": number("tokens out", format="localized"),
            "seconds": number("time", format="%.1f s"),
            "cost_usd": number("cost", format="$%.4f"),
        }
        parts.table(frame, columns, "sessions", frame.assign(finished_at=_iso(frame["finished_at"])))


def growth(manifests: Sequence[Manifest]) -> None:
    """How one user's memories grow, session by session."""
    frame = ingestions.by_session(manifests)
    if frame.empty:
        return
    parts.chart(
        figures.memories_by_session(frame, "Memories kept, session by session"),
        "memories-by-session",
        "Memories kept after each session, by memory system; “Session by session” above holds the same numbers",
    )
    parts.remark("A ring is a session that gave no memory.")


def provenance(manifests: Sequence[Manifest]) -> None:
    """What determines each ingestion, side by side."""
    named = ingestions.names(manifests)
    for each in manifests:
        collecting.sheet().provenance[f"{each.label} {each.user} {each.digest[:12]}"] = {
            "identity": dict(each.identity),
            "history_sha256": each.history_sha256,
            "digest": each.digest,
        }
    frame = ingestions.provenance(manifests)
    heads = {each.digest[:12]: parts.as_label(named[each.digest]) for each in manifests}
    several = len({*heads.values()}) < len(heads)
    columns: dict[str, Any] = {"what": "setting"}
    columns |= {digest: f"{head} · {digest[:6]}" if several else head for digest, head in heads.items()}
    with st.expander("Settings, versions and digests, side by side", icon=":material/fingerprint:"):
        parts.table(frame, columns, "ingestion-settings", frame)
        parts.remark(
            "A changed version, setting or history is a new ingestion beside the old one, which stays until somebody "
            "removes it."
        )


def facts(manifest: Manifest) -> list[str]:
    """What an ingestion is, in a few short facts."""
    facts = [
        f"{len(manifest.sessions):,} of {manifest.sessions_planned:,} sessions",
        f"{manifest.memories:,} memories",
        f"{manifest.empty:,} of {manifest.extractions:,} extractions empty",
        f"{manifest.usage.calls:,} calls, {manifest.usage.reused:,} reused",
        "cost unknown" if manifest.usage.cost_usd is None else wording.dollars(manifest.usage.cost_usd),
        wording.duration(manifest.seconds),
        f"{manifest.store_bytes / 1e3:,.0f} kB",
        f"{datetime.fromtimestamp(manifest.changed_at, UTC):%Y-%m-%d %H:%M} UTC",
    ]
    return facts


def _iso(column: pd.Series) -> pd.Series:
    return pd.to_datetime(column, unit="s", utc=True).dt.strftime("%Y-%m-%dT%H:%M:%SZ")
