"""Making a review: pairs of responses of a run, BASE and one with memory, with what a reviewer needs to judge them.

A review stands by itself: the run may be deleted. Its items are OP-Bench questions that both configurations answered.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import and_, select

from opbench.benchmarks.built import corpus_of
from opbench.benchmarks.slicing import spread
from opbench.errors import UsageError
from opbench.judges.text import strip_thinking
from opbench.review.checks import Check
from opbench.review.spec import Content, ReviewSpec, ShownMemory
from opbench.store import schema as s
from opbench.store.build_runs import build_of_run, candidates_of_run
from opbench.store.database import Store
from opbench.store.record import Key, configuration_id, sha256_of
from opbench.store.reviews import ItemRow, save_review
from opbench.store.texts import need_texts
from opbench.study import BASE, NO_MITIGATION, Study
from opbench.types import OP_SUBTYPES, Corpus, Instance

_NO_PAIR = "a configuration has no response to it"
_EMPTY = "a response is empty"
_NO_CANDIDATE = "no candidate of the build asks it any more"


@dataclass(frozen=True, slots=True)
class Plan:
    """What a review would have."""

    items: tuple[ItemRow, ...]
    build_id: str | None
    left_out: dict[str, int]
    """Questions that can't be reviewed, by reason."""


def pairs_of(store: Store, run_id: str) -> list[tuple[Key, Key]]:
    """The pairs (BASE, with memory) of one model each that a run can be reviewed by, those without post-processor
    first."""
    c = s.configurations.c
    query = select(c.model, c.memory, c.mitigation).where(c.run_id == run_id).order_by(c.id)
    with store.begin() as connection:
        keys: list[Key] = [(row.model, row.memory, row.mitigation) for row in connection.execute(query)]
    bases = {key[0]: key for key in keys if key[1] == BASE}
    pairs = [(bases[key[0]], key) for key in keys if key[1] != BASE and key[0] in bases]
    return sorted(pairs, key=lambda pair: pair[1][2] != NO_MITIGATION)


def plan(store: Store, run_id: str, spec: ReviewSpec) -> Plan:
    """The items that a review of the run would have, in order, and what it would leave out.

    Raises:
        UsageError: no such configuration, texts were left out, the data that the run was made of aren't here, or
            nothing is left.
        DataError: a benchmark file is damaged.
    """
    _check(spec)
    corpus, rows = _read(store, run_id, spec)
    instances = {instance.id: instance for instance in corpus.op}
    build_id = build_of_run(store, run_id)
    candidates = candidates_of_run(store, run_id)
    left_out: dict[str, int] = {}
    fitting: dict[str, tuple[Instance, Any]] = {}
    for row in rows:
        base, memory = strip_thinking(row.base or ""), strip_thinking(row.memory or "")
        reason = ""
        if row.base is None or row.memory is None:
            reason = _NO_PAIR
        elif not base or not memory:
            reason = _EMPTY
        elif build_id is not None and row.instance_id not in candidates:
            reason = _NO_CANDIDATE
        if reason:
            left_out[reason] = left_out.get(reason, 0) + 1
        else:
            fitting[row.instance_id] = (instances[row.instance_id], row)
    order = spread((instance for instance, _ in fitting.values()), spec.seed)[: spec.limit]
    items = tuple(
        ItemRow(each.id, each.user.id, each.subtype, _content(*fitting[each.id], corpus), candidates.get(each.id))
        for each in order
    )
    if not items:
        told = "; ".join(f"{n:,}: {reason}" for reason, n in left_out.items()) or "it has none of these subtypes"
        raise UsageError(f"run {run_id} has no OP-Bench question to review ({told}).")
    return Plan(items, build_id, left_out)


def create(store: Store, run_id: str, spec: ReviewSpec, *, name: str, maker: str, checks: Sequence[Check] = ()) -> str:
    """Make a review of a run's responses, with `checks` mixed in; returns its id.

    Raises:
        UsageError, DataError: as `plan`; or no name.
    """
    made = plan(store, run_id, spec)
    return save_plan(store, run_id, spec, made, name=name, maker=maker, checks=checks)


def save_plan(
    store: Store, run_id: str, spec: ReviewSpec, made: Plan, *, name: str, maker: str, checks: Sequence[Check] = ()
) -> str:
    """As `create`, of a plan that was made already."""
    there = {item.item for item in made.items}
    if doubled := [check.item for check in checks if check.item in there]:
        raise UsageError(f"spot check '{doubled[0][:80]}' has the id of an item: give it another.")
    known = [ItemRow(each.item, each.user, each.subtype, each.content, known=each.known) for each in checks]
    review_id = uuid.uuid4().hex[:12]
    save_review(
        store,
        review_id,
        name=name,
        run_id=run_id,
        build_id=made.build_id,
        spec=spec,
        maker=maker,
        items=[*made.items, *known],
    )
    return review_id


def _check(spec: ReviewSpec) -> None:
    if spec.base[1] != BASE or spec.memory[1] == BASE:
        raise UsageError(
            f"a review sets BASE against a memory system: {' · '.join(spec.base)} and {' · '.join(spec.memory)} aren't."
        )
    if unknown := [name for name in spec.subtypes if name not in OP_SUBTYPES]:
        raise UsageError(f"no subtype '{unknown[0][:40]}'; there are {', '.join(OP_SUBTYPES)}.")


def _read(store: Store, run_id: str, spec: ReviewSpec) -> tuple[Corpus, Sequence[Any]]:
    i = s.instances.c
    base, memory = s.records.alias("base"), s.records.alias("memory")
    with store.begin() as connection:
        need_texts(connection, run_id)
        keys = [configuration_id(connection, run_id, key) for key in (spec.base, spec.memory)]
        joins = [
            and_(table.c.instance_id == i.instance_id, table.c.configuration_id == key, table.c.status == "done")
            for table, key in zip((base, memory), keys, strict=True)
        ]
        query = (
            select(
                i.instance_id,
                base.c.response.label("base"),
                memory.c.response.label("memory"),
                memory.c.retrieved,
                memory.c.context,
            )
            .select_from(s.instances.outerjoin(base, joins[0]).outerjoin(memory, joins[1]))
            .where(i.run_id == run_id, i.benchmark == "op")
            .order_by(i.ordinal)
        )
        if spec.subtypes:
            query = query.where(i.subtype.in_(spec.subtypes))
        run = connection.execute(select(s.runs.c.study, s.runs.c.provenance).where(s.runs.c.id == run_id)).one()
        rows = connection.execute(query).all()
    corpus = corpus_of(Study.model_validate(run.study).data)
    if dict(run.provenance).get("data") != corpus.sha256:
        raise UsageError(
            f"run {run_id} is of other data than are here, and reviewers see a user's profile and memories from them. "
            "Set OPBENCH_DATA to the data that it was made of."
        )
    return corpus, rows


def _content(instance: Instance, row: Any, corpus: Corpus) -> Content:
    known = corpus.profiles.get(instance.user.id)
    facts = known.observations if known else ()
    retrieved = [(str(each["text"]), str(each.get("date") or "")) for each in row.retrieved or ()]
    texts = {text for text, _ in retrieved}
    return Content(
        question=instance.question,
        base=strip_thinking(row.base),
        memory=strip_thinking(row.memory),
        profile=known.profile if known else "",
        topics=known.topics if known else (),
        memories=(
            *(ShownMemory(text=text, date=date, relevant=True, fact=text in facts) for text, date in retrieved),
            *(ShownMemory(text=text, fact=True) for text in facts if text not in texts),
        ),
        kind=instance.kind or "",
        explanation=instance.explanation or "",
        context=tuple(str(each["text"]) for each in row.context or ()),
        base_sha256=sha256_of(row.base),
        memory_sha256=sha256_of(row.memory),
    )
