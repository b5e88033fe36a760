"""`opbench review`: people look at pairs of responses of a run. Made, steered and read here."""

from __future__ import annotations

import getpass
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import pandas as pd
import typer

from opbench.commands import review_files, review_people
from opbench.commands.options import print_json, print_table, rows_of, say, the_store, words
from opbench.errors import UsageError
from opbench.store import reviews
from opbench.store.database import Store
from opbench.store.reading import find_run

if TYPE_CHECKING:
    from opbench.review.checks import Check
    from opbench.review.making import Plan
    from opbench.review.spec import ReviewSpec
    from opbench.store.record import Key

app = typer.Typer(help="People's review of BASE against a memory system: make, invite, follow, pass on.")
review_people.add(app)
review_files.add(app)

Review = Annotated[str | None, typer.Argument(help="Review id (or its beginning) or name; default: the newest.")]
Yes = Annotated[bool, typer.Option("--yes", help="Don't ask.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("create")
def create_command(
    run: Annotated[str | None, typer.Argument(help="Run id or name; default: the newest.")] = None,
    name: Annotated[str, typer.Option(help="The review's name; default: the run's.")] = "",
    memory: Annotated[
        str | None, typer.Option(help="What is set against BASE: MEMORY/MITIGATION or MODEL/MEMORY/MITIGATION.")
    ] = None,
    subtypes: Annotated[str | None, typer.Option(help="OP-Bench subtypes, a,b; default all.")] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Items, spread over users and subtypes; default all.")
    ] = None,
    per_item: Annotated[int, typer.Option(min=1, max=9, help="Independent reviewers of an item.")] = 2,
    hours: Annotated[float, typer.Option(min=0.01, help="An item held for longer goes back to the pool.")] = 72.0,
    seed: Annotated[
        int | None,
        typer.Option(help="Of the order of items and of A and B; default: drawn, known to nobody."),
    ] = None,
    checks: Annotated[
        str, typer.Option(help="Spot checks with known answers: 'own' (a few of ours), 'none', or a JSON Lines file.")
    ] = "own",
    check_every: Annotated[int, typer.Option(min=2, max=100, help="One spot check in so many items.")] = 10,
    guidance: Annotated[str, typer.Option(help="Shown to reviewers above the item.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Tell what it would hold; make nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Make a review of a run's responses; prints its id. Then invite people: opbench review invite NAME."""
    from opbench.review.making import plan, save_plan
    from opbench.review.spec import ReviewSpec, drawn_seed

    store = the_store()
    run_id = find_run(store, run)
    base, other = _pair(store, run_id, memory)
    spec = ReviewSpec(
        base=base,
        memory=other,
        per_item=per_item,
        subtypes=words(subtypes) or (),
        limit=limit,
        seed=drawn_seed() if seed is None else seed,
        hours=hours,
        check_every=check_every,
        guidance=guidance,
    )
    known = _checks(checks)
    made = plan(store, run_id, spec)
    review_id = None
    if not dry_run:
        review_id = save_plan(store, run_id, spec, made, name=name or run_id, maker=getpass.getuser(), checks=known)
    _tell_plan(spec, made, len(known), review_id, as_json)


@app.command("list")
def list_command(as_json: Json = False) -> None:
    """List the reviews, newest first."""
    from opbench.review.deciding import progress

    store = the_store()
    rows = [(row, progress(store, row.id)) for row in reviews.review_list(store)]
    if as_json:
        print_json([_plain(row) | {"progress": asdict(state)} for row, state in rows])
    elif not rows:
        say("There is no review yet. Make one: opbench review create RUN")
    else:
        frame = pd.DataFrame(
            {
                "id": [row.id for row, _ in rows],
                "name": [row.name for row, _ in rows],
                "made": [_day(row.created_at) for row, _ in rows],
                "items": [row.items for row, _ in rows],
                "answers": [f"{state.answers}/{state.places}" for _, state in rows],
                "disputed": [state.disputed for _, state in rows],
                "accepted": [state.accepted for _, state in rows],
                "rejected": [state.rejected for _, state in rows],
                "state": ["open" if row.closed_at is None else "closed" for row, _ in rows],
            }
        )
        print_table(frame, {name: name for name in frame.columns})


@app.command("status")
def status_command(review: Review = None, as_json: Json = False) -> None:
    """How far a review is: decisions, people, users and subtypes."""
    from opbench.review import deciding

    store = the_store()
    row = reviews.get_review(store, reviews.find_review(store, review))
    state = deciding.progress(store, row.id)
    people, strata = deciding.by_reviewer(store, row.id), deciding.by_stratum(store, row.id)
    if as_json:
        told = {"progress": asdict(state), "reviewers": rows_of(people), "strata": rows_of(strata)}
        print_json(_plain(row) | told)
        return
    say(f"{row.name}  ({row.id}, {'open' if row.closed_at is None else 'closed'}, of run {row.run_id})")
    say(f"BASE against {' · '.join(row.spec.memory)}, {row.spec.per_item} reviewers an item")
    say(
        f"{state.items:,} items: {state.accepted:,} accepted, {state.rejected:,} rejected, {state.disputed:,} for the "
        f"adjudicator, {state.open:,} open"
    )
    say(
        f"{state.answers:,} answers, {state.missing:,} of {state.places:,} missing, {state.in_hand:,} in hand "
        f"({state.stale:,} for over {row.spec.hours:g} hours); {state.checks:,} answers to {row.checks:,} spot checks"
    )
    if len(people):
        heads = {name: name.replace("_", " ") for name in people.columns if name != "last_at"}
        print_table(people.assign(in_hand=people["in_hand"]), heads)
    print_table(strata, {name: name for name in strata.columns})


@app.command("show")
def show_command(
    item: Annotated[str, typer.Argument(help="The item's id, as 'opbench review items' lists them.")],
    review: Review = None,
    as_json: Json = False,
) -> None:
    """Show an item whole: question, both responses, and what was said of it."""
    from opbench.review.deciding import TOLD, items_frame
    from opbench.store.review_answers import answers_frame

    store = the_store()
    review_id = reviews.find_review(store, review)
    content = reviews.item_content(store, review_id, item)
    frame, said = items_frame(store, review_id), answers_frame(store, review_id)
    row, said = frame[frame["item"] == item].iloc[0], said[said["item"] == item]
    if as_json:
        (told,) = rows_of(frame[frame["item"] == item])
        print_json(told | {"content": content.model_dump(mode="json"), "said": rows_of(said)})
        return
    say(f"{item}  ({row['user']}, {row['subtype']})")
    say(f"question: {content.question}\n\nBASE: {content.base}\n\nwith memory: {content.memory}\n")
    for memory in content.memories:
        if memory.relevant:
            say(f"  retrieved: {memory.text}")
    for each in said.to_dict("records"):
        flag = " · flagged" if each["flagged"] else ""
        say(f"{each['reviewer']} ({each['role']}): {TOLD[each['verdict']]}{flag} {each['comment']}")
    if row["decision"] is not None:
        say(f"{row['decision']}: {row['reason']}")


@app.command("items")
def items_command(
    review: Review = None,
    decision: Annotated[
        str | None, typer.Option(help="Only these: open, disputed (the adjudicator's queue), accepted, rejected.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the items with their decisions."""
    from opbench.review.deciding import items_frame

    store = the_store()
    frame = items_frame(store, reviews.find_review(store, review))
    frame = frame[frame["known"].isna()].drop(columns="known")
    if decision is not None:
        if decision not in ("open", "disputed", "accepted", "rejected"):
            raise UsageError(f"--decision {decision}: open, disputed, accepted or rejected.")
        frame = frame[frame["decision"] == decision]
    if as_json:
        print_json(rows_of(frame))
    else:
        print_table(frame, {"item": "item", "answers": "answers", "decision": "decision", "reason": "reason"})


@app.command("agreement")
def agreement_command(
    review: Review = None,
    by: Annotated[str | None, typer.Option(help="subtype or user: a row each.")] = None,
    as_json: Json = False,
) -> None:
    """How far reviewers agree: percent, kappa, alpha with 95 % intervals; spot checks and time by reviewer."""
    from opbench.analysis import reviewing
    from opbench.store.review_answers import answers_frame

    if by not in (None, "subtype", "user"):
        raise UsageError(f"--by {by}: subtype or user.")
    store = the_store()
    answers = answers_frame(store, reviews.find_review(store, review))
    table, people = reviewing.agreement(answers, by), reviewing.reviewer_table(answers)
    if as_json:
        print_json({"agreement": rows_of(table), "reviewers": rows_of(people)})
        return
    shown = ("group", "items", "doubly", "percent", "kappa", "alpha", "alpha_low", "alpha_high", "score_alpha")
    notes = [f"{group}: {note}" for group, note in zip(table["group"], table["note"], strict=True) if note]
    print_table(table, {name: name.replace("_", " ") for name in shown}, title="Agreement", notes=notes)
    of_people = ("reviewer", "role", "answers", "agree", "kappa", "spot_n", "spot_right", "seconds_median")
    print_table(people, {name: name.replace("_", " ") for name in of_people}, title="Reviewers")


@app.command("rename")
def rename_command(
    review: Annotated[str, typer.Argument(help="Review id or name.")],
    name: Annotated[str, typer.Argument(help="The new name.")],
) -> None:
    """Give a review another name; its id stays."""
    store = the_store()
    reviews.rename_review(store, reviews.find_review(store, review), name)


@app.command("close")
def close_command(review: Review = None) -> None:
    """Take no more answers; what was said and decided stays."""
    store = the_store()
    reviews.close_review(store, reviews.find_review(store, review))


@app.command("reopen")
def reopen_command(review: Review = None) -> None:
    """Take answers again."""
    store = the_store()
    reviews.reopen_review(store, reviews.find_review(store, review))


@app.command("delete")
def delete_command(review: Annotated[str, typer.Argument(help="Review id or name.")], yes: Yes = False) -> None:
    """Delete a review with its answers and links. What it decided of a build's candidates stays with them."""
    store = the_store()
    review_id = reviews.find_review(store, review)
    if not yes:
        typer.confirm(f"Delete review {review_id} with all its answers?", abort=True)
    reviews.delete_review(store, review_id)


def _pair(store: Store, run_id: str, memory: str | None) -> tuple[Key, Key]:
    from opbench.review.making import pairs_of

    pairs = pairs_of(store, run_id)
    if not pairs:
        raise UsageError(
            f"run {run_id} has no model with BASE and a memory system: a review sets one against the other."
        )
    names = ["/".join(pair[1]) for pair in pairs]
    fitting = [pair for pair, name in zip(pairs, names, strict=True) if memory in (None, name, name.partition("/")[2])]
    if not fitting:
        raise UsageError(f"run {run_id} has no '{memory}'. There are: {', '.join(names[:20])}.")
    if memory is not None and len(fitting) > 1:
        raise UsageError(f"'{memory}' fits several models: write MODEL/{memory}.")
    return fitting[0]


def _checks(told: str) -> tuple[Check, ...]:
    from opbench.review.checks import default_checks, read_checks

    if told == "none":
        return ()
    return (
        default_checks()
        if told == "own"
        else read_checks(review_files.read(Path(told)).decode("utf-8-sig", "replace"), told)
    )


def _tell_plan(spec: ReviewSpec, made: Plan, checks: int, review_id: str | None, as_json: bool) -> None:
    counts = pd.Series([item.subtype for item in made.items]).value_counts(sort=False)
    if as_json:
        print_json(
            {
                "review": review_id,
                "items": len(made.items),
                "subtypes": {str(name): int(n) for name, n in counts.items()},
                "users": len({item.user for item in made.items}),
                "answers": len(made.items) * spec.per_item,
                "checks": checks,
                "build": made.build_id,
                "left_out": made.left_out,
            }
        )
        return
    told = ", ".join(f"{name} {n}" for name, n in counts.items())
    say(
        f"{len(made.items):,} items ({told}), {len(made.items) * spec.per_item:,} answers, {checks} spot checks",
        err=True,
    )
    # About a minute an item: paper, A.3.2.
    say(
        f"BASE against {' · '.join(spec.memory)}: about {len(made.items) * spec.per_item / 60:.1f} hours of work",
        err=True,
    )
    for reason, n in made.left_out.items():
        say(f"left out {n:,}: {reason}", err=True)
    if review_id is not None:
        say(review_id)


def _plain(row: reviews.ReviewRow) -> dict[str, object]:
    return asdict(row) | {"spec": row.spec.model_dump(mode="json")}


def _day(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M UTC")
