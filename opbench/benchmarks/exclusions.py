"""Named lists of instances that a study or a view can leave out: known-bad LoCoMo labels, and a user's own lists.

A list holds instance ids and a reason each, never a sentence of the benchmark. The bundled ones also hold a digest of
each question, so that a LoCoMo file in another order is noticed instead of losing the wrong questions.
"""

from __future__ import annotations

import csv
import hashlib
import io
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from opbench.benchmarks.shape import printable
from opbench.errors import DataError, OpbenchError, UsageError
from opbench.settings import settings
from opbench.types import Corpus

FOLDER = Path(__file__).parent / "exclusion_lists"
#: Where the bundled lists come from: a public audit of LoCoMo, of which ids and kinds of fault were taken, no text.
SOURCE = "github.com/dial481/locomo-audit, audit/errors_conv_*.json at commit ded8d0f (CC BY-NC 4.0); ids only"
_TITLES = {
    "locomo-wrong-gold": "LoCoMo questions whose gold answer is wrong or doubtful",
    "locomo-wrong-evidence": "LoCoMo questions whose answer stands but whose evidence doesn't support it",
}
_COLUMNS = ("instance", "reason")
_DIGEST = "question_sha256"
_ID = re.compile(r"op/[^/]+/[^/]+/[^/]+/[1-9]\d*|locomo/[^/]+/[1-9]\d*")
_NAME = re.compile(r"[\w.-]{1,60}")
#: A list longer than this isn't one of instance ids.
_MOST_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class Exclusions:
    """A list. `digests` maps some or all of its ids to the first 12 hex digits of their question's SHA-256."""

    name: str
    title: str
    source: str
    reasons: dict[str, str]
    """Instance id to why it is on the list."""
    digests: dict[str, str] = field(default_factory=dict)

    @property
    def sha256(self) -> str:
        """Digest (hex) of the ids: what belongs to a study's hash; the reasons don't."""
        return hashlib.sha256("\n".join(sorted(self.reasons)).encode()).hexdigest()

    def found_in(self, corpus: Corpus) -> list[str]:
        """The ids that the corpus has, in its order.

        Raises:
            DataError: an id stands for another question there than on the list.
        """
        found = [instance for instance in (*corpus.op, *corpus.locomo) if instance.id in self.reasons]
        for instance in found:
            expected = self.digests.get(instance.id)
            if expected is not None and expected != digest(instance.question):
                raise DataError(
                    f"exclusion list {self.name}: {instance.id} is another question in these data; "
                    "use the public LoCoMo file (`opbench data fetch`), or leave the list out"
                )
        return [instance.id for instance in found]


def digest(question: str) -> str:
    """What stands for a question on a list: 12 hex digits."""
    return hashlib.sha256(question.encode()).hexdigest()[:12]


def lists() -> dict[str, Exclusions]:
    """All lists that can be read, by name: the bundled ones, then those of `exclusions/` in the user's folder."""
    return {each.name: each for each in _all() if isinstance(each, Exclusions)}


def problems() -> list[str]:
    """What is wrong with the user's own lists, a line each."""
    return [str(each) for each in _all() if isinstance(each, OpbenchError)]


def get(name: str) -> Exclusions:
    """One list.

    Raises:
        UsageError: there is none of this name.
        DataError: it is there and damaged.
    """
    known = lists()
    if name in known:
        return known[name]
    own = _own_folder() / f"{name}.csv"
    if _NAME.fullmatch(name) and own.is_file():
        return _read(own)
    raise UsageError(f"no exclusion list '{name}'. There are: {', '.join(known)}; your own go to {_own_folder()}/")


def listed(names: Iterable[str]) -> frozenset[str]:
    """All ids on the lists named, whatever data there is.

    Raises:
        UsageError, DataError: as `get`.
    """
    return frozenset(identity for name in names for identity in get(name).reasons)


def excluded(names: Iterable[str], corpus: Corpus) -> frozenset[str]:
    """The ids of all the lists named, as far as the corpus has them.

    Raises:
        UsageError, DataError: as `get` and `Exclusions.found_in`.
    """
    return frozenset(identity for name in names for identity in get(name).found_in(corpus))


def _own_folder() -> Path:
    return settings().home / "exclusions"


def _all() -> Iterator[Exclusions | OpbenchError]:
    for name in _TITLES:
        yield _read(FOLDER / f"{name}.csv")
    for file in sorted(_own_folder().glob("*.csv")):
        try:
            yield _own(file)
        except DataError as error:
            yield error


def _own(file: Path) -> Exclusions:
    if file.stem in _TITLES:
        raise DataError(f"{file}: the list '{file.stem}' comes with the workbench; give the file another name")
    if not _NAME.fullmatch(file.stem):
        raise DataError(f"{file}: name it with letters, digits, '.', '-' and '_' only, at most 60")
    return _read(file)


def _read(file: Path) -> Exclusions:
    """A CSV file with the columns instance and reason.

    Raises:
        DataError: one line with the file, the line and the mend.
    """
    reasons: dict[str, str] = {}
    digests: dict[str, str] = {}
    for line, row in _rows(file):
        identity = (row.get("instance") or "").strip()
        if not _ID.fullmatch(identity):
            raise DataError(
                f"{file}: line {line}: '{printable(identity)[:40]}' is no instance id; write one like locomo/conv-26/3"
            )
        if identity in reasons:
            raise DataError(f"{file}: line {line}: {identity} is there twice; remove one of the two")
        reasons[identity] = printable(row.get("reason") or "")[:200]
        if row.get(_DIGEST):
            digests[identity] = str(row[_DIGEST])
    if not reasons:
        raise DataError(f"{file}: no instance in it; write a line for each, or remove the file")
    bundled = file.parent == FOLDER
    title = _TITLES[file.stem] if bundled else "your own list"
    return Exclusions(file.stem, title, SOURCE if bundled else str(file), reasons, digests)


def _rows(file: Path) -> Iterator[tuple[int, dict[str, str | None]]]:
    """Line number and cells of each row."""
    try:
        if file.stat().st_size > _MOST_BYTES:
            raise DataError(f"{file}: more than 1 MB; a list holds instance ids and short reasons")
        text = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise DataError(f"{file}: can't be read ({error.strerror}); check that it is there and may be read") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: isn't UTF-8 text; save it as UTF-8") from error
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        if missing := _missing(reader.fieldnames or ()):
            raise DataError(f"{file}: line 1: no column '{missing}'; the first line is: {','.join(_COLUMNS)}")
        for row in reader:
            yield reader.line_num, row
    except csv.Error as error:
        raise DataError(f"{file}: line {reader.line_num}: not CSV ({error}); correct it there") from error


def _missing(columns: Collection[str]) -> str | None:
    return next((column for column in _COLUMNS if column not in columns), None)
