"""How alike questions and retrieved memories are (the paper's figure 5), and whether a threshold tells when to abstain:
figures of the frames of `opbench.analysis.retrieval_similarity`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from opbench.figures import theme
from opbench.figures.dots import ROW, Dot, add_dots, between, cosine
from opbench.figures.drawing import Drawing

#: Colour and dash of each group of questions, told apart without colour as well.
_LOOKS = {
    "fully-irrelevant": (theme.PALETTE[0], "solid"),
    "baiting": (theme.PALETTE[1], "dash"),
    "locomo": (theme.PALETTE[2], "dot"),
    "repetition": (theme.PALETTE[3], "dashdot"),
    "fact": (theme.PALETTE[4], "longdash"),
    "value": (theme.PALETTE[5], "longdashdot"),
    "memory": (theme.PALETTE[6], "solid"),
    "adversarial": (theme.GREY, "dash"),
}
_BIN = 0.05
_LEAST_HEIGHT = 230


def group_label(group: str) -> str:
    """A group of questions as people write it, escaped."""
    return {"locomo": "LoCoMo", "adversarial": "LoCoMo, adversarial"}.get(group, theme.label(group))


def similarity_figure(
    frame: pd.DataFrame, mark: str = "", title: str = "Similarity of question and memory"
) -> go.Figure:
    """A panel a memory system: how the cosines of each group are spread, as the share of the group's in bins of 0.05.

    `frame` is `cosines`'. Dotted uprights are the means.
    """
    memories = _memories(frame)
    drawing = _panels(memories)
    lowest = float(frame["cosine"].min()) if len(frame) else 0.0
    edges = np.round(np.arange(min(0.0, np.floor(lowest / _BIN) * _BIN), 1.0 + _BIN / 2, _BIN), 2)
    named: set[str] = set()
    for row, memory in enumerate(memories, start=1):
        for group, values in _groups(frame[frame["memory"] == memory], "cosine"):
            colour, dash = _LOOKS[group]
            # What is exactly 1, or a rounding above an edge, belongs to the bin below the end.
            counts, _ = np.histogram(np.clip(values, edges[0], edges[-1]), bins=edges)
            shares = 100.0 * counts / len(values)
            mean = float(values.mean())
            label = group_label(group)
            drawing.add(
                "scatter",
                row,
                # Each bin's share from its left to its right edge.
                x=np.repeat(edges, 2)[1:-1].tolist(),
                y=np.repeat(shares, 2).tolist(),
                mode="lines",
                line={"color": colour, "dash": dash, "width": 2},
                fill="tozeroy",
                fillcolor=_faint(colour),
                name=label,
                legendgroup=group,
                showlegend=group not in named,
                customdata=[
                    f"cosine {cosine(low)} to {cosine(high)}: {share:.0f} % of {len(values)}<br>mean {cosine(mean)}"
                    for low, high, share in zip(edges[:-1], edges[1:], shares, strict=True)
                    for _ in range(2)
                ],
                hovertemplate=f"<b>{label}</b><br>%{{customdata}}<extra></extra>",
            )
            drawing.upright(mean, {"color": colour, "dash": "dot", "width": 1.5}, row)
            named.add(group)
    drawing.x(max(len(memories), 1), title="cosine of question and memory")
    drawing.y(title="cosines, %", rangemode="tozero")
    return drawing.figure(title, mark, height=_height(len(memories)), legend=_legend(len(memories)))


def mean_figure(table: pd.DataFrame, mark: str = "", title: str = "Mean similarity") -> go.Figure:
    """Means of `similarity_table` with their 95 % intervals, a panel a memory system, a row a group."""
    memories = _memories(table)
    drawing = _panels(memories)
    for row, memory in enumerate(memories, start=1):
        cells: list[dict[Any, Any]] = table[table["memory"] == memory].to_dict("records")
        cells.sort(key=lambda cell: list(_LOOKS).index(cell["group"]))
        dots = [
            Dot(
                group_label(cell["group"]),
                cell["mean"],
                cell["low"],
                cell["high"],
                f"<b>{theme.label(memory)} · {group_label(cell['group'])}</b><br>mean {cosine(cell['mean'])}, "
                f"{between(cell['low'], cell['high'], cell['reason'])}<br>median {cosine(cell['median'])}<br>"
                f"{cell['n_cosines']} cosines of {cell['n']} questions ({cell['n_empty']} without a memory), "
                f"{theme.users(cell['users'])}",
                _LOOKS[cell["group"]][0],
            )
            for cell in cells
        ]
        add_dots(drawing, dots, row)
    drawing.x(rangemode="tozero")
    drawing.x(max(len(memories), 1), title="mean cosine of question and memory")
    rows = sum(table[table["memory"] == memory]["group"].nunique() for memory in memories)
    return drawing.figure(title, mark, height=130 + ROW * rows + 60 * len(memories), legend=False)


def abstention_figure(
    curves: pd.DataFrame, mark: str = "", title: str = "If it abstained below a threshold"
) -> go.Figure:
    """A panel a memory system: by threshold, for which share of each group's questions it would retrieve nothing.

    `curves` is `abstention_curves`'. It should abstain from fully irrelevant and baiting questions, not from LoCoMo's.
    """
    memories = _memories(curves)
    drawing = _panels(memories)
    named: set[str] = set()
    for row, memory in enumerate(memories, start=1):
        mine = curves[curves["memory"] == memory]
        for group in [each for each in _LOOKS if each in set(mine["group"])]:
            part = mine[mine["group"] == group]
            colour, dash = _LOOKS[group]
            label = group_label(group)
            drawing.add(
                "scatter",
                row,
                x=part["threshold"].tolist(),
                y=(100.0 * part["share"]).tolist(),
                mode="lines",
                line={"color": colour, "dash": dash, "width": 2},
                name=label,
                legendgroup=group,
                showlegend=group not in named,
                hovertemplate=f"<b>{label}</b><br>below a cosine of %{{x:.2f}} it abstains from %{{y:.0f}} % "
                f"of {int(part['n'].iloc[0])}<extra></extra>",
            )
            named.add(group)
    drawing.x(max(len(memories), 1), title="threshold: cosine of the most similar memory")
    drawing.y(title="it abstains, %", range=[0, 102])
    return drawing.figure(title, mark, height=_height(len(memories)), legend=_legend(len(memories)))


def separation_figure(frame: pd.DataFrame, mark: str = "", title: str = "Told apart by similarity") -> go.Figure:
    """Areas under the curve of `separations` with their 95 % intervals; 0.5: not told apart, 1: entirely."""
    memories = _memories(frame)
    drawing = _panels(memories)
    for row, memory in enumerate(memories, start=1):
        dots = [
            Dot(
                pair_label(cell),
                cell["auc"],
                cell["low"],
                cell["high"],
                f"<b>{theme.label(memory)} · {pair_label(cell)}</b><br>area {cosine(cell['auc'])}, "
                f"{between(cell['low'], cell['high'], cell['reason'])}<br>best threshold {cosine(cell['threshold'])}; "
                f"below that of the other users: {theme.share(cell['abstains'])} of {group_label(cell['group'])}, "
                f"{theme.share(cell['loses'])} of {group_label(cell['against'])}<br>"
                f"n = {cell['n']} and {cell['n_against']}, {theme.users(cell['users'])}",
            )
            for cell in frame[frame["memory"] == memory].to_dict("records")
        ]
        add_dots(drawing, dots, row)
        drawing.upright(0.5, {"color": theme.GREY, "dash": "dash", "width": 1.5}, row)
    drawing.x(range=[-0.02, 1.02])
    drawing.x(max(len(memories), 1), title="area under the curve; 0.5: not told apart")
    height = 130 + ROW * len(frame) + 60 * len(memories)
    return drawing.figure(title, mark, height=height, legend=False)


def pair_label(cell: dict[Any, Any]) -> str:
    return f"{group_label(cell['group'])} or {group_label(cell['against'])}"


def _memories(frame: pd.DataFrame) -> list[str]:
    return [str(name) for name in dict.fromkeys(frame["memory"])]


def _panels(memories: list[str]) -> Drawing:
    heads = [f"<b>{theme.label(memory)}</b>{' (control)' if memory == 'random' else ''}" for memory in memories]
    rows = max(len(memories), 1)
    spacing = 0.0 if rows == 1 else min(0.12, 0.5 / (rows - 1))
    return Drawing(
        heads, rows=rows, spacing=spacing, shared_x=True, head={"x": 0, "xanchor": "left", "font": {"size": 13}}
    )


def _groups(frame: pd.DataFrame, column: str) -> list[tuple[str, np.ndarray]]:
    parts = {str(group): part[column].to_numpy(dtype=np.float64) for group, part in frame.groupby("group")}
    return [(group, parts[group]) for group in _LOOKS if group in parts]


def _faint(colour: str) -> str:
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.12)"


def _height(panels: int) -> int:
    return 150 + _LEAST_HEIGHT * max(panels, 1)


def _legend(panels: int) -> dict[str, Any]:
    """Below the axis title, whatever the height."""
    return {"y": -60 / _height(panels), "tracegroupgap": 0}
