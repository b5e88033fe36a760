"""The oracle gap (the paper's figure 7): how near each post-processor brings a memory system to BASE."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from opbench.figures import theme
from opbench.figures.drawing import Drawing
from opbench.figures.latency import legend_below

ORACLE = "oracle (BASE)"
BAR_GAP = 0.2
_DASHED = {"color": theme.GREY, "dash": "dash", "width": 1}


def oracle_gap(frame: pd.DataFrame, mark: str = "", title: str = "Oracle gap") -> go.Figure:
    """Bars by memory system, one a post-processor, with BASE of the model as a line; one panel a model.

    `frame` is `opbench.analysis.gap.gap_table`'s, or the published one in its shape. A row without an average has no
    bar, and says so on hover of `n/a`. Controls have none: they stand in `gap_closed`.
    """
    models = list(dict.fromkeys(frame["model"])) or [""]
    heads = [theme.escape(model) for model in models] if len(models) > 1 else []
    drawing = Drawing(heads, rows=len(models), spacing=0.1, shared_x=True)
    systems = frame[(frame["memory"] != "base") & ~frame["control"].astype(bool)]
    memories = list(dict.fromkeys(systems["memory"]))
    mitigations = list(dict.fromkeys(systems["mitigation"]))
    colours = theme.palette(mitigations)
    for row, model in enumerate(models, start=1):
        of_model = systems[systems["model"] == model]
        for group, mitigation in enumerate(mitigations):
            cells = {cell["memory"]: cell for cell in of_model[of_model["mitigation"] == mitigation].to_dict("records")}
            found = [cells.get(memory) for memory in memories]
            drawing.add(
                "bar",
                row,
                x=[theme.label(memory) for memory in memories],
                y=[None if cell is None or pd.isna(cell["op"]) else float(cell["op"]) for cell in found],
                name=theme.label(mitigation),
                legendgroup=mitigation,
                showlegend=row == 1,
                marker={"color": colours[mitigation]},
                customdata=[_hover(cell) for cell in found],
                hovertemplate="<b>%{x} · %{fullData.name}</b><br>%{customdata}<extra></extra>",
            )
            for place, cell in enumerate(found):
                if cell is not None and pd.isna(cell["op"]):
                    # A category axis counts its categories from 0; the bars of a group share 1 − bargap.
                    offset = (group - (len(mitigations) - 1) / 2) * (1 - BAR_GAP) / len(mitigations)
                    drawing.note(
                        row,
                        x=place + offset,
                        y=0,
                        yanchor="bottom",
                        text=theme.MISSING,
                        hovertext=f"{theme.label(mitigation)}: {theme.escape(cell.get('missing', ''))}",
                        textangle=-90,
                    )
        _add_oracle(drawing, frame[(frame["model"] == model) & (frame["memory"] == "base")], memories, row)
    drawing.y(title="OP-Bench, points", range=[0, 100])
    height = 90 + 320 * len(models)
    legend = legend_below(height)
    return drawing.figure(title, mark, height=height, legend=legend, barmode="group", bargap=BAR_GAP, bargroupgap=0.05)


def _add_oracle(drawing: Drawing, base: pd.DataFrame, memories: list[str], row: int) -> None:
    """A line across the panel at BASE's average, with a marker over each memory system to hover at."""
    known = base[base["op"].notna()]
    if known.empty:
        return
    cell: dict[Any, Any] = known.to_dict("records")[0]
    level = float(cell["op"])
    drawing.level(level, {"color": theme.GREY, "dash": "dash", "width": 2}, row)
    text = f"{theme.points(level)} points<br>n = {theme.scored(cell['n_scored'], cell['n_planned'])}"
    drawing.add(
        "scatter",
        row,
        x=[theme.label(memory) for memory in memories],
        y=[level] * len(memories),
        mode="markers",
        name=ORACLE,
        legendgroup=ORACLE,
        showlegend=row == 1,
        marker={"symbol": "line-ew", "size": 16, "line": {"width": 3, "color": theme.GREY}},
        hovertemplate=f"<b>{ORACLE}</b><br>{text}<extra></extra>",
    )


def gap_closed(frame: pd.DataFrame, mark: str = "", title: str = "Gap closed") -> go.Figure:
    """Gap closed by each post-processor, in percent, with its 95 % interval where there is one.

    `frame` is `opbench.analysis.gap.gap_table`'s. 0 is the memory system as it is, 100 the oracle. A row without a
    share stands at 0 as words. Controls are grey diamonds. Memory systems (and models) stand one under the other, in
    one panel: as many panels would take the browser a second.
    """
    rows = frame[frame["mitigation"] != "none"]
    several = rows["model"].nunique() > 1
    colours = theme.palette(list(dict.fromkeys(rows.loc[~rows["control"].astype(bool), "mitigation"])))
    drawing = Drawing()
    groups: dict[tuple[str, str], list[dict[Any, Any]]] = {}
    for cell in rows.to_dict("records"):
        groups.setdefault((cell["model"], cell["memory"]), []).append(cell)
    alike: dict[tuple[Any, ...], list[tuple[int, dict[Any, Any]]]] = {}
    names: dict[int, str] = {}
    line = 0
    for (model, memory), cells in groups.items():
        head = theme.label(memory) + (f" · {theme.escape(model)}" if several else "")
        drawing.note(x=0.5, xref="paper", y=line, text=head, font={"size": 12})
        for place, cell in enumerate(cells, start=line + 1):
            names[place] = ("control: " if cell["control"] else "") + theme.label(cell["mitigation"])
            # What looks the same is one trace: dozens of traces would take as long as dozens of panels.
            look = ("words",) if pd.isna(cell["gap_closed"]) else (cell["mitigation"], pd.isna(cell["gap_low"]))
            alike.setdefault(look, []).append((place, cell))
        for level in (0, 100):
            ends = {"x0": level, "x1": level, "y0": line + 0.5, "y1": line + len(cells) + 0.5}
            drawing.shapes.append({"type": "line", "line": _DASHED, "xref": "x", "yref": "y", **ends})
        line += len(cells) + 1
    for found in alike.values():
        _add_shares(drawing, found, names, colours)
    told = rows[["gap_closed", "gap_low", "gap_high"]].to_numpy(dtype=float)
    reach = np.append(100 * told[~np.isnan(told)], [0.0, 100.0])
    room = 0.06 * (reach.max() - reach.min())
    seen = [float(reach.min() - room), float(reach.max() + room)]
    drawing.x(title="0 %: the memory system as it is, 100 %: the oracle", ticksuffix=" %", range=seen)
    drawing.y(range=[max(line, 2) - 0.4, -0.6], tickvals=list(names), ticktext=list(names.values()), zeroline=False)
    return drawing.figure(title, mark, height=130 + 32 * max(line, 3), legend=False)


def _add_shares(
    drawing: Drawing, found: list[tuple[int, dict[Any, Any]]], names: dict[int, str], colours: dict[str, str]
) -> None:
    """Points that look the same; or, where there is no share, words at 0."""
    places, cells = [place for place, _ in found], [cell for _, cell in found]
    first, heads = cells[0], [f"<b>{names[place]}</b><br>" for place in places]
    if pd.isna(first["gap_closed"]):
        drawing.add(
            "scatter",
            x=[0] * len(cells),
            y=places,
            mode="text",
            text=[theme.escape(_short(cell["words"])) for cell in cells],
            textposition="middle right",
            hovertext=[head + theme.escape(cell["words"]) for head, cell in zip(heads, cells, strict=True)],
            hoverinfo="text",
        )
        return
    colour = theme.GREY if first["control"] else colours[first["mitigation"]]
    bar = None
    if not pd.isna(first["gap_low"]):
        bar = {
            "array": [100 * (cell["gap_high"] - cell["gap_closed"]) for cell in cells],
            "arrayminus": [100 * (cell["gap_closed"] - cell["gap_low"]) for cell in cells],
            "color": colour,
            "thickness": 1.5,
            "width": 4,
        }
    drawing.add(
        "scatter",
        x=[100 * cell["gap_closed"] for cell in cells],
        y=places,
        mode="markers",
        marker={"size": 11, "color": colour, "symbol": "diamond-open" if first["control"] else "circle"},
        error_x=bar,
        customdata=[head + _hover(cell) for head, cell in zip(heads, cells, strict=True)],
        hovertemplate="%{customdata}<extra></extra>",
    )


def _short(words: str) -> str:
    """The reason without its numbers."""
    return words.split(":")[0]


def _hover(cell: dict[Any, Any] | None) -> str:
    if cell is None:
        return f"{theme.MISSING}: not in the study"
    lines = [f"{theme.points(cell['op'])} points, n = {theme.scored(cell['n_scored'], cell['n_planned'])}"]
    if cell["mitigation"] != "none":
        lines.append(f"gap closed: {theme.share(cell['gap_closed'])}, paired n = {theme.count(cell['gap_n'])}")
        if not pd.isna(cell["gap_low"]):
            ends = f"{theme.share(cell['gap_low'])} to {theme.share(cell['gap_high'])}"
            lines.append(f"95 %: {ends}, {theme.users(cell['gap_users'])}")
        if cell["interval_note"]:
            lines.append(theme.escape(f"no interval: {cell['interval_note']}"))
        lines.append(theme.escape(cell["words"]))
    return "<br>".join(lines)
