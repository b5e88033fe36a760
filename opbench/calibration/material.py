"""What there is to judge: the responses of a set, or those of a run's records, each with what a judge may look at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select

from opbench.benchmarks.built import corpus_of
from opbench.calibration.spec import Rated
from opbench.errors import UsageError
from opbench.judges.base import Evidence
from opbench.protocol import Protocol
from opbench.store import schema as s
from opbench.store.database import Store
from opbench.store.frames import CONFIGURATION
from opbench.store.judgings import item_of, read_set
from opbench.store.record import sha256_of
from opbench.store.rundata import Key
from opbench.store.texts import need_texts
from opbench.study import Study
from opbench.types import Corpus, Instance, User

#: No judge scores these: a user's responses are compared with each other (`judges/repetition.py`).
REPETITION = "repetition"


@dataclass(frozen=True, slots=True)
class Item:
    """A response to be judged."""

    item: str
    evidence: Evidence

    @property
    def sha256(self) -> str:
        """Of the response."""
        return sha256_of(self.evidence.response)


@dataclass(frozen=True, slots=True)
class Material:
    """All that is to be judged of a set or of a run."""

    items: tuple[Item, ...]
    left_out: dict[str, int]
    """Responses that aren't judged, by reason."""
    protocol: Protocol = "uniform"


def of_set(store: Store, set_id: str) -> Material:
    """A set's responses, in its order."""
    rated = read_set(store, set_id)
    items = tuple(Item(each.item, evidence_of(each)) for each in rated if each.response.subtype != REPETITION)
    repeated = len(rated) - len(items)
    return Material(items, {"repetition, which is scored over all of a user's responses": repeated} if repeated else {})


def evidence_of(rated: Rated) -> Evidence:
    """What a judge may look at of a set's response."""
    given = rated.response
    conversation, _, speaker = given.user.rpartition("/")
    user = User(conversation, speaker, "", False)
    instance = Instance(
        f"{given.benchmark}/{given.user}/{given.subtype}/0",
        given.benchmark,
        user,
        given.subtype,
        given.question,
        answer=given.gold or None,
        explanation=given.explanation or None,
    )
    return Evidence(
        instance,
        given.response,
        profile=given.profile,
        memories=given.memories,
        context=given.context,
        own_facts=given.facts,
    )


def of_run(store: Store, run_id: str, *, configurations: Sequence[Key] = (), subtypes: Sequence[str] = ()) -> Material:
    """The responses of a run's records (of these configurations and subtypes; empty: all), with what the run's own
    judge looked at; instance by instance, so that a judging that stops has judged all configurations alike.

    Raises:
        UsageError: the run's texts were left out, the data it is of aren't here, or nothing is left.
        DataError: a benchmark file is damaged.
    """
    r, i, c = s.records.c, s.instances.c, s.configurations.c
    query = (
        select(
            r.configuration_id,
            *CONFIGURATION,
            r.instance_id,
            r.response,
            r.retrieved,
            r.context,
            r.finish_reason,
            i.question,
            i.subtype,
        )
        .select_from(s.records)
        .join(s.instances, (i.run_id == r.run_id) & (i.instance_id == r.instance_id))
        .join(s.configurations, c.id == r.configuration_id)
        .where(r.run_id == run_id, r.status == "done")
        .order_by(i.ordinal, r.configuration_id)
    )
    if subtypes:
        query = query.where(i.subtype.in_(list(subtypes)))
    with store.begin() as connection:
        need_texts(connection, run_id)
        run = connection.execute(select(s.runs.c.study, s.runs.c.provenance).where(s.runs.c.id == run_id)).one()
        rows = connection.execute(query).all()
    study = Study.model_validate(run.study)
    corpus = corpus_of(study.data)
    if dict(run.provenance).get("data") != corpus.sha256:
        raise UsageError(
            f"run {run_id} is of other data than are here, and a judge looks at a user's profile and facts in them. "
            "Set OPBENCH_DATA to the data that it was made of."
        )
    instances = {each.id: each for each in (*corpus.op, *corpus.locomo)}
    items: list[Item] = []
    repeated = 0
    for row in rows:
        if configurations and (row.model, row.memory, row.mitigation) not in configurations:
            continue
        if row.subtype == REPETITION:
            repeated += 1
            continue
        items.append(Item(item_of(row.configuration_id, row.instance_id), _evidence(row, instances, corpus)))
    if not items:
        raise UsageError(
            f"run {run_id} has no response of these configurations and subtypes that a judge scores: name others, or "
            "go on with the run."
        )
    left_out = {"repetition, which is scored over all of a user's responses": repeated} if repeated else {}
    return Material(tuple(items), left_out, study.protocol)


def _evidence(row: Any, instances: dict[str, Instance], corpus: Corpus) -> Evidence:
    instance = instances[row.instance_id]
    profile = corpus.profiles.get(instance.user.id)
    return Evidence(
        instance,
        row.response or "",
        profile=profile.profile if profile else "",
        memories=tuple(each["text"] for each in row.retrieved or ()),
        context=tuple(each["text"] for each in row.context or ()),
        finish_reason=row.finish_reason,
        own_facts=profile.observations if profile else (),
    )
