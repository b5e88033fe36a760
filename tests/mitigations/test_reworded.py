"""A method of the package in other words: a copy says them, the method itself stays as it is."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from mitigations import Memory, PostProcessor, Processed, Reply, Revised, get, names, prompt_sections, reworded
from mitigations.base import Ask, Search
from mitigations.prompting import sections
from tests.mitigations.scripted import STORE, Model

SECTIONS = {
    "none": set(),
    "reminder": {"system", "closing"},
    "self-critic": {"task", "closing"},
    "few-shot-cot": {"system", "many", "before", "examples", "after", "closing"},
    "comorag": {"system", "closing"},
    "marag": {"system", "closing"},
    "self-recheck": {"system", "closing"},
    "empty": set(),
    "abstain": set(),
    "reminder-original": {"note"},
    "self-critic-original": {"original_answer", "original_critique", "original_revision"},
    "few-shot-cot-original": {"preface"},
    "comorag-invite-none": {"system", "invite_none", "before", "examples", "after", "invite_none_closing"},
    "marag-per-memory": {"system", "one_closing"},
    "self-recheck-verdicts": {"verdict_system", "verdict_closing"},
    "self-recheck-twice": {"topic_system", "topic_closing", "system", "closing"},
}
#: Of the package as it was when runs were first made: they are found again by these.
HASHES = {
    "none": "cb4c8c16110d", "reminder": "8133024f0a76", "self-critic": "a4bc6c710956", "few-shot-cot": "063db3ac846a",
    "comorag": "15cfed890308", "marag": "8b23c917adf6", "self-recheck": "2c45c74210ae", "empty": "1b5cdcdf6813",
    "abstain": "e4f022dda4ef", "reminder-original": "2d57e66ab7de", "self-critic-original": "f1f77ed0675c",
    "few-shot-cot-original": "3f0c7fa725ce", "comorag-invite-none": "13790547cccc", "marag-per-memory": "c8722edeba5e",
    "self-recheck-verdicts": "eb45c3d33f0f", "self-recheck-twice": "7dd20c9acb01",
}  # fmt: skip
MANY = tuple(Memory(f"Mara keeps {number} hens.", f"{number} Feb 2024") for number in range(1, 11))
PAIRS = [(name, section) for name, found in SECTIONS.items() for section in sorted(found)]
MARK = "REWORDED {question} {need} {0} %s"


async def said(method: PostProcessor) -> str:
    """All that the method tells a model, before and after a draft, and adds to the response's prompt."""
    model = Model("[1] Mara keeps 1 hens. | Mara keeps 1 hens")
    done = await method.process("How many hens?", MANY, model)
    await method.revise("How many hens?", MANY, "A draft.", model, system="Be brief.")
    told = [f"{role}: {text}" for messages in model.asked for role, text in messages]
    return "\n".join([*told, done.response_note, done.response_preface])


def test_hashes_of_the_package_stay() -> None:
    assert {name: get(name).prompt_sha256[:12] for name in names()} == HASHES


@pytest.mark.parametrize("name", SECTIONS)
def test_which_sections_a_method_has(name: str) -> None:
    found = prompt_sections(get(name))
    assert set(found) == SECTIONS[name]
    assert all(text.strip() for text in found.values())
    assert not [text for text in found.values() if "{role}" in text or "{need}" in text or "{wording}" in text]


@pytest.mark.parametrize(("name", "section"), PAIRS)
async def test_a_section_says_what_it_is_given_and_the_method_stays(name: str, section: str) -> None:
    method = get(name)
    before, sha = await said(method), method.prompt_sha256
    own = prompt_sections(method)[section]
    assert own in before, "the section is part of what is sent"
    copy = reworded(method, {section: MARK})
    assert await said(copy) == before.replace(own, MARK), "sent as it is, in its place, and nothing else is changed"
    assert (copy.name, copy.family, copy.calls, copy.revises) == (name, method.family, method.calls, method.revises)
    assert copy.prompt_sha256 != sha
    assert prompt_sections(copy) == prompt_sections(method) | {section: MARK}
    assert (await said(method), method.prompt_sha256, prompt_sections(method)[section]) == (before, sha, own)
    assert get(name) is method
    assert sections("common")["need"] not in MARK


def test_every_wording_has_a_hash_of_its_own() -> None:
    reminder = get("reminder")
    worded = [{"system": "a"}, {"system": "b"}, {"closing": "a"}, {"system": "a", "closing": "b"}]
    assert len({reminder.prompt_sha256, *(reworded(reminder, each).prompt_sha256 for each in worded)}) == 5
    assert reworded(reminder, {"system": "a"}).prompt_sha256 == reworded(reminder, {"system": "a"}).prompt_sha256
    both = {"closing": "b", "system": "a"}
    assert reworded(reminder, both).prompt_sha256 == reworded(reminder, dict(reversed(both.items()))).prompt_sha256


@pytest.mark.parametrize("name", SECTIONS)
def test_its_own_words_are_the_method_itself(name: str) -> None:
    method = get(name)
    assert reworded(method, {}) is method
    assert reworded(method, prompt_sections(method)) is method


def test_reworded_twice_and_back() -> None:
    reminder = get("reminder")
    own = prompt_sections(reminder)
    once = reworded(reminder, {"system": "a"})
    twice = reworded(once, {"closing": "b"})
    assert prompt_sections(twice) == {"system": "a", "closing": "b"}
    assert prompt_sections(once) == own | {"system": "a"}
    assert reworded(twice, own).prompt_sha256 == reminder.prompt_sha256
    recheck = get("self-recheck-twice")
    back = reworded(reworded(recheck, {"topic_system": "a"}), prompt_sections(recheck))
    assert asyncio.run(said(back)) == asyncio.run(said(recheck))


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("reminder", {"sytem": "x"}, r"reminder has no prompt section 'sytem': it has system, closing"),
        ("reminder", {"note": "x"}, r"reminder has no prompt section 'note': it has system, closing"),
        ("self-critic", {"system": "x"}, r"self-critic has no prompt section 'system': it has task, closing"),
        ("none", {"system": "x"}, r"none has no prompt section 'system': it has none"),
        ("reminder", {"system": " \n "}, r"the section 'system' of reminder's prompt is blank"),
    ],
)
def test_what_cannot_be_worded_is_said(name: str, given: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        reworded(get(name), given)


def test_a_method_of_another_make_has_no_sections() -> None:
    class Foreign:
        name, family, label, calls, revises, prompt_sha256 = "foreign", "filter", "Foreign", 0, False, "0" * 64

        async def process(self, question: str, memories: object, ask: Ask, search: Search | None = None) -> Processed:
            raise NotImplementedError

        async def revise(self, question: str, memories: object, draft: str, ask: Ask, *, system: str = "") -> Revised:
            raise NotImplementedError

    foreign: PostProcessor = Foreign()  # type: ignore[assignment]
    assert prompt_sections(foreign) == {}
    assert reworded(foreign, {}) is foreign
    with pytest.raises(ValueError, match="foreign has no prompt that can be worded otherwise"):
        reworded(foreign, {"system": "x"})


async def test_two_wordings_at_once_do_not_disturb_each_other() -> None:
    reminder = get("reminder")
    asked: dict[str, list[str]] = {"a": [], "b": [], "own": []}

    async def ask_as(who: str, method: PostProcessor) -> None:
        async def ask(messages: Sequence[tuple[str, str]], *, max_tokens: int = 512, temperature: float = 0.0) -> Reply:
            asked[who].append(messages[0][1])
            await asyncio.sleep(0)
            return Reply("NONE", "stop")

        for _ in range(5):
            await method.process("How?", STORE, ask)

    await asyncio.gather(
        ask_as("a", reworded(reminder, {"system": "words of a"})),
        ask_as("own", reminder),
        ask_as("b", reworded(reminder, {"system": "words of b"})),
    )
    own = prompt_sections(reminder)["system"]
    assert asked == {"a": ["words of a"] * 5, "b": ["words of b"] * 5, "own": [own] * 5}
