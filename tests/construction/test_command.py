"""A build as flags: what the page shows as a command makes the very build when it is typed."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from opbench.cli import app
from opbench.commands import build_make
from opbench.construction.command import command, make_spec, read_spec
from opbench.construction.spec import BuildSpec, Counts, Filters
from opbench.errors import UsageError

FULL = BuildSpec(
    name="My own; 2nd",
    users=("conv-26/Caroline", "conv-30/Jon"),
    subtypes=("fact", "memory"),
    extractor="big",
    generators=("big", "small"),
    similarity="small",
    checker="small",
    embedder="other",
    rounds=2,
    counts=Counts(topics=3, irrelevant=2, baiting=4, fact=6, value=7, fine=1, coarse=0, subtopics=2, repetition=1),
    filters=Filters(
        fewest_words=3,
        most_words=60,
        cosine=0.9,
        template_share=0.2,
        template_words=5,
        template_fewest=7,
        check_memories=False,
        check_need=False,
    ),
    temperature=1.0,
    max_tokens=300,
    seed=4,
)


@pytest.mark.parametrize("spec", [FULL, BuildSpec(), BuildSpec(filters=Filters(check_need=False), seed=1)])
def test_its_flags_make_the_very_spec(spec: BuildSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []

    def the_build(store: object, wanted: object, conversations: object, given: dict[str, object], plan: object) -> None:
        found.append((make_spec(given, "flags"), conversations))

    monkeypatch.setattr(build_make, "_the_build", the_build)
    words = shlex.split(command(spec, "my chats.json"))
    assert words[:3] == ["opbench", "build", "run"]
    done = CliRunner().invoke(app, words[1:])
    assert done.exit_code == 0, done.output
    assert found == [(spec, "my chats.json")]


def test_a_file_says_the_same_in_parts_or_flat(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('generators = ["big"]\nfact = 2\n[filters]\ncosine = 0.9\n', encoding="utf-8")
    assert make_spec(read_spec(file), str(file)) == BuildSpec(
        generators=("big",), counts=Counts(fact=2), filters=Filters(cosine=0.9)
    )


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"generator": "big"}, "flags: no key 'generator'. Known keys: .*generators.*fewest_words"),
        ({"cosine": 1.5}, r"flags: filters\.cosine: Input should be less than or equal to 1"),
        ({"subtypes": ["facts"]}, "flags: subtypes: no subtype 'facts'; there are fully-irrelevant"),
        ({"generators": []}, "flags: build: name at least one generator"),
        ({"counts": {"facts": 2}}, "flags: no key 'counts.facts'"),
    ],
)
def test_what_makes_no_build_says_key_and_mend(fields: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        make_spec(fields, "flags")


def test_a_file_that_cant_be_read_is_named(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    with pytest.raises(UsageError, match=r"mine\.toml: can't be read"):
        read_spec(file)
    file.write_text("generators = [", encoding="utf-8")
    with pytest.raises(UsageError, match=r"mine\.toml: isn't TOML"):
        read_spec(file)
