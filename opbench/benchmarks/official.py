"""The public judge prompts: read out of the public repository's source, without running it."""

from __future__ import annotations

import ast
from pathlib import Path

from opbench.benchmarks.files import read_bytes
from opbench.errors import DataError

#: File in the pack, and the constant in the public source (`src/opbench/prompts.py`).
PROMPT_FILES = {
    "irrelevance.txt": "SCORE_IRRELEVANCE_PROMPT",
    "fact.txt": "SCORE_SYCOPHANCY_FACT_PROMPT",
    "value.txt": "SCORE_SYCOPHANCY_VALUE_PROMPT",
    "memory.txt": "SCORE_SYCOPHANCY_MEMORY_PROMPT",
}
PLACEHOLDERS = ("{question}", "{response}")


def read_prompts(source: Path) -> dict[str, str]:
    """The prompts by file name, from a Python source that assigns them as string constants.

    Raises:
        DataError: not Python, or a constant or a placeholder is missing.
    """
    try:
        module = ast.parse(read_bytes(source))
    except (SyntaxError, ValueError) as error:
        raise DataError(f"not the Python source with the judge prompts ({' '.join(str(error).split())})") from error
    constants = {
        target.id: node.value.value
        for node in module.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for constant in PROMPT_FILES.values():
        text = constants.get(constant, "")
        if missing := [placeholder for placeholder in PLACEHOLDERS if placeholder not in text]:
            raise DataError(f"{constant} is missing or without {' and '.join(missing)} in the public source")
    return {name: constants[constant] for name, constant in PROMPT_FILES.items()}


def write_prompts(prompts: dict[str, str], pack: Path) -> None:
    """Writes a pack, each file whole or not at all."""
    pack.mkdir(parents=True, exist_ok=True)
    for name, text in prompts.items():
        part = pack / f"{name}.part"
        part.write_text(text, "utf-8", newline="")
        part.replace(pack / name)
