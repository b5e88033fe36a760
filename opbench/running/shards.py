"""The parts into which a run is cut for several workers: a shard is some instances, for all of the study's
configurations.

No two shards ever need the same call. A call's prompt holds its instance's question, so instances with the same
question are in one shard; and what the configurations share of an instance (a retrieval, a plain response) is too.
Shards follow from the instances alone: every worker cuts alike.
"""

from __future__ import annotations

from collections.abc import Sequence

from opbench.types import Instance

#: Instances of a shard, when there are enough for many shards: as many prompts of one user and one post-processor
#: follow each other, which a server with prefix caching rewards.
CHUNK = 8
_MANY = 64


def cut(instances: Sequence[Instance]) -> list[list[int]]:
    """The shards, as indices into `instances`: user by user, each user's in the given order."""
    size = max(1, min(CHUNK, len(instances) // _MANY))
    alike: dict[str, list[int]] = {}
    users: dict[str, list[str]] = {}
    for index, instance in enumerate(instances):
        group = alike.setdefault(instance.question, [])
        if not group:
            users.setdefault(instance.user.id, []).append(instance.question)
        group.append(index)
    shards: list[list[int]] = []
    for questions in users.values():
        shard: list[int] = []
        for question in questions:
            shard += alike[question]
            if len(shard) >= size:
                shards.append(shard)
                shard = []
        if shard:
            shards.append(shard)
    return shards
