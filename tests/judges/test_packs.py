"""Prompt packs, with invented prompts in the place of the public ones, and finding a judge by name."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from opbench.errors import DataError, UsageError
from opbench.judges import is_rule_judge, make_judge, register_judge, registry
from opbench.judges.llm import LLMJudge
from opbench.judges.offline import OfflineJudge
from opbench.judges.packs import OP_PROMPTS, PROMPTS, load_pack
from opbench.settings import settings


def write_official(folder: Path, text: str = "Q {question} R {response}") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in OP_PROMPTS:
        (folder / f"{name}.txt").write_text(f"{name}: {text}", "utf-8")
    return folder


def test_own_pack_asks_for_a_last_line_with_the_score_and_its_scale() -> None:
    pack = load_pack("own")
    assert set(pack.texts) == set(PROMPTS)
    for name in OP_PROMPTS:
        assert pack.texts[name].rstrip().endswith("Score: <number from 0 to 1>")
        assert "higher is better" in pack.texts[name]
    assert pack.texts["locomo"].rstrip().endswith("Label: WRONG")


def test_pack_hash_changes_with_any_text_and_is_stable(tmp_path: Path) -> None:
    folder = write_official(tmp_path)
    first = load_pack("official", folder).sha256
    assert load_pack("official", folder).sha256 == first
    (folder / "value.txt").write_text("value: Q {question}  R {response}", "utf-8")
    assert load_pack("official", folder).sha256 != first
    assert len(first) == hashlib.sha256().digest_size * 2


def test_auto_takes_official_prompts_only_when_all_four_are_there(home: Path) -> None:
    assert load_pack("auto").name == "own"
    folder = write_official(settings().fetched / "prompts" / "official")
    assert load_pack("auto").name == "official"
    (folder / "memory.txt").unlink()
    assert load_pack("auto").name == "own"
    with pytest.raises(UsageError, match=r"memory\.txt.*opbench data fetch"):
        load_pack("official")


def test_official_prompts_in_the_data_folder_go_before_the_fetched_ones(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_official(settings().fetched / "prompts" / "official", "fetched {question} {response}")
    write_official(tmp_path / "data" / "prompts" / "official", "data {question} {response}")
    monkeypatch.setenv("OPBENCH_DATA", str(tmp_path / "data"))
    settings.cache_clear()
    assert load_pack("auto").texts["fact"] == "fact: data {question} {response}"


def test_placeholders_by_other_names_are_filled_and_texts_with_braces_survive(tmp_path: Path) -> None:
    folder = write_official(tmp_path, '{user_query} | {answer} | {memories} | {{"score": 0.5}}')
    pack = load_pack("official", folder)
    filled = pack.fill("fact", {"question": "{response}", "response": "{}", "context": "c"})
    assert filled == 'fact: {response} | {} | c | {"score": 0.5}'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{question} {response} {mystery}", r"fact.txt: unknown placeholder \{mystery\}: use one of"),
        ("{question} {response.__class__}", r"unknown placeholder \{response.__class__\}"),
        ("{question} only", r"fact.txt: no placeholder \{response\}"),
        ("{question} {response} {", r"fact.txt: .*write literal braces twice"),
    ],
)
def test_damaged_prompt_is_one_line_with_file_and_mend(tmp_path: Path, text: str, message: str) -> None:
    folder = write_official(tmp_path)
    (folder / "fact.txt").write_text(text, "utf-8")
    with pytest.raises(DataError, match=message) as raised:
        load_pack("official", folder)
    assert "\n" not in str(raised.value)


def test_prompt_in_another_encoding(tmp_path: Path) -> None:
    folder = write_official(tmp_path)
    (folder / "fact.txt").write_bytes(b"{question} {response} \xff")
    with pytest.raises(DataError, match=r"fact.txt: not UTF-8 at byte 22"):
        load_pack("official", folder)


def test_unknown_pack() -> None:
    with pytest.raises(UsageError, match="Unknown judge prompt pack 'best': use own, brief, official, auto"):
        load_pack("best")


def test_judges_by_name(tmp_path: Path) -> None:
    assert isinstance(make_judge("offline"), OfflineJudge)
    judge = make_judge("gpt-4o-mini", "own")
    assert isinstance(judge, LLMJudge)
    assert judge.name == "gpt-4o-mini"
    assert judge.provenance()["pack"] == "own"
    assert judge.provenance()["prompts_sha256"] == load_pack("own").sha256
    with pytest.raises(UsageError, match="No judge named"):
        make_judge(" ")


def test_only_the_papers_judge_with_the_public_prompts_is_comparable(tmp_path: Path) -> None:
    folder = write_official(tmp_path)
    assert make_judge("gpt-4o-mini", "official", folder).comparable
    assert not make_judge("gpt-4o-mini", "own", folder).comparable
    assert not make_judge("Qwen3-8B", "official", folder).comparable
    assert not make_judge("offline").comparable


def test_a_judge_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_REGISTERED", {})
    register_judge("mine", OfflineJudge)
    assert isinstance(make_judge("mine"), OfflineJudge)
    assert is_rule_judge("mine")
    assert is_rule_judge("offline")
    assert not is_rule_judge("gpt-4o-mini")
    register_judge("none", lambda: None)  # type: ignore[arg-type, return-value]
    with pytest.raises(UsageError, match="judge 'none' gives no judge"):
        make_judge("none")
