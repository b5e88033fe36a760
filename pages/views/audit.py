"""The published averages against the three rules, as in `opbench audit`, and what one rule does to the ranking."""

from typing import Any

import pandas as pd
import streamlit as st

from opbench.analysis import audit
from opbench.analysis.aggregate import RULE_TEXTS, Rule
from opbench.figures import theme
from opbench.figures.ranking import drop_ranking, moved
from pages.shared import parts, view

#: Candidate rule to its residual's column in `audit.audit()`.
RESIDUALS = {name: f"{rule}/{scope} residual" for name, (rule, scope) in audit.CANDIDATES.items()}


@st.cache_data(max_entries=1)
def rows() -> pd.DataFrame:
    return audit.audit()


@st.cache_data(max_entries=6)
def ranking(rule: Rule, scope: audit.Scope) -> pd.DataFrame:
    return audit.ranking(rule, scope)


@st.cache_data(max_entries=6)
def changes(rule: Rule, scope: audit.Scope) -> pd.DataFrame:
    return audit.changes_table(rule, scope)


def show_rows() -> None:
    parts.heading("Which rule made which average")
    frame = rows()
    fitting = frame[frame["verdict"] == "fits"]
    by_rule = ", ".join(f"{count} by {name}" for name, count in fitting["best"].value_counts().items())
    parts.remark(
        f"Recomputed from the printed sub-scores: {len(fitting)} of {len(frame)} rows fit a rule within "
        f"{audit.FITS_WITHIN} points ({by_rule}). The others are nearest to the task mean. "
        "The last columns are recomputed minus published, in points."
    )
    shown = frame.assign(memory=frame["memory"].replace(theme.NAMES), verdict=frame["verdict"] + " " + frame["best"])
    columns: dict[str, Any] = {
        "model": "model",
        "memory": "memory",
        "published": st.column_config.NumberColumn("published", format="%.2f", help="AVG.(OP) of table 2, points"),
        "verdict": st.column_config.TextColumn("made by", help="fits: within 0.02 points; nearest: no rule fits"),
    }
    for name, column in RESIDUALS.items():
        columns[column] = st.column_config.NumberColumn(
            name, format="%+.3f", help="Residual: recomputed minus published, points"
        )
    columns["also_fits"] = st.column_config.TextColumn("also fits", help="Other rules within 0.02 points")
    parts.table(shown, columns, "audit", frame)
    with st.expander("The rules"):
        for rule, text in RULE_TEXTS.items():
            st.markdown(f"- **{rule}**: {text}")
        st.markdown(
            "- **first speakers**: the counts of the first speaker of each conversation only, 859 of the 1,700 "
            "instances, as the public evaluator takes them by default. It makes a difference to *instance* alone."
        )


def show_ranking(current: view.View) -> None:
    scope: audit.Scope = "first" if current.first_only else "all"
    first = ", first speakers" if current.first_only else ""
    parts.heading("What one rule for all rows does to the ranking")
    frame, pairs = ranking(current.rule, scope), changes(current.rule, scope)
    st.markdown(
        f"By **{current.rule}**{first}, **{len(pairs)} of {audit.PAIRS} pairs** of rows change their order. "
        "The sidebar's rule and speakers re-rank this live."
    )
    picture, numbers = st.columns([11, 10], gap="small")
    with picture:
        mark = f"{theme.provenance(published=True)} · recomputed by {current.rule}{first}"
        parts.chart(
            drop_ranking(frame, f"{current.rule}{first}", mark, "Drop below BASE, greatest first"),
            "drop-ranking",
            "Drop below BASE by row, as printed and recomputed by one rule; the table holds the same numbers",
        )
    with numbers:
        shown = frame.assign(memory=frame["memory"].replace(theme.NAMES), moved=frame["moved"].map(moved))
        columns = {
            "place": st.column_config.NumberColumn("place", help="1 is the greatest drop, recomputed", width=55),
            "model": "model",
            "memory": st.column_config.TextColumn("memory", width=70),
            "drop": st.column_config.NumberColumn("drop", format="%.1f %%", help="Recomputed by the rule", width=65),
            "published_drop": st.column_config.NumberColumn(
                "printed", format="%.1f %%", help="As the paper prints it", width=65
            ),
            "moved": st.column_config.TextColumn("moved", width=55, help="Places up or down against the printed order"),
            "swaps": st.column_config.NumberColumn(
                "pairs", width=50, help="Rows against which the order is another one"
            ),
        }
        parts.table(shown, columns, "drop-ranking", frame)
    parts.heading("The pairs that change their order")
    if pairs.empty:
        st.info("None: this rule keeps the printed order.", icon=":material/info:")
        return
    columns = {
        "first": st.column_config.TextColumn("A, printed as the greater drop"),
        "second": st.column_config.TextColumn("B, printed as the smaller"),
        "first_published": st.column_config.NumberColumn("A printed", format="%.1f %%"),
        "second_published": st.column_config.NumberColumn("B printed", format="%.1f %%"),
        "first_recomputed": st.column_config.NumberColumn("A recomputed", format="%.1f %%"),
        "second_recomputed": st.column_config.NumberColumn("B recomputed", format="%.1f %%"),
        "by": st.column_config.NumberColumn("apart by", format="%.1f", help="Percentage points, recomputed"),
    }
    shown = pairs.assign(first=pairs["first"].map(written), second=pairs["second"].map(written))
    parts.table(shown, columns, "drop-pairs", pairs)


def written(row: str) -> str:
    """`gpt-4o-mini mem0` as people write it."""
    model, memory = row.rsplit(" ", 1)
    return f"{model} {theme.NAMES.get(memory, memory)}"


parts.title("By which rule were the published averages made?")
looked_at = view.current()
parts.published_marks()
st.markdown(
    "The paper's table 2 averages six sub-scores into one, and doesn't say how. Recomputing shows that its rows "
    "follow three different rules, so a published drop may compare two averages of different kinds."
)
if looked_at.status is not None:
    st.caption("This page is about the published table; the chosen run takes no part in it.")
show_ranking(looked_at)
show_rows()
parts.published_provenance("The same numbers: `opbench audit`, and `opbench audit --rule task-mean` for the ranking.")
