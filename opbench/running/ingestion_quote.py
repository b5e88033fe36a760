"""What taking in histories will take, before anybody pays: by memory system and user, over the sessions not in yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from opbench.memories import Ingesting
from opbench.memories.library import Estimate
from opbench.memories.manifest import Manifest, SessionEntry, read_manifests
from opbench.models import cost
from opbench.running.assumed import Pace
from opbench.running.ingestion import Pair
from opbench.running.prepare import Prepared, PreparedMemories
from opbench.settings import settings
from opbench.store.database import Store
from opbench.types import User


@dataclass(frozen=True, slots=True)
class IngestionLine:
    """An estimate for one user in one memory system, or for all of its users (`user` empty)."""

    system: str
    label: str
    extractor: str | None
    user: str
    users: int
    """Users with sessions left to take in."""
    sessions: int
    """Sessions left to take in."""
    calls: int
    """At the most: what the call store knows already costs nothing."""
    prompt_tokens: int
    completion_tokens: int
    embedded_tokens: int
    cost_usd: float | None
    """By list price; None when a price is unknown. 0 for a system that asks its own models (`extractor` None): what
    those cost isn't known here."""
    reason: str
    """Why the cost is unknown; else empty."""
    seconds: float
    """One session after the other."""
    measured: int
    """Sessions of earlier ingestions that it rests on; 0: on the library's rules of thumb."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def ingestion_quote(store: Store, prepared: Prepared | PreparedMemories, pairs: Sequence[Pair]) -> list[IngestionLine]:
    """One line a pair, also where nothing is left to do. Asks nobody and writes nothing.

    It rests on the averages of earlier sessions of the same system and extractor where there are some; embedded tokens
    on those with the same embedder, for the embedded one counts none.
    """
    pace = Pace(store, kind="library")
    manifests = read_manifests(settings().kept)
    return [_line(prepared, pace, manifests, prepared.ingesting[name], user) for name, user in pairs]


def by_system(lines: Iterable[IngestionLine]) -> list[IngestionLine]:
    """The sums over each system's users."""
    groups: dict[str, list[IngestionLine]] = {}
    for line in lines:
        groups.setdefault(line.system, []).append(line)
    return [_sum(group) for group in groups.values()]


def seconds_at(lines: Sequence[IngestionLine], at_once: int) -> float:
    """Seconds that several take side by side: a user's sessions come one after the other, whatever the concurrency."""
    seconds = [line.seconds for line in lines]
    return max(sum(seconds) / max(1, at_once), max(seconds, default=0.0))


def basis(lines: Iterable[IngestionLine]) -> str:
    """What the lines with something to do rest on, in words; empty when there are none."""
    measured: dict[str, int] = {}
    for line in lines:
        if line.sessions:
            measured[line.label] = line.measured
    parts = [f"{count} earlier sessions in {label}" for label, count in measured.items() if count]
    unknown = [label for label, count in measured.items() if not count]
    if unknown:
        parts.append(f"rules of thumb for {', '.join(unknown)}")
    return f"ingestion by {' and '.join(parts)}" if parts else ""


def _line(
    prepared: Prepared | PreparedMemories,
    pace: Pace,
    manifests: Sequence[Manifest],
    memory: Ingesting,
    user: User,
) -> IngestionLine:
    history = prepared.corpus.conversations[user.conversation].sessions
    manifest = memory.manifest(user, history)
    left = [session for session in history[len(manifest.sessions) if manifest else 0 :] if session.turns]
    alike = [each for each in manifests if each.system == memory.name and each.extractor == memory.extractor]
    known = _sessions(alike)
    embedded = _sessions([each for each in alike if _embedder(each.identity) == _embedder(memory.identity())])
    estimates = [memory.library.estimate(session, user) for session in left]
    amounts = {key: float(sum(getattr(each, key) for each in estimates)) for key in Estimate.__slots__}
    amounts["seconds"] = amounts["calls"] * (pace.seconds(memory.extractor) if memory.extractor else 0.0)
    if known:
        measured = {key: value * len(left) for key, value in _averages(known).items()}
        amounts |= measured | {"embedded_tokens": amounts["embedded_tokens"]}
    if embedded:
        amounts["embedded_tokens"] = fmean(entry.usage.embedded_tokens for entry in embedded) * len(left)
    whole = {key: round(amounts[key]) for key in Estimate.__slots__}
    cost_usd, reason = _cost(prepared, memory, whole)
    return IngestionLine(
        system=memory.name,
        label=memory.label,
        extractor=memory.extractor,
        user=user.id,
        users=int(bool(left)),
        sessions=len(left),
        cost_usd=cost_usd,
        reason=reason,
        seconds=amounts["seconds"],
        measured=len(known),
        **whole,
    )


def _sessions(manifests: Iterable[Manifest]) -> list[SessionEntry]:
    """Their sessions in which something was asked."""
    return [entry for each in manifests for entry in each.sessions if entry.added.extractions or entry.usage.calls]


def _embedder(identity: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in identity.items() if key.startswith("embedder_")}


def _averages(entries: Sequence[SessionEntry]) -> Mapping[str, float]:
    """What a session took on the average."""
    return {
        "calls": fmean(entry.usage.calls for entry in entries),
        "prompt_tokens": fmean(entry.usage.prompt_tokens for entry in entries),
        "completion_tokens": fmean(entry.usage.completion_tokens for entry in entries),
        "seconds": fmean(entry.taken_s for entry in entries),
    }


def _cost(
    prepared: Prepared | PreparedMemories, memory: Ingesting, amounts: Mapping[str, int]
) -> tuple[float | None, str]:
    total = 0.0
    if memory.extractor is not None and amounts["calls"]:
        asked = cost(prepared.registry.model(memory.extractor), amounts["prompt_tokens"], amounts["completion_tokens"])
        if asked is None:
            return None, f"the registry has no price for {memory.extractor}"
        total += asked
    if amounts["embedded_tokens"]:
        embedder = prepared.registry.embedder(prepared.embedder.name)
        embedded = cost(embedder, amounts["embedded_tokens"], 0)
        if embedded is None:
            return None, f"the registry has no price for {embedder.name}"
        total += embedded
    return total, ""


def _sum(lines: Sequence[IngestionLine]) -> IngestionLine:
    first = lines[0]
    costs = [line.cost_usd for line in lines if line.cost_usd is not None]
    return IngestionLine(
        system=first.system,
        label=first.label,
        extractor=first.extractor,
        user="",
        users=sum(line.users for line in lines),
        sessions=sum(line.sessions for line in lines),
        calls=sum(line.calls for line in lines),
        prompt_tokens=sum(line.prompt_tokens for line in lines),
        completion_tokens=sum(line.completion_tokens for line in lines),
        embedded_tokens=sum(line.embedded_tokens for line in lines),
        cost_usd=sum(costs) if len(costs) == len(lines) else None,
        reason=next((line.reason for line in lines if line.reason), ""),
        seconds=sum(line.seconds for line in lines),
        measured=first.measured,
    )
