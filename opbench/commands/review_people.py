"""`opbench review`: who takes part, and answering from the command line."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from opbench.commands.options import print_json, say, the_store
from opbench.errors import UsageError
from opbench.store import reviews
from opbench.store.database import Store

Person = Annotated[str, typer.Argument(help="The reviewer's name.")]
Of = Annotated[str | None, typer.Option("--review", help="Review id or name; default: the newest.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Address = Annotated[str, typer.Option(help="The dashboard's address, for the link.")]
_HERE = "http://localhost:8501"


def add(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("invite")(invite_command)
    app.command("renew")(renew_command)
    app.command("leave")(leave_command)
    app.command("role")(role_command)
    app.command("next")(next_command)
    app.command("answer")(answer_command)
    app.command("undo")(undo_command)


def invite_command(
    name: Person,
    review: Of = None,
    senior: Annotated[bool, typer.Option("--senior", help="The adjudicator, instead of a reviewer.")] = False,
    sign_in: Annotated[
        str | None, typer.Option(help="They sign in with this e-mail address, and need no link.")
    ] = None,
    address: Address = _HERE,
    as_json: Json = False,
) -> None:
    """Invite somebody; prints their personal link, this once. Who has the link can answer in their name."""
    from opbench.review.links import invite

    store = the_store()
    made = invite(
        store,
        reviews.find_review(store, review),
        name,
        role="senior" if senior else "reviewer",
        sign_in=sign_in,
    )
    _tell_link(made.secret, made.reviewer, address, as_json)


def renew_command(name: Person, review: Of = None, address: Address = _HERE, as_json: Json = False) -> None:
    """Print a new link for somebody; the old one is void. Brings back who left."""
    from opbench.review.links import renew

    store = the_store()
    person = _person(store, review, name)
    _tell_link(renew(store, person.id), person, address, as_json)


def leave_command(name: Person, review: Of = None) -> None:
    """Take somebody out: the link is void, unfinished items return to the pool, answers stay."""
    from opbench.review.links import leave

    store = the_store()
    person = _person(store, review, name)
    say(f"{person.name} left; {leave(store, person.id)} items in hand went back to the pool")


def role_command(
    name: Person, role: Annotated[str, typer.Argument(help="reviewer or senior.")], review: Of = None
) -> None:
    """Make somebody a reviewer or the adjudicator (senior)."""
    from opbench.review.links import set_role

    if role not in ("reviewer", "senior"):
        raise UsageError(f"role '{role[:40]}': reviewer or senior.")
    store = the_store()
    set_role(store, _person(store, review, name).id, "senior" if role == "senior" else "reviewer")


def next_command(name: Person, review: Of = None, as_json: Json = False) -> None:
    """Show what somebody has in hand, or else give them the next item."""
    store = the_store()
    _tell_next(store, _person(store, review, name), as_json)


def answer_command(
    name: Person,
    choice: Annotated[str, typer.Argument(help="Which response is over-personalised: a, b, neither or both.")],
    review: Of = None,
    a: Annotated[
        float | None, typer.Option("--a", min=0.0, max=1.0, help="Score of A; 1: not over-personalised.")
    ] = None,
    b: Annotated[float | None, typer.Option("--b", min=0.0, max=1.0, help="Score of B.")] = None,
    comment: Annotated[str, typer.Option(help="A comment; the adjudicator sees it.")] = "",
    flag: Annotated[bool, typer.Option("--flag", help="Send it to the adjudicator.")] = False,
    as_json: Json = False,
) -> None:
    """Answer what somebody has in hand, in their name, and show the next item."""
    from opbench.review.answering import answer
    from opbench.review.assigning import CHOICES, next_task

    chosen = next((each for each in CHOICES if each == choice.lower()), None)
    if chosen is None:
        raise UsageError(f"'{choice[:40]}': a, b, neither or both.")
    if len(comment) > 2000:
        raise UsageError(f"the comment has {len(comment):,} signs: give at most 2,000.")
    store = the_store()
    person = _person(store, review, name)
    task = next_task(store, person.id)
    if task is None:
        raise UsageError(f"{person.name} has nothing to answer at present.")
    answer(store, person.id, task.item, task.press, task.saying(chosen, a=a, b=b, comment=comment, flagged=flag))
    _tell_next(store, person, as_json)


def undo_command(name: Person, review: Of = None, as_json: Json = False) -> None:
    """Take back somebody's newest answer and show the item again."""
    from opbench.review.answering import undo

    store = the_store()
    person = _person(store, review, name)
    if undo(store, person.id) is None:
        raise UsageError(f"{person.name} has no answer to take back.")
    _tell_next(store, person, as_json)


def _person(store: Store, review: str | None, name: str) -> reviews.Reviewer:
    return reviews.find_reviewer(store, reviews.find_review(store, review), name)


def _tell_link(secret: str | None, person: reviews.Reviewer, address: str, as_json: bool) -> None:
    from opbench.review.links import link_path

    link = None if secret is None else address.rstrip("/") + link_path(secret)
    if as_json:
        print_json({"reviewer": person.name, "role": person.role, "sign_in": person.sign_in, "link": link})
    elif link is None:
        say(f"{person.name} takes part when signed in as {person.sign_in}")
    else:
        say(f"{person.name}'s personal link; it is shown this once:", err=True)
        say(link)


def _tell_next(store: Store, person: reviews.Reviewer, as_json: bool) -> None:
    from opbench.review.assigning import next_task, outlook

    task, left = next_task(store, person.id), outlook(store, person.id)
    if as_json:
        shown = None
        if task is not None:
            shown = {
                "item": task.item,
                "subtype": task.subtype,
                "question": task.content.question,
                "a": task.a,
                "b": task.b,
                "profile": task.content.profile,
                "topics": list(task.content.topics),
                "memories": [memory.model_dump(mode="json") for memory in task.content.memories],
                "notes": [asdict(note) for note in task.notes],
            }
        print_json({"task": shown, "outlook": asdict(left)})
        return
    if task is None:
        say(f"Nothing for {person.name} at present: {left.answered} answered, {left.elsewhere} may come yet.")
        return
    say(f"{left.answered} answered, {left.in_hand + left.free} left\n\nprofile: {task.content.profile}\n")
    for memory in task.content.memories:
        if memory.relevant:
            say(f"  relevant: {memory.text}")
    say(f"\nquestion: {task.content.question}\n\nA: {task.a}\n\nB: {task.b}")
    for note in task.notes:
        order = " (saw A and B the other way round)" if note.swapped else ""
        say(f"a reviewer{order}{', flagged' if note.flagged else ''}: {note.comment}")
