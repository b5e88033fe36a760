"""One record drawn: the response, the memories on their way to it, the judge, the times, the calls."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pandas as pd
import streamlit as st

from opbench.analysis.fates import MEANINGS, Fate, fates
from opbench.analysis.words import word_marks
from opbench.figures import theme
from opbench.sharing.sheet import Column, Data
from opbench.sharing.visible import one_line, visible
from opbench.store.record import Judgement, Record
from pages.shared import collecting, parts, texts, wording

_COLOURS = {
    "kept": "green",
    "restored": "green",
    "altered": "orange",
    "merged": "orange",
    "dropped": "gray",
    "added": "red",
}
_ICONS = {
    "kept": "check",
    "restored": "check",
    "altered": "edit",
    "merged": "merge",
    "dropped": "block",
    "added": "add",
}
_STAGES = {"retrieval": "memory retrieval", "post": "post-processing", "response": "response"}
_LONGEST_CELL = 400


def name_of(record: Record) -> str:
    """The configuration as people write it, plain."""
    model, memory, mitigation = record.key
    return f"{model} · {theme.NAMES.get(memory, memory)} · {theme.NAMES.get(mitigation, mitigation)}"


def asked(record: Record) -> None:
    """What was asked, and LoCoMo's right answer."""
    with st.container(border=True):
        absent = "The texts were left out of this recorded study: ids and numbers are all there is."
        texts.show("Question", record.question, "question", absent)
        if record.benchmark == "locomo" and not record.text_left_out:
            none = "none: the conversation doesn't tell it, and to say so is right"
            texts.show("Right answer (LoCoMo)", record.answer, "answer", none)


def draw(record: Record, other: Record | None, side: str) -> None:
    """A record; what differs from `other` is marked. `side` tells the two on a page apart."""
    st.subheader(parts.plain(name_of(record)), anchor=False)
    if not record.made:
        st.info("This record isn't made yet.", icon=":material/hourglass_empty:")
        return
    _badges(record)
    values = record.values
    if values["status"] == "error":
        kind = values["error_kind"] or "not told"
        st.error(f"No response. {parts.plain(kind)}: {parts.plain(visible(values['error'] or 'no reason kept'))}")
    else:
        left_out = "left out of this recorded study" if record.text_left_out else "none"
        theirs = None if other is None else other.response
        texts.show_beside("Response", record.response, theirs, f"response-{side}", left_out)
    if values["draft"] is not None:
        with st.expander("Draft and critique (the post-processor revises)"):
            texts.show_beside("Draft", values["draft"], record.response, f"draft-{side}")
            texts.show("Critique", values["critique"], f"critique-{side}")
    _memories(record, side)
    _judged(record, side)
    _spent(record, side)


def _badges(record: Record) -> None:
    values = record.values
    with st.container(horizontal=True, gap="small"):
        for judgement in record.judgements:
            st.badge(f"{parts.plain(judgement.metric)} {_number(judgement.value)}", color="violet")
        if record.subtype == "repetition":
            value = None if record.user_score is None else record.user_score.value
            st.badge(f"repetition of the user {_number(value)}", color="violet")
        if values["status"] == "error":
            st.badge("failed", icon=":material/error:", color="red")
        if values["state"]:
            colour = {"failed": "red", "nothing": "orange"}.get(values["state"], "green")
            st.badge(f"post-processor: {parts.plain(values['state'])}", color=colour)  # type: ignore[arg-type]
        if values["finish_reason"] not in (None, "stop"):
            st.badge(f"ended by: {parts.plain(values['finish_reason'])}", color="orange")


def _memories(record: Record, side: str) -> None:
    values = record.values
    found = fates(values["retrieved"], values["context"])
    if record.key[1] == "base":
        st.caption("BASE retrieves no memories.")
        return
    if record.text_left_out:
        st.caption("The memories were left out of this recorded study.")
        return
    if values["retrieved"] is None:
        st.caption("No memories were retrieved: the record failed before.")
        return
    kept = sum(fate.rank is not None and fate.became != "dropped" for fate in found)
    retrieved = sum(fate.rank is not None for fate in found)
    lines = len(values["context"] or ())
    of = "1 line" if lines == 1 else f"{lines} lines"
    with st.expander(
        f"Memories: {retrieved} retrieved, {kept} kept, {of} in the prompt",
        expanded=True,
    ):
        if values["state_reason"]:
            st.caption(f"Post-processor: {parts.plain(visible(values['state_reason']))}")
        for place, fate in enumerate(found):
            _memory(fate, f"memory-{side}-{place}")
        if not found:
            st.caption("The search found none.")
    frame = pd.DataFrame(
        [
            {
                "rank": fate.rank,
                "became": fate.became,
                "date": fate.date,
                "similarity": fate.similarity,
                "memory": fate.text,
                "in the prompt": "\n".join(fate.lines),
            }
            for fate in found
        ]
    )
    if len(frame):
        _collect(f"memories-{side}", frame, "memory", "in the prompt")


def _memory(fate: Fate, key: str) -> None:
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        icon = f":material/{_ICONS[fate.became]}:"
        st.badge(fate.became, icon=icon, color=_COLOURS[fate.became], help=MEANINGS[fate.became])  # type: ignore[arg-type]
        similarity = "" if fate.similarity is None else f"similarity {fate.similarity:.3f}"
        date = "" if fate.date is None else visible(fate.date)
        st.caption(
            parts.plain(" · ".join(part for part in (f"#{fate.rank}" if fate.rank else "", date, similarity) if part))
        )
    line = "\n".join(fate.lines)
    if fate.became in ("altered", "merged") and fate.text is not None:
        before, after = word_marks(visible(fate.text), visible(line))
        st.markdown(texts.marked(before))
        st.caption("In the prompt:")
        st.markdown(texts.marked(after))
    else:
        st.text(texts.cut(visible(line if fate.text is None else fate.text), key))


def _judged(record: Record, side: str) -> None:
    rows = [_judgement(each) for each in record.judgements]
    if record.user_score is not None:
        rows.append(_judgement(record.user_score))
    st.markdown("**Judge**")
    if record.subtype == "repetition":
        st.caption(
            f"Repetition is a score of the user {parts.plain(record.user)} over all answers to repetition questions "
            f"({record.user_n} here), so this response has none of its own."
        )
    if not rows:
        why = "a failed record isn't judged" if record.values["status"] == "error" else "not judged yet"
        if record.subtype != "repetition":
            st.caption(f"No score: {why}.")
        return
    frame = pd.DataFrame(rows)
    _table(f"judge-{side}", frame, {"score": st.column_config.NumberColumn("score (0–1)", format="%.3f")}, "reason")
    for judgement in record.judgements:
        if judgement.raw:
            with st.expander(f"Raw answer of the judge ({parts.as_label(judgement.metric)})"):
                texts.show("Raw answer", judgement.raw, f"raw-{side}-{judgement.metric}")


def _judgement(judgement: Judgement) -> dict[str, Any]:
    reason = judgement.reason or ("" if judgement.value is not None else "missing, without a reason")
    return {
        "judge": judgement.judge,
        "metric": judgement.metric,
        "score": judgement.value,
        "reason": one_line(reason, _LONGEST_CELL),
    }


def _spent(record: Record, side: str) -> None:
    values = record.values
    rows = [
        {
            "stage": label,
            "time": theme.milliseconds(values[f"{stage}_ms"]) if values[f"{stage}_ms"] is not None else "–",
            "call": {True: "reused", False: "made", None: ""}[values[f"{stage}_reused"]],
            "tokens in": values.get(f"{stage}_prompt_tokens"),
            "tokens out": values.get(f"{stage}_completion_tokens"),
        }
        for stage, label in _STAGES.items()
    ]
    cost = values["cost_usd"]
    told = "cost unknown" if cost is None else f"cost {wording.dollars(cost)}"
    at = datetime.fromtimestamp(values["finished_at"], UTC).strftime("%Y-%m-%d %H:%M UTC")
    with st.expander("Times, tokens, cost and calls"):
        _table(f"stages-{side}", pd.DataFrame(rows).astype({"tokens in": "Int64", "tokens out": "Int64"}), {})
        st.caption(
            f"{parts.plain(told)}; finished {at}; response taken at concurrency {values['concurrency'] or 'unknown'}."
        )
        if record.calls:
            calls = [
                {
                    "stage": call.stage,
                    "model": call.model,
                    "call": "reused" if call.reused else "made",
                    "time": theme.milliseconds(call.duration_ms),
                    "attempts": call.attempts,
                    "ended by": call.finish_reason,
                    "tokens in": call.prompt_tokens,
                    "tokens out": call.completion_tokens,
                    "made at": datetime.fromtimestamp(call.made_at, UTC).strftime("%Y-%m-%d %H:%M:%S"),
                }
                for call in record.calls
            ]
            _table(f"calls-{side}", pd.DataFrame(calls), {})
            st.caption("“Reused”: made for another record or earlier; it keeps the time it took then.")
        else:
            st.caption("The calls themselves aren't here: a recorded study comes without them.")


def _table(name: str, frame: pd.DataFrame, looks: dict[str, Any], *sentences: str) -> None:
    _collect(name, frame, *sentences)
    st.dataframe(frame, hide_index=True, column_config=looks, placeholder=theme.MISSING, alt=name)


def _collect(name: str, frame: pd.DataFrame, *sentences: str) -> None:
    columns = {column: Column(column) for column in frame.columns}
    collecting.add(Data(name, frame, columns, frame, sentences))


def _number(value: float | None) -> str:
    return theme.MISSING if value is None else f"{value:.2f}"
