"""A saved case as the parts that an exported file draws: every text visible, every number worded.

Without texts no word of a question, memory, response, note, judge's reason or prompt is in any part: what is taken up
is named one by one, so a field that comes later stays out until somebody decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from opbench.analysis.fates import MEANINGS
from opbench.cases.marks import Run, Span, became, changed, marked_share, spans
from opbench.cases.outcome import Ablation, Found, Outcome
from opbench.cases.published import ABOUT, find
from opbench.cases.saved import SavedCase, edits
from opbench.cases.telling import ablation_table, named, parent_of, verdict
from opbench.errors import DataError, UsageError
from opbench.figures import theme
from opbench.sharing.visible import visible
from opbench.study import BASE

_STAGES = {"retrieval": "retrieval", "post": "post-processing", "response": "response"}
_ENDS = {
    "length": "cut off at the longest response",
    "content_filter": "stopped by the provider's filter",
}
_STATES = {
    "kept": "worked",
    "nothing": "kept nothing: the response got the prompt without memories",
    "failed": "failed: the memories went on as they were",
    "revision failed": "failed: the draft stands",
    "revised": "rewrote the draft",
    "unchanged": "left the draft as it was",
}


def case_parts(case: SavedCase, anchor: str, with_texts: bool, models: Mapping[str, str]) -> dict[str, Any]:
    """All that the template draws of a case. `anchor` begins the ids of its places, `models` are labels by name."""
    spec = case.spec
    names = named(spec, models)
    columns = [_column(case, number, f"{anchor}-{number}", with_texts) for number in range(len(spec.columns))]
    for column, name in zip(columns, names, strict=True):
        column["name"] = visible(name)
    return {
        "anchor": anchor,
        "title": title_of(case, with_texts),
        "marks": [visible(mark) for mark in case.marks],
        "note": visible(case.note) if with_texts else "",
        "question": visible(spec.question) if with_texts else "",
        "facts": [(visible(name), visible(value)) for name, value in _facts(case)],
        "columns": columns,
        "published": _published(case, f"{anchor}-published", with_texts),
        "changes": [_change(case, number, names, with_texts) for number in _changed_columns(case)],
        "ablations": [
            _ablation(each, visible(names[each.column]), columns[each.column]["anchor"], with_texts)
            for each in case.ablations
        ],
    }


def title_of(case: SavedCase, with_texts: bool) -> str:
    """The case's name; without texts its id where the name repeats the question."""
    name, question = (" ".join(text.casefold().split()) for text in (case.name, case.spec.question))
    if not with_texts and (name.rstrip("….?! ") in question or question in name):
        return f"Case {case.id}"
    return visible(case.name)


def _facts(case: SavedCase) -> list[tuple[str, str]]:
    spec = case.spec
    asked = f"benchmark instance {spec.instance}" if spec.instance else "a free question"
    if spec.published:
        asked = f"published case {spec.published}"
    return [
        ("user", spec.user),
        ("asked", asked),
        ("judged as", theme.name(spec.subtype)),
        ("judge", spec.judge),
        ("memories", f"{spec.k} at most, similarity by {spec.embedder}"),
        ("temperature", f"{spec.temperature:g}"),
        ("saved by", case.maker or "unknown"),
    ]


def _published(case: SavedCase, anchor: str, with_texts: bool) -> dict[str, Any] | None:
    """The published response and score that the case began with; None for other cases, and where the data folder that
    holds them isn't there any more."""
    if case.spec.published is None:
        return None
    try:
        found, number = find(case.spec.published)
    except (UsageError, DataError):
        return None
    exchange = found.case.exchanges[number]
    memories = [Found(text=text) for text in exchange.memories]
    shared = spans(exchange.response, memories, exchange.question, known=(found.case.user,))
    return {
        "anchor": anchor,
        "mark": "published" if found.origin == "appendix" else "invented",
        "method": visible(found.case.method),
        "about": ABOUT[found.origin],
        "score": f"{exchange.score:.2f}",
        "value": exchange.score,
        "pieces": _pieces(exchange.response, shared, anchor) if with_texts else [],
        "memories": [
            {"number": place, "anchor": f"{anchor}-m{place}", "text": visible(memory.text)}
            for place, memory in enumerate(memories, 1)
        ]
        if with_texts
        else [],
    }


def numbers_left(outcome_memories: int, without: Sequence[int]) -> list[int]:
    """The numbers that memories go by where those in `without` were left out: 1, 3, 4 without 2."""
    numbers: list[int] = []
    number = 0
    while len(numbers) < outcome_memories:
        number += 1
        if number not in without:
            numbers.append(number)
    return numbers


def _column(case: SavedCase, number: int, anchor: str, with_texts: bool) -> dict[str, Any]:
    column, outcome = case.spec.columns[number], case.outcomes[number]
    found = outcome.retrieved or ()
    by = numbers_left(len(found), column.without)
    speaker = case.spec.user.rpartition("/")[2]
    shared = spans(outcome.response, found, case.spec.question, numbers=by, known=(speaker,))
    method = theme.name(column.mitigation) if column.draft is None else visible(column.draft.label)
    return {
        "anchor": anchor,
        "edits": [visible(edit) for edit in edits(case.spec, number)],
        "wordings": _wordings(case, number) if with_texts else [],
        "base": column.memory == BASE,
        "given": column.given is not None,
        "state": outcome.state,
        "trouble": _trouble(outcome),
        "scores": [_score(each.metric, each.value, each.reason, with_texts) for each in outcome.scores],
        "judge": visible(case.spec.judge),
        "memories": _memories(outcome, by, shared, anchor, with_texts),
        "retrieved": outcome.retrieved is not None,
        "post": _post(outcome, visible(method), with_texts) if column.memory != BASE else None,
        "pieces": _pieces(outcome.response, shared, anchor) if with_texts else [],
        "told": _told(outcome, shared),
        "end": visible(_ENDS.get(outcome.finish_reason or "", "")),
        "revision": _revision(outcome) if with_texts else None,
        "times": _times(outcome),
        "spent": _spent(outcome),
        "short": _short(outcome),
    }


def _wordings(case: SavedCase, number: int) -> list[tuple[str, str]]:
    column = case.spec.columns[number]
    told = [] if column.draft is None else [("instructions of the draft", column.draft.instructions)]
    told += [(f"own wording of “{section}”", text) for section, text in column.prompts.items()]
    return [(visible(head), visible(text)) for head, text in told]


def _trouble(outcome: Outcome) -> str:
    if outcome.state == "failed":
        return visible(f"Failed ({outcome.error_kind or 'unknown'}): {outcome.error or 'no reason was given'}")
    if outcome.state == "cancelled":
        return "Cancelled before it was over."
    return ""


def _score(metric: str, value: float | None, reason: str | None, with_texts: bool) -> dict[str, Any]:
    told = reason if with_texts or value is None else None
    return {
        "metric": visible(metric),
        "value": value,
        "text": theme.MISSING if value is None else f"{value:.2f}",
        "reason": visible(told or ""),
    }


def _memories(
    outcome: Outcome, by: Sequence[int], shared: Sequence[Span], anchor: str, with_texts: bool
) -> list[dict[str, Any]]:
    drawn = []
    # What has no sources passed no post-processor that chooses.
    chosen = outcome.context is not None and (not outcome.context or outcome.context[0].sources is not None)
    for fated in became(outcome.retrieved, outcome.context, numbers=by):
        places = [place for place, span in enumerate(shared) if fated.number in span.memories]
        drawn.append(
            {
                "number": fated.number,
                "anchor": f"{anchor}-m{fated.number}" if fated.number is not None else "",
                "date": visible(fated.date or "") if with_texts else "",
                "similarity": None if fated.score is None else f"{fated.score:.3f}",
                "became": fated.became if chosen else None,
                "meaning": MEANINGS[fated.became] if fated.became and chosen else "",
                "runs": [_run(run) for run in fated.runs] if with_texts else [],
                "marked": len(places),
                "first": f"{anchor}-s{places[0]}" if places and with_texts else "",
            }
        )
    return drawn


def _run(run: Run) -> tuple[str, str]:
    return visible(run[0]), run[1]


def _post(outcome: Outcome, method: str, with_texts: bool) -> dict[str, Any] | None:
    if outcome.post_state is None and not outcome.post_text and "post" not in outcome.milliseconds:
        return None
    state = outcome.post_state or ""
    if state == "failed" and outcome.draft is not None:
        state = "revision failed"
    return {
        "method": method,
        "state": _STATES.get(state, state),
        "failed": outcome.post_state == "failed",
        "reason": visible(outcome.post_reason or "") if with_texts else "",
        "counts": ", ".join(f"{visible(name)} {count:,}" for name, count in outcome.counts.items()),
        "reply": visible(outcome.post_text) if with_texts else "",
    }


def _pieces(response: str, shared: Sequence[Span], anchor: str) -> list[dict[str, Any]]:
    """The response in pieces, in order; a marked one links to the memory that holds most of it."""
    pieces: list[dict[str, Any]] = []
    end = 0
    for place, span in enumerate(shared):
        pieces.append({"text": visible(response[end : span.start]), "memories": ()})
        numbers = [{"number": number, "anchor": f"{anchor}-m{number}"} for number in span.memories]
        pieces.append(
            {"text": visible(response[span.start : span.end]), "memories": numbers, "anchor": f"{anchor}-s{place}"}
        )
        end = span.end
    pieces.append({"text": visible(response[end:]), "memories": ()})
    return [piece for piece in pieces if piece["text"]]


def _told(outcome: Outcome, shared: Sequence[Span]) -> str:
    """What can be said of the response without its words."""
    if not outcome.response:
        return ""
    words = len(outcome.response.split())
    said = f"{words:,} {'word' if words == 1 else 'words'}"
    if not outcome.retrieved:
        return said
    share = marked_share(outcome.response, shared)
    numbers = sorted({number for span in shared for number in span.memories})
    if share is None or not numbers:
        return f"{said}, none marked as from a memory"
    which = ", ".join(map(str, numbers))
    return f"{said}, {share:.0%} marked as from {'memory' if len(numbers) == 1 else 'memories'} {which}"


def _revision(outcome: Outcome) -> dict[str, Any] | None:
    if outcome.draft is None and not outcome.critique:
        return None
    return {
        "draft": [_run(run) for run in changed(outcome.draft or "", outcome.response)[0]],
        "critique": visible(outcome.critique or ""),
    }


def _times(outcome: Outcome) -> list[dict[str, Any]]:
    return [
        {"stage": _STAGES.get(stage, stage), "ms": f"{taken:,.0f} ms", "reused": outcome.reused.get(stage, False)}
        for stage, taken in outcome.milliseconds.items()
    ]


def _spent(outcome: Outcome) -> list[tuple[str, str]]:
    rows = [("tokens", f"{_count(outcome.prompt_tokens)} in, {_count(outcome.completion_tokens)} out")]
    rows.append(("cost", cost_text(outcome.cost_usd)))
    if outcome.first_text_ms is not None:
        rows.append(("first text after", f"{outcome.first_text_ms:,.0f} ms"))
    if outcome.total_ms is not None:
        rows.append(("over after", f"{outcome.total_ms:,.0f} ms"))
    return rows


def _count(tokens: int | None) -> str:
    """Not told by every endpoint."""
    return theme.MISSING if tokens is None else f"{tokens:,}"


def _short(outcome: Outcome) -> dict[str, str]:
    """The column's row in the table at the top."""

    def taken(stage: str) -> str:
        if stage not in outcome.milliseconds:
            return "–"
        return f"{outcome.milliseconds[stage]:,.0f}" + ("*" if outcome.reused.get(stage) else "")

    score = theme.MISSING if outcome.score is None else f"{outcome.score:.2f}"
    return {
        "state": outcome.state,
        "score": score,
        **{stage: taken(stage) for stage in _STAGES},
        "tokens": f"{_count(outcome.prompt_tokens)} / {_count(outcome.completion_tokens)}",
        "cost": cost_text(outcome.cost_usd),
    }


def cost_text(cost: float | None) -> str:
    """`$0.001500`; `unknown` where a price, or what was counted, isn't known."""
    if cost is None:
        return "unknown"
    return "$0" if cost == 0 else f"${cost:.6f}"


def _changed_columns(case: SavedCase) -> list[int]:
    return [
        number
        for number in range(len(case.spec.columns))
        if parent_of(case.spec, number) is not None and case.outcomes[number].state == "done"
    ]


def _change(case: SavedCase, number: int, names: Sequence[str], with_texts: bool) -> dict[str, Any]:
    parent = parent_of(case.spec, number)
    assert parent is not None
    first, second = case.outcomes[parent], case.outcomes[number]
    before, after = changed(first.response, second.response)
    change = None if first.score is None or second.score is None else second.score - first.score
    return {
        "before": visible(names[parent]),
        "after": visible(names[number]),
        "score": theme.MISSING if change is None else _signed(change),
        "same": first.response == second.response,
        "before_runs": [_run(run) for run in before] if with_texts else [],
        "after_runs": [_run(run) for run in after] if with_texts else [],
    }


def _ablation(ablation: Ablation, name: str, anchor: str, with_texts: bool) -> dict[str, Any]:
    table = ablation_table(ablation)
    rows = []
    for row in table.astype(object).where(table.notna(), None).to_dict("records"):
        after = changed(ablation.base.response, row["response"] or "")[1]
        rows.append(
            {
                "number": row["number"],
                "anchor": f"{anchor}-m{row['number']}",
                "memory": visible(row["memory"] or "") if with_texts else "",
                "score": theme.MISSING if row["score_without"] is None else f"{row['score_without']:.2f}",
                "bar": _bar(row["score_change"]),
                "change": theme.MISSING if row["score_change"] is None else _signed(row["score_change"]),
                "similarity": theme.MISSING if row["similarity"] is None else f"{row['similarity']:.3f}",
                "same": bool(row["same"]),
                "missing": visible(row["missing"] or ""),
                "runs": [_run(run) for run in after] if with_texts and row["response"] else [],
            }
        )
    culprit = ablation.culprit
    return {
        "name": name,
        "at": (
            "left out before post-processing, which worked again"
            if ablation.at == "retrieval"
            else "left out of the response's prompt; the post-processor's work stayed as it was"
        ),
        "over": ablation.over,
        "base": theme.MISSING if ablation.base.score is None else f"{ablation.base.score:.2f}",
        "verdict": visible(verdict(ablation)),
        "culprit": None if culprit is None else culprit.number,
        "rows": rows,
    }


#: Half the width of a bar's field, and so the length of a change of 1.
_HALF = 100


def _bar(change: float | None) -> dict[str, Any] | None:
    """Where the bar of a score change (−1 to 1) lies in a field of 200 by 14, and its kind; None without a change."""
    if change is None:
        return None
    length = min(1.0, abs(change)) * _HALF
    start = _HALF if change > 0 else _HALF - length
    return {"x": f"{start:.1f}", "width": f"{length:.1f}", "kind": "blame" if change > 0 else "help"}


def _signed(change: float) -> str:
    return "0.00" if round(change, 2) == 0 else f"{change:+.2f}".replace("-", "−")
