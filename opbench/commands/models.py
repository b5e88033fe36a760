"""`opbench models`: what is in the registry, and which of it answers now."""

from __future__ import annotations

import asyncio
from typing import Annotated

import pandas as pd
import typer

from opbench.commands.options import print_json, print_table, rows_of
from opbench.models import Availability, EmbedderSpec, ModelClient, ModelSpec, load_registry, probe_all


def add(app: typer.Typer) -> None:
    app.command("models")(models_command)


def models_command(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    no_probe: Annotated[bool, typer.Option("--no-probe", help="Only list; ask no endpoint.")] = False,
) -> None:
    """List models and embedders, and say which answer now."""
    registry = load_registry()
    specs: list[ModelSpec | EmbedderSpec] = [*registry.models.values(), *registry.embedders.values()]

    async def ask_all() -> list[Availability]:
        async with ModelClient(registry) as client:
            return await probe_all(client)

    answers = {} if no_probe else {answer.name: answer for answer in asyncio.run(ask_all())}
    frame = pd.DataFrame(
        [
            {
                "name": spec.name,
                "label": spec.label,
                "kind": spec.kind,
                "endpoint": spec.base_url or "embedded",
                "key": spec.key_env or "",
                "price_in": spec.price_in,
                "price_out": getattr(spec, "price_out", None),
                "answers": answers[spec.name].ok if spec.name in answers else None,
                "detail": answers[spec.name].detail if spec.name in answers else "not asked",
                "note": spec.note or "",
            }
            for spec in specs
        ]
    )
    if as_json:
        print_json(rows_of(frame))
        return
    frame["answers"] = frame["answers"].map({True: "yes", False: "no"}).fillna("?")
    print_table(
        frame,
        {
            "name": "model",
            "answers": "answers",
            "endpoint": "endpoint",
            "price_in": "$ in /M",
            "price_out": "$ out /M",
            "detail": "what it said",
        },
        notes=[f"{row['name']}: {row['note']}" for row in rows_of(frame) if row["note"]],
    )
