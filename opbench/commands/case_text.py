"""A case on a terminal: each column as far as it has come, and at the end what leaving memories out showed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from opbench.analysis.fates import MEANINGS
from opbench.cases.marks import Run, became, spans
from opbench.cases.outcome import Ablation, Outcome
from opbench.cases.saved import NOT_COMPARABLE
from opbench.cases.spec import CaseSpec
from opbench.cases.telling import ablation_table, named, verdict
from opbench.commands.options import say
from opbench.figures import theme
from opbench.sharing.case_view import cost_text, numbers_left
from opbench.sharing.visible import one_line

_STAGES = {"retrieval": "retrieval", "post": "post-processing", "response": "response"}
_SPAN = 60


class ColumnTeller:
    """Prints what is new of a column each time it is told how far the column has come."""

    def __init__(self, spec: CaseSpec, number: int, name: str, out: Callable[..., None] = say) -> None:
        self._spec, self._number, self._name, self._out = spec, number, name, out
        self._numbers: list[int] = []
        self._told: set[str] = set()
        self._text = {"post": "", "response": ""}

    def tell(self, outcome: Outcome) -> None:
        """Print what came since the last time."""
        if self._once("head"):
            self._out(f"── {self._name}")
        if outcome.retrying and not outcome.over and self._once(outcome.retrying):
            self._out(f"  waiting: {outcome.retrying}")
        if outcome.retrieved is not None and self._once("retrieved"):
            self._memories(outcome)
        if outcome.post_text:
            self._stream("post", outcome.post_text, "post-processor writes:")
        if outcome.context is not None and outcome.post_state is not None and self._once("context"):
            self._end("post")
            self._processed(outcome)
        if outcome.response:
            if outcome.state != "post":
                self._end("post")
            self._stream("response", outcome.response, "")
        if outcome.over and self._once("end"):
            self._end("post")
            self._end("response")
            self._finished(outcome)

    def _once(self, what: str) -> bool:
        new = what not in self._told
        self._told.add(what)
        return new

    def _stream(self, what: str, text: str, head: str) -> None:
        before = self._text[what]
        if not text.startswith(before):
            # The answer came anew, or was put in another's place (a revision): what stands there doesn't count.
            self._out("\n  (anew)")
            before = ""
        elif not before:
            self._out(f"\n{head}" if head else "")
        if text != before:
            self._out(text[len(before) :], nl=False)
            self._text[what] = text

    def _end(self, what: str) -> None:
        if self._text[what] and self._once(f"{what} ended"):
            self._out("\n")

    def _memories(self, outcome: Outcome) -> None:
        column = self._spec.columns[self._number]
        found = outcome.retrieved or ()
        self._numbers = numbers_left(len(found), column.without)
        if not found:
            self._out("  no memory: the retrieval was empty" if column.given is None else "  no memory was given")
        for number, memory in zip(self._numbers, found, strict=True):
            similarity = "" if memory.score is None else f" {memory.score:.3f}"
            date = "" if memory.date is None else f" ({memory.date})"
            self._out(f"  [{number}]{similarity}{date} {memory.text}")

    def _processed(self, outcome: Outcome) -> None:
        reason = f" ({outcome.post_reason})" if outcome.post_reason else ""
        self._out(f"post-processor: {outcome.post_state}{reason}")
        if outcome.context and all(line.sources is None for line in outcome.context):
            # A method that revises the response leaves the memories alone.
            return
        for fated in became(outcome.retrieved, outcome.context, numbers=self._numbers):
            which = "  [+]" if fated.number is None else f"  [{fated.number}]"
            fate = fated.became or "kept"
            if all(kind == "kept" for _, kind in fated.runs) or fate == "dropped":
                self._out(f"{which} {fate}: {MEANINGS[fate]}")
            else:
                self._out(f"{which} {fate}, {MEANINGS[fate]}: {marked(fated.runs)}")

    def _finished(self, outcome: Outcome) -> None:
        column = self._spec.columns[self._number]
        if outcome.state != "done":
            kind = f" ({outcome.error_kind})" if outcome.error_kind else ""
            self._out(f"{outcome.state}{kind}{f': {outcome.error}' if outcome.error else ''}")
        if outcome.finish_reason not in (None, "stop"):
            self._out(f"the response ended by: {outcome.finish_reason}")
        if outcome.draft is not None:
            self._out(f"draft: {outcome.draft}")
        if outcome.critique:
            self._out(f"critique: {outcome.critique}")
        speaker = self._spec.user.rpartition("/")[2]
        for span in spans(
            outcome.response, outcome.retrieved or (), self._spec.question, numbers=self._numbers, known=(speaker,)
        ):
            which = ", ".join(map(str, span.memories))
            piece = one_line(outcome.response[span.start : span.end], _SPAN)
            self._out(f"  from memory {which}: “{piece}”")
        for score in outcome.scores:
            value = "missing" if score.value is None else f"{score.value:.2f}"
            reason = f" ({one_line(score.reason, 300)})" if score.reason else ""
            self._out(f"{score.metric} {value} of 1, by {self._spec.judge}{reason}")
        if column.edited:
            self._out("edited: not a configuration as studies run it")
        self._out(f"{costs(outcome)}\n")


def costs(outcome: Outcome) -> str:
    """Times by stage, tokens and cost, in a line."""
    stages = [
        f"{_STAGES.get(stage, stage)} {taken:,.0f} ms" + (" (reused)" if outcome.reused.get(stage) else "")
        for stage, taken in outcome.milliseconds.items()
    ]
    told = None not in (outcome.prompt_tokens, outcome.completion_tokens)
    tokens = f"{outcome.prompt_tokens:,} tokens in, {outcome.completion_tokens:,} out" if told else "tokens not told"
    return "; ".join([*([", ".join(stages)] if stages else []), tokens, f"cost {cost_text(outcome.cost_usd)}"])


def marked(runs: Sequence[Run]) -> str:
    """Pieces in one line: `Ottilie bakes [-sourdough-] bread {+at home+}`."""
    signs = {"dropped": ("[-", "-]"), "added": ("{+", "+}"), "kept": ("", "")}
    said = ""
    for text, kind in runs:
        before, after = signs[kind]
        bare = text.strip()
        space = text[len(text.rstrip()) :]
        said += f"{text[: len(text) - len(text.lstrip())]}{before}{bare}{after}{space}" if bare else text
    return " ".join(said.split())


def tell_ablation(spec: CaseSpec, ablation: Ablation, models: dict[str, str]) -> None:
    """Print a leave-one-out: a line a memory, then which did it."""
    name = named(spec, models)[ablation.column]
    where = "before post-processing" if ablation.at == "retrieval" else "of the response's prompt"
    base = theme.MISSING if ablation.base.score is None else f"{ablation.base.score:.2f}"
    say(f"── Which memory did it? {name}, left out {where}; score with all: {base}")
    table = ablation_table(ablation)
    for row in table.astype(object).where(table.notna(), None).to_dict("records"):
        if row["same"]:
            response = "the same response"
        elif row["similarity"] is not None:
            response = f"cosine of the responses {row['similarity']:.3f}"
        else:
            response = "no response to compare"
        change = theme.MISSING if row["score_change"] is None else f"{row['score_change']:+.2f}"
        why = f" ({one_line(row['missing'], 200)})" if row["missing"] else ""
        say(f"  without {row['left_out']}: score {change}, {response}{why}")
    told = verdict(ablation)
    say(f"{told or 'Not finished.'}\n")


def remarks(spec: CaseSpec, comparable: bool) -> str:
    """What must be said of the scores."""
    said = "Scores are 0 to 1, higher is less over-personalised."
    return said if comparable else f"{said} By {spec.judge}: {NOT_COMPARABLE}."
