"""What is meant by the names on a command line: memory systems, users, ingestions."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from opbench.commands.options import words
from opbench.errors import UsageError
from opbench.memories.manifest import Manifest, read_manifests
from opbench.memories.registry import ingesting_names, library_factory, memory_names
from opbench.running.budget import dollars
from opbench.settings import settings
from opbench.types import Corpus, User

SHORT_DIGEST = 12


def one_by_one(systems: Sequence[str]) -> list[str]:
    """Systems as given one by one or with commas, each once."""
    return list(dict.fromkeys(name for given in systems for name in words(given) or ()))


def checked(systems: Sequence[str]) -> list[str]:
    """Systems as given one by one or with commas, each once.

    Raises:
        UsageError: one isn't known, or takes in nothing; names the nearest.
    """
    names = one_by_one(systems)
    known = ingesting_names()
    for name in names:
        if name in known:
            continue
        if name in memory_names():
            raise UsageError(f"{name} needs no ingestion. These do: {', '.join(known)}.")
        raise _unknown(name, known)
    return named(names)


def named(systems: Sequence[str]) -> list[str]:
    """The systems, of which there is one at least.

    Raises:
        UsageError: there is none.
    """
    if not systems:
        raise UsageError(f"name a memory system: {', '.join(ingesting_names())}.")
    return list(systems)


def the_users(corpus: Corpus, names: Sequence[str]) -> list[User]:
    """Users by id, both of a conversation by its id, or all; each once, in the corpus' order.

    Raises:
        UsageError: one isn't known; names the nearest.
    """
    wanted = set()
    for name in names:
        if name not in corpus.users and name not in corpus.conversations:
            near = difflib.get_close_matches(name, [*corpus.users, *corpus.conversations], n=3, cutoff=0.5)
            hint = f"Did you mean {' or '.join(near)}?" if near else f"There are {', '.join(corpus.users)}."
            raise UsageError(f"no user '{name}'. {hint}")
        wanted.add(name)
    return [user for user in corpus.users.values() if not wanted or user.id in wanted or user.conversation in wanted]


def the_ingestion(system: str, user: str, digest: str | None, *, complete: bool = False) -> Manifest:
    """The one ingestion that is meant.

    Raises:
        UsageError: there is none, it isn't `complete`, or there are several: lists them.
    """
    of_user = [each for each in kept_by(system) if each.user == user]
    there = [each for each in of_user if each.digest.startswith(digest or "")]
    if of_user and not there:
        raise UsageError(f"{told_apart(system, user, of_user)} None begins with {digest}.")
    if not there:
        known = sorted({each.user for each in kept_by(system)})
        near = difflib.get_close_matches(user, known, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise UsageError(
            f"{system} has taken in nothing of {user}.{hint} Ingest it: opbench memory ingest {system} --users {user}"
        )
    whole = [each for each in there if each.complete] if complete else there
    if not whole:
        manifest = there[0]
        why = f" ({manifest.failure.error})" if manifest.failure else ""
        raise UsageError(
            f"{system} has taken in {len(manifest.sessions)} of {manifest.sessions_planned} sessions of {user}{why}. "
            f"Go on with it: opbench memory ingest {system} --users {user}"
        )
    if len(whole) > 1:
        raise UsageError(f"{told_apart(system, user, whole)} Name one with --digest.")
    return whole[0]


def told_apart(system: str, user: str, there: Sequence[Manifest]) -> str:
    """Several ingestions of one user, each with what tells it apart, as a sentence."""
    told = "; ".join(
        f"{each.digest[:SHORT_DIGEST]} ({each.state}, {each.memories} memories, {each.extractor or 'own'} extractor)"
        for each in there
    )
    count = "one ingestion" if len(there) == 1 else f"{len(there)} ingestions"
    return f"{system} has {count} of {user}: {told}."


def kept_by(system: str) -> list[Manifest]:
    """A system's ingestions, also those of a plugin that isn't loaded now.

    Raises:
        UsageError: it has none, and isn't a memory system that could; names the nearest.
    """
    found = [each for each in read_manifests(settings().kept) if each.system == system]
    if not found and library_factory(system) is None:
        known = ingesting_names()
        if system in memory_names():
            raise UsageError(f"{system} keeps no ingestions. These do: {', '.join(known)}.")
        raise _unknown(system, known)
    return found


def _unknown(system: str, known: Sequence[str]) -> UsageError:
    near = difflib.get_close_matches(system, known, n=1)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    return UsageError(f"no memory system '{system}'.{hint} There are: {', '.join(known)}.")


def cost_told(extractor: str | None, cost_usd: float | None) -> str:
    """A cost for people. Without an extractor of ours the system asks its own models, whose cost nobody tells."""
    if extractor is None:
        return "its own"
    return "unknown" if cost_usd is None else dollars(cost_usd)
