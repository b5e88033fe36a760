"""A study's main tables and figures as one sheet: what `opbench report` writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from opbench.analysis.aggregate import RULE_TEXTS, Rule
from opbench.analysis.gap import gap_table
from opbench.analysis.ingested import memory_notes, thin_memories
from opbench.analysis.latency import STAGE_LABELS, latency, retrieval_note
from opbench.analysis.locomo import locomo_notes, locomo_table
from opbench.analysis.op import SUBSCORE_COLUMNS, op_table
from opbench.analysis.tradeoff import UNITS, tradeoff
from opbench.figures import theme
from opbench.figures.gap import oracle_gap
from opbench.figures.latency import latency_bars
from opbench.figures.subtypes import op_by_subtype
from opbench.figures.tradeoff import tradeoff_heatmap
from opbench.sharing.marks import remarks
from opbench.sharing.sheet import Chart, Column, Data, Sheet, Text
from opbench.store.rundata import RunData
from opbench.types import LOCOMO_CATEGORIES

_NAMES = {"model": Column("model"), "memory": Column("memory"), "mitigation": Column("post-processor")}


def report_sheet(data: RunData, rule: Rule, first_only: bool = False, answers: pd.DataFrame | None = None) -> Sheet:
    """Trade-off, oracle gap, OP-Bench by subtype, LoCoMo and latency of a run.

    `answers` (columns of `opbench.store.exchange.ANSWERS`) adds every response as a table.

    Raises:
        UsageError: several judges scored the run.
    """
    sheet = Sheet("report", f"What came of the study “{data.name or data.run_id}”?")
    sheet.marks += _marks(data, rule, first_only)
    sheet.provenance |= provenance(data) | {"rule": rule, "speakers": "first only" if first_only else "all"}
    mark = theme.provenance(recorded=data.recorded, comparable=data.comparable)
    sheet.blocks.append(Text(f"Averaged by the rule {rule}: {RULE_TEXTS[rule]}"))
    for sentence in (*thin_memories(data.provenance, data.study.k), *memory_notes(data.provenance)):
        sheet.blocks.append(Text(sentence))
    _add_tradeoff(sheet, tradeoff(data, rule, "points", first_only), mark)
    _add_gap(sheet, gap_table(data, rule, first_only), mark)
    _add_subtypes(sheet, op_table(data, rule, first_only), mark)
    _add_locomo(sheet, locomo_table(data, None, first_only), locomo_notes(data))
    _add_latency(sheet, latency(data), theme.provenance(recorded=data.recorded), retrieval_note(data))
    if answers is not None:
        _add_answers(sheet, answers)
    return sheet


def provenance(data: RunData) -> dict[str, object]:
    """What a run's numbers rest on (design, rule 4), as JSON values."""
    known = data.provenance
    return {
        "run": data.run_id,
        "judge": data.study.judge,
        "embedder": data.study.embedder,
        "data": str(known.get("data_source", "")),
        "commit": str(known.get("git_commit", "")),
        "texts": "left out" if data.text_left_out else "in the store",
        "study": data.study.model_dump(mode="json"),
        "all": known,
    }


def _marks(data: RunData, rule: Rule, first_only: bool) -> list[str]:
    done = int((data.records["status"] == "done").sum())
    planned = len(data.instances) * len(data.configurations)
    return [
        f"run {data.run_id}",
        "recorded" if data.recorded else "measured",
        f"{done:,} of {planned:,} records",
        f"rule: {rule}",
        *(["first speakers only"] if first_only else []),
        f"judge: {data.study.judge}",
        *([] if data.comparable else ["not comparable with the paper"]),
        *remarks(data.provenance),
    ]


def _named(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(**{name: frame[name].replace(theme.NAMES) for name in ("memory", "mitigation")})


def _of(frame: pd.DataFrame, n: str, planned: str) -> list[str]:
    return [theme.scored(*pair) for pair in zip(frame[n], frame[planned], strict=True)]


def _spans(frame: pd.DataFrame, low: str, high: str) -> list[str]:
    return [theme.span(*pair) for pair in zip(frame[low], frame[high], strict=True)]


def _columns(frame: pd.DataFrame, more: Mapping[str, Column]) -> dict[str, Column]:
    names = _NAMES if frame["model"].nunique() > 1 else {name: _NAMES[name] for name in ("memory", "mitigation")}
    return {**names, **more}


def _worth_a_column(notes: pd.Series) -> bool:
    return bool(set(notes) - {"", "paired", "reference", "oracle"})


def _missing(sheet: Sheet, reasons: Sequence[str]) -> None:
    told = "; ".join(sorted(set(reasons) - {""})) or "nothing is scored yet"
    sheet.blocks.append(Text(f"Nothing to show: {told}."))


def _add_tradeoff(sheet: Sheet, frame: pd.DataFrame, mark: str) -> None:
    sheet.blocks.append(Text("What does a post-processor change, and what does it cost?", heading=True))
    if frame.empty:
        sheet.blocks.append(Text("The study has no post-processor beside a memory system without one."))
        return
    if frame[["op_change", "locomo_change"]].isna().all(axis=None):
        _missing(sheet, [*frame["op_note"], *frame["locomo_note"]])
        return
    figure = tradeoff_heatmap(frame, UNITS["points"], mark, "Change by post-processor")
    sheet.blocks.append(Chart("trade-off", figure, "Change on OP-Bench over change on LoCoMo, in points"))
    shown = _named(frame).assign(
        op_of=_of(frame, "op_n", "op_n_planned"),
        locomo_of=_of(frame, "locomo_n", "locomo_n_planned"),
        op_span=_spans(frame, "op_low", "op_high"),
        locomo_span=_spans(frame, "locomo_low", "locomo_high"),
    )
    columns = {
        "op_change": Column("OP-Bench", "%+.1f", "Change in points against no post-processor"),
        "op_span": Column("95 %", None, "Interval of the change, over users"),
        "op_verdict": Column("verdict", None, "Holm's correction over the post-processors"),
        "op_of": Column("n", None, "Paired instances of those planned"),
        "op_note": Column("remark"),
        "locomo_change": Column("LoCoMo", "%+.1f", "Change in points against no post-processor"),
        "locomo_span": Column("95 %", None, "Interval of the change, over users"),
        "locomo_verdict": Column("verdict", None, "Holm's correction over the post-processors"),
        "locomo_of": Column("n", None, "Paired questions of those planned"),
        "locomo_note": Column("remark"),
        "locomo_metric": Column("LoCoMo metric"),
    }
    columns = {name: each for name, each in columns.items() if "note" not in name or _worth_a_column(frame[name])}
    sheet.blocks.append(Data("trade-off", shown, _columns(frame, columns), frame))


def _add_gap(sheet: Sheet, frame: pd.DataFrame, mark: str) -> None:
    sheet.blocks.append(Text("How near does it come to an agent without memories?", heading=True))
    if frame["op"].isna().all():
        _missing(sheet, frame["missing"].tolist())
        return
    figure = oracle_gap(frame, mark, "OP-Bench average against the oracle")
    sheet.blocks.append(Chart("oracle-gap", figure, "OP-Bench average by memory system, with BASE as a line"))
    shown = _named(frame).assign(closed=100 * frame["gap_closed"], of=_of(frame, "n_scored", "n_planned"))
    columns = {
        "op": Column("OP-Bench", "%.1f", "Average in points, 0 to 100"),
        "closed": Column("gap closed", "%.0f %%", "(method − memory system) / (oracle − memory system)"),
        "of": Column("n", None, "Scored instances of those planned"),
        "gap_n": Column("paired n", "%d"),
    }
    columns["words"] = Column("in words")
    sheet.blocks.append(Data("oracle-gap", shown, _columns(frame, columns), frame))


def _add_subtypes(sheet: Sheet, frame: pd.DataFrame, mark: str) -> None:
    sheet.blocks.append(Text("Which kinds of over-personalisation?", heading=True))
    if frame[list(SUBSCORE_COLUMNS.values())].isna().all(axis=None):
        _missing(sheet, frame["missing"].tolist())
        return
    sheet.blocks.append(Chart("op-subtypes", op_by_subtype(frame, mark), "OP-Bench scores by subtype, in points"))
    columns = {name: Column(theme.NAMES[subtype], "%.1f") for subtype, name in SUBSCORE_COLUMNS.items()}
    columns |= {"op": Column("average", "%.1f"), "of": Column("n", None, "Scored instances of those planned")}
    shown = _named(frame).assign(of=_of(frame, "n_scored", "n_planned"))
    sheet.blocks.append(Data("op", shown, _columns(frame, columns), frame))


def _add_locomo(sheet: Sheet, frame: pd.DataFrame, notes: Sequence[str]) -> None:
    sheet.blocks.append(Text("How well does it still remember (LoCoMo)?", heading=True))
    if frame["overall"].isna().all():
        _missing(sheet, frame["missing"].tolist())
        return
    categories = [name for name in LOCOMO_CATEGORIES.values() if not frame[name].isna().all()]
    columns = {name: Column(name, "%.1f") for name in categories}
    columns |= {
        "overall": Column("LoCoMo", "%.1f", "Mean over all scored questions but the adversarial ones, in points"),
        "change_points": Column("change", "%+.1f", "Paired change in points against no post-processor"),
        "of": Column("n", None, "Scored questions of those planned"),
        "run_mean": Column("runs: mean", "%.1f", "Mean accuracy of the judge's runs, in points"),
        "run_std": Column("± std", "%.2f", "Population standard deviation over the judge's runs, in points"),
        "run_judgements_missing": Column("unread", "%d", "Judgements that failed or couldn't be read"),
        "context_tokens": Column("context", "%.0f", "Tokens of the memories in the prompt, on average"),
        "metric_label": Column("metric"),
    }
    columns = {name: each for name, each in columns.items() if name == "of" or name in frame}
    shown = _named(frame).assign(of=_of(frame, "n_scored", "n_planned"))
    sheet.blocks.extend(Text(note) for note in notes)
    sheet.blocks.append(Data("locomo", shown, _columns(frame, columns), frame))


def _add_latency(sheet: Sheet, frame: pd.DataFrame, mark: str, note: str | None) -> None:
    sheet.blocks.append(Text("How much longer does the user wait?", heading=True))
    if not frame["n"].any():
        _missing(sheet, ["no record with a time"])
        return
    figure = latency_bars(frame, mark, "Latency by stage, measured")
    sheet.blocks.append(Chart("latency", figure, "Mean times by stage as stacked bars"))
    columns = {
        "stage": Column("stage"),
        "mean_ms": Column("mean", "%.0f ms"),
        "std_ms": Column("± std", "%.0f ms", "Sample standard deviation"),
        "median_ms": Column("median", "%.0f ms"),
        "p95_ms": Column("p95", "%.0f ms"),
        "n": Column("n", "%d", "Records that had this stage"),
        "n_reused": Column("reused", "%d", "Of these, with a call that was made for another record"),
        "concurrency": Column("concurrency", None, "Requests the model got at a time"),
    }
    shown = _named(frame).assign(stage=frame["stage"].replace(STAGE_LABELS))
    sheet.blocks.append(Data("latency", shown, _columns(frame, columns), frame))
    if note:
        sheet.blocks.append(Text(note))


def _add_answers(sheet: Sheet, frame: pd.DataFrame) -> None:
    sheet.blocks.append(Text("Every response", heading=True))
    columns = {
        "instance": Column("instance"),
        "question": Column("question"),
        "response": Column("response"),
        "score": Column("score", "%.2f", "The judge's, 0 to 1; repetition is scored by user"),
    }
    sheet.blocks.append(
        Data("responses", _named(frame), _columns(frame, columns), frame, ("question", "response", "context"))
    )
