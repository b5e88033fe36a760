"""The command line. Exit codes: 0 done, 1 the work failed or is incomplete, 2 wrong use."""

from __future__ import annotations

import sys

import typer

from opbench.commands import (
    ask,
    audit,
    build,
    case,
    compare,
    data,
    gateway,
    instances,
    judges,
    mechanism,
    memory,
    models,
    plugins,
    results,
    review,
    run,
    serve,
    sharing,
)
from opbench.commands.options import say
from opbench.errors import OpbenchError, UsageError

app = typer.Typer(
    name="opbench",
    help="Run and read mitigation studies of over-personalisation (OP-Bench, LoCoMo).",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.add_typer(data.app, name="data")
app.add_typer(memory.app, name="memory")
app.add_typer(build.app, name="build")
app.add_typer(case.app, name="case")
app.add_typer(mechanism.app, name="mechanism")
app.add_typer(judges.app, name="judges")
app.add_typer(review.app, name="review")
models.add(app)
run.add(app)
plugins.add(app)
results.add(app)
audit.add(app)
sharing.add(app)
ask.add(app)
instances.add(app)
compare.add(app)
gateway.add(app)
serve.add(app)


def main() -> None:
    """Entry of the `opbench` command: every error of ours is one line and an exit code."""
    try:
        app()
    except UsageError as error:
        say(f"opbench: {error}", err=True)
        sys.exit(2)
    except OpbenchError as error:
        say(f"opbench: {error}", err=True)
        sys.exit(1)
