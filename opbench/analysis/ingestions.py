"""What ingestions hold and took, as tables: one row an ingestion, and one row a session."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence

import pandas as pd

from mitigations.base import Memory
from opbench.memories.manifest import Manifest

#: What an ingestion's name is made longer by, where the system's label alone isn't unique.
_SHORT = 6
_SUMS = (
    "memories",
    "extractions",
    "empty",
    "calls",
    "reused",
    "tokens_in",
    "tokens_out",
    "embedded_texts",
    "seconds",
    "spent_usd",
)
OVERVIEW = (
    "name",
    "system",
    "user",
    "state",
    "sessions",
    "planned",
    *_SUMS,
    "cost_usd",
    "store_bytes",
    "extractor",
    "embedder",
    "failure",
    "finished_at",
    "digest",
)
SESSIONS = (
    "name",
    "system",
    "user",
    "digest",
    "session",
    "day",
    *_SUMS,
    "tokens",
    "cost_usd",
    "total",
    "finished_at",
)


def names(manifests: Sequence[Manifest]) -> dict[str, str]:
    """A name for each ingestion's settings, by its digest: the system's label, and where the same system stands there
    with other settings the extractor, or else a few signs of the settings' hash."""
    settings = {each.digest: _settings(each) for each in manifests}
    found: dict[str, str] = {}
    for each in manifests:
        same = [other for other in manifests if other.system == each.system]
        if len({settings[other.digest] for other in same}) == 1:
            found[each.digest] = each.label
            continue
        extractors: dict[str, set[str]] = {}
        for other in same:
            extractors.setdefault((other.extractor or ""), set()).add(settings[other.digest])
        mine = each.extractor or ""
        told = mine if mine and len(extractors[mine]) == 1 else settings[each.digest][:_SHORT]
        found[each.digest] = f"{each.label} · {told}"
    return found


def overview(manifests: Sequence[Manifest]) -> pd.DataFrame:
    """One row an ingestion, in the given order, with the columns OVERVIEW; costs are by list price, NaN where a price
    is unknown, `seconds` those of the sessions, `finished_at` the last session's end."""
    named = names(manifests)
    sessions = by_session(manifests)
    rows = []
    for each in manifests:
        # Both users of a conversation have one history, and so one digest a system.
        mine = sessions[(sessions["digest"] == each.digest) & (sessions["user"] == each.user)]
        rows.append(
            {
                "name": named[each.digest],
                "system": each.system,
                "user": each.user,
                "state": each.state,
                "sessions": len(mine),
                "planned": each.sessions_planned,
                **{column: mine[column].sum() for column in _SUMS},
                "memories": each.memories,
                "cost_usd": mine["cost_usd"].sum(skipna=False) if len(mine) else 0.0,
                "store_bytes": each.store_bytes,
                "extractor": (each.extractor or ""),
                "embedder": _embedder(each),
                "failure": "" if each.failure is None else each.failure.error,
                "finished_at": mine["finished_at"].max() if len(mine) else float("nan"),
                "digest": each.digest,
            }
        )
    return pd.DataFrame(rows, columns=list(OVERVIEW))


def by_session(manifests: Sequence[Manifest]) -> pd.DataFrame:
    """One row a session that was taken in, with the columns SESSIONS."""
    named = names(manifests)
    rows = []
    for each in manifests:
        for done in each.sessions:
            tokens_in, tokens_out = done.usage.prompt_tokens, done.usage.completion_tokens
            rows.append(
                {
                    "name": named[each.digest],
                    "system": each.system,
                    "user": each.user,
                    "digest": each.digest,
                    "session": done.number,
                    "day": done.day,
                    "memories": done.added.memories,
                    "extractions": done.added.extractions,
                    "empty": done.added.empty,
                    "calls": done.usage.calls,
                    "reused": done.usage.reused,
                    "tokens_in": tokens_in,
                    "tokens_out": tokens_out,
                    "embedded_texts": done.usage.embedded_texts,
                    "seconds": done.taken_s,
                    "spent_usd": done.usage.spent_usd,
                    "tokens": tokens_in + tokens_out,
                    "cost_usd": float("nan") if done.usage.cost_usd is None else done.usage.cost_usd,
                    "total": done.total,
                    "finished_at": done.finished_at,
                }
            )
    return pd.DataFrame(rows, columns=list(SESSIONS))


def provenance(manifests: Sequence[Manifest]) -> pd.DataFrame:
    """What determines the content of each ingestion: a row a setting (`what`), a column an ingestion by its digest's
    first signs; settings that all share come last."""
    settings = {each.digest[:12]: _known(each) for each in manifests}
    keys = list(dict.fromkeys(key for known in settings.values() for key in known))
    differing = [key for key in keys if len({known.get(key, "") for known in settings.values()}) > 1]
    rows = [
        {"what": key, **{digest: known.get(key, "") for digest, known in settings.items()}}
        for key in [*differing, *(key for key in keys if key not in differing)]
    ]
    return pd.DataFrame(rows, columns=["what", *settings])


def hits(found: Mapping[str, Sequence[Memory]]) -> pd.DataFrame:
    """What several systems found for one question: system, rank, similarity, date, also (other systems that found the
    same text), memory."""
    texts = Counter((_plain(memory.text), name) for name, memories in found.items() for memory in memories)
    rows = [
        {
            "system": name,
            "rank": rank,
            "similarity": memory.score,
            "date": memory.date,
            "also": ", ".join(other for other in found if other != name and texts[_plain(memory.text), other]),
            "memory": memory.text,
        }
        for name, memories in found.items()
        for rank, memory in enumerate(memories, start=1)
    ]
    frame = pd.DataFrame(rows, columns=["system", "rank", "similarity", "date", "also", "memory"])
    return frame.astype({"similarity": "float64"})


def kept(memories: Sequence[Memory]) -> pd.DataFrame:
    """All memories of one ingestion, in their order: number (from 1), date, memory."""
    rows = [{"number": n, "date": each.date, "memory": each.text} for n, each in enumerate(memories, start=1)]
    return pd.DataFrame(rows, columns=["number", "date", "memory"])


def _plain(text: str) -> str:
    """A memory's text as it is compared: case and white space say nothing."""
    return " ".join(text.split()).casefold()


def _settings(manifest: Manifest) -> str:
    canonical = json.dumps(dict(manifest.identity), sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def _embedder(manifest: Manifest) -> str:
    """The embedder's name where it runs: at its endpoint, or as it comes with the project."""
    return manifest.identity.get("embedder_served") or manifest.identity.get("embedder_model", "")


def _known(manifest: Manifest) -> dict[str, str]:
    return {
        **{key: str(value) for key, value in manifest.identity.items()},
        "history sha256": manifest.history_sha256,
        "digest": manifest.digest,
    }
