"""A causal language model of two layers with a tokeniser of single bytes, in a folder as people have them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

TEMPLATE = (
    "{% for message in messages %}<s>{{ message['role'] }}\n{{ message['content'] }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant\n{% endif %}"
)
LAYERS, HEADS = 2, 4


def tokenizer(template: str | None = TEMPLATE) -> Any:
    """Each byte is a token, `<s>` and `</s>` are one each."""
    from transformers import PreTrainedTokenizerFast

    signs = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE({sign: place for place, sign in enumerate(signs)}, []))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([AddedToken("<s>"), AddedToken("</s>")])
    return PreTrainedTokenizerFast(
        tokenizer_object=core, bos_token="<s>", eos_token="</s>", **({"chat_template": template} if template else {})
    )


def model_folder(folder: Path, *, template: str | None = TEMPLATE, window: int | None = None) -> Path:
    """Save one; with `window` its layers look back on so many tokens only."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

    size = {
        "vocab_size": 258,
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": 2,
        "max_position_embeddings": 2048,
        # Larger than usual, so that heads attend unevenly.
        "initializer_range": 0.8,
    }
    torch.manual_seed(7)
    model: Any = (
        LlamaForCausalLM(LlamaConfig(**size))
        if window is None
        else MistralForCausalLM(MistralConfig(**size, sliding_window=window))
    )
    model.save_pretrained(folder)
    tokenizer(template).save_pretrained(folder)
    return folder
