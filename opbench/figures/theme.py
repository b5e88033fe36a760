"""One look for all figures: palette, number formats, names, and a layout that reads at 390 px, light or dark.

Backgrounds are transparent and font colours are left alone, so that a page's theme decides them. Grid lines and
marks are a grey that shows on both.
"""

from __future__ import annotations

import html
import math
from typing import Any

from opbench.sharing.visible import visible

#: Okabe and Ito's palette without black, which is lost on a dark page; told apart by people with colour blindness.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
#: What is nothing special (no post-processor), and lines: visible on light and dark.
GREY = "#8A8A8A"
#: Orange to violet over near-white (ColorBrewer's PuOr), worse to better; safe for all kinds of colour blindness.
#: The ends are light enough for `CELL_TEXT` to keep a contrast of 4.5 to 1 on every cell.
DIVERGING = [
    [0.0, "#e08214"],
    [0.2, "#fdb863"],
    [0.35, "#fee0b6"],
    [0.5, "#f7f7f7"],
    [0.65, "#d8daeb"],
    [0.8, "#b2abd2"],
    [1.0, "#8073ac"],
]
#: Low to high, for scores: the better half of `DIVERGING`.
SEQUENTIAL = [[0.0, "#f7f7f7"], [0.3, "#d8daeb"], [0.6, "#b2abd2"], [1.0, "#8073ac"]]
#: Text in a coloured cell, whatever the page's theme.
CELL_TEXT = "#111111"
MISSING = "n/a"

NAMES = {
    "base": "BASE",
    "rag": "RAG",
    "rag-observations": "RAG-obs.",
    "mem0": "Mem0",
    "memu": "MemU",
    "memos": "MemOS",
    "memos-tree": "MemOS (tree)",
    "random": "random memories",
    "none": "no post-processor",
    "reminder": "Reminder",
    "self-critic": "Self-Critic",
    "few-shot-cot": "Few-Shot-CoT",
    "comorag": "ComoRAG",
    "marag": "MARAG",
    "self-recheck": "Self-ReCheck",
    "empty": "empty memory",
    "abstain": "always abstain",
    "fully-irrelevant": "Fully irrelevant",
    "baiting": "Baiting",
    "repetition": "Repetition",
    "fact": "Fact-level",
    "value": "Value-level",
    "memory": "Memory-level",
}


def name(registered: str) -> str:
    """A registry name as people write it."""
    return NAMES.get(registered, registered)


def label(registered: str) -> str:
    """A registry name as people write it, with HTML escaped (Plotly reads some tags in any text)."""
    return escape(name(registered))


def escape(text: object) -> str:
    """Text that Plotly shows as it is: no tags, nothing hidden or turned round."""
    return html.escape(visible(str(text)), quote=False)


def provenance(*, published: bool = False, recorded: bool = False, comparable: bool = True) -> str:
    """The mark that a figure's title carries (design, rule 4); empty when measured here and comparable."""
    marks = []
    if published:
        marks.append("published")
    if recorded:
        marks.append("recorded")
    if not comparable:
        marks.append("not comparable with the paper")
    return " · ".join(marks)


def points(value: float) -> str:
    """A score, e.g. `55.9`."""
    return MISSING if _missing(value) else f"{value:.1f}"


def change(value: float) -> str:
    """A change with its sign, e.g. `+3.5`, `−1.1`, `0.0`."""
    if _missing(value):
        return MISSING
    rounded = round(value, 1)
    return "0.0" if rounded == 0 else f"{rounded:+.1f}".replace("-", "−")


def span(low: float, high: float) -> str:
    """An interval of a change, e.g. `−0.4 to +7.2`."""
    return MISSING if _missing(low) else f"{change(low)} to {change(high)}"


def chance(p: float) -> str:
    """A p value, e.g. `p = 0.03`, `p < 0.001`."""
    if _missing(p):
        return f"p {MISSING}"
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}" if p < 0.01 else f"p = {p:.2f}"


def share(value: float) -> str:
    """A share as percent, e.g. `13 %`, `−5 %`."""
    return MISSING if _missing(value) else f"{round(100 * value) + 0:d} %".replace("-", "−")


def milliseconds(value: float) -> str:
    """A duration: `44 ms`, `3.23 s`."""
    if _missing(value):
        return MISSING
    return f"{value:.0f} ms" if value < 1000 else f"{value / 1000:.2f} s"


def count(value: float) -> str:
    """A count, or `not told`, which is how published figures come."""
    return "not told" if _missing(value) else f"{int(value):,}"


def scored(n: float, planned: float) -> str:
    """`n of planned`; `not told` when it isn't known."""
    return "not told" if _missing(n) else f"{count(n)} of {count(planned)}"


def users(n: float) -> str:
    """`1 user`, `20 users`."""
    return "1 user" if n == 1 else f"{count(n)} users"


def palette(names: list[str]) -> dict[str, str]:
    """A colour for each post-processor: known ones always the same, others the ones that are left, `none` grey."""
    fixed = ["reminder", "self-critic", "few-shot-cot", "comorag", "marag", "self-recheck"]
    order = fixed + [name for name in names if name not in fixed and name != "none"]
    colours = {name: PALETTE[place % len(PALETTE)] for place, name in enumerate(order)}
    return {name: GREY if name == "none" else colours[name] for name in names}


def layout(title: str, mark: str = "", height: int = 420, legend: bool | dict[str, Any] = True) -> dict[str, Any]:
    """A figure's layout: title with its mark below, legend under the plot, narrow margins, nothing opaque.

    `legend` False leaves it out; a dict changes how it looks.
    """
    suffix = f"<br><sup>{escape(mark)}</sup>" if mark else ""
    below: dict[str, Any] = {"orientation": "h", "x": 0, "xanchor": "left", "y": -0.18, "yanchor": "top"}
    return {
        "title": {
            "text": f"{escape(title)}{suffix}",
            "x": 0,
            "xanchor": "left",
            "xref": "container",
            "font": {"size": 15},
        },
        "height": height,
        "margin": {"l": 8, "r": 8, "t": 80 if mark else 58, "b": 8},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "showlegend": bool(legend),
        "legend": below | (legend if isinstance(legend, dict) else {}),
        "hoverlabel": {"align": "left"},
        "colorway": list(PALETTE),
    }


def _missing(value: float | None) -> bool:
    return value is None or math.isnan(value)
