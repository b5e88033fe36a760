"""A prompt's tokens on a ground as deep as the attention on them. Texts reach the browser as text, never as markup."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
import streamlit as st

from opbench.sharing.sheet import Words
from opbench.sharing.visible import visible
from pages.shared import collecting

#: Doublings of the even share at which the ground is deepest.
_DEEPEST = 4.0
_CSS = """
.prompt { font-family: var(--st-code-font); font-size: 0.82rem; line-height: 1.75; overflow-wrap: anywhere;
  white-space: pre-wrap; max-height: 28rem; overflow-y: auto; color: var(--st-text-color);
  border: 1px solid var(--st-border-color); border-radius: 0.5rem; padding: 0.6rem; }
.sign { border-radius: 0.15rem; padding: 0.1rem 0; }
.memory { border-bottom: 2px solid #E69F00; }
.query { border-bottom: 2px solid #0072B2; }
.scale { font-size: 0.78rem; color: var(--st-text-color); margin-bottom: 0.4rem; display: flex; gap: 0.35rem;
  flex-wrap: wrap; align-items: center; }
.scale span { padding: 0.1rem 0.4rem; }
"""
# Only textContent takes what comes from models and files.
_JS = """
export default function (component) {
  const { data, parentElement } = component;
  const ground = (level) => `rgba(128, 115, 172, ${(0.75 * level).toFixed(3)})`;
  const scale = parentElement.querySelector(".scale");
  const place = parentElement.querySelector(".prompt");
  scale.replaceChildren();
  place.replaceChildren();
  const put = (parent, text, css, level, title) => {
    const sign = document.createElement("span");
    sign.className = css;
    sign.textContent = text;
    if (level !== null) sign.style.backgroundColor = ground(level);
    if (title) sign.title = title;
    parent.appendChild(sign);
  };
  for (const [text, css, level] of data.legend) put(scale, text, css, level, "");
  for (const [text, segment, level, title] of data.signs) put(place, text, `sign ${segment}`, level, title);
  place.setAttribute("aria-label", data.label);
}
"""
_HTML = '<div class="scale"></div><div class="prompt" role="region" tabindex="0"></div>'
_UNDERLINED = ("memory", "query")


def show(tokens: pd.DataFrame, label: str, key: str) -> None:
    """Draw `opbench.analysis.attention.token_weights`. `label` says what it is, for who listens instead of looking."""
    signs = [
        (
            visible(row["text"]),
            row["segment"] if row["segment"] in _UNDERLINED else "",
            _level(row["times"]),
            f"{row['segment']}: {row['times']:.2f} times the even share, {100 * row['weight']:.2f} % of attention",
        )
        for row in tokens.to_dict("records")
    ]
    steps = [(0.5, "half"), (1.0, "even share"), (2.0, "2×"), (4.0, "4×"), (8.0, "8×"), (16.0, "16× and more")]
    legend: list[Any] = [["a token's attention:", "", None]]
    legend += [[text, "", _level(times)] for times, text in steps]
    legend += [["memory", "memory", None], ["query", "query", None]]
    collecting.add(Words(label, "".join(visible(text) for text in tokens["text"])))
    part = st.components.v2.component("opbench_token_weights", html=_HTML, css=_CSS, js=_JS)
    part(data={"signs": signs, "legend": legend, "label": label}, key=key)


def _level(times: float) -> float:
    """0 for half the even share or less, 1 for sixteen times and more, even steps between doublings."""
    if pd.isna(times) or times <= 0:
        return 0.0
    return min(1.0, max(0.0, (math.log2(times) + 1.0) / (_DEEPEST + 1.0)))
