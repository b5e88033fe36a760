"""What a build will take, before any of it is done: units, calls, tokens, dollars and time. An estimate, and said to be
one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from opbench.construction.loading import Source
from opbench.construction.profiles import spoken
from opbench.construction.prompting import load_prompt
from opbench.construction.slots import FINE, Outline, Slot, observations_unit, profile_unit, summary_unit, topics_unit
from opbench.construction.spec import BuildSpec, Role
from opbench.models import Registry, cost
from opbench.running.assumed import CHARACTERS_PER_TOKEN, Pace
from opbench.store.builds import Unit
from opbench.store.database import Store

#: Characters that are assumed of texts that aren't made yet.
_SUMMARY, _PROFILE, _TOPICS, _NAME, _QUESTION, _NOTE, _FACT = 450, 450, 200, 30, 90, 140, 110
#: Characters of a filter's call.
_CHECK_PROMPT = 1_500
_CHECK_ANSWER = 100


@dataclass(frozen=True, slots=True)
class PlanLine:
    """A role and its model. `cost_usd` is None when a price isn't known."""

    role: Role
    model: str
    units: int
    """Of which each is one call, and a second one where an answer has to be repaired (not in the numbers)."""
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float | None
    seconds: float


@dataclass(frozen=True, slots=True)
class BuildPlan:
    """What is left to do of a build: at most, since general topics that are related to a user's fall away."""

    users: int
    candidates: Mapping[str, int]
    """Questions that are asked for, by subtype."""
    lines: tuple[PlanLine, ...]
    cost_usd: float | None
    seconds: float
    basis: str
    """What answer times rest on."""

    @property
    def units(self) -> int:
        return sum(line.units for line in self.lines)

    @property
    def calls(self) -> int:
        return self.units

    @property
    def prompt_tokens(self) -> int:
        return sum(line.prompt_tokens for line in self.lines)

    @property
    def completion_tokens(self) -> int:
        return sum(line.completion_tokens for line in self.lines)


@dataclass(frozen=True, slots=True)
class _Call:
    role: Role
    model: str
    characters_in: float
    characters_out: float


def plan(
    store: Store,
    spec: BuildSpec,
    source: Source,
    registry: Registry,
    *,
    units: Mapping[str, Unit] | None = None,
    concurrency: int = 8,
) -> BuildPlan:
    """What is left to do of a build, or all of it; `units` are those that are done. Makes no call.

    The checker's calls are those of its filters, for every question that they may look at.

    Raises:
        UsageError: a user or model isn't known.
    """
    done = units or {}
    outline = Outline(spec, source)
    expected = set(outline.expected(done)["tasks"])
    wanted = [slot for slot in outline.slots if slot.unit in expected]
    candidates: Counter[str] = Counter()
    for slot in wanted:
        if slot.what != "subtopics":
            candidates[slot.what] += slot.count
    calls = [
        *_profile_calls(spec, source, outline, done),
        *(
            _Call("similarity", spec.similarity, _prompt("similarity") + _PROFILE + _TOPICS + 150, 250)
            for unit in outline.similarities
            if not _is_done(done, unit)
        ),
        *(_slot_call(spec, slot) for slot in wanted if not _is_done(done, slot.unit)),
        *_checks(spec, candidates, sum(unit.stage == "filtering" for unit in done.values())),
    ]
    pace = Pace(store)
    lines = tuple(_lines(calls, registry, pace, concurrency))
    costs = [line.cost_usd for line in lines]
    known = [each for each in costs if each is not None]
    return BuildPlan(
        len(outline.users),
        dict(candidates),
        lines,
        sum(known) if len(known) == len(costs) else None,
        sum(line.seconds for line in lines),
        pace.basis(Counter(line.model for line in lines)),
    )


def _is_done(done: Mapping[str, Unit], unit: str) -> bool:
    known = done.get(unit)
    return known is not None and not known.retriable


def _prompt(name: str) -> int:
    prompt = load_prompt(name)
    return len(prompt.system) + len(prompt.user)


def _profile_calls(spec: BuildSpec, source: Source, outline: Outline, done: Mapping[str, Unit]) -> Iterator[_Call]:
    left = {unit for unit in outline.profiles if not _is_done(done, unit)}
    for name in dict.fromkeys(user.conversation for user in outline.users):
        for session in source.conversations[name].sessions:
            length = len(spoken(session))
            if summary_unit(name, session.number) in left:
                yield _Call("extractor", spec.extractor, _prompt("summary") + length, _SUMMARY)
            for user in (each for each in outline.users if each.conversation == name):
                if observations_unit(user, session.number) in left:
                    yield _Call("extractor", spec.extractor, _prompt("observations") + length, 4 * _FACT)
    for user in outline.users:
        given = source.summaries.get(user.conversation, {})
        sessions = source.conversations[user.conversation].sessions
        history = sum(len(given.get(each.number, "")) or _SUMMARY for each in sessions)
        if profile_unit(user) in left:
            yield _Call("extractor", spec.extractor, _prompt("profile") + history, _PROFILE)
        if topics_unit(user) in left:
            size = _prompt("topics") + history + _PROFILE
            yield _Call("extractor", spec.extractor, size, spec.counts.topics * _NAME + 20)


def _slot_call(spec: BuildSpec, slot: Slot) -> _Call:
    earlier = min(40, (slot.round - 1) * slot.count) * _QUESTION
    n = slot.count
    if slot.what == "fully-irrelevant":
        size, answer = _prompt("irrelevant") + _TOPICS, n * _QUESTION
    elif slot.what == "baiting":
        size, answer = _prompt(f"baiting-{slot.detail}") + _PROFILE + _TOPICS + 12 * _FACT, n * (_QUESTION + 2 * _NOTE)
    elif slot.what in ("fact", "value"):
        size, answer = _prompt(slot.what) + _PROFILE + _TOPICS, n * (_QUESTION + _NOTE)
    elif slot.what == "memory":
        name = "memory-fine" if slot.detail == FINE else "memory-coarse"
        size, answer = _prompt(name) + n * _FACT, n * (_QUESTION + _FACT + 40)
    elif slot.what == "subtopics":
        size, answer = _prompt("subtopics") + _NAME, n * _NAME
    else:
        size, answer = _prompt("repetition") + 2 * _NAME, n * _QUESTION
    return _Call("generator", slot.generator, size + earlier, answer + 20)


def _checks(spec: BuildSpec, candidates: Mapping[str, int], done: int) -> Iterator[_Call]:
    """The calls of filters that ask a model: one a question, without those that are done."""
    looked_at = ["memory"] if spec.filters.check_memories else []
    looked_at += ["fully-irrelevant", "baiting"] if spec.filters.check_need else []
    for _ in range(sum(candidates.get(subtype, 0) for subtype in looked_at) - done):
        yield _Call("checker", spec.checker, _CHECK_PROMPT, _CHECK_ANSWER)


def _lines(calls: list[_Call], registry: Registry, pace: Pace, concurrency: int) -> Iterator[PlanLine]:
    by: dict[tuple[Role, str], list[_Call]] = {}
    for call in calls:
        by.setdefault((call.role, call.model), []).append(call)
    for (role, model), mine in by.items():
        spec = registry.model(model)
        tokens_in = round(sum(call.characters_in for call in mine) / CHARACTERS_PER_TOKEN)
        tokens_out = round(sum(call.characters_out for call in mine) / CHARACTERS_PER_TOKEN)
        at_once = max(1, min(concurrency, spec.concurrency, len(mine)))
        yield PlanLine(
            role,
            model,
            len(mine),
            tokens_in,
            tokens_out,
            cost(spec, tokens_in, tokens_out),
            pace.seconds(model) * len(mine) / at_once,
        )
