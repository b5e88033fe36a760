"""Reading models: exact against one plain pass, offline, and one line for what can't be read."""

from __future__ import annotations

import re
import shutil
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opbench.errors import UsageError
from opbench.mechanism import reader as reading
from opbench.mechanism.reader import ReadingModel, load_reader
from opbench.mechanism.spans import Layout, Turn, Unreadable
from opbench.store.attention import SEGMENTS
from tests.mechanism.tiny_reader import HEADS, LAYERS, model_folder

TURNS = [
    Turn("system", (("instructions", "Be kind."),)),
    Turn("user", (("memory", "- (9 May 2024) likes tea"), ("instructions", "\n\n"), ("query", "A drink?"))),
]
#: As bytes, with the two signs of the template.
PROMPT = "<s>system\nBe kind.</s><s>user\n- (9 May 2024) likes tea\n\nA drink?</s><s>assistant\n"
ANSWER = "Tea, of course \U0001f375"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("reader") / "tiny")


@pytest.fixture(scope="module")
def reader(folder: Path) -> ReadingModel:
    return load_reader(str(folder))


@pytest.fixture(scope="module")
def windowed(tmp_path_factory: pytest.TempPathFactory) -> ReadingModel:
    return load_reader(str(model_folder(tmp_path_factory.mktemp("reader") / "windowed", window=20)))


def whole_pass(reader: ReadingModel, layout: Layout, response: list[int]) -> np.ndarray:
    """layers × heads × tokens × tokens, from one pass over all tokens."""
    import torch

    with torch.inference_mode():
        given = reader._model(torch.tensor([[*layout.ids, *response]]), output_attentions=True).attentions
    return np.asarray(torch.cat(given).double())


@pytest.mark.parametrize("window", [None, 20])
@pytest.mark.parametrize(("bytes_at_a_time", "tokens_a_pass"), [(2**27, 512), (1, 1), (4 * LAYERS * HEADS * 400, 7)])
def test_passes_come_to_what_one_whole_pass_gives(
    reader: ReadingModel,
    windowed: ReadingModel,
    monkeypatch: pytest.MonkeyPatch,
    bytes_at_a_time: int,
    tokens_a_pass: int,
    window: int | None,
) -> None:
    monkeypatch.setattr(reading, "_AT_A_TIME", bytes_at_a_time)
    monkeypatch.setattr(reading, "_PASS", tokens_a_pass)
    model = reader if window is None else windowed
    layout, response = model.lay_out(TURNS), model.tokens(ANSWER)
    assert layout.text == PROMPT
    spread = model.attend(layout, response)
    whole, n = whole_pass(model, layout, response), len(layout.ids)
    # The response's last token looks back on all, or on the window's tokens.
    assert ((whole[:, :, -1] > 0).sum(axis=-1) == (window or n + len(response))).all()
    segments = np.array([*layout.segments, *[SEGMENTS.index("response")] * len(response)])
    of_response, onset = whole[:, :, n:].mean(axis=2), whole[:, :, n - 1]
    for place in range(len(SEGMENTS)):
        assert spread.masses[0, ..., place] == pytest.approx(of_response[..., segments == place].sum(axis=-1), abs=1e-5)
        assert spread.masses[1, ..., place] == pytest.approx(onset[..., segments == place].sum(axis=-1), abs=1e-5)
    assert spread.weights == pytest.approx(of_response[..., :n].mean(axis=(0, 1)), abs=1e-6)
    assert spread.masses.shape == (2, LAYERS, HEADS, len(SEGMENTS))
    assert spread.masses.sum(axis=-1) == pytest.approx(np.ones((2, LAYERS, HEADS)), abs=1e-3)


def test_the_prompts_last_token_sees_nothing_of_the_response(reader: ReadingModel) -> None:
    spread = reader.attend(reader.lay_out(TURNS), reader.tokens(ANSWER))
    assert (spread.masses[1, ..., SEGMENTS.index("response")] == 0).all()
    assert (spread.masses[0, ..., SEGMENTS.index("response")] > 0).all()


def test_without_memory_its_share_is_nothing(reader: ReadingModel) -> None:
    spread = reader.attend(reader.lay_out([Turn("user", (("query", "A drink?"),))]), reader.tokens("Tea"))
    assert (spread.masses[..., SEGMENTS.index("memory")] == 0).all()
    assert (spread.masses[..., SEGMENTS.index("query")] > 0).all()


def test_a_response_is_tokenised_by_itself(reader: ReadingModel) -> None:
    assert len(reader.tokens(ANSWER)) == len(ANSWER.encode())
    with pytest.raises(Unreadable, match="no tokens"):
        reader.tokens("")


def test_longer_than_the_model_takes(reader: ReadingModel) -> None:
    with pytest.raises(Unreadable, match="2,048 tokens"):
        reader.attend(reader.lay_out(TURNS), reader.tokens("x" * 2048))


@pytest.mark.parametrize("factor", [0.99, float("nan")])
def test_shares_that_do_not_come_to_1_are_refused(
    reader: ReadingModel, monkeypatch: pytest.MonkeyPatch, factor: float
) -> None:
    read = reader._read

    def faulty(*given: Any, **how: Any) -> Any:
        found = read(*given, **how)
        if how["attentions"]:
            found.attentions = (found.attentions[0] * factor, *found.attentions[1:])
        return found

    monkeypatch.setattr(reader, "_read", faulty)
    with pytest.raises(Unreadable, match="come to 1"):
        reader.attend(reader.lay_out(TURNS), reader.tokens("Tea"))


def test_a_model_with_a_layer_without_attention_is_refused(tmp_path: Path) -> None:
    from transformers import Lfm2Config, Lfm2ForCausalLM

    folder = model_folder(tmp_path / "mixed")
    config = Lfm2Config(
        vocab_size=258,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        layer_types=["conv", "full_attention"],
    )
    Lfm2ForCausalLM(config).save_pretrained(folder)
    with pytest.raises(UsageError, match=r"reader mixed: only 1 of its 2 layers give attentions"):
        load_reader(str(folder))


def test_what_a_folder_lacks_is_one_line(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(UsageError, match=r"reader org/model: no such folder. Name smollm2-135m, or"):
        load_reader("org/model")
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(UsageError, match=r"^reader empty: can't be loaded from [^\n]*$"):
        load_reader(str(empty))
    with pytest.raises(UsageError, match="no chat template"):
        load_reader(str(model_folder(tmp_path / "base", template=None)))
    pickled = tmp_path / "pickled"
    shutil.copytree(folder, pickled)
    (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")
    with pytest.raises(UsageError, match=r"^reader pickled: can't be loaded from [^\n]*safetensors[^\n]*$"):
        load_reader(str(pickled))


def test_code_that_comes_with_a_model_is_not_run(tmp_path: Path, folder: Path) -> None:
    own = tmp_path / "own"
    shutil.copytree(folder, own)
    ran = tmp_path / "ran"
    (own / "code.py").write_text(f"open({str(ran)!r}, 'w')\nclass M: ...\nclass C: ...\n")
    config = (own / "config.json").read_text().replace('"llama"', '"unheard-of"')
    entry = '{"auto_map": {"AutoConfig": "code.C", "AutoModelForCausalLM": "code.M"},'
    (own / "config.json").write_text(config.replace("{", entry, 1))
    with pytest.raises(UsageError, match="can't be loaded"):
        load_reader(str(own))
    assert not ran.exists()


def test_other_weights_are_another_reader(reader: ReadingModel, tmp_path: Path, folder: Path) -> None:
    assert re.fullmatch(r"tiny@[0-9a-f]{16}/v1", reader.name)
    same, other = tmp_path / "tiny", tmp_path / "other" / "tiny"
    shutil.copytree(folder, same)
    shutil.copytree(folder, other)
    weights = bytearray((other / "model.safetensors").read_bytes())
    weights[-2] ^= 1
    (other / "model.safetensors").write_bytes(weights)
    assert load_reader(str(same)).name == reader.name
    assert load_reader(str(other)).name != reader.name


def test_the_embedded_model_reads_offline_in_its_own_template(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: Any) -> None:
        raise AssertionError(f"a connection to {given[1:]}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *given, **_: refuse(None, *given))
    embedded = load_reader("smollm2-135m")
    assert embedded.name.startswith("smollm2-135m@")
    assert embedded.longest == 8192
    layout = embedded.lay_out([Turn("user", (("query", "Is \U0001f375 tea?"),))])
    # Without a system message its template adds one.
    own = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
    assert layout.text == own + "<|im_start|>user\nIs \U0001f375 tea?<|im_end|>\n<|im_start|>assistant\n"
    told = [(SEGMENTS[place], text) for place, text in zip(layout.segments, layout.texts, strict=True)]
    assert told[0] == ("first", "<|im_start|>")
    assert "".join(text for segment, text in told if segment == "query") == "Is \U0001f375 tea?"
    assert {segment for segment, _ in told} == {"first", "template", "query"}
    response = embedded.tokens("Yes, it is.")
    spread = embedded.attend(layout, response)
    assert spread.masses.shape == (2, 30, 9, len(SEGMENTS))
    whole, n = whole_pass(embedded, layout, response), len(layout.ids)
    query = np.array(layout.segments) == SEGMENTS.index("query")
    expected = whole[:, :, n:, :n].mean(axis=2)[..., query].sum(axis=-1)
    assert spread.masses[0, ..., SEGMENTS.index("query")] == pytest.approx(expected, abs=1e-4)
