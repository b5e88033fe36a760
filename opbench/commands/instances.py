"""`opbench instances`, `show` and `rate`: single records, and the scores that people give them."""

from __future__ import annotations

import getpass
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer

from opbench.analysis.fates import fates
from opbench.analysis.grids import Key
from opbench.commands.options import print_json, print_table, rows_of, say, the_store, words
from opbench.errors import UsageError
from opbench.protocol import headline_metric, metric_label
from opbench.sharing.marks import remarks
from opbench.sharing.visible import one_line, visible
from opbench.store import human, search
from opbench.store.database import Store
from opbench.store.reading import find_run
from opbench.store.record import Record, read_record
from opbench.store.runs import run_study
from opbench.study import BASE, NO_MITIGATION
from opbench.types import Benchmark

Run = Annotated[str, typer.Argument(help="Run id or name.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Model = Annotated[str | None, typer.Option(help="Model; needed when the run has several.")]
Memory = Annotated[str | None, typer.Option(help="Memory system; needed when the run has several.")]
Mitigation = Annotated[str | None, typer.Option(help="Post-processor; needed when there are several.")]


def add(app: typer.Typer) -> None:
    app.command("instances")(instances_command)
    app.command("show")(show_command)
    app.command("rate")(rate_command)


def instances_command(
    run: Run,
    model: Annotated[str | None, typer.Option(help="Models, separated by commas.")] = None,
    memory: Annotated[str | None, typer.Option(help="Memory systems.")] = None,
    mitigation: Annotated[str | None, typer.Option(help="Post-processors.")] = None,
    benchmark: Annotated[Benchmark | None, typer.Option(help="One of the two.")] = None,
    user: Annotated[str | None, typer.Option(help="Users, e.g. conv-26/Caroline.")] = None,
    subtype: Annotated[str | None, typer.Option(help="OP-Bench subtypes and LoCoMo categories.")] = None,
    low: Annotated[float, typer.Option("--min", help="Lowest score, 0 to 1.")] = 0.0,
    high: Annotated[float, typer.Option("--max", help="Highest score, 0 to 1.")] = 1.0,
    outcome: Annotated[search.Outcome | None, typer.Option(help="What came of the record.")] = None,
    error: Annotated[str | None, typer.Option(help="Kinds of error, e.g. timeout.")] = None,
    state: Annotated[str | None, typer.Option(help=f"Post-processor's state: {', '.join(search.STATES)}.")] = None,
    text: Annotated[str, typer.Option(help="Text in the question or the response.")] = "",
    rated: Annotated[
        bool | None, typer.Option("--rated/--not-rated", help="With a person's score, or without.")
    ] = None,
    first_only: Annotated[bool, typer.Option("--first-only", help="First speakers only.")] = False,
    order: Annotated[search.Order, typer.Option(help="Order of the list.")] = "instance",
    limit: Annotated[int, typer.Option(min=1, help="Records to print.")] = 50,
    skip: Annotated[int, typer.Option(min=0, help="Records to leave out first.")] = 0,
    as_json: Json = False,
) -> None:
    """List the records of a run that fit, with their scores."""
    store = the_store()
    run_id = find_run(store, run)
    study, provenance = run_study(store, run_id)
    there = search.names_of(store, run_id)
    wanted = search.Search(
        _known("model", words(model), study.models),
        _known("memory system", words(memory), study.memories),
        _known("post-processor", words(mitigation), study.mitigations),
        benchmark,
        _known("user", words(user), there["users"]),
        _known("subtype", words(subtype), there["subtypes"]),
        first_only,
        low,
        high,
        outcome,
        words(error) or (),
        _known("state", words(state), search.STATES),
        text,
        rated,
        order,
    )
    ids = search.found(store, run_id, study, wanted)
    frame = search.hits(store, study, [int(each) for each in ids[skip : skip + limit]])
    if as_json:
        print_json(
            {
                "run": run_id,
                "judge": study.judge,
                "comparable": bool(provenance.get("comparable", False)),
                "metrics": {"op": "score", "locomo": headline_metric(study)},
                "marks": remarks(provenance),
                "found": len(ids),
                "skipped": skip,
                "rows": rows_of(frame),
            }
        )
        return
    shown = frame.assign(
        detail=[
            f"{kind}: {one_line(said or '', 80)}" if status == "error" else one_line(response or "", 80)
            for status, kind, said, response in zip(
                frame["status"], frame["error_kind"], frame["error"], frame["response"], strict=True
            )
        ]
    )
    names = ("instance", "model", "memory", "mitigation", "score", "human", "status", "state")
    notes = [f"{skip + 1:,} to {skip + len(frame):,} of {len(ids):,}." if len(frame) else f"None of {len(ids):,}."]
    metric = metric_label(headline_metric(study))
    notes.append(f"Scores 0 to 1 by {study.judge}; LoCoMo: {metric}. Repetition is scored by user, not here.")
    notes += [] if provenance.get("comparable", False) else ["Not comparable with the paper."]
    notes += [f"{mark}." for mark in remarks(provenance)]
    print_table(shown, {name: name for name in names} | {"detail": "response or error"}, notes=notes)


def show_command(
    run: Run,
    instance: Annotated[str, typer.Argument(help="Instance id, e.g. op/conv-26/Caroline/fact/1.")],
    model: Model = None,
    memory: Memory = None,
    mitigation: Mitigation = None,
    as_json: Json = False,
) -> None:
    """Show one record whole: question, memories, response, judge, times, calls, people's scores."""
    store = the_store()
    run_id = find_run(store, run)
    record = read_record(store, run_id, _configuration(store, run_id, model, memory, mitigation), instance)
    entries = human.history(store, run_id, record.key, instance)
    if as_json:
        print_json(asdict(record) | {"human_scores": [asdict(entry) for entry in entries]})
        return
    for line in _lines(record, entries):
        say(line)


def rate_command(
    run: Run,
    instance: Annotated[str, typer.Argument(help="Instance id.")],
    score: Annotated[float | None, typer.Option(help="0 to 1, as the judge scores.")] = None,
    withdraw: Annotated[bool, typer.Option("--withdraw", help="Take back your score; the history keeps it.")] = False,
    note: Annotated[str, typer.Option(help="Why.")] = "",
    rater: Annotated[str, typer.Option(help="Who gives it; default: your login name.")] = "",
    model: Model = None,
    memory: Memory = None,
    mitigation: Mitigation = None,
) -> None:
    """Put a person's score beside the judge's. Nothing is overwritten."""
    if (score is None) != withdraw:
        raise UsageError("give either --score (0 to 1) or --withdraw.")
    store = the_store()
    run_id = find_run(store, run)
    key = _configuration(store, run_id, model, memory, mitigation)
    human.rate(store, run_id, key, instance, score, note=note, rater=rater or getpass.getuser())
    say(f"{instance} · {' · '.join(key)}: {'withdrawn' if score is None else score}")


def _known(what: str, names: Sequence[str] | None, there: Sequence[str]) -> tuple[str, ...]:
    for name in names or ():
        if name not in there:
            raise UsageError(f"no {what} '{name}' in this run. There are: {', '.join(there)}.")
    return tuple(names or ())


def _configuration(store: Store, run_id: str, model: str | None, memory: str | None, mitigation: str | None) -> Key:
    """The one configuration that fits what was told of it.

    Raises:
        UsageError: none or several fit; lists them.
    """
    study, _ = run_study(store, run_id)
    keys = [(each.model, each.memory, each.mitigation) for each in study.configurations()]
    return one_of(keys, (model, memory, mitigation), "Tell it with --model, --memory and --mitigation")


def one_of(keys: Sequence[Key], told: Sequence[str | None], mend: str) -> Key:
    """The one of `keys` that fits model, memory system and post-processor as far as they are told.

    Raises:
        UsageError: none or several fit; lists them, after the `mend`.
    """
    fitting = [key for key in keys if all(want in (None, have) for want, have in zip(told, key, strict=True))]
    if len(fitting) > 1 and told[1] == BASE:
        fitting = [key for key in fitting if key[2] == NO_MITIGATION]
    if len(fitting) == 1:
        return fitting[0]
    listed = ", ".join("/".join(key) for key in (fitting or keys)[:12])
    raise UsageError(f"{len(fitting)} configurations fit. {mend}: {listed}.")


def _lines(record: Record, entries: Sequence[human.HumanScore]) -> list[str]:
    """The record for a terminal: every text visible, so that none of it steers the terminal."""
    model, memory, mitigation = record.key
    lines = [f"{record.instance}  ({record.subtype}, user {record.user})", f"{model} · {memory} · {mitigation}"]
    if record.text_left_out:
        lines.append("Recorded elsewhere, texts left out.")
    for head, text in (("question", record.question), ("right answer", record.answer)):
        lines += _block(head, text)
    if not record.made:
        return [*lines, "", "This record isn't made yet."]
    values = record.values
    for fate in fates(values["retrieved"], values["context"]):
        told = [f"#{fate.rank}" if fate.rank else "", fate.became, fate.date or ""]
        told.append("" if fate.similarity is None else f"similarity {fate.similarity:.3f}")
        lines += _block("memory " + " ".join(part for part in told if part), fate.text or "\n".join(fate.lines))
        if fate.became in ("altered", "merged"):
            lines += _block("  in the prompt", "\n".join(fate.lines))
    if values["state"]:
        lines += ["", f"post-processor: {values['state']} {visible(values['state_reason'] or '')}".rstrip()]
    lines += _block("draft", values["draft"]) + _block("critique", values["critique"])
    if values["status"] == "error":
        lines += ["", f"failed: {values['error_kind']}: {visible(values['error'] or '')}"]
    lines += _block("response", record.response)
    for judgement in (*record.judgements, *([record.user_score] if record.user_score else [])):
        value = "missing" if judgement.value is None else f"{judgement.value:.3f}"
        whose = f" of the user's {record.user_n} responses" if judgement is record.user_score else ""
        reason = f" ({one_line(judgement.reason, 300)})" if judgement.reason else ""
        lines += ["", f"{judgement.judge}, {judgement.metric}{whose}: {value}{reason}"]
        lines += _block("raw answer", judgement.raw)
    spent = {name: values[f"{name}_ms"] for name in ("retrieval", "post", "response")}
    times = ", ".join(f"{name} {taken:.0f} ms" for name, taken in spent.items() if taken is not None)
    lines += ["", f"times: {times or 'none'}; concurrency {values['concurrency'] or 'unknown'}"]
    for call in record.calls:
        how = "reused" if call.reused else "made"
        times = f"{call.duration_ms:.0f} ms, attempts {call.attempts}"
        lines.append(f"call: {call.stage}, {visible(call.model)}, {how}, {times}")
    for entry in entries:
        value = "withdrawn" if entry.value is None else f"{entry.value:.2f}"
        old = "" if entry.of_this_response else " (of an earlier response)"
        lines.append(f"person {visible(entry.rater)}: {value}{old} {one_line(entry.note, 300)}".rstrip())
    return lines


def _block(head: str, text: str | None) -> list[str]:
    return [] if text is None else ["", f"{head}:", *(f"  {line}" for line in visible(text).split("\n"))]
