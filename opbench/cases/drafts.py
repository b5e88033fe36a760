"""Post-processors that are a prompt, written in the page: as a method, as a plugin file, and tried on a small slice.

A plugin file is read here, never run: what isn't plainly a draft is somebody's own code and is left alone.
"""

from __future__ import annotations

import ast
import os
import secrets
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pydantic import ValidationError

import mitigations
from mitigations import PromptOnly
from opbench.cases.spec import CaseSpec, Column, Draft
from opbench.errors import UsageError
from opbench.plugins import plugin_folder
from opbench.study import BASE, NO_MITIGATION, Study, make_study

TRIAL_SIZE = 20
_LARGEST_FILE = 1_000_000
_HEADER = """\
# A post-processor that is a prompt, written in OP-Bench Workbench. Edit the values as you like. To run it:
#   opbench run --plugin {name}.py --mitigations none,{name}
from mitigations import PromptOnly, register

"""
_saving = threading.Lock()


def method(draft: Draft) -> PromptOnly:
    """The post-processor that the draft describes, known to no registry.

    Raises:
        UsageError: the instructions are blank.
    """
    try:
        return PromptOnly(draft.name, draft.label, draft.instructions, draft.family, draft.max_tokens)
    except ValueError as error:
        raise UsageError(f"draft {error}.") from None


def plugin_source(draft: Draft) -> str:
    """A Python file that registers the draft: for `--plugin`, for the Launch page, and for people to read."""
    lines = [repr(line) for line in draft.instructions.splitlines(keepends=True)]
    instructions = "\n".join(f"            {line}" for line in lines)
    return (
        f"{_HEADER.format(name=draft.name)}"
        "register(\n"
        "    PromptOnly(\n"
        f"        name={draft.name!r},\n"
        f"        label={draft.label!r},\n"
        f"        family={draft.family!r},\n"
        f"        max_tokens={draft.max_tokens},\n"
        f"        instructions=(\n{instructions}\n        ),\n"
        "    )\n"
        ")\n"
    )


def read(file: Path) -> Draft | None:
    """The draft that a plugin file holds; None for a file that holds anything else. The file isn't run."""
    try:
        if not file.is_file() or file.stat().st_size > _LARGEST_FILE:
            return None
        tree = ast.parse(file.read_bytes())
        return _draft(tree)
    except (OSError, SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None


def saved_drafts(folder: Path | None = None) -> list[Draft]:
    """The drafts among the files of the plugin folder (or another), by name."""
    files = sorted((plugin_folder() if folder is None else folder).glob("*.py"))
    return sorted((draft for file in files if (draft := read(file)) is not None), key=lambda draft: draft.name)


def file_of(draft: Draft, folder: Path | None = None) -> Path:
    """Where the draft is saved."""
    return (plugin_folder() if folder is None else folder) / f"{draft.name}.py"


def is_saved(draft: Draft, folder: Path | None = None) -> bool:
    """Whether its file holds this very draft."""
    return read(file_of(draft, folder)) == draft


def demand_free(name: str) -> None:
    """See that no method of the package, or of an installed one, has the name; a draft's own plugin may be loaded.

    Raises:
        UsageError: one has.
    """
    if name in mitigations.names() and not isinstance(mitigations.get(name), PromptOnly):
        raise UsageError(f"a post-processor named '{name}' is there already: give the draft another name.")


def save(draft: Draft, folder: Path | None = None, *, replace: bool = False) -> Path:
    """Write the draft as a plugin file, whole or not at all; its path. Saving what is saved changes nothing.

    `replace`: whether another draft of that name may be overwritten; a file that holds anything else never is.

    Raises:
        UsageError: the name belongs to a method or to another file, the instructions are blank, or the folder can't
            be written.
    """
    method(draft)
    demand_free(draft.name)
    folder = plugin_folder() if folder is None else folder
    target = file_of(draft, folder)
    part = target.with_name(f".{draft.name}-{secrets.token_hex(4)}.part")
    with _saving:
        _demand_own(draft, target, replace)
        if is_saved(draft, folder):
            return target
        try:
            folder.mkdir(parents=True, exist_ok=True)
            part.write_text(plugin_source(draft), encoding="utf-8")
            part.replace(target)
        except OSError as error:
            raise UsageError(
                f"{target}: can't be written ({error.strerror}). Mend that, or set OPBENCH_HOME to another folder."
            ) from error
        finally:
            with suppress(OSError):
                part.unlink()
    return target


def delete(name: str, folder: Path | None = None) -> Path:
    """Delete a saved draft's plugin file; its path. Runs that were made with it stay as they are.

    Raises:
        UsageError: no draft of that name is saved, its file holds somebody's own code, or it can't be deleted.
    """
    target = (plugin_folder() if folder is None else folder) / f"{name}.py"
    with _saving:
        if name not in {draft.name for draft in saved_drafts(folder)}:
            known = ", ".join(draft.name for draft in saved_drafts(folder)) or "none"
            raise UsageError(f"no draft named '{name}' is saved. There are: {known}.")
        found = read(target)
        if found is None or found.name != name:
            raise UsageError(f"{target} isn't the file of the draft '{name}': delete that one by hand.")
        try:
            target.unlink()
        except OSError as error:
            raise UsageError(f"{target}: can't be deleted ({error.strerror}).") from error
    return target


@contextmanager
def lent(draft: Draft) -> Iterator[Path]:
    """The draft's plugin file in a folder that goes away: for a quote before anything is saved. A study with it has
    the hash that it has with the saved file."""
    with tempfile.TemporaryDirectory(prefix="opbench-") as folder:
        yield save(draft, Path(folder))


def trial(
    spec: CaseSpec,
    column: Column,
    draft: Draft,
    size: int = TRIAL_SIZE,
    *,
    locomo: bool = False,
    this_user: bool = False,
) -> Study:
    """A small study of the draft beside no post-processor, with the column's model and memory system, and BASE.

    Args:
        size: instances in all, spread evenly over users and subtypes; with `locomo` half of them are LoCoMo's.
        locomo: whether it is asked too what the draft costs where memories are needed.
        this_user: only questions about the case's user, where others would first have to be taken in.

    Judge, embedder, extractor, k, temperature and lengths are the column's, or the case's.

    Raises:
        UsageError: the column has no memory system, or what results is no study.
    """
    if column.memory == BASE:
        raise UsageError("BASE has no memories to process: try the draft on a column with a memory system.")
    benchmarks = ["op", "locomo"] if locomo else ["op"]
    return make_study(
        {
            "name": f"Draft “{draft.label}” on {size} instances",
            "models": [column.model],
            "memories": [BASE, column.memory],
            "mitigations": [NO_MITIGATION, draft.name],
            "benchmarks": benchmarks,
            "users": [spec.user] if this_user else [],
            "limit": max(1, size // len(benchmarks)),
            "k": spec.k if column.k is None else column.k,
            "temperature": spec.temperature if column.temperature is None else column.temperature,
            "max_tokens": spec.max_tokens,
            "judge": spec.judge,
            "judge_pack": spec.judge_pack,
            "embedder": spec.embedder,
            "extractor": spec.extractor,
            "data": spec.data,
        },
        where=f"trial of {draft.name}",
    )


def _draft(tree: ast.Module) -> Draft | None:
    """The draft of `from mitigations import PromptOnly, register` and one call with plain values, and nothing else."""
    match tree.body:
        case [
            ast.ImportFrom(module="mitigations", level=0, names=imported),
            ast.Expr(
                ast.Call(
                    func=ast.Name("register"),
                    args=[ast.Call(func=ast.Name("PromptOnly"), args=[], keywords=keywords)],
                    keywords=[],
                )
            ),
        ] if {(each.name, each.asname) for each in imported} == {("PromptOnly", None), ("register", None)}:
            values = {each.arg: ast.literal_eval(each.value) for each in keywords if each.arg is not None}
            if len(values) != len(keywords):
                return None
            try:
                draft = Draft(**values)
            except ValidationError:
                return None
            return draft if draft.instructions.strip() else None
    return None


def _demand_own(draft: Draft, target: Path, replace: bool) -> None:
    for other in sorted(target.parent.glob("*.py")):
        if other != target and (found := read(other)) is not None and found.name == draft.name:
            raise UsageError(f"{other} holds a draft named '{draft.name}' already: give this one another name.")
    if not os.path.lexists(target):
        return
    found = read(target)
    if found is None:
        raise UsageError(f"{target} is there and is no draft: give this one another name, or move the file away.")
    if found != draft and not replace:
        raise UsageError(
            f"a draft named '{draft.name}' is saved already and says something else: replace it, or give this one "
            "another name."
        )
