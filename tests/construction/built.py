"""A build in a store whose candidates the test writes, with profiles as the models would have made them."""

from __future__ import annotations

from dataclasses import replace

from opbench.construction.building import start
from opbench.construction.loading import Source, read_source
from opbench.construction.slots import profile_unit, topics_unit
from opbench.construction.spec import BuildSpec
from opbench.store.builds import Candidate, Unit, save_unit
from opbench.store.database import Store

#: An observation of the sample, which rests on `D3:9`.
KIWI = "Ottilie is allergic to kiwi and has to carry an emergency pen."
OTTILIE, CORVIN = "sample-1/Ottilie", "sample-1/Corvin"


def unit_named(name: str, user: str = "", output: object = None, role: str = "generator", **further: object) -> Unit:
    made = Unit(name, name.partition("/")[0], user, "done", None, output, role, "scripted", "a" * 64)
    return replace(made, **further)  # type: ignore[arg-type]


def made_build(store: Store, spec: BuildSpec, source: Source | None = None) -> str:
    """A build of the sample whose users have a profile and topics."""
    source = source or read_source("sample")
    build_id = start(store, spec, source)
    for user in source.users.values():
        save_unit(store, build_id, unit_named(profile_unit(user), user.id, {"profile": f"{user.speaker} is busy."}))
        save_unit(store, build_id, unit_named(topics_unit(user), user.id, {"topics": ["Work", "Water"]}))
    return build_id


def candidate(number: int, question: str, subtype: str = "fact", user: str = OTTILIE, **further: object) -> Candidate:
    """The candidate of that place in the build's order; its id is `c<number>`."""
    plain = Candidate(
        id=f"c{number}",
        ordinal=number,
        unit=f"tasks/{user}/{subtype}/{number}",
        user_id=user,
        subtype=subtype,
        kind={"baiting": "subject_confusion", "memory": "fine-grained"}.get(subtype),
        topic={"fully-irrelevant": "work", "repetition": "Water"}.get(subtype),
        subtopic="cold lakes" if subtype == "repetition" else None,
        question=question,
        explanation=None,
        falsifies=KIWI if subtype == "memory" else None,
        evidence=(),
        generator="scripted",
        prompt_sha256="a" * 64,
    )
    return replace(plain, **further)  # type: ignore[arg-type]


def add(store: Store, build_id: str, *candidates: Candidate) -> None:
    for each in candidates:
        save_unit(store, build_id, unit_named(each.unit, each.user_id, {}), [each])
