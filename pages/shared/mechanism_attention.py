"""The Mechanism page's section on attention: how much goes to memory and how much to the query, and over the text."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from opbench.analysis import attention as analysis
from opbench.analysis import attention_changes
from opbench.analysis.attention import Position, Readings
from opbench.analysis.grids import KEY
from opbench.analysis.postprocessing import failures
from opbench.figures import attention as figures
from opbench.figures import theme
from opbench.figures.attention_answers import attention_answers, left_without, said
from opbench.mechanism.attention import DEFINITION
from opbench.sharing.sheet import Text
from opbench.store import attention as kept
from opbench.store.reading import RunStatus
from opbench.store.rundata import RunData
from opbench.study import BASE, NO_MITIGATION
from pages.shared import answering, collecting, link, mechanism_tokens, parts, results
from pages.shared.mechanism_filters import Looked

POSITIONS: dict[str, str] = {"response": "the whole response", "onset": "its first token"}
_POSITIONS: tuple[Position, ...] = ("response", "onset")
PUBLISHED = (
    "Published, of another model and by another definition: with Qwen3-8B “the average memory-to-query attention "
    f"ratio consistently exceeds 2×” ({parts.PAPER}, section 4.3; it prints no other number and no formula)."
)
Seen = tuple[str, int, float]
"""A reader, how many records it has read and when the last: changes when there is more to read."""


@st.cache_resource(max_entries=4, show_spinner="Reading what was measured…")
def _stored(run_id: str, seen: Seen) -> kept.AttentionData:
    return kept.read_attention(results.opened().store, run_id, seen[0])


@st.cache_resource(max_entries=16, show_spinner="Choosing…")
def _chosen(
    run_id: str, stamp: results.Stamp, seen: Seen, position: Position, looked: Looked, unfailed: bool
) -> Readings:
    """What is looked at; shared by all visitors and read only."""
    readings = Readings.of(_stored(run_id, seen), position)
    readings = readings.where(looked.mask(readings.records, results.run_data(run_id, stamp)))
    return readings.unfailed() if unfailed else readings


@st.cache_data(max_entries=16, show_spinner="Working out the ratios…")
def _tables(run_id: str, *chosen: Any) -> dict[str, pd.DataFrame]:
    readings = _chosen(run_id, *chosen)
    return {
        "ratios": analysis.ratios(readings),
        "tasks": analysis.ratios(readings, ("subtype",)),
        "layers": analysis.ratios_by_layer(readings),
        "shares": analysis.shares(readings),
        "changes": attention_changes.changes(readings),
    }


def readers(run_id: str) -> list[kept.Reader]:
    """Who has read records of the run, the latest first."""
    return kept.readers(results.opened().store, run_id)


def show(status: RunStatus, data: RunData, looked: Looked) -> None:
    """All of the section; what there is to do where nothing is measured, the page says below it."""
    found = readers(status.run_id)
    if not found:
        st.info(
            "Attention isn't measured for this run yet: nothing can be said about it. It is measured for a slice, "
            "under “Measuring”.",
            icon=":material/hourglass_empty:",
        )
        return
    with st.container(horizontal=True, vertical_alignment="bottom"):
        by_name = {each.name: each for each in found}
        name = link.one_of("Reading model", list(by_name), "reader", width=330)
        position = link.one_of("Attention of", _POSITIONS, "position", kind="segmented", names=POSITIONS)
        unfailed = link.switch(
            "Only where the post-processor didn't fail",
            "unfailed",
            help="Where it failed, the prompt is that of no post-processor.",
        )
    reader = by_name[name]
    key = (
        status.run_id,
        results.stamp(status),
        (name, reader.records, reader.last_at),
        position,
        looked,
        unfailed,
    )
    readings = _chosen(*key)
    _rests_on(readings, name, position, unfailed)
    if not len(readings):
        st.info("None of the records that were read is among what is looked at.", icon=":material/filter_alt_off:")
        return
    tables = _tables(*key)
    mark = theme.provenance(comparable=False)
    answering.say(attention_answers(tables["ratios"], tables["changes"]))
    parts.remark(PUBLISHED)
    _by_configuration(tables["ratios"])
    _by_task(tables["tasks"], mark)
    _changes(tables["changes"], mark)
    _shares(tables["shares"], position, mark)
    _by_layer(tables["layers"], mark)
    _by_head(readings, mark)
    _over_the_text(readings, name)
    definition()


def definition() -> None:
    """What is measured and how it is averaged, in full."""
    collecting.add(Text(DEFINITION))
    averaging = analysis.__doc__.partition("\n\n")[2] if analysis.__doc__ else ""
    collecting.add(Text(averaging))
    with st.expander("Definition, normalisation and what it can't tell", icon=":material/info:"):
        st.markdown(DEFINITION)
        st.markdown(f"**Averaging.** {averaging}")


def _rests_on(readings: Readings, reader: str, position: Position, unfailed: bool) -> None:
    """Whose reading it is, of how much, and how far it is what the model of the run did."""
    frame = readings.records
    own = int(frame["own"].sum()) if len(frame) else 0
    marks = [
        f"reading model: {reader}",
        f"{_counted(len(frame), 'record')} read",
        f"of {_counted(frame['instance'].nunique(), 'instance')}",
        theme.users(frame["user"].nunique()),
        f"attention of {POSITIONS[position]}",
        *(["without failed post-processing"] if unfailed else []),
    ]
    if not own:
        whose = "another model's reading"
    elif own == len(frame):
        whose = "the model that answered"
    else:
        whose = f"another model's reading of {len(frame) - own:,}"
    collecting.sheet().marks += [*marks, whose]
    with st.container(horizontal=True, gap="small"):
        for each in marks:
            st.badge(parts.plain(each), color="gray")
        if len(frame):
            answered = own == len(frame)
            icon = ":material/check:" if answered else ":material/visibility:"
            st.badge(whose, color="green" if answered else "orange", icon=icon)
    if len(frame) > 0 and own < len(frame):
        parts.remark(
            f"{len(frame) - own:,} of {len(frame):,} responses came from another model (or other weights) than the one "
            "that reads: this is what the reading model does with them, not what the answering model did."
        )
    told = frame[frame["own"].astype(bool) & frame["told_tokens"].notna()] if len(frame) else frame
    if len(told):
        alike = int((told["told_tokens"] == told["prompt_tokens"]).sum())
        parts.remark(
            f"Prompts as read have as many tokens as the endpoint counted when it answered in {alike:,} of "
            f"{len(told):,} records."
        )
    failed = failures(frame) if len(frame) else pd.DataFrame()
    if len(failed) and not unfailed:
        names = ", ".join(
            f"{figures.configuration_name(row['model'], row['memory'], row['mitigation'])} "
            f"{theme.scored(row['failed'], row['n'])}"
            for row in failed.to_dict("records")
        )
        parts.remark(f"Post-processing failed, and left the prompt as without it, in: {names} records.")


def _counted(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def _by_configuration(frame: pd.DataFrame) -> None:
    columns = _columns(frame) | _ratio_columns()
    if frame["failed"].notna().any():
        columns["failed"] = st.column_config.NumberColumn("failed", help="Records whose post-processing failed")
    parts.table(_told(frame), columns, "attention-ratio", frame)
    if sentence := left_without(frame):
        parts.remark(sentence)


def _by_task(frame: pd.DataFrame, mark: str) -> None:
    parts.heading("By task")
    if not _any(frame):
        return
    parts.chart(
        figures.ratio_by_task(frame, mark),
        "attention-by-task",
        "Attention per token on memory against the query, by subtype and configuration; the table has the numbers",
    )
    parts.remark(f"{figures.EVEN[0].upper()}{figures.EVEN[1:]}. Points are geometric means over instances.")
    with st.expander("The figure's numbers", icon=":material/table:"):
        shown = _told(frame).assign(subtype=[theme.name(each) for each in frame["subtype"]])
        columns = _columns(frame) | {"subtype": "subtype"} | _ratio_columns()
        parts.table(shown, columns, "attention-by-task", frame)


def _changes(frame: pd.DataFrame, mark: str) -> None:
    parts.heading("With memory, with a post-processor, with random memories")
    if frame.empty:
        parts.remark(
            "Nothing can be paired: that takes BASE, another post-processor or random memories beside what was read."
        )
        return
    if (frame["factor"].astype(bool) & frame["value"].notna()).any():
        parts.chart(
            figures.change_factors(frame, mark),
            "attention-changes",
            "Paired changes of attention as factors with their intervals; the table has these and changes of shares",
        )
    rows = frame.to_dict("records")
    several = frame["model"].nunique() > 1
    names = [figures.change_name(row, several_models=several).partition(": ") for row in rows]
    shown = frame.assign(
        compared=[name[0] for name in names],
        measured=[name[2] for name in names],
        change=[said(row) for row in rows],
        within=[_within(row) for row in rows],
    )
    columns: dict[str, Any] = {
        "compared": st.column_config.TextColumn("what", width="medium"),
        "measured": "measured",
        "change": st.column_config.TextColumn("change", help="A factor (×), or points of all attention"),
        "within": st.column_config.TextColumn("95 %", help="Over users drawn anew"),
        "p_holm": st.column_config.NumberColumn(
            "adjusted p", format="%.4f", help="Holm's, over changes of one kind and measure; random memories apart"
        ),
        "n": st.column_config.NumberColumn("paired n", help="Instances that were read of both"),
        "n_users": st.column_config.NumberColumn("users"),
        "reason": "no interval because",
    }
    if not frame["reason"].any():
        del columns["reason"]
    parts.table(shown, columns, "attention-changes", frame)
    parts.remark(
        "Hollow: no interval. Both sides of a change are over the same instances. Attention sums to 1, so a longer "
        "prompt leaves less for each token whatever it says; random memories are as many in the same place, and are "
        "the control for that."
    )


def _shares(frame: pd.DataFrame, position: Position, mark: str) -> None:
    parts.heading("Where the attention goes")
    parts.chart(
        figures.segment_shares(frame, mark, unit=f"share of the attention of {POSITIONS[position]}, mean"),
        "attention-shares",
        "Shares of attention by segment of the prompt, a bar a configuration; the table has the numbers",
    )
    parts.remark(
        "Shares aren't length-normalised: a longer segment gets more. BASE's prompt has no memory. The very first "
        "token attracts attention whatever it is, and stands apart."
    )
    with st.expander("The figure's numbers", icon=":material/table:"):
        shown = _told(frame).assign(
            share=100 * frame["value"],
            within=[
                theme.MISSING if pd.isna(low) else f"{100 * low:.1f} to {100 * high:.1f} %"
                for low, high in zip(frame["low"], frame["high"], strict=True)
            ],
        )
        number = st.column_config.NumberColumn
        columns = _columns(frame) | {
            "segment": "segment",
            "share": number("share", format="%.1f %%"),
            "within": st.column_config.TextColumn("95 %", help="Over users drawn anew"),
            "tokens": number("tokens", format="%.0f", help="Mean"),
            "n": number("n"),
            "n_users": number("users"),
        }
        parts.table(shown, columns, "attention-shares", frame)


def _by_layer(frame: pd.DataFrame, mark: str) -> None:
    parts.heading("By layer and head")
    if not _any(frame):
        return
    parts.chart(
        figures.ratio_by_layer(frame, mark),
        "attention-by-layer",
        "Attention per token on memory against the query over the layers, a line a configuration",
    )
    with st.expander("The figure's numbers", icon=":material/table:"):
        columns = _columns(frame) | {"layer": st.column_config.NumberColumn("layer")} | _ratio_columns(read=False)
        parts.table(_told(frame), columns, "attention-by-layer", frame)


def _by_head(readings: Readings, mark: str) -> None:
    chosen = _pick(readings, "heads-of", "Heads of", with_memory=True)
    if chosen is None:
        return
    name, part = chosen
    frame = analysis.ratios_by_head(part)
    if frame["ratio"].isna().all():
        parts.remark(f"{name} has no memory in any prompt that was read, and so no ratio.")
        return
    parts.chart(
        figures.ratio_by_head(frame, mark, f"Attention per token, by head: {name}"),
        "attention-by-head",
        f"Attention per token on memory against the query by layer and head, of {name}",
    )
    parts.remark("Heads have no intervals: a colour is a geometric mean over instances, and of many some stand out.")
    with st.expander("The figure's numbers", icon=":material/table:"):
        shown = frame.assign(ratio=[figures.times(each) for each in frame["ratio"]])
        parts.table(shown, {"layer": "layer", "head": "head", "ratio": "ratio", "n": "n"}, "attention-by-head", frame)


def _over_the_text(readings: Readings, reader: str) -> None:
    parts.heading("Over one prompt's text")
    chosen = _pick(readings, "tokens-of", "Prompt of", with_memory=False)
    if chosen is None:
        return
    name, part = chosen
    instance = link.one_of("Instance", part.records["instance"].tolist(), "tokens-at", width=380)
    record = int(part.records.loc[part.records["instance"] == instance, "record"].iloc[0])
    words = kept.words(results.opened().store, record, reader)
    if words is None:
        parts.remark("This record was made again since it was read: measure it again.")
        return
    if words.texts is None:
        parts.remark("The prompt's texts weren't kept when this record was read, only its numbers.")
        return
    tokens = analysis.token_weights(words)
    mechanism_tokens.show(tokens, f"Attention over the prompt of {name} for {instance}", "tokens")
    parts.remark(
        "Averaged over layers, heads and the response's tokens. The even share is what each token would get if all of "
        "the prompt's were alike. Underlined: memory (orange) and query (blue)."
    )
    with st.expander("Token by token, as a table", icon=":material/table:"):
        number = st.column_config.NumberColumn
        columns: dict[str, Any] = {
            "token": number("token"),
            "segment": "segment",
            "text": "text",
            "share": number("share", format="%.2f %%", help="Of all attention of the response's tokens"),
            "times": number("times even share", format="%.2f"),
        }
        parts.table(tokens.assign(share=100 * tokens["weight"]), columns, "attention-tokens", tokens, ("text",))


def _pick(readings: Readings, key: str, label: str, *, with_memory: bool) -> tuple[str, Readings] | None:
    """The readings of one configuration: by default the first memory system's without post-processor."""
    frame = readings.records
    keys = list(frame[KEY].drop_duplicates().itertuples(index=False, name=None))
    keys = [each for each in keys if not with_memory or each[1] != BASE]
    if not keys:
        return None
    several = frame["model"].nunique() > 1
    by_name = {figures.configuration_name(*each, several_models=several): each for each in keys}
    plain = [name for name, each in by_name.items() if each[1] != BASE and each[2] == NO_MITIGATION]
    name = link.one_of(label, list(by_name), key, default=(plain or list(by_name))[0], width=300)
    mask = (frame[KEY].to_numpy() == list(by_name[name])).all(axis=1)
    return name, readings.where(mask)


def _any(frame: pd.DataFrame) -> bool:
    """Whether there is a ratio; if not, that is said."""
    if len(frame) and frame["value"].notna().any():
        return True
    parts.remark("There is no ratio: no prompt that was read has memory in it.")
    return False


def _told(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with names as people write them and its ratios as text."""
    rows = frame.to_dict("records")
    return parts.named(frame).assign(
        ratio=[figures.times(row["value"]) for row in rows], within=[_within(row, factor=True) for row in rows]
    )


def _within(row: dict[Any, Any], *, factor: bool | None = None) -> str:
    if pd.isna(row["low"]):
        return theme.MISSING
    if row.get("factor", factor):
        return f"{figures.times(row['low'])} to {figures.times(row['high'])}"
    return theme.span(100 * row["low"], 100 * row["high"])


def _columns(frame: pd.DataFrame) -> dict[str, Any]:
    columns: dict[str, Any] = {"memory": "memory", "mitigation": "post-processor"}
    return {"model": "model"} | columns if frame["model"].nunique() > 1 else columns


def _ratio_columns(*, read: bool = True) -> dict[str, Any]:
    number, text = st.column_config.NumberColumn, st.column_config.TextColumn
    columns: dict[str, Any] = {
        "ratio": text("memory : query", help="Attention per token; geometric mean over instances"),
        "within": text("95 %", help="Over users drawn anew"),
        "n": number("n", help="Instances with memory in the prompt"),
        "n_users": number("users"),
        "read": number("read", help="Records that were read"),
        "reason": text("no interval because"),
    }
    if not read:
        del columns["read"]
    return columns
