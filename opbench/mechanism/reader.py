"""Reading models: what spreads attention over a prompt and its response. The embedded one, or any causal language model
of a local folder that gives attentions. Nothing is fetched, and no code that comes with a model is run.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from opbench.errors import UsageError
from opbench.mechanism.attention import VERSION
from opbench.mechanism.spans import Layout, Refused, Turn, Unreadable, lay_out
from opbench.models.embedded import NAME as EMBEDDED
from opbench.models.embedded import file_digest, gguf
from opbench.store.attention import POSITIONS, SEGMENTS

#: Bytes of attention that are held at a time.
_AT_A_TIME = 2**27
#: Tokens of the prompt that are read in one pass.
_PASS = 512
#: How far the shares of a layer's head may be from 1 in all.
_ROUNDING = 1e-3
_RESPONSE = SEGMENTS.index("response")
#: Files of a model's folder that determine what it reads and how.
_DECISIVE = ("*.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json", "chat_template*")


@dataclass(frozen=True, slots=True)
class Spread:
    """Where the attention of a response went."""

    masses: npt.NDArray[np.float32]
    """positions (`POSITIONS`) × layers × heads × segments, shares of 1."""
    weights: npt.NDArray[np.float32]
    """By token of the prompt, averaged over layers, heads and the response's tokens."""


class ReadingModel:
    """A loaded model with its tokeniser. `name` is what its readings are kept under."""

    def __init__(self, label: str, digest: str, model: Any, tokenizer: Any) -> None:
        self.digest = digest
        self.name = f"{label}@{digest}/{VERSION}"
        self._model, self._tokenizer = model, tokenizer
        config = model.config.get_text_config()
        self.longest: int | None = getattr(config, "max_position_embeddings", None)
        """Tokens of prompt and response together; None when the model doesn't tell."""

    def lay_out(self, turns: Sequence[Turn]) -> Layout:
        """The prompt's tokens and segments in this model's chat template.

        Raises:
            Unreadable: the template or the tokeniser can't take it.
        """
        return lay_out(turns, self._render, self._tokenizer)

    def _render(self, messages: Sequence[dict[str, str]]) -> str:
        from jinja2 import TemplateError

        try:
            text: str = self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        except (TemplateError, TypeError) as error:
            raise Refused(" ".join(str(error).split())[:100]) from None
        return text

    def tokens(self, response: str) -> list[int]:
        """A response's tokens, made apart from the prompt's, as they were when it was generated.

        Raises:
            Unreadable: it can't be tokenised, or comes to nothing.
        """
        try:
            found: list[int] = self._tokenizer(response, add_special_tokens=False)["input_ids"]
        except (TypeError, UnicodeError):
            raise Unreadable("its text holds signs that can't be tokenised") from None
        if not found:
            raise Unreadable("its response has no tokens")
        return found

    def attend(self, prompt: Layout, response: Sequence[int]) -> Spread:
        """Where the attention of the response's tokens goes, in passes: what was read is remembered, and attention is
        asked for only from the prompt's last token on.

        Raises:
            Unreadable: too long for the model or the machine, or the shares of a head don't come to 1.
        """
        import torch

        total = len(prompt.ids) + len(response)
        if self.longest is not None and total > self.longest:
            raise Unreadable(f"longer than the {self.longest:,} tokens that the reading model takes")
        try:
            with torch.inference_mode():
                spread = self._attend(prompt, response)
        except (MemoryError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and "memory" not in str(error).lower():
                raise
            raise Unreadable("too long for this machine's memory") from None
        # A NaN is as wrong.
        if not (np.abs(spread.masses.sum(axis=-1) - 1.0) <= _ROUNDING).all():
            raise Unreadable("its attention doesn't come to 1 in every head")
        return spread

    def _attend(self, prompt: Layout, response: Sequence[int]) -> Spread:
        import torch

        device = self._model.device
        first, total = len(prompt.ids) - 1, len(prompt.ids) + len(response)
        ids = torch.tensor([[*prompt.ids, *response]], device=device)
        places = torch.tensor([*prompt.segments, *([_RESPONSE] * len(response))], device=device)
        belongs = torch.nn.functional.one_hot(places, len(SEGMENTS)).double()
        cache: Any = None
        for start in range(0, first, _PASS):
            cache = self._read(ids[:, start : min(start + _PASS, first)], cache, attentions=False).cache
        masses: Any = None
        weights = torch.zeros(first + 1, dtype=torch.float64, device=device)
        start, step = first, 1
        while start < total:
            read = self._read(ids[:, start : start + step], cache, attentions=True)
            cache, end = read.cache, start + min(step, total - start)
            layers, heads = len(read.attentions), read.attentions[0].shape[1]
            if masses is None:
                masses = torch.zeros(len(POSITIONS), layers, heads, len(SEGMENTS), dtype=torch.float64, device=device)
            for layer, attention in enumerate(read.attentions):
                summed = attention[0].double().sum(dim=1)  # heads × tokens
                # A layer that looks back on a window tells of the last tokens only: the others get nothing.
                seen = end - summed.shape[-1]
                masses[1 if start == first else 0, layer] += summed @ belongs[seen:end]
                if start > first:
                    weights[seen:] += summed[:, : max(0, first + 1 - seen)].sum(dim=0)
            start, step = end, max(1, _AT_A_TIME // (4 * layers * heads * total))
        masses[0] /= len(response)
        weights /= len(response) * masses.shape[1] * masses.shape[2]
        return Spread(masses.cpu().numpy().astype(np.float32), weights.cpu().numpy().astype(np.float32))

    def _read(self, ids: Any, cache: Any, *, attentions: bool) -> Any:
        # Without the head on top: what the model would say next isn't asked.
        return self._model.base_model(
            input_ids=ids, cache=cache, use_cache=True, output_attentions=attentions, return_dict=True
        )

    def check(self) -> None:
        """See that every layer gives attentions.

        Raises:
            UsageError: one doesn't.
        """
        import torch

        with torch.inference_mode():
            ids = torch.tensor([[0, 0]], device=self._model.device)
            given = self._read(ids, None, attentions=True).attentions or ()
        layers = self._model.config.get_text_config().num_hidden_layers
        found = sum(each is not None and each.ndim == 4 for each in given)
        if found != layers:
            raise UsageError(
                f"reader {self.name.partition('@')[0]}: only {found} of its {layers} layers give attentions. Read with "
                "a model whose layers all do, such as Qwen3 or Llama."
            )


def load_reader(name: str) -> ReadingModel:
    """`smollm2-135m`, the embedded model from its GGUF file, or a folder with a causal language model in the form of
    `transformers` (safetensors). Takes some seconds.

    Raises:
        UsageError: there is no such folder, or what is in it can't be used; says what is missing.
    """
    # Before the libraries are loaded: they look at it once.
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    # Threads that spin while they wait made it five times slower beside another busy process.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    # Loading is told by whoever loads; bars of several libraries would stand between lines of progress.
    os.environ.setdefault("TQDM_DISABLE", "1")
    if name == EMBEDDED:
        file = gguf()
        reader = _load(name, file.parent, lambda: file_digest(file), {"gguf_file": file.name})
    else:
        folder = Path(name).expanduser()
        if not folder.is_dir():
            raise UsageError(
                f"reader {name}: no such folder. Name {EMBEDDED}, or a folder with a model of transformers in it "
                "(config.json, tokenizer.json, *.safetensors)."
            )
        folder = folder.resolve()
        reader = _load(folder.name[:60], folder, lambda: _digest(folder), {"use_safetensors": True})
    reader.check()
    return reader


def _load(label: str, folder: Path, digest: Callable[[], str], how: dict[str, Any]) -> ReadingModel:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    local = {"local_files_only": True, "trust_remote_code": False}
    of_tokenizer = {key: value for key, value in how.items() if key == "gguf_file"}
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(str(folder), **of_tokenizer, **local)
        if not tokenizer.is_fast:
            raise UsageError(f"reader {label}: its tokeniser tells no offsets. Add its tokenizer.json to the folder.")
        if not tokenizer.chat_template:
            raise UsageError(f"reader {label}: it has no chat template. Take an instruction-tuned model.")
        model: Any = AutoModelForCausalLM.from_pretrained(
            str(folder), attn_implementation="eager", dtype=torch.float32, **how, **local
        )
    except (OSError, ValueError, ImportError, KeyError, RuntimeError) as error:
        said = " ".join(str(error).split())[:200]
        raise UsageError(f"reader {label}: can't be loaded from {folder} ({said}).") from None
    except MemoryError:
        raise UsageError(f"reader {label}: doesn't fit into memory. Take a smaller model.") from None
    model = model.eval().to("cuda" if torch.cuda.is_available() else "cpu")
    return ReadingModel(label, digest(), model, tokenizer)


def _digest(folder: Path) -> str:
    """First 16 hex digits over all that determines a folder's readings."""
    files = sorted({file for pattern in _DECISIVE for file in folder.glob(pattern) if file.is_file()})
    told = "\n".join(f"{file.name} {file_digest(file)}" for file in files)
    return hashlib.sha256(told.encode()).hexdigest()[:16]
