"""The oracle gap (the paper's figure 7): how near each post-processor brings a memory system to BASE."""

from __future__ import annotations

from typing import Any

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from opbench.figures import theme

ORACLE = "oracle (BASE)"
BAR_GAP = 0.2


def oracle_gap(frame: pd.DataFrame, mark: str = "", title: str = "Oracle gap") -> go.Figure:
    """Bars by memory system, one a post-processor, with BASE of the model as a line; one panel a model.

    `frame` is `opbench.analysis.gap.gap_table`'s, or the published one in its shape. A row without an average has no
    bar, and says so on hover of `n/a`. Controls have none: they stand in `gap_closed`.
    """
    models = list(dict.fromkeys(frame["model"])) or [""]
    heads = [theme.escape(model) for model in models] if len(models) > 1 else None
    figure = make_subplots(rows=len(models), cols=1, shared_xaxes=True, vertical_spacing=0.1, subplot_titles=heads)
    systems = frame[(frame["memory"] != "base") & ~frame["control"].astype(bool)]
    memories = list(dict.fromkeys(systems["memory"]))
    mitigations = list(dict.fromkeys(systems["mitigation"]))
    colours = theme.palette(mitigations)
    for row, model in enumerate(models, start=1):
        of_model = systems[systems["model"] == model]
        for group, mitigation in enumerate(mitigations):
            cells = {cell["memory"]: cell for cell in of_model[of_model["mitigation"] == mitigation].to_dict("records")}
            found = [cells.get(memory) for memory in memories]
            figure.add_trace(
                go.Bar(
                    x=[theme.label(memory) for memory in memories],
                    y=[None if cell is None or pd.isna(cell["op"]) else float(cell["op"]) for cell in found],
                    name=theme.label(mitigation),
                    legendgroup=mitigation,
                    showlegend=row == 1,
                    marker_color=colours[mitigation],
                    customdata=[_hover(cell) for cell in found],
                    hovertemplate="<b>%{x} · %{fullData.name}</b><br>%{customdata}<extra></extra>",
                ),
                row=row,
                col=1,
            )
            for place, cell in enumerate(found):
                if cell is not None and pd.isna(cell["op"]):
                    # A category axis counts its categories from 0; the bars of a group share 1 − bargap.
                    offset = (group - (len(mitigations) - 1) / 2) * (1 - BAR_GAP) / len(mitigations)
                    figure.add_annotation(
                        x=place + offset,
                        y=0,
                        yanchor="bottom",
                        text=theme.MISSING,
                        hovertext=f"{theme.label(mitigation)}: {theme.escape(cell.get('missing', ''))}",
                        textangle=-90,
                        showarrow=False,
                        row=row,
                        col=1,
                    )
        _add_oracle(figure, frame[(frame["model"] == model) & (frame["memory"] == "base")], memories, row)
    theme.finish(figure, title, mark, height=90 + 320 * len(models))
    figure.update_layout(barmode="group", bargap=BAR_GAP, bargroupgap=0.05)
    figure.update_yaxes(title_text="OP-Bench, points", range=[0, 100], title_font_size=12)
    return figure


def _add_oracle(figure: go.Figure, base: pd.DataFrame, memories: list[str], row: int) -> None:
    """A line across the panel at BASE's average, with a marker over each memory system to hover at."""
    known = base[base["op"].notna()]
    if known.empty:
        return
    cell: dict[Any, Any] = known.to_dict("records")[0]
    level = float(cell["op"])
    figure.add_hline(y=level, line={"color": theme.GREY, "dash": "dash", "width": 2}, row=row, col=1)
    text = f"{theme.points(level)} points<br>n = {theme.scored(cell['n_scored'], cell['n_planned'])}"
    figure.add_trace(
        go.Scatter(
            x=[theme.label(memory) for memory in memories],
            y=[level] * len(memories),
            mode="markers",
            name=ORACLE,
            legendgroup=ORACLE,
            showlegend=row == 1,
            marker={"symbol": "line-ew", "size": 16, "line": {"width": 3, "color": theme.GREY}},
            hovertemplate=f"<b>{ORACLE}</b><br>{text}<extra></extra>",
        ),
        row=row,
        col=1,
    )


def gap_closed(frame: pd.DataFrame, mark: str = "", title: str = "Gap closed") -> go.Figure:
    """Gap closed by each post-processor, in percent, with its 95 % interval where there is one.

    `frame` is `opbench.analysis.gap.gap_table`'s. 0 is the memory system as it is, 100 the oracle. A row without a
    share stands at 0 as words. Controls are grey diamonds.
    """
    rows = frame[frame["mitigation"] != "none"]
    several = rows["model"].nunique() > 1
    colours = theme.palette(list(dict.fromkeys(rows.loc[~rows["control"].astype(bool), "mitigation"])))
    groups = list(dict.fromkeys(zip(rows["model"], rows["memory"], strict=True)))
    heads = [theme.label(memory) + (f" · {theme.escape(model)}" if several else "") for model, memory in groups]
    figure = make_subplots(
        rows=max(len(groups), 1), cols=1, shared_xaxes=True, vertical_spacing=0.06, subplot_titles=heads or None
    )
    for place, (model, memory) in enumerate(groups, start=1):
        group = rows[(rows["model"] == model) & (rows["memory"] == memory)]
        for cell in group.to_dict("records"):
            _add_share(figure, cell, theme.GREY if cell["control"] else colours[cell["mitigation"]], place)
        for level in (0, 100):
            figure.add_vline(x=level, line={"color": theme.GREY, "dash": "dash", "width": 1}, row=place, col=1)
    lines = sum(len(rows[(rows["model"] == model) & (rows["memory"] == memory)]) for model, memory in groups)
    theme.finish(figure, title, mark, height=120 + 44 * len(groups) + 30 * max(lines, 2), legend=False)
    figure.update_yaxes(autorange="reversed", type="category")
    figure.update_xaxes(ticksuffix=" %")
    figure.update_xaxes(
        title_text="0 %: the memory system as it is, 100 %: the oracle", title_font_size=12, row=max(len(groups), 1)
    )
    figure.update_annotations(font_size=12)
    return figure


def _add_share(figure: go.Figure, cell: dict[Any, Any], colour: str, row: int) -> None:
    name, share = ("control: " if cell["control"] else "") + theme.label(cell["mitigation"]), cell["gap_closed"]
    if pd.isna(share):
        figure.add_trace(
            go.Scatter(
                x=[0],
                y=[name],
                mode="text",
                text=[theme.escape(_short(cell["words"]))],
                textposition="middle right",
                hovertext=f"<b>{name}</b><br>{theme.escape(cell['words'])}",
                hoverinfo="text",
            ),
            row=row,
            col=1,
        )
        return
    bar = None
    if not pd.isna(cell["gap_low"]):
        ends = [100 * (cell["gap_high"] - share)], [100 * (share - cell["gap_low"])]
        bar = {"array": ends[0], "arrayminus": ends[1], "color": colour, "thickness": 1.5, "width": 4}
    figure.add_trace(
        go.Scatter(
            x=[100 * share],
            y=[name],
            mode="markers",
            marker={"size": 11, "color": colour, "symbol": "diamond-open" if cell["control"] else "circle"},
            error_x=bar,
            hovertemplate=f"<b>{name}</b><br>{_hover(cell)}<extra></extra>",
        ),
        row=row,
        col=1,
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
