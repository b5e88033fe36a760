"""`opbench data fetch`: the public files from their pinned commits, verified before they are put in place."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import httpx

from opbench.benchmarks import files, locomo, op_bench
from opbench.benchmarks.check import OP_COUNTS, USERS
from opbench.benchmarks.official import read_prompts, write_prompts
from opbench.errors import DataError
from opbench.settings import settings

RAW = "https://raw.githubusercontent.com"
#: Where the source of the public judge prompts is kept, and the folder of the pack made of it.
PROMPTS_FILE, PROMPTS_PACK = "prompts/official.py", "prompts/official"
_TIMEOUT = httpx.Timeout(30.0, connect=10.0)
_ATTEMPTS = 3
_PAUSE_S = 1.0

#: Called while bytes arrive: name of the file, bytes so far, bytes in all (None if the server doesn't say).
Progress = Callable[[str, int, int | None], None]


@dataclass(frozen=True, slots=True)
class Remote:
    """A public file: where it may be had (`owner/name/commit/path`, best first), and its digests where known."""

    name: str
    sources: tuple[str, ...]
    sha256: frozenset[str] = frozenset()


LOCOMO = Remote(
    name=files.LOCOMO_FILE,
    sources=(
        "snap-research/locomo/3eb6f2c585f5e1699204e3c3bdf7adc5c28cb376/data/locomo10.json",
        "MemTensor/MemOS/2e6f6e8809eaac0fed979592b524f3dbe248fc84/evaluation/data/locomo/locomo10.json",
    ),
    # The two places hold slightly different bytes with the same questions by category.
    sha256=frozenset(
        {
            "79fa87e90f04081343b8c8debecb80a9a6842b76a7aa537dc9fdf651ea698ff4",
            "216f944bb8681c582b7492e4cbba699f12df4e16269ee8c1e101fb34b047af0c",
        }
    ),
)
OP = Remote(
    name=files.OP_FILE,
    sources=("yulinlp/OP-Bench/14a7bd5c0c98198c9ec65bfdc00fa97c616dace2/data/locomo10_overpersonalized.json",),
)
PROMPTS = Remote(
    name=PROMPTS_FILE,
    sources=("yulinlp/OP-Bench/5104b27f5127a6f0a25f34a5b487abf8040e5f31/src/opbench/prompts.py",),
)


@dataclass(frozen=True, slots=True)
class Fetched:
    """One thing that is now in place. `verified` says by what it was recognised."""

    name: str
    path: Path
    state: Literal["downloaded", "present"]
    bytes: int
    verified: str


@dataclass(frozen=True, slots=True)
class FetchReport:
    """What is in place after `fetch`, and one line for each thing that isn't."""

    folder: Path
    got: tuple[Fetched, ...]
    errors: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.errors

    @property
    def usable(self) -> bool:
        """Whether both benchmark files are there; the sample is used otherwise."""
        return {LOCOMO.name, OP.name} <= {one.name for one in self.got}

    def to_text(self) -> str:
        """A line a thing, then what it means."""
        lines = [f"{one.state:<11} {one.name}  {one.bytes:,} bytes, verified by {one.verified}" for one in self.got]
        lines += [f"not fetched {error}" for error in self.errors]
        lines.append(f"Benchmark data: {self.folder}" if self.usable else "The bundled sample is used instead.")
        return "\n".join(lines)


class _Unreachable(Exception):
    """No connection: no use in asking the same host for the next file."""


class _Busy(Exception):
    """An answer that may be another one soon (429, 5xx)."""


def _silent(name: str, done: int, total: int | None) -> None:
    return None


def fetch(progress: Progress = _silent, *, base_url: str = RAW, into: Path | None = None) -> FetchReport:
    """Downloads both benchmark files and the public judge prompts into `into` (default: the user's data folder).

    What is there and verified isn't downloaded again; a download that was cut off goes on where it stopped; a file
    appears under its name only when it was verified: LoCoMo's by sha256, OP-Bench's by loading it and comparing its
    counts with the paper's table 1, the prompts by their placeholders. Never raises for the network or the disk: the
    report says what is missing and why.
    """
    folder = into if into is not None else settings().fetched
    got: list[Fetched] = []
    errors: list[str] = []
    with httpx.Client(base_url=base_url, timeout=_TIMEOUT, follow_redirects=True) as client:
        for remote, verify in ((LOCOMO, _verify_locomo), (OP, _verify_op), (PROMPTS, _verify_prompts)):
            try:
                got.append(_obtain(client, remote, folder, verify, progress))
                if remote is PROMPTS:
                    write_prompts(read_prompts(folder / PROMPTS_FILE), folder / PROMPTS_PACK)
            except _Unreachable as error:
                errors.append(str(error))
                break
            except (DataError, OSError) as error:
                errors.append(f"{remote.name}: {error}")
    return FetchReport(folder, tuple(got), tuple(errors))


#: Takes the file to verify and the data folder; says by what it was recognised, or raises DataError.
_Verify = Callable[[Path, Path], str]


def _obtain(client: httpx.Client, remote: Remote, folder: Path, verify: _Verify, progress: Progress) -> Fetched:
    target = folder / remote.name
    if target.is_file() and (verified := _accepts(verify, target, folder)):
        return Fetched(remote.name, target, "present", target.stat().st_size, verified)
    target.parent.mkdir(parents=True, exist_ok=True)
    problems: list[str] = []
    for number, source in enumerate(remote.sources):
        part = target.with_name(f"{target.name}.{number}.part")
        try:
            _download(client, source, part, remote.name, progress)
        except DataError as error:
            problems.append(str(error))
            continue
        try:
            verified = verify(part, folder)
        except DataError as error:
            part.unlink()
            problems.append(f"{client.base_url.join(source)}: {error}")
            continue
        part.replace(target)
        return Fetched(remote.name, target, "downloaded", target.stat().st_size, verified)
    raise DataError("; ".join(problems))


def _accepts(verify: _Verify, target: Path, folder: Path) -> str | None:
    """How a file that is there was verified; None if it is damaged, and is to be replaced."""
    try:
        return verify(target, folder)
    except DataError:
        return None


def _download(client: httpx.Client, source: str, part: Path, name: str, progress: Progress) -> None:
    """Fills `part`, going on where an earlier try stopped: a pinned commit's bytes never change."""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            _receive(client, source, part, name, progress)
            return
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError) as error:
            host = client.base_url.host
            raise _Unreachable(
                f"{host} can't be reached ({_reason(error)}); check the network and run `opbench data fetch` again"
            ) from error
        except (httpx.HTTPError, _Busy) as error:
            if attempt == _ATTEMPTS:
                raise DataError(
                    f"{client.base_url.join(source)}: failed {_ATTEMPTS} times ({_reason(error)}); "
                    "run `opbench data fetch` again to go on"
                ) from error
            time.sleep(_PAUSE_S * attempt)


def _reason(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _receive(client: httpx.Client, source: str, part: Path, name: str, progress: Progress) -> None:
    start = part.stat().st_size if part.exists() else 0
    # Without compression, so that sizes and ranges are those of the file.
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={start}-"} if start else {})
    with client.stream("GET", source, headers=headers) as response:
        status = response.status_code
        if status == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
            return  # Nothing comes after what is there: it is whole, or verifying will refuse it.
        if status == httpx.codes.TOO_MANY_REQUESTS or status >= 500:
            raise _Busy(f"answered {status} {response.reason_phrase}")
        if status not in (httpx.codes.OK, httpx.codes.PARTIAL_CONTENT):
            raise DataError(f"{response.url}: answered {status} {response.reason_phrase}; was it moved or withdrawn?")
        resumed = status == httpx.codes.PARTIAL_CONTENT
        done = start if resumed else 0
        length = response.headers.get("Content-Length", "")
        total = done + int(length) if length.isdigit() else None
        with part.open("ab" if resumed else "wb") as file:
            for chunk in response.iter_bytes():
                file.write(chunk)
                done += len(chunk)
                progress(name, done, total)
            file.flush()
            os.fsync(file.fileno())


def _read(path: Path) -> bytes:
    data = files.read_bytes(path)
    if data.lstrip()[:1] == b"<":
        raise DataError("a web page came instead of the file; is there a proxy or a log-in page in between?")
    return data


def _verify_locomo(path: Path, folder: Path) -> str:
    digest = files.sha256(_read(path))
    if digest not in LOCOMO.sha256:
        raise DataError(f"wrong sha256 ({digest}): not the pinned file; run `opbench data fetch` again")
    return "sha256"


def _verify_op(path: Path, folder: Path) -> str:
    beside = folder / LOCOMO.name
    if not beside.is_file():
        raise DataError("can't be verified without LoCoMo's file; run `opbench data fetch` again")
    conversations = locomo.parse(files.parse_json(files.read_bytes(beside), beside))
    root = files.parse_json(_read(path), path)
    found = op_bench.parse(root, conversations.conversations, conversations.users)
    counts = {subtype: sum(one.subtype == subtype for one in found.instances) for subtype in OP_COUNTS}
    if counts != OP_COUNTS or len(found.profiles) != USERS:
        raise DataError(f"not the paper's counts ({counts}); run `opbench data fetch` again")
    return "its counts (paper, table 1)"


def _verify_prompts(path: Path, folder: Path) -> str:
    _read(path)
    read_prompts(path)
    return "its placeholders"
