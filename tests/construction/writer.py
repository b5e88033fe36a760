"""A scripted model that writes what a schema asks for: every text is another one, by a digest of request and place."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

from opbench.construction.spec import BuildSpec, Counts

#: Few questions of every kind: 3 + 2 + 1 + 1 + 1 + 1 + 2 units of tasks beside similarity, a user.
FEW = Counts(topics=1, irrelevant=1, baiting=2, fact=1, value=1, fine=1, coarse=1, subtopics=1, repetition=2)
#: General topics that the scripted model calls unrelated.
UNRELATED = ("health", "politics", "finance")
WORDS = (
    *("amber", "bridge", "cedar", "delta", "ember", "forest", "grain", "harbour", "island", "kettle", "lantern"),
    *("meadow", "needle", "orchard", "pebble", "quarry", "ribbon", "saddle", "timber", "velvet", "willow", "zinc"),
)


def scripted_spec(**further: Any) -> BuildSpec:
    roles = {"extractor": "scripted", "generators": ("scripted",), "similarity": "scripted", "checker": "scripted"}
    return BuildSpec(**{"counts": FEW, "embedder": "scripted", **roles, **further})


def schema_of(body: dict[str, Any]) -> dict[str, Any] | None:
    """The schema that a request asks for."""
    form = body.get("response_format") or {}
    found: dict[str, Any] | None = form.get("json_schema", {}).get("schema")
    return found


def write(body: dict[str, Any]) -> str:
    """The answer of a model that does what it is told."""
    schema = schema_of(body)
    assert schema is not None, "no schema was asked for"
    return json.dumps(filled(schema, seed=json.dumps(body["messages"]) + str(body.get("seed"))))


def filled(schema: dict[str, Any], seed: str, place: str = "") -> Any:
    if "enum" in schema:
        if schema["enum"] == ["related", "unrelated"]:
            return "unrelated" if place.removeprefix(".") in UNRELATED else "related"
        return schema["enum"][0]
    if schema["type"] == "array":
        count = schema.get("minItems", 1)
        return [filled(schema["items"], seed, f"{place}[{number}]") for number in range(count)]
    if schema["type"] == "object":
        return {name: filled(part, seed, f"{place}.{name}") for name, part in schema["properties"].items()}
    name = place.rpartition(".")[2].partition("[")[0]
    words = _words(f"{seed}{place}", 12 if name in ("profile", "summary") else 7)
    return f"{words.capitalize()}?" if name in ("question", "questions") else words


def _words(seed: str, n: int) -> str:
    digest = hashlib.sha256(seed.encode()).digest()
    return " ".join(WORDS[byte % len(WORDS)] for byte in digest[:n])


def changed(change: Callable[[dict[str, Any], dict[str, Any]], Any]) -> Callable[[dict[str, Any]], str]:
    """A model whose answers are changed: `change` gets the request and the answer, and gives the answer's text, or
    what is written as JSON."""

    def reply(body: dict[str, Any]) -> str:
        given = change(body, json.loads(write(body)))
        return given if isinstance(given, str) else json.dumps(given)

    return reply
