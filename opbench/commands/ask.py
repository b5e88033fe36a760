"""`opbench ask`: one question through the three stages, shown as they come out."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from opbench.benchmarks import load
from opbench.commands.options import print_json, say, the_store
from opbench.errors import UsageError
from opbench.plugins import load_plugins
from opbench.running.asking import Answer, ask
from opbench.study import make_study


def add(app: typer.Typer) -> None:
    app.command("ask")(ask_command)


def ask_command(
    question: Annotated[str, typer.Argument(help="What the user says.")],
    user: Annotated[str | None, typer.Option(help="User id such as conv-26/Caroline; default: the first.")] = None,
    model: Annotated[str, typer.Option(help="Model name.")] = "smollm2-135m",
    memory: Annotated[str, typer.Option(help="Memory system.")] = "rag",
    mitigation: Annotated[str, typer.Option(help="Post-processor.")] = "none",
    k: Annotated[int, typer.Option(min=1, help="Memories.")] = 5,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest response in tokens.")] = 512,
    sample: Annotated[bool, typer.Option("--sample", help="Take the bundled sample's users.")] = False,
    plugin: Annotated[list[Path] | None, typer.Option(help="A Python file with methods of your own.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Ask one question: retrieved memories, what the post-processor kept, the response, times and tokens."""
    load_plugins(plugin or [])
    if not question.strip():
        raise UsageError("the question is empty.")
    known = load("sample" if sample else None).users
    study = make_study(
        {
            "models": (model,),
            "memories": (memory,),
            "mitigations": (mitigation,),
            "users": (user or next(iter(known)),),
            "k": k,
            "max_tokens": max_tokens,
            "data": "sample" if sample else "auto",
        },
        where="opbench ask",
    )
    answer = asyncio.run(ask(the_store(), study, question))
    if as_json:
        print_json(asdict(answer))
    else:
        _print(answer)


def _print(answer: Answer) -> None:
    say(f"user {answer.user}, {answer.configuration}")
    for number, memory in enumerate(answer.retrieved, 1):
        similarity = "" if memory["score"] is None else f" {memory['score']:.3f}"
        say(f"  [{number}]{similarity} ({memory['date']}) {memory['text']}")
    if answer.state:
        say(f"post-processor: {answer.state}" + (f" ({answer.state_reason})" if answer.state_reason else ""))
        for line in answer.context:
            say(f"  · {line}")
    if answer.draft is not None:
        say(f"draft: {answer.draft}")
    if answer.critique:
        say(f"critique: {answer.critique}")
    say(f"\n{answer.response}\n")
    stages = ", ".join(
        f"{name} {milliseconds:,.0f} ms" + (" (reused)" if answer.reused[name] else "")
        for name, milliseconds in answer.milliseconds.items()
    )
    cost = "unknown" if answer.cost_usd is None else f"${answer.cost_usd:.6f}"
    say(f"{stages}; {answer.prompt_tokens} tokens in, {answer.completion_tokens} out; cost {cost}")
