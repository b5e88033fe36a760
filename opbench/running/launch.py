"""Starting a run as a detached process: all that a page knows of running.

Plugin files are loaded in processes of their own only: what they register is global, and would become part of every
other study of the process that loaded them.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import SecretStr

from opbench.errors import UsageError
from opbench.running.budget import register
from opbench.running.detached import spawn
from opbench.running.prepare import prepare
from opbench.running.quote import Quote
from opbench.settings import ROOT, settings
from opbench.store.claims import announce
from opbench.store.database import Store
from opbench.store.reading import run_status
from opbench.store.writing import set_halted, set_request
from opbench.study import Study

#: Flags of `opbench run` that differ from the study's field name.
_FLAGS = {"judge_pack": "judge-pack", "max_tokens": "max-tokens", "latency_probe": "latency-probe"}
_WAIT_S = 120.0


@dataclass(frozen=True, slots=True)
class Launched:
    """A run that was started: its id, the process and the file with what it says."""

    run_id: str
    pid: int
    log: Path


def launch(
    store: Store,
    study: Study,
    *,
    concurrency: int = 8,
    keys: Mapping[str, SecretStr] | None = None,
    budget_usd: float | None = None,
    pilot_records: int | None = None,
    plugins: Sequence[Path] = (),
    workers: int = 1,
) -> Launched:
    """Start or resume a study in a process of its own, which goes on when the caller ends.

    `keys` (by environment variable) go to the process in its environment and nowhere else. `budget_usd` and
    `pilot_records` are as in `worker.execute`, `plugins` and `workers` as in `opbench run`.

    Raises:
        UsageError, DataError: the study can't be run, is worked on, or its process can't be started.
    """
    run_id = _register(store, study, budget_usd, plugins)
    at_work = UsageError(f"run {run_id} is being worked on already. Watch it, or stop it first.")
    if run_status(store, run_id).working:
        raise at_work
    # Before the process starts: a pause that is asked for while it starts then stays asked for.
    set_request(store, run_id, "go")
    set_halted(store, run_id, None)
    file, log = settings().home / "studies" / f"{run_id}.toml", log_file(run_id)
    flags = [*_limits(concurrency, budget_usd, pilot_records, workers), *_plugin_flags(plugins), "--keep-request"]
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(study_toml(study), encoding="utf-8")
        process = spawn(["run", str(file), *flags], log, keys)
    except OSError as error:
        raise UsageError(
            f"{error.filename or settings().home}: can't be written ({error.strerror}), so the run wasn't started. "
            "Mend that, or set OPBENCH_HOME to another folder."
        ) from error
    if not announce(store, run_id, process.pid, concurrency):
        process.terminate()
        raise at_work
    return Launched(run_id, process.pid, log)


def _register(store: Store, study: Study, budget_usd: float | None, plugins: Sequence[Path]) -> str:
    """Make the run in the store, or find it there, and see that it can be run; its id."""
    if plugins:
        money = [] if budget_usd is None else ["--budget", str(budget_usd)]
        return str(_opbench_run(study, [*_plugin_flags(plugins), *money, "--register-only"])["run_id"])
    prepared = prepare(study)
    register(store, prepared, budget_usd)
    return prepared.run_id


def quote_with_plugins(study: Study, plugins: Sequence[Path], concurrency: int) -> tuple[str, Quote]:
    """The run's id and what is left to do of a study that needs plugin files.

    Raises:
        UsageError: the study can't be run; says what `opbench run --dry-run` says.
    """
    flags = [*_plugin_flags(plugins), *_limits(concurrency), "--dry-run", "--json"]
    told = _opbench_run(study, flags)
    return str(told["run_id"]), Quote.from_dict(told)


def plugin_methods(files: Sequence[Path]) -> dict[str, dict[str, str]]:
    """What plugin files bring together, as in `opbench.plugins.what_they_bring`, without loading them here.

    Raises:
        UsageError: a file can't be loaded; says why.
    """
    brought: dict[str, dict[str, str]] = {"mitigations": {}, "memories": {}, "judges": {}}
    if files:
        for groups in _opbench(["plugins", *map(str, files), "--json"]).values():
            for group, names in groups.items():
                brought[group] |= names
    return brought


def _opbench_run(study: Study, flags: list[str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="opbench-") as folder:
        file = Path(folder) / "study.toml"
        file.write_text(study_toml(study), encoding="utf-8")
        return _opbench(["run", str(file), *flags])


def _opbench(arguments: list[str]) -> dict[str, Any]:
    """The JSON that a command of ours prints."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "opbench", *arguments],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_WAIT_S,
        )
    except subprocess.TimeoutExpired:
        raise UsageError(
            f"'opbench {arguments[0]}' with these plugins gave no answer in {_WAIT_S:.0f} s. "
            "Try it on the command line."
        ) from None
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise UsageError(said[-1].removeprefix("opbench: ") if said else "the plugins' process ended without a word.")
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def log_file(run_id: str) -> Path:
    """Where a launched run's process writes what it says; not there when the run was started by hand."""
    return settings().home / "logs" / f"run-{run_id}.log"


def study_toml(study: Study) -> str:
    """The study as the TOML file that `opbench run` reads; fields at their default are left out."""
    fields = study.model_dump(mode="json", exclude_defaults=True, exclude_none=True)
    return tomli_w.dumps(fields)


def command(
    study: Study,
    concurrency: int | None = None,
    *,
    budget_usd: float | None = None,
    pilot_records: int | None = None,
    plugins: Sequence[Path] = (),
    workers: int = 1,
) -> str:
    """The shell command that does what the page does."""
    parts = ["opbench", "run"]
    for name, value in study.model_dump(mode="json", exclude_defaults=True, exclude_none=True).items():
        flag = "--" + _FLAGS.get(name, name)
        if value is True:
            parts.append(flag)
        elif isinstance(value, list):
            parts += [flag, ",".join(value)]
        else:
            parts += [flag, str(value)]
    return shlex.join([*parts, *_limits(concurrency, budget_usd, pilot_records, workers), *_plugin_flags(plugins)])


def _limits(
    concurrency: int | None, budget_usd: float | None = None, pilot_records: int | None = None, workers: int = 1
) -> list[str]:
    limits = {
        "--concurrency": concurrency,
        "--workers": workers if workers > 1 else None,
        "--budget": budget_usd,
        "--pilot": pilot_records,
    }
    return [word for flag, value in limits.items() if value is not None for word in (flag, f"{value:.12g}")]


def _plugin_flags(plugins: Sequence[Path]) -> list[str]:
    return [word for file in plugins for word in ("--plugin", str(file))]
