"""The same build again is the same build: it goes on where it stopped."""

from __future__ import annotations

from opbench.construction.building import start
from opbench.construction.loading import Source
from opbench.construction.spec import BuildSpec
from opbench.store.builds import list_builds
from opbench.store.database import Store


def find_same(store: Store, spec: BuildSpec, source: Source) -> str | None:
    """The newest build of the same spec, name included, and the same conversations; None when there is none."""
    for each in list_builds(store):
        if each.build is None or each.build.spec != spec:
            continue
        if each.build.provenance.get("conversations", {}).get("sha256") == source.sha256:
            return each.id
    return None


def find_or_start(store: Store, spec: BuildSpec, source: Source, *, maker: str = "") -> tuple[str, bool]:
    """The id of the build to work on, and whether it was there already.

    Raises:
        UsageError: a user, model or embedder isn't known, or isn't installed.
        DataError: the conversations can't be kept.
    """
    there = find_same(store, spec, source)
    return (start(store, spec, source, maker=maker), False) if there is None else (there, True)
