"""README's examples run, its table is complete, and the live script counts right."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import openai
import pytest

import mitigations
from mitigations import Reply, get, load_plugin, names, registry
from mitigations.asking import ask_with
from mitigations.live import Outcome, load_cases, meets, run
from tests.mitigations.scripted import STORE

README = (Path(mitigations.__file__).parent / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


class Client:
    """As much of `openai.AsyncOpenAI` as is used."""

    asked: list[dict[str, Any]] = []  # noqa: RUF012  the test reads it from the class

    def __init__(self, **_: Any) -> None:
        self.chat = SimpleNamespace(completions=SimpleNamespace(create=self.create))

    async def create(self, **request: Any) -> Any:
        self.asked.append(request)
        message = SimpleNamespace(content="[2] Mara is allergic to walnuts.")
        usage = SimpleNamespace(prompt_tokens=300, completion_tokens=12)
        return SimpleNamespace(choices=[SimpleNamespace(message=message, finish_reason="stop")], usage=usage)


def test_the_example_runs_and_prints_what_it_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(openai, "AsyncOpenAI", Client)
    monkeypatch.setattr(Client, "asked", [])
    exec(compile(BLOCKS[0], "README.md", "exec"), {})
    promised = re.search(r"This prints `(.+?)`", README)
    assert promised
    assert capsys.readouterr().out.strip() == promised.group(1)
    (request,) = Client.asked
    assert (request["temperature"], request["max_tokens"]) == (0.0, 512)
    assert [message["role"] for message in request["messages"]] == ["system", "user"]


def test_the_other_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_methods", dict(registry._methods))
    ast.parse(f"async def example():\n    {BLOCKS[1].replace(chr(10), chr(10) + '    ')}")
    (tmp_path / "first_only.py").write_text(BLOCKS[2])
    assert load_plugin(tmp_path / "first_only.py") == ("first-only",)


async def test_the_plugin_example_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_methods", dict(registry._methods))
    (tmp_path / "again.py").write_text(BLOCKS[2])
    load_plugin(tmp_path / "again.py")

    async def ask(*_: Any, **__: Any) -> Reply:
        raise AssertionError("it asks nobody")

    done = await get("first-only").process("When?", STORE, ask)
    assert [line.text for line in done.lines] == [STORE[0].text]


def test_the_table_has_every_method() -> None:
    table = re.findall(r"^\| `([a-z-]+)` \| (none|filter|compression|revision|control) \|", README, re.MULTILINE)
    assert dict(table) == {name: get(name).family for name in names()}
    assert [name for name, _ in table] == list(names())


async def test_ask_with_measures_and_counts() -> None:
    reply = await ask_with(Client(), "m", seed=1)([("user", "hello")], max_tokens=7)
    assert (reply.text, reply.finish_reason) == ("[2] Mara is allergic to walnuts.", "stop")
    assert (reply.prompt_tokens, reply.completion_tokens) == (300, 12)
    assert reply.duration_ms > 0
    assert Client.asked[-1] == {
        "model": "m", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 7, "temperature": 0.0,
        "seed": 1,
    }  # fmt: skip


def test_live_cases_are_the_tests_of_every_method_in_five_paraphrases() -> None:
    memories, cases = load_cases()
    assert [(memory.text, memory.date) for memory in memories] == [(memory.text, memory.date) for memory in STORE]
    methods = ("reminder", "self-critic", "few-shot-cot", "comorag", "marag", "self-recheck")
    assert [(case["method"], case["test"]) for case in cases] == [(name, test) for name in methods for test in "abc"]
    assert all(len(set(case["questions"])) == 5 for case in cases)


@pytest.mark.parametrize(
    ("outcome", "expect", "met"),
    [
        (Outcome("nothing", frozenset(), ""), {"state": "nothing"}, True),
        (Outcome("kept", frozenset({1}), "bees"), {"state": "nothing"}, False),
        (Outcome("kept", frozenset({2}), "walnuts"), {"sources": [2], "says": ["walnut"]}, True),
        (Outcome("kept", frozenset({2, 3}), "walnuts"), {"sources": [2]}, False),
        (Outcome("revised", frozenset(), "no bees"), {"never": ["bees"]}, False),
        (Outcome("failed", frozenset(), ""), {"never": ["bees"]}, False),
        (Outcome("revised", frozenset(), "a b c"), {"max_words": 2}, False),
    ],
)
def test_live_judgement(outcome: Outcome, expect: dict[str, Any], met: bool) -> None:
    assert meets(outcome, expect) is met


async def test_live_prints_a_rate(capsys: pytest.CaptureFixture[str]) -> None:
    replies = iter(["NONE", "", "[1]", "NONE", "NONE"] + ["[2] Mara is allergic to walnuts."] * 5 + ["NONE"] * 5)

    async def ask(*_: Any, **__: Any) -> Reply:
        return Reply(next(replies), "stop")

    await run(ask, ["reminder"])
    assert capsys.readouterr().out.splitlines() == [
        "reminder       a  3/5  failed 1", "reminder       b  5/5  failed 0", "reminder       c  5/5  failed 0",
    ]  # fmt: skip
