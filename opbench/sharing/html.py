"""A view as one HTML file that opens anywhere, offline: figures, tables, marks, provenance, and the data itself.

The file may run its own two scripts and nothing else (their digests stand in its Content-Security-Policy), and may ask
nothing of any host. Text is escaped by the template; data stands in a JSON block in which no tag can end.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import plotly.graph_objects as go
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from opbench import __version__
from opbench.sharing.sheet import Chart, Data, Sheet, Text, Words
from opbench.sharing.tables import cell, json_table, json_value, without_texts
from opbench.sharing.visible import visible

MOST_ROWS = 500
"""Rows of a table that are drawn; the data in the file has all."""

#: Signs of a cell that stays on one line.
_SHORT = 40
_TOOLS_LEFT_OUT = ["zoom2d", "pan2d", "select2d", "lasso2d", "zoomIn2d", "zoomOut2d", "autoScale2d", "resetScale2d"]
_CONFIG = {"displaylogo": False, "showLink": False, "responsive": True, "modeBarButtonsToRemove": _TOOLS_LEFT_OUT}
#: What would end a script block or a line of script, as JSON writes it.
_UNSAFE = {character: f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


def holds_texts(sheet: Sheet) -> bool:
    """Whether the view has sentences of the benchmark, of memories or of responses, which an export may leave out."""
    return any(isinstance(block, Words) or (isinstance(block, Data) and block.texts) for block in sheet.blocks)


def view_html(sheet: Sheet, *, link: str = "", with_texts: bool = False, made: datetime | None = None) -> str:
    """The sheet as one HTML file.

    `link` is the address of the view, `made` when it was exported (default: now). Without `with_texts`, `Words` and
    the columns in `Data.texts` are left out, and the file says so.
    """
    made = made or datetime.now(UTC)
    charts: list[dict[str, Any]] = []
    tables: list[dict[str, Any]] = []
    blocks: list[dict[str, Any]] = []
    left_out: list[str] = []
    for block in sheet.blocks:
        if isinstance(block, Text):
            blocks.append({"kind": "heading" if block.heading else "remark", "text": visible(block.text)})
        elif isinstance(block, Words):
            if with_texts:
                blocks.append({"kind": "words", "title": visible(block.title), "text": visible(block.text)})
            else:
                left_out.append(visible(block.title))
        elif isinstance(block, Chart):
            blocks.append({"kind": "chart", "number": len(charts), "name": block.name, "alt": visible(block.alt)})
            charts.append({"name": block.name, "figure": _figure(block.figure)})
        else:
            kept = block if with_texts else without_texts(block)
            if kept is not block:
                heads = [block.columns[name].head if name in block.columns else name for name in block.texts]
                left_out += [visible(f"{head} ({block.name})") for head in heads]
            blocks.append({"kind": "table", "number": len(tables), **_table(kept)})
            tables.append({"name": kept.name, **json_table(kept.whole)})
    data = {
        "page": sheet.page,
        "title": sheet.title,
        "link": link,
        "made": made.isoformat(timespec="seconds"),
        "marks": sheet.marks,
        "with_texts": with_texts,
        "provenance": json_value(sheet.provenance),
        "charts": charts,
        "tables": tables,
    }
    scripts = [_plotly()] if charts else []
    scripts.append(packaged("view.js"))
    return (
        environment()
        .get_template("view.html.jinja")
        .render(
            title=visible(sheet.title or sheet.page),
            marks=[visible(str(mark)) for mark in dict.fromkeys(sheet.marks)],
            link=link if re.match("https?://", link) else "",
            made=made.strftime("%Y-%m-%d %H:%M UTC"),
            version=__version__,
            blocks=blocks,
            left_out=left_out,
            warn=with_texts and holds_texts(sheet),
            facts=facts_of(sheet.provenance),
            details=details_of(sheet.provenance),
            style=Markup(packaged("view.css")),
            scripts=[Markup(script) for script in scripts],
            policy=_policy(scripts),
            data=Markup(embedded_json(data)),
            most_rows=MOST_ROWS,
        )
    )


def _figure(figure: go.Figure) -> dict[str, Any]:
    """The figure's JSON without Plotly's own template: the file's look is its page's."""
    parts: dict[str, Any] = json.loads(figure.to_json())
    parts["layout"].pop("template", None)
    return {"data": parts["data"], "layout": parts["layout"], "config": _CONFIG}


def _table(table: Data) -> dict[str, Any]:
    names = [name for name in table.columns if name in table.shown.columns]
    rows = table.shown[names].head(MOST_ROWS)
    numeric = [str(rows[name].dtype).lower().startswith(("int", "float", "uint")) for name in names]
    columns = [table.columns[name] for name in names]
    return {
        "name": visible(table.name),
        "heads": [
            {"text": visible(column.head.strip()), "help": visible(column.help or ""), "number": number}
            for column, number in zip(columns, numeric, strict=True)
        ],
        "rows": [
            [_cell(value, column.format, number) for value, column, number in zip(row, columns, numeric, strict=True)]
            for row in rows.itertuples(index=False, name=None)
        ],
        "total": len(table.shown),
    }


def _cell(value: object, form: str | None, number: bool) -> dict[str, str]:
    text = cell(value, form)
    return {"text": text, "kind": "number" if number else "long" if len(text) > _SHORT or "\n" in text else ""}


def facts_of(provenance: Mapping[str, object]) -> list[tuple[str, str]]:
    """Names and values of what is in one piece, as they are shown."""
    return [(visible(key), cell(value)) for key, value in provenance.items() if not _has_parts(value)]


def details_of(provenance: Mapping[str, object]) -> list[tuple[str, str]]:
    """Names and indented JSON of what has parts of its own."""
    return [
        (visible(key), visible(json.dumps(json_value(value), ensure_ascii=False, indent=2)))
        for key, value in provenance.items()
        if _has_parts(value)
    ]


def _has_parts(value: object) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and any(isinstance(each, dict) for each in value))


def embedded_json(data: Mapping[str, Any]) -> str:
    """JSON for a script block, which nothing in it can end."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return re.sub("[<>&\u2028\u2029]", lambda match: _UNSAFE[match[0]], text)


def _policy(scripts: list[str]) -> str:
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    # Plotly writes styles into the page, and draws a picture through an image of its own making.
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


@lru_cache(maxsize=1)
def _plotly() -> str:
    # A browser reads one kind of line end, and the digest is over what it reads; no string may end the block.
    source: str = get_plotlyjs()
    return source.replace("\r\n", "\n").replace("</script", r"<\/script")


@lru_cache(maxsize=1)
def environment() -> Environment:
    """The templates of exported files; text is escaped."""
    return Environment(
        loader=PackageLoader("opbench.sharing", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@lru_cache(maxsize=4)
def packaged(name: str) -> str:
    """A style or script that stands beside the templates."""
    loader = environment().loader
    assert loader is not None
    return loader.get_source(environment(), name)[0]
