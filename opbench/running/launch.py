"""Starting a run as a detached process: all that a page knows of running."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import tomli_w
from pydantic import SecretStr

from opbench.running.prepare import prepare
from opbench.settings import ROOT, settings
from opbench.store.database import Store
from opbench.store.writing import set_request
from opbench.study import Study

#: Flags of `opbench run` that differ from the study's field name.
_FLAGS = {"judge_pack": "judge-pack", "max_tokens": "max-tokens", "latency_probe": "latency-probe"}


@dataclass(frozen=True, slots=True)
class Launched:
    """A run that was started: its id, the process and the file with what it says."""

    run_id: str
    pid: int
    log: Path


def launch(
    store: Store, study: Study, *, concurrency: int = 8, keys: Mapping[str, SecretStr] | None = None
) -> Launched:
    """Start or resume a study in a process of its own, which goes on when the caller ends.

    `keys` (by environment variable) go to the process in its environment and nowhere else.

    Raises:
        UsageError, DataError: the study can't be run; checked before anything starts.
    """
    prepared = prepare(study)
    prepared.register(store)
    run_id = prepared.run_id
    # Before the process starts: a pause that is asked for while it starts then stays asked for.
    set_request(store, run_id, "go")
    file, log = settings().home / "studies" / f"{run_id}.toml", log_file(run_id)
    for folder in (file.parent, log.parent):
        folder.mkdir(parents=True, exist_ok=True)
    file.write_text(study_toml(study), encoding="utf-8")
    environment = dict(os.environ) | {name: key.get_secret_value() for name, key in (keys or {}).items()}
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "opbench", "run", str(file), "--concurrency", str(concurrency), "--keep-request"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    # Whoever starts a process must wait for it: else a dead one keeps its number and looks alive.
    threading.Thread(target=process.wait, name=f"run-{run_id}", daemon=True).start()
    return Launched(run_id, process.pid, log)


def log_file(run_id: str) -> Path:
    """Where a launched run's process writes what it says; not there when the run was started by hand."""
    return settings().home / "logs" / f"run-{run_id}.log"


def study_toml(study: Study) -> str:
    """The study as the TOML file that `opbench run` reads; fields at their default are left out."""
    fields = study.model_dump(mode="json", exclude_defaults=True, exclude_none=True)
    return tomli_w.dumps(fields)


def command(study: Study, concurrency: int | None = None) -> str:
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
    if concurrency is not None:
        parts += ["--concurrency", str(concurrency)]
    return shlex.join(parts)
