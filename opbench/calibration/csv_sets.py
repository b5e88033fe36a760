"""Responses with people's scores from a CSV file, and a set as such a file.

A row a score; rows of the same `item` are one response with several raters. Columns:

| column | |
|---|---|
| question, response | the texts |
| subtype | of OP-Bench without repetition, or one of LoCoMo's categories |
| score | 0 to 1, higher is better (OP-Bench: less over-personalised); empty: not scored |
| item | what the response is called; default: its row |
| rater | who scored; default `rater` |
| pair | what responses to the same question share; default: user and question |
| user | `conversation/speaker`; default `csv/user` |
| gold | LoCoMo's gold answer |
| profile, explanation, kind | as they are |
| memories, context, facts | what a judge may look at, a line each (or a JSON list of texts) |
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Iterator, Sequence

from opbench.benchmarks.shape import printable
from opbench.calibration.spec import Rated, Response
from opbench.errors import DataError
from opbench.store.database import Store
from opbench.store.judgings import save_set
from opbench.types import LOCOMO_CATEGORIES, OP_SUBTYPES

NEEDED = ("question", "response", "subtype", "score")
OPTIONAL = ("item", "rater", "pair", "user", "gold", "profile", "explanation", "kind", "memories", "context", "facts")
COLUMNS = ("item", *NEEDED, "rater", *(name for name in OPTIONAL if name not in ("item", "rater")))
_LISTS = ("memories", "context", "facts")
_SUBTYPES = (*(name for name in OP_SUBTYPES if name != "repetition"), *LOCOMO_CATEGORIES.values())
_MOST_BYTES = 50_000_000
#: A cell that begins so is a formula to a spreadsheet.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def csv_set(store: Store, content: bytes, file: str, maker: str = "") -> str:
    """Keep a CSV file's responses as a set named after the file, and return its id.

    Raises:
        DataError: one line with file, line and mend.
    """
    items = read_csv(content, file)
    digest = hashlib.sha256(content).hexdigest()
    return save_set(store, file, {"kind": "csv", "file": file, "sha256": digest}, items, maker)


def read_csv(content: bytes, file: str) -> list[Rated]:
    """The responses of a CSV file, in its order.

    Raises:
        DataError: one line with file, line and mend.
    """
    responses: dict[str, Response] = {}
    humans: dict[str, dict[str, float]] = {}
    for line, row in _rows(content, file):
        where = f"{file}: line {line}"
        item = row["item"] or f"row {line}"
        if len(item) > 300:
            raise DataError(f"{where}: the item's name has {len(item)} signs; give it at most 300.")
        response = _response(row, where)
        if responses.setdefault(item, response) != response:
            raise DataError(
                f"{where}: item '{printable(item)[:60]}' stands above with other texts; repeat them in each "
                "rater's row, or name the item otherwise."
            )
        scores = humans.setdefault(item, {})
        if row["score"]:
            rater = row["rater"] or "rater"
            if rater in scores:
                raise DataError(
                    f"{where}: {printable(rater)[:60]} scored '{printable(item)[:60]}' above already; remove one of "
                    "the two, or name the rater otherwise."
                )
            scores[rater] = _score(row["score"], where)
    if not responses:
        raise DataError(f"{file}: no response in it; write a row for each below the line of the columns.")
    return [
        Rated(item=item, response=response, human=tuple(humans[item].items())) for item, response in responses.items()
    ]


def write_csv(items: Sequence[Rated]) -> str:
    """A set as a CSV file that `read_csv` reads: a row a score, or one without a score where nobody gave one."""
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for each in items:
        content = each.response.model_dump()
        cells = {name: _cell(content[name]) if name in _LISTS else content[name] for name in content}
        for rater, value in each.human or (("", None),):
            row = {"item": each.item, **cells, "rater": rater, "score": "" if value is None else repr(value)}
            writer.writerow({name: _safe(str(row[name])) for name in COLUMNS})
    return out.getvalue()


def _safe(cell: str) -> str:
    """With an apostrophe before what a spreadsheet would take for a formula."""
    return f"'{cell}" if cell.startswith(_FORMULA) or (cell[:1] == "'" and cell[1:].startswith(_FORMULA)) else cell


def _plain(cell: str) -> str:
    """Without that apostrophe."""
    bare = cell[1:] if cell[:1] == "'" else ""
    return bare if bare and _safe(bare) == cell else cell


def _response(row: dict[str, str], where: str) -> Response:
    for name in ("question", "response"):
        if not row[name].strip():
            raise DataError(f"{where}: no {name}; write it, or remove the row.")
    subtype = row["subtype"].strip()
    if subtype not in _SUBTYPES:
        raise DataError(
            f"{where}: '{printable(subtype)[:40]}' is no subtype that a judge scores; use one of "
            f"{', '.join(_SUBTYPES)}."
        )
    benchmark = "op" if subtype in OP_SUBTYPES else "locomo"
    if benchmark == "locomo" and subtype != LOCOMO_CATEGORIES[5] and not row["gold"].strip():
        raise DataError(f"{where}: no gold answer (column gold), against which a LoCoMo response is judged.")
    user = row["user"].strip() or "csv/user"
    if "/" not in user:
        raise DataError(f"{where}: user '{printable(user)[:40]}': write it as conversation/speaker.")
    lists = {name: _lines(row[name]) for name in _LISTS}
    texts = {name: row[name] for name in ("profile", "explanation", "kind", "gold", "question", "response")}
    pair = row["pair"] or f"{user}: {row['question']}"
    return Response(benchmark=benchmark, subtype=subtype, user=user, pair=pair, **lists, **texts)


def _lines(cell: str) -> tuple[str, ...]:
    """A line each, or a JSON list of texts: these may have several lines themselves."""
    if cell.startswith("["):
        try:
            given = json.loads(cell)
        except ValueError:
            given = None
        if isinstance(given, list) and all(isinstance(text, str) for text in given):
            return tuple(given)
    return tuple(line for line in cell.splitlines() if line.strip())


def _cell(texts: Sequence[str]) -> str:
    """What `_lines` reads."""
    text = "\n".join(texts)
    return text if _lines(text) == tuple(texts) else json.dumps(texts, ensure_ascii=False)


def _score(cell: str, where: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        value = -1.0
    # A NaN is neither above nor below.
    if not 0.0 <= value <= 1.0:
        raise DataError(f"{where}: score '{printable(cell)[:20]}': give a number from 0 to 1, or leave the cell empty.")
    return value


def _rows(content: bytes, file: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Line number and cells of each row; a column that isn't there has empty cells."""
    if len(content) > _MOST_BYTES:
        raise DataError(f"{file}: more than {_MOST_BYTES // 1_000_000} MB; split it into several.")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: isn't UTF-8 text (byte {error.start}); save it as UTF-8.") from error
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        columns = list(reader.fieldnames or ())
        for name in NEEDED:
            if name not in columns:
                raise DataError(f"{file}: line 1: no column '{name}'; the columns are {', '.join(COLUMNS)}.")
        for name in columns:
            if name not in COLUMNS or columns.count(name) > 1:
                fault = "is there twice" if name in COLUMNS else "isn't known"
                raise DataError(
                    f"{file}: line 1: column '{printable(name)[:40]}' {fault}; the columns are {', '.join(COLUMNS)}."
                )
        for row in reader:
            if None in row or None in row.values():
                raise DataError(
                    f"{file}: line {reader.line_num}: not {len(columns)} cells; quote texts with commas in."
                )
            yield reader.line_num, {name: _plain(row.get(name) or "") for name in COLUMNS}
    except csv.Error as error:
        raise DataError(f"{file}: line {reader.line_num}: not CSV ({error}); correct it there.") from error
