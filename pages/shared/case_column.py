"""One column of a case: its stages as they happen, the memories on their way, the response, the score, what it took."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from opbench.analysis.fates import MEANINGS
from opbench.cases import marks
from opbench.cases.outcome import Judged, Outcome, State
from opbench.figures import theme
from opbench.sharing.visible import visible
from pages.shared import case_failures, case_text, parts, texts, wording
from pages.shared.case_view import CaseView

_STATES: dict[State, tuple[str, str, str]] = {
    "waiting": ("waits for its turn", "hourglass_empty", "gray"),
    "retrieval": ("searching the memories", "search", "orange"),
    "post": ("post-processing", "filter_alt", "orange"),
    "response": ("answering", "edit_note", "orange"),
    "judge": ("judging", "gavel", "orange"),
    "done": ("done", "check_circle", "green"),
    "failed": ("failed", "error", "red"),
    "cancelled": ("cancelled", "cancel", "gray"),
}
_STAGES = {"retrieval": "memory retrieval", "post": "post-processing", "response": "response"}
_COLOURS = {"kept": "green", "restored": "green", "altered": "orange", "merged": "orange", "dropped": "gray"}
#: Seconds without a word after which an endpoint is called slow.
_SLOW_S = 10.0


def draw(
    view: CaseView,
    place: int,
    seconds: float | None,
    leave_out: Callable[[], None] | None,
    without: Callable[[int], None] | None,
) -> None:
    """A column. `seconds` since the case began, while it is at work. `leave_out` draws, above the memories, what leaves
    each out in turn; `without`, below a memory, what asks again without it."""
    outcome = view.outcomes[place]
    st.subheader(parts.plain(view.names[place]), anchor=False)
    _state(outcome, seconds)
    if outcome.state == "failed":
        case_failures.failed(outcome)
    _response(view, place)
    _scores(view, outcome)
    if view.is_base(place):
        st.caption("BASE retrieves no memories.")
    else:
        if leave_out is not None:
            leave_out()
        _memories(view, place, without)
    _spent(outcome)


def _state(outcome: Outcome, seconds: float | None) -> None:
    label, icon, colour = _STATES[outcome.state]
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        st.badge(label, icon=f":material/{icon}:", color=colour)  # type: ignore[arg-type]
        if outcome.at_once and outcome.over:
            st.badge("reused, unpaid", icon=":material/replay:", color="blue", help="All its calls were made before.")
        if not outcome.over and outcome.state != "waiting" and seconds is not None:
            slow = seconds > _SLOW_S and outcome.first_text_ms is None
            st.caption(f"{seconds:.0f} s so far{', no word yet' if slow else ''}")
    if outcome.retrying and not outcome.over:
        st.warning(parts.plain(visible(outcome.retrying)), icon=":material/replay:")


def _response(view: CaseView, place: int) -> None:
    outcome = view.outcomes[place]
    if outcome.response:
        st.markdown("**Response**")
        if outcome.over:
            case_text.response(view, place)
        else:
            st.text(visible(outcome.response) + " ▌")
    elif outcome.state == "cancelled":
        st.caption("Cancelled before it answered.")
    if outcome.state in ("cancelled", "failed") and outcome.response:
        st.caption(f"{outcome.state.capitalize()}: this is as far as it came.")
    case_failures.ended(outcome, view.spec.max_tokens)
    if outcome.draft is not None:
        with st.expander("Draft and critique"):
            texts.show_beside("Draft", outcome.draft, outcome.response, f"case-draft-{place}")
            texts.show("Critique", outcome.critique, f"case-critique-{place}")


def _scores(view: CaseView, outcome: Outcome) -> None:
    for judged in outcome.scores:
        _score(view, judged)
    if outcome.state == "done" and not outcome.scores:
        st.caption("Not judged.")


def _score(view: CaseView, judged: Judged) -> None:
    with st.container(horizontal=True, gap="small"):
        value = theme.MISSING if judged.value is None else f"{judged.value:.2f}"
        st.badge(f"{parts.plain(judged.metric)} {value}", color="violet", help="0 to 1, higher is better")
        if not view.comparable:
            st.badge("not comparable", icon=":material/warning:", color="orange", help=_why_not(view))
    if judged.reason:
        missing = "No score: " if judged.value is None else ""
        st.caption(parts.plain(visible(f"{missing}{judged.reason}")))


def _why_not(view: CaseView) -> str:
    if view.spec.judge == "offline":
        return "Rules over the wording, no LLM: not comparable with the paper."
    return "Another judge or embedder than the paper's: not comparable with its numbers."


def _memories(view: CaseView, place: int, without: Callable[[int], None] | None) -> None:
    outcome = view.outcomes[place]
    given = view.column(place).given is not None
    case_failures.processed(outcome, given=given)
    if outcome.post_text and outcome.state == "post":
        st.caption("The post-processor writes:")
        st.text(visible(outcome.post_text) + " ▌")
    if not outcome.retrieved:
        return
    numbers = view.numbers(place)
    fates = marks.became(outcome.retrieved, outcome.context, numbers=numbers)
    kept = sum(fate.number is not None and fate.became not in (None, "dropped") for fate in fates)
    told = f"{len(outcome.retrieved)} {'given' if given else 'retrieved'}"
    if outcome.context is not None:
        lines = len(outcome.context)
        told += f", {kept} kept, {lines} {'line' if lines == 1 else 'lines'} in the prompt"
    with st.expander(f"Memories: {told}", expanded=True):
        found = dict(zip(numbers, outcome.retrieved, strict=True))
        for fate in fates:
            memory = None if fate.number is None else found[fate.number]
            with st.container(horizontal=True, gap="small", vertical_alignment="center"):
                if fate.number is not None:
                    case_text.number(place, fate.number)
                if fate.became is not None:
                    colour = _COLOURS.get(fate.became, "red")
                    st.badge(fate.became, color=colour, help=MEANINGS[fate.became])  # type: ignore[arg-type]
                if memory is not None:
                    similarity = "" if memory.score is None else f"similarity {memory.score:.3f}"
                    st.caption(parts.plain(" · ".join(filter(None, (similarity, visible(memory.date or ""))))))
            case_text.memory(fate.runs)
            if without is not None and fate.number is not None:
                without(fate.number)
    if outcome.post_text and outcome.context is not None:
        with st.expander("The post-processor's own reply"):
            texts.show("Reply", outcome.post_text, f"case-reply-{place}")


def _spent(outcome: Outcome) -> None:
    """Times by stage with what was reused, tokens, cost: as far as they are known."""
    stages = [
        f"{label} {theme.milliseconds(outcome.milliseconds[stage])}{' (reused)' if outcome.reused.get(stage) else ''}"
        for stage, label in _STAGES.items()
        if stage in outcome.milliseconds
    ]
    if stages:
        st.caption(f":material/timer: {parts.plain(' · '.join(stages))}")
    if not outcome.over:
        return
    if outcome.state != "done" and outcome.cost_usd is None and outcome.prompt_tokens is None:
        # Of a call that wasn't answered there is nothing to tell.
        if outcome.response:
            st.caption(":material/toll: tokens and cost of an answer that broke off aren't known")
        return
    cost = "cost unknown" if outcome.cost_usd is None else f"cost {wording.dollars(outcome.cost_usd)}"
    told = None not in (outcome.prompt_tokens, outcome.completion_tokens)
    tokens = f"{outcome.prompt_tokens:,} tokens in, {outcome.completion_tokens:,} out" if told else "tokens not told"
    said = [tokens, cost]
    if outcome.first_text_ms is not None:
        said.append(f"first text after {theme.milliseconds(outcome.first_text_ms)}")
    if outcome.total_ms is not None:
        said.append(f"over after {theme.milliseconds(outcome.total_ms)}")
    if stages or outcome.total_ms is not None:
        st.caption(f":material/toll: {parts.plain(' · '.join(said))}")
