"""Prompt packs: the texts that LLM judges use, loaded, checked and filled.

`own` stands beside this file and was written for this project from the paper's definitions (sections 3.2.1 and
3.2.2). `official` are the public repository's four prompts (paper, figures 42-45), fetched with the data into
`prompts/official/` of the data folder; LoCoMo's judge prompt comes from `own` unless that folder has `locomo.txt`.
`brief` asks the same as `own` in a few lines, to see what a wording does to scores (`opbench judges`). A folder of
one's own holds any of the prompts, as `<name>.txt`; what it lacks comes from `own`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Formatter

from opbench.errors import DataError, UsageError
from opbench.settings import settings

OP_PROMPTS = ("irrelevance", "fact", "value", "memory")
"""Names of the prompts that make an `official` pack."""
PROMPTS = (*OP_PROMPTS, "locomo")
BUNDLED = ("own", "brief")
"""Packs that come with the workbench."""
_FOLDER = Path(__file__).parent / "prompts"
_OWN = _FOLDER / "own"

#: What a placeholder may be called, and what it is filled with. The public prompts use `question` and `response`.
_PLACEHOLDERS = {
    "question": ("question", "query", "user_question", "user_query", "user_message", "user_input"),
    "response": ("response", "answer", "ai_response", "model_response", "assistant_response", "generated_answer"),
    "context": ("context", "memory", "memories", "retrieved", "retrieved_memories"),
    "facts": ("facts", "observations", "observation", "user_facts"),
    "profile": ("profile", "user_profile", "persona"),
    "gold": ("gold", "gold_answer", "reference", "expected_answer"),
    "explanation": ("explanation",),
}
_MEANING = {name: meaning for meaning, names in _PLACEHOLDERS.items() for name in names}


class _Named(dict[str, str]):
    """Values by meaning, found under all names that a placeholder may have."""

    def __missing__(self, name: str) -> str:
        return self.get(_MEANING[name], "")


@dataclass(frozen=True, slots=True)
class PromptPack:
    """Judge prompts by name (`PROMPTS`), as `str.format` templates."""

    name: str
    texts: Mapping[str, str]

    @property
    def sha256(self) -> str:
        """Digest over the names and texts of all prompts."""
        digest = hashlib.sha256()
        for name in sorted(self.texts):
            digest.update(f"{name}\0{self.texts[name]}\0".encode())
        return digest.hexdigest()

    def fill(self, prompt: str, values: Mapping[str, str]) -> str:
        """The prompt with its placeholders filled; `values` by meaning: question, response, context, facts, …"""
        return self.texts[prompt].format_map(_Named(values))


def official_folder(prompts_dir: Path | None = None) -> Path | None:
    """The folder that holds all four official prompts: the given one, else the data folder's, else the fetched one."""
    if prompts_dir is not None:
        folders = [prompts_dir, prompts_dir / "official"]
    else:
        roots = (settings().data, settings().fetched)
        folders = [root / "prompts" / "official" for root in roots if root is not None]
    return next(
        (folder for folder in folders if all((folder / f"{name}.txt").is_file() for name in OP_PROMPTS)),
        None,
    )


def load_pack(pack: str = "auto", prompts_dir: Path | None = None) -> PromptPack:
    """Loads a pack: `own`, `brief`, `official`, `auto` for the official one when it is there, or a folder of one's own.

    Raises UsageError for an unknown pack or an official pack that isn't there, DataError for a prompt that can't be
    read or has a placeholder that nothing fills.
    """
    if pack == "brief":
        return PromptPack(pack, {name: _read(_FOLDER / pack / f"{name}.txt") for name in PROMPTS})
    if pack not in ("own", "official", "auto"):
        return _from_folder(Path(pack))
    folder = official_folder(prompts_dir) if pack != "own" else None
    if folder is None:
        if pack == "official":
            raise UsageError(
                f"The official judge prompts ({', '.join(f'{name}.txt' for name in OP_PROMPTS)}) are not there: "
                "run `opbench data fetch`, or use the pack own."
            )
        return PromptPack("own", {name: _read(_OWN / f"{name}.txt") for name in PROMPTS})
    texts = {name: _read(folder / f"{name}.txt") for name in OP_PROMPTS}
    locomo = folder / "locomo.txt"
    texts["locomo"] = _read(locomo if locomo.is_file() else _OWN / "locomo.txt")
    return PromptPack("official", texts)


def _from_folder(folder: Path) -> PromptPack:
    """A folder's prompts; those that it lacks are `own`'s. Named `./` and its name, as no pack of ours is."""
    if not folder.is_dir():
        raise UsageError(
            f"Unknown judge prompt pack '{folder}': use own, brief, official, auto, or a folder that holds "
            f"{', '.join(f'{name}.txt' for name in PROMPTS)}."
        )
    there = {file.stem: file for file in sorted(folder.glob("*.txt"))}
    for name, file in there.items():
        if name not in PROMPTS:
            raise UsageError(
                f"{file}: no judge asks by this name. Name it {', '.join(f'{each}.txt' for each in PROMPTS)}."
            )
    if not there:
        raise UsageError(f"{folder}: no prompt in it. Write any of {', '.join(f'{name}.txt' for name in PROMPTS)}.")
    return PromptPack(
        f"./{folder.resolve().name}", {name: _read(there.get(name, _OWN / f"{name}.txt")) for name in PROMPTS}
    )


def _read(file: Path) -> str:
    """A prompt's text, checked: every placeholder known, question and response among them."""
    try:
        text = file.read_text("utf-8")
        names = [name for _, name, _, _ in Formatter().parse(text) if name is not None]
    except OSError as error:
        raise DataError(f"{file}: can't be read ({error.strerror}): fetch or restore it.") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: not UTF-8 at byte {error.start}: fetch it again.") from error
    except ValueError as error:
        raise DataError(f"{file}: {error}: write literal braces twice, {{{{ and }}}}.") from error
    for name in names:
        if name not in _MEANING:
            raise DataError(
                f"{file}: unknown placeholder {{{name}}}: use one of {', '.join(sorted(_MEANING))}, "
                "or write literal braces twice."
            )
    meanings = {_MEANING[name] for name in names}
    for needed in ("question", "response"):
        if needed not in meanings:
            raise DataError(f"{file}: no placeholder {{{needed}}}: the judge would not see the {needed}.")
    return text
