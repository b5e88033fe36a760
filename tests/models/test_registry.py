"""The registry: what is ready to use, the user's file on top, and errors that tell the mend."""

from __future__ import annotations

from pathlib import Path

import pytest

from opbench.errors import UsageError
from opbench.models import ModelSpec, cost, load_registry
from opbench.settings import settings

PAPER = ["gpt-4o-mini", "gemini-2.5-flash", "deepseek-v3.2", "qwen3-235b-a22b-instruct-2507", "qwen3-32b", "qwen3-8b"]
ENTRY = '[models.mine]\nbase_url = "http://127.0.0.1:9/v1"\n'


def written(folder: Path, text: str) -> Path:
    file = folder / "mine.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_the_papers_six_models_and_the_embedded_ones_are_ready() -> None:
    registry = load_registry()
    assert list(registry.models) == [*PAPER, "smollm2-135m"]
    assert list(registry.embedders) == ["minilm", "text-embedding-3-small"]
    for name in ("qwen3-32b", "qwen3-8b"):
        assert registry.model(name).extra_body == {"chat_template_kwargs": {"enable_thinking": False}}
    assert registry.model("gemini-2.5-flash").extra_body == {"reasoning_effort": "none"}
    for name in PAPER[2:]:
        spec = registry.model(name)
        assert spec.vllm is not None
        assert spec.vllm.startswith(f"vllm serve {spec.served} --host 127.0.0.1")
        assert spec.key_env is None


def test_every_field_is_described() -> None:
    bare = [name for name, field in ModelSpec.model_fields.items() if not field.description]
    assert bare == []


def test_a_users_entry_replaces_the_one_of_the_same_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path, '[models.qwen3-8b]\nbase_url = "http://gpu:8000/v1"\ntimeout_s = 30\n' + ENTRY)
    monkeypatch.setenv("OPBENCH_MODELS", str(file))
    settings.cache_clear()
    registry = load_registry()
    assert registry.model("qwen3-8b").base_url == "http://gpu:8000/v1"
    assert registry.model("qwen3-8b").timeout_s == 30.0
    assert registry.model("qwen3-8b").served == "qwen3-8b"
    assert registry.model("mine").label == "mine"
    assert registry.model("gpt-4o-mini").key_env == "OPENAI_API_KEY"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[models.a\n", "line 1"),
        ("[model.a]\nx = 1\n", "unknown table [model]. Did you mean models?"),
        (ENTRY + "pricein = 1\n", "[models.mine]: unknown key pricein. Did you mean price_in?"),
        (ENTRY + 'timeout_s = "long"\n', "timeout_s = 'long'"),
        (ENTRY + "timeout_s = 0\n", "timeout_s = 0: Input should be greater than 0"),
        (ENTRY + "price_in = nan\n", "price_in: Input should be a finite number"),
        (ENTRY + "attempts = 1.5\n", "attempts = 1.5"),
        (ENTRY + "requests_per_minute = 0\n", "requests_per_minute = 0: Input should be greater than 0"),
        (ENTRY + "tokens_per_minute = -5\n", "tokens_per_minute = -5: Input should be greater than 0"),
        (ENTRY + "tokens_per_minute = inf\n", "tokens_per_minute = inf: Input should be a finite number"),
        (ENTRY + 'requests_per_minute = "500"\n', "requests_per_minute = '500': Input should be a valid number"),
        (ENTRY + "request_per_minute = 5\n", "unknown key request_per_minute. Did you mean requests_per_minute?"),
        (ENTRY + 'replicas = "http://h:1/v1"\n', "replicas: Input should be a valid list"),
        (ENTRY + 'replicas = ["me:pa55word@h"]\n', "replicas: is no address: write it like http://host:8001/v1"),
        (ENTRY + "replicas = [8001]\n", "replicas: Input should be a valid string"),
        (ENTRY + 'replicas = ["http://127.0.0.1:9/v1"]\n', "names the same server twice in base_url and replicas"),
        (ENTRY + 'replicas = ["http://h:1/v1", "http://h:1/v1"]\n', "names the same server twice"),
        ('[models.a]\nkind = "embedded"\nreplicas = ["http://h:1/v1"]\n', "[models.a]: is embedded and has replicas"),
        ('[models.a]\nlabel = "A"\n', '[models.a]: has no base_url: add one, or kind = "embedded"'),
        ('[models.a]\nbase_url = "localhost:8000"\n', "is no address: write it like https://host/v1"),
        ('[models.a]\nkind = "remote"\n', "kind = 'remote'"),
        ('[models.a.5]\nbase_url = "http://h/v1"\n', 'A name with a dot needs quotes: [models."a.…"]'),
        ("models = 3\n", "Write [models.NAME]"),
        ('[models."a b"]\nbase_url = "http://h/v1"\n', "Rename it"),
    ],
)
def test_a_bad_file_gives_one_line_with_file_place_and_mend(tmp_path: Path, text: str, said: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(UsageError) as error:
        load_registry(file)
    assert str(error.value).startswith(str(file))
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_that_is_named_but_missing_or_not_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPBENCH_MODELS", str(tmp_path / "none.toml"))
    settings.cache_clear()
    with pytest.raises(UsageError, match=r"none\.toml: no such file"):
        load_registry()
    (tmp_path / "latin.toml").write_bytes(b"# caf\xe9\n")
    with pytest.raises(UsageError, match="isn't UTF-8"):
        load_registry(tmp_path / "latin.toml")


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(UsageError, match="Did you mean qwen3-8b"):
        load_registry().model("Qwen3_8B")
    with pytest.raises(UsageError, match="Did you mean minilm"):
        load_registry().embedder("MiniLM-L6")
    with pytest.raises(UsageError, match="There are: gpt-4o-mini, "):
        load_registry().model("zzzz")


def test_identity_holds_what_determines_the_answer_and_no_secret(tmp_path: Path) -> None:
    text = (
        '[models.a]\nbase_url = "https://me:pa55word@host/v1/?token=abc"\nserved = "x"\nextra_body = { b = 1, a = 2 }\n'
    )
    spec = load_registry(written(tmp_path, text)).model("a")
    assert spec.identity() == {
        "kind": "endpoint",
        "base_url": "https://host/v1",
        "served": "x",
        "extra_body": '{"a": 2, "b": 1}',
    }


def test_ceilings_and_replicas_change_no_answer_and_no_identity(tmp_path: Path) -> None:
    bare = load_registry(written(tmp_path, ENTRY)).model("mine")
    more = ENTRY + 'requests_per_minute = 500\ntokens_per_minute = 1e5\nreplicas = ["http://127.0.0.1:10/v1"]\n'
    spec = load_registry(written(tmp_path, more)).model("mine")
    assert (spec.requests_per_minute, spec.tokens_per_minute) == (500.0, 100_000.0)
    assert spec.servers == ("http://127.0.0.1:9/v1", "http://127.0.0.1:10/v1")
    assert (bare.requests_per_minute, bare.tokens_per_minute, bare.replicas) == (None, None, [])
    assert spec.identity() == bare.identity()


def test_enforcing_schemas_is_no_part_of_the_identity() -> None:
    spec = load_registry().model("smollm2-135m")
    assert spec.json_schema
    assert spec.model_copy(update={"json_schema": False}).identity() == spec.identity()
    assert not load_registry().model("gpt-4o-mini").json_schema


def test_identity_of_the_embedded_model_is_its_weights_and_version() -> None:
    identity = load_registry().model("smollm2-135m").identity()
    assert identity["file"] == "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert len(identity["sha256"]) == 16
    assert set(identity) == {"kind", "file", "sha256", "xllamacpp", "extra_body"}
    # Decoding that the registry sets is part of the answer: another penalty is another call.
    assert identity["extra_body"] == '{"repeat_penalty": 1.1}'


def test_cost_in_usd() -> None:
    registry = load_registry()
    mini = registry.model("gpt-4o-mini")
    # 2,000,000 × 0.15 + 500,000 × 0.60, each per million
    assert cost(mini, 2_000_000, 500_000) == pytest.approx(0.60)
    assert cost(mini, None, 5) is None
    assert cost(registry.model("qwen3-8b"), 10, 10) is None
    assert cost(registry.model("smollm2-135m"), None, None) == 0.0
    assert cost(registry.embedder("text-embedding-3-small"), 1_000_000, None) == pytest.approx(0.02)
