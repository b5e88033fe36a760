"""Words that become more frequent with memory (the paper's figure 15): figures of `opbench.analysis.language`'s
tables."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from opbench.analysis.grids import Key
from opbench.figures import theme
from opbench.figures.attention import configuration_name
from opbench.figures.dots import ROW, Dot, add_dots
from opbench.figures.drawing import Drawing
from opbench.figures.latency import legend_below
from opbench.study import BASE

Side = Literal["with", "without"]
#: Colours of the sides: more frequent with memory, or without.
COLOURS: dict[Side, str] = {"with": theme.PALETTE[5], "without": theme.PALETTE[0]}
_SYMBOLS: dict[Side, str] = {"with": "circle", "without": "diamond"}


@dataclass(frozen=True, slots=True)
class Names:
    """What the two sides of a comparison are called, as it follows "more frequent …" and "7 times …"."""

    first: str = "with memory"
    second: str = "without"
    second_saw: bool = False
    """Whether the second side saw memories as well."""

    def label(self, side: Side) -> str:
        return f"more frequent {self.first if side == 'with' else self.second}"


MEMORY = Names()


def names_of(key: Key, against: Key) -> Names:
    """Against BASE it is memory that makes the difference; else both sides have memories and go by their names."""
    if against[1] == BASE:
        return MEMORY
    first, second = (configuration_name(*each) for each in (key, against))
    return Names(f"with {first}", f"with {second}", second_saw=True)


#: Pixels, as on a phone: on a wide screen the words stand farther apart, but never in each other.
_WIDTH, _HEIGHT = 340, 460
_SEED = 26
#: How far the axis goes, in units of the farthest dot.
_LONGEST = 2.5


def word_bars(
    table: pd.DataFrame,
    most: int = 15,
    mark: str = "",
    title: str = "Words with and without memory",
    names: Names = MEMORY,
) -> go.Figure:
    """The phrases of `word_table` that tell the sides apart most (by z), `most` of each, with the interval of delta
    by users; hollow where there is none."""
    known = table.dropna(subset="delta")
    first = known[known["delta"] > 0].sort_values("z", ascending=False).head(most)
    second = known[known["delta"] < 0].sort_values("z", ascending=False).tail(most)
    return _dots(pd.concat([first, second]), mark, title, names)


def word_list(
    table: pd.DataFrame, mark: str = "", title: str = "Words named before counting", names: Names = MEMORY
) -> go.Figure:
    """All rows of `paper_words` in their order, drawn as `word_bars`."""
    return _dots(table, mark, title, names)


def word_cloud(
    table: pd.DataFrame, side: Side, mark: str = "", title: str = "", most: int = 60, names: Names = MEMORY
) -> go.Figure:
    """The phrases that are more frequent on one side, the larger the more they tell it (z), `most` at most.

    Places are the `wordcloud` package's, the same at every call; words are text of the figure's own font. Nothing more
    frequent there: an empty figure.
    """
    known = table.dropna(subset="delta")
    mine = known[known["delta"] > 0] if side == "with" else known[known["delta"] < 0]
    cells = {str(cell["word"]): cell for cell in mine.to_dict("records")}
    weights = {word: abs(float(cell["z"])) for word, cell in cells.items() if cell["z"]}
    drawing = Drawing()
    placed = _layout(weights, most) if weights else []
    drawing.add(
        "scatter",
        x=[x for _, x, _, _ in placed],
        y=[-y for _, _, y, _ in placed],
        mode="text",
        text=[theme.escape(word) for word, _, _, _ in placed],
        textposition="middle center",
        textfont={"size": [size for _, _, _, size in placed], "color": COLOURS[side]},
        customdata=[_hover(cells[word], names) for word, _, _, _ in placed],
        hovertemplate="%{customdata}<extra></extra>",
        showlegend=False,
        cliponaxis=False,
    )
    drawing.x(visible=False, showgrid=False, zeroline=False, range=[0, _WIDTH])
    drawing.y(visible=False, showgrid=False, zeroline=False, range=[-_HEIGHT, 0])
    return drawing.figure(title or _first_large(names.label(side)), mark, height=_HEIGHT + 70, legend=False)


def _dots(rows: pd.DataFrame, mark: str, title: str, names: Names) -> go.Figure:
    drawing = Drawing()
    dots = []
    for cell in rows.to_dict("records"):
        side: Side = "with" if not cell["delta"] < 0 else "without"
        look = {"colour": COLOURS[side], "group": theme.escape(names.label(side)), "symbol": _SYMBOLS[side]}
        hover = _hover(cell, names)
        dots.append(Dot(theme.escape(cell["word"]), cell["delta"], cell["low"], cell["high"], hover, **look))
    add_dots(drawing, dots)
    drawing.upright(0.0, {"color": theme.GREY, "width": 1.5})
    drawing.x(title=f"log odds ratio; right: {theme.escape(names.label('with'))}", **_reach(rows))
    height = 160 + ROW * max(len(dots), 2)
    return drawing.figure(title, mark, height=height, legend=legend_below(height, 70))


def _reach(rows: pd.DataFrame) -> dict[str, Any]:
    """A range that shows all dots; the intervals of phrases that few say may leave it (their ends are on hover)."""
    widest = float(rows["delta"].abs().max()) if len(rows) else math.nan
    ends = rows[["low", "high"]].abs().to_numpy(dtype=np.float64)
    longest = float(np.nanmax(ends, initial=0.0)) if len(rows) else 0.0
    if math.isnan(widest) or longest <= _LONGEST * widest:
        return {}
    return {"range": [-_LONGEST * widest, _LONGEST * widest]}


def _hover(cell: dict[Any, Any], names: Names) -> str:
    if pd.isna(cell["delta"]):
        return f"<b>{theme.escape(cell['word'])}</b><br>{cell['reason']}"
    by_users = (
        f"no interval by users: {cell['reason']}"
        if pd.isna(cell["low"])
        else f"by users {signed(cell['low'])} to {signed(cell['high'])}, {theme.chance(cell['p'])}, "
        f"adjusted {theme.chance(cell['p_adjusted'])}"
    )
    source = "memories" if cell["delta"] > 0 or names.second_saw else "memories it didn't see"
    first, second = theme.escape(names.first), theme.escape(names.second)
    return (
        f"<b>{theme.escape(cell['word'])}</b><br>{first} {cell['count_with']} times in {cell['responses_with']} "
        f"responses, {second} {cell['count_without']} in {cell['responses_without']}; {theme.users(cell['users'])}<br>"
        f"per 1,000: {cell['per_1000_with']:.2f} and {cell['per_1000_without']:.2f}<br>"
        f"log odds ratio {signed(cell['delta'])}, z {signed(cell['z'])}<br>{by_users}<br>"
        f"it also stands in the {source}: {theme.share(cell['from_memories'])} of times, "
        f"in the question: {theme.share(cell['from_question'])}"
    )


def signed(value: float) -> str:
    """Log odds or z, e.g. `+1.25`, `−0.40`, `0.00`."""
    if pd.isna(value):
        return theme.MISSING
    return "0.00" if round(value, 2) == 0 else f"{value:+.2f}".replace("-", "−")


def _first_large(text: str) -> str:
    return text[:1].upper() + text[1:]


def _layout(weights: dict[str, float], most: int) -> list[tuple[str, float, float, int]]:
    """Word, centre (from the top left) and size in pixels of each word that has room."""
    # Loading it takes half a second, which no other page should wait for.
    from PIL import ImageFont
    from wordcloud import WordCloud

    cloud = WordCloud(
        width=_WIDTH,
        height=_HEIGHT,
        max_words=most,
        prefer_horizontal=1.0,
        relative_scaling=0.6,
        min_font_size=11,
        max_font_size=32,
        margin=5,
        random_state=_SEED,
        collocations=False,
    ).generate_from_frequencies(weights)
    placed = []
    for (word, _), size, (top, left), _, _ in cloud.layout_:
        font = ImageFont.truetype(cloud.font_path, size)
        _, _, width, height = font.getbbox(word, anchor="lt")
        placed.append((str(word), left + width / 2, top + height / 2, int(size)))
    return placed
