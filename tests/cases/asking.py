"""A desk, a scripted endpoint and a judge whose numbers are known, for tests of live cases."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from opbench.cases.spec import CaseSpec, Column, Given
from opbench.judges import register_judge
from opbench.judges.base import Evidence
from opbench.settings import settings
from opbench.types import Complete, Score
from tests.scripted_endpoint import ScriptedEndpoint

USER = "sample-1/Ottilie"
QUESTION = "What should I do on Saturday?"
BREAD, BOAT, TEA = "Ottilie bakes bread.", "Ottilie sold her boat.", "Ottilie likes tea."
GIVEN = (Given(text=BREAD, date="9 May 2024"), Given(text=BOAT), Given(text=TEA))
QUIET, SAILING = "Read a good novel in the garden.", "Sail away on your old boat."


def reply(body: dict[str, Any]) -> str:
    """Who knows of the boat speaks of the boat; a filter keeps the first and the second memory that it is given."""
    text = body["messages"][-1]["content"]
    if "FILTER" in body["messages"][0]["content"]:
        return "\n".join(line for line in (f"1. {BREAD}", f"2. {BOAT}") if line.split(". ", 1)[1] in text)
    return SAILING if BOAT in text else QUIET


class Boats:
    """0.25 for a response with a boat, 1 for any other."""

    name, comparable = "boats", False

    def provenance(self) -> dict[str, str]:
        return {"judge": "boats", "version": "1"}

    async def score(self, evidence: Evidence, complete: Complete) -> list[Score]:
        boat = "boat" in evidence.response
        return [Score("score", 0.25 if boat else 1.0, "speaks of a boat" if boat else None)]


def use(home: Path, endpoint: ScriptedEndpoint, **fields: float | int | str) -> None:
    """The endpoint as the model and the embedder `scripted`, and the judge `boats`."""
    home.mkdir(parents=True, exist_ok=True)
    file = home / "models.toml"
    file.write_text(endpoint.registry_toml("scripted", **fields))
    os.environ["OPBENCH_MODELS"] = str(file)
    settings.cache_clear()
    register_judge("boats", Boats)


@contextmanager
def serving(home: Path, **more: Any) -> Iterator[ScriptedEndpoint]:
    """The endpoint while the block lasts; `fields` are of its registry entry, the others of the endpoint."""
    fields = more.pop("fields", {})
    before = os.environ.get("OPBENCH_MODELS")
    with ScriptedEndpoint(**({"reply": reply} | more)) as endpoint:
        use(home, endpoint, **fields)
        try:
            yield endpoint
        finally:
            if before is None:
                del os.environ["OPBENCH_MODELS"]
            settings.cache_clear()


def spec(*columns: dict[str, Any], **more: Any) -> CaseSpec:
    """BASE of `scripted`, and these columns with the given memories and RAG's name where they don't say otherwise."""
    made = [Column(**({"model": "scripted", "memory": "rag", "given": GIVEN} | column)) for column in columns]
    fields = {"question": QUESTION, "user": USER, "data": "sample", "embedder": "scripted", "judge": "boats"}
    return CaseSpec(**(fields | {"columns": (Column(model="scripted"), *made)} | more))


def soon(what: Callable[[], Any], seconds: float = 20.0) -> bool:
    """Whether it comes true in time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if what():
            return True
        time.sleep(0.005)
    return False
