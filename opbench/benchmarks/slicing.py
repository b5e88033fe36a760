"""Taking a part of the benchmarks: by user, by subtype, or N instances spread evenly."""

from __future__ import annotations

import difflib
import hashlib
from collections import Counter, deque
from collections.abc import Collection, Iterable, Sequence
from typing import get_args

from opbench.errors import UsageError
from opbench.types import LOCOMO_CATEGORIES, OP_SUBTYPES, Benchmark, Corpus, Instance

SUBTYPES = (*OP_SUBTYPES, *LOCOMO_CATEGORIES.values())


def select(
    corpus: Corpus,
    benchmarks: Sequence[str],
    users: Collection[str] = (),
    subtypes: Collection[str] = (),
    limit: int | None = None,
    seed: int = 0,
    adversarial: bool = False,
    exclude: Collection[str] = frozenset(),
) -> list[Instance]:
    """The instances of a study, one benchmark after the other, each in the order in which a limit takes them.

    Args:
        benchmarks: `op`, `locomo`.
        users: user ids such as `conv-26/Caroline`; empty for all. A LoCoMo question is taken once if either speaker of
            its conversation is named.
        subtypes: of OP_SUBTYPES and LoCoMo's category names; empty for all (`adversarial` then only if asked for).
        limit: that many instances of each benchmark (all, if it has fewer), spread evenly over users (LoCoMo:
            conversations) and subtypes. A larger limit keeps what a smaller one took.
        seed: which instances a limit takes; the same on every machine.
        adversarial: whether LoCoMo's category 5 is in; the usual protocol leaves it out.
        exclude: ids of instances that are left out before a limit takes its part.

    A user's first two repetition questions come one after the other, because one alone can't be scored (the score is
    made of pairs of responses); only a limit that ends between the two leaves one alone.

    Raises:
        UsageError: an unknown name (with the nearest known ones), a limit below 1, or nothing that fits.
    """
    _known("benchmark", benchmarks, get_args(Benchmark))
    _known("user", users, corpus.users)
    _known("subtype", subtypes, SUBTYPES)
    if limit is not None and limit < 1:
        raise UsageError(f"--limit {limit}: must be 1 or more, or left out to take everything")
    conversations = {corpus.users[user].conversation for user in users}

    def fits(instance: Instance) -> bool:
        if instance.id in exclude or (subtypes and instance.subtype not in subtypes):
            return False
        if instance.subtype == "adversarial" and not (adversarial or "adversarial" in subtypes):
            return False
        if not users:
            return True
        return instance.user.id in users if instance.benchmark == "op" else instance.user.conversation in conversations

    selected: list[Instance] = []
    for benchmark in dict.fromkeys(benchmarks):
        instances = corpus.op if benchmark == "op" else corpus.locomo
        selected += spread(filter(fits, instances), seed)[:limit]
    if not selected:
        raise UsageError("no instance fits these benchmarks, users and subtypes; widen one of them, or exclude less")
    return selected


def spread(instances: Iterable[Instance], seed: int) -> list[Instance]:
    """All the instances, in an order of which every beginning is spread evenly over users and subtypes.

    Strata are (user, subtype). Next is always a stratum of which least was taken; of several, one whose user and
    subtype had least so far; of several still, and within a stratum, the seed decides.
    """
    strata: dict[tuple[str, str], deque[Instance]] = {}
    for instance in sorted(instances, key=lambda instance: _rank(seed, instance.id)):
        strata.setdefault((instance.user.id, instance.subtype), deque()).append(instance)
    ranks = {stratum: _rank(seed, "/".join(stratum)) for stratum in strata}
    taken: Counter[tuple[str, str]] = Counter()
    of_user: Counter[str] = Counter()
    of_subtype: Counter[str] = Counter()
    order: list[Instance] = []
    while strata:
        user, subtype = stratum = min(
            strata, key=lambda key: (taken[key], of_user[key[0]] + of_subtype[key[1]], ranks[key])
        )
        queue = strata[stratum]
        batch = min(2 if subtype == "repetition" and not taken[stratum] else 1, len(queue))
        order += [queue.popleft() for _ in range(batch)]
        taken[stratum] += batch
        of_user[user] += batch
        of_subtype[subtype] += batch
        if not queue:
            del strata[stratum]
    return order


def _rank(seed: int, name: str) -> str:
    return hashlib.sha256(f"{seed}:{name}".encode()).hexdigest()


def _known(what: str, names: Collection[str], known: Collection[str]) -> None:
    if isinstance(names, str):
        raise UsageError(f"{what}s must be a list, not the text {names!r}")
    for name in names:
        if name not in known:
            nearest = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
            hint = f"did you mean {' or '.join(nearest)}?" if nearest else f"there are {', '.join(known)}"
            raise UsageError(f"unknown {what} {name!r}; {hint}")
