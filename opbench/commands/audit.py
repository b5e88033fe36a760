"""`opbench audit`: the published averages against the rules, and what one rule does to the ranking."""

from __future__ import annotations

from typing import Annotated

import typer

from opbench.analysis import audit
from opbench.analysis.aggregate import RULES, Rule
from opbench.commands.options import print_json, print_table, rows_of
from opbench.errors import UsageError

_RANKING = {
    "place": "place",
    "model": "model",
    "memory": "memory",
    "drop": "drop %",
    "published_drop": "printed %",
    "published_place": "was",
    "swaps": "pairs",
}
_PAIRS = {
    "first": "printed as greater",
    "second": "printed as smaller",
    "first_published": "printed",
    "second_published": "printed ",
    "first_recomputed": "recomputed",
    "second_recomputed": "recomputed ",
}


def add(app: typer.Typer) -> None:
    app.command("audit")(audit_command)


def audit_command(
    rule: Annotated[str | None, typer.Option(help=f"Rank the drops by one rule instead: {', '.join(RULES)}.")] = None,
    first_only: Annotated[bool, typer.Option("--first-only", help="With --rule: counts of first speakers.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Recompute the published averages under each rule, and say which rule fits each row."""
    if rule is not None:
        _print_ranking(_rule(rule), "first" if first_only else "all", as_json)
    elif first_only:
        raise UsageError("--first-only goes with --rule; the audit itself tells both")
    elif as_json:
        print_json(rows_of(audit.audit()))
    else:
        typer.echo(audit.to_text())


def _rule(name: str) -> Rule:
    for rule in RULES:
        if rule == name:
            return rule
    raise UsageError(f"no rule '{name}'. There are: {', '.join(RULES)}.")


def _print_ranking(rule: Rule, scope: audit.Scope, as_json: bool) -> None:
    ranking, pairs = audit.ranking(rule, scope), audit.changes_table(rule, scope)
    if as_json:
        print_json({"rule": rule, "scope": scope, "ranking": rows_of(ranking), "pairs": rows_of(pairs)})
        return
    first = ", first speakers" if scope == "first" else ""
    print_table(ranking, _RANKING, title=f"Published drops below BASE by {rule}{first}")
    print_table(pairs, _PAIRS, title=f"{len(pairs)} of {audit.PAIRS} pairs change their order")
