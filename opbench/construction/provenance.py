"""What an export tells beside the public format: where every question comes from, and what became of the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from opbench import __version__
from opbench.construction.people import Person
from opbench.construction.slots import profile_unit, topics_unit
from opbench.running.prepare import git_commit
from opbench.store.builds import Build, Candidate, Unit

PROVENANCE_FILE = "provenance.json"
FORMAT = "opbench-build/1"


def provenance_of(
    build: Build,
    which: str,
    digests: Mapping[str, str],
    people: Mapping[str, Person],
    candidates: Sequence[Candidate],
    instances: Mapping[str, str],
    units: Mapping[str, Unit],
) -> dict[str, Any]:
    """JSON. `digests`: SHA-256 by file name; `instances`: instance id by candidate of those that were exported."""
    return {
        "format": FORMAT,
        "build": {
            "id": build.id,
            "name": build.name,
            "created_at": build.created_at,
            "spec": build.spec.model_dump(mode="json"),
            "provenance": build.provenance,
        },
        "export": {"which": which, "workbench": __version__, "git_commit": git_commit(), "sha256": dict(digests)},
        "users": {name: _person(known, units) for name, known in people.items()},
        "instances": [
            {"instance": instances[each.id], **_candidate(each, units)} for each in candidates if each.id in instances
        ],
        "left_out": [_candidate(each, units) for each in candidates if each.id not in instances],
    }


def _person(known: Person, units: Mapping[str, Unit]) -> dict[str, Any]:
    made = {"profile": units.get(profile_unit(known.user)), "topics": units.get(topics_unit(known.user))}
    return {
        "observations": [asdict(fact) for fact in known.facts],
        "made_by": {
            what: {"model": unit.model, "prompt_sha256": unit.prompt_sha256, "calls": list(unit.calls)}
            for what, unit in made.items()
            if unit is not None and unit.status == "done"
        },
    }


def _candidate(each: Candidate, units: Mapping[str, Unit]) -> dict[str, Any]:
    unit = units.get(each.unit)
    values = {name: value for name, value in asdict(each).items() if name not in ("id", "ordinal", "user_id")}
    return {
        "candidate": each.id,
        "user": each.user_id,
        **values,
        "calls": list(unit.calls) if unit else [],
        "repaired": bool(unit and unit.repaired),
    }
