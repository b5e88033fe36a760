"""What differs between two runs, and whether their numbers may be compared at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pandas as pd

from opbench.analysis.differences import Side
from opbench.study import BASE, Study

COLUMNS = ["what", "before", "after"]
#: Decisive for what a score means: of other judges, data or questions a change says nothing of the configurations.
_JUDGE, _DATA, _HISTORY, _EMBEDDER = "judge", "data", "histories", "embedder of the repetition score"
_PROTOCOL = "LoCoMo protocol"


def unlike(before: Side, after: Side) -> pd.DataFrame:
    """One row a fact that differs between the two: what, before, after (text; empty where there is none).

    Nested facts are taken apart: `judge: prompts`. What concerns configurations other than these two is left out.
    """
    first, second = _facts(before), _facts(after)
    # Of conversations that only one of the runs has, the other tells nothing.
    names = [
        name
        for name in dict.fromkeys([*first, *second])
        if not name.startswith(_HISTORY) or (name in first and name in second)
    ]
    rows = [(name, first.get(name, ""), second.get(name, "")) for name in names]
    return pd.DataFrame([row for row in rows if row[1] != row[2]], columns=COLUMNS)


def doubts(before: Side, after: Side) -> list[str]:
    """Why the numbers of the two may not be compared, a sentence each; empty when they may."""
    if before.data.run_id == after.data.run_id:
        return []
    groups = {name.partition(":")[0] for name in unlike(before, after)["what"]}
    judges = before.data.study.judge, after.data.study.judge
    sentences = []
    if _JUDGE in groups:
        names = " and ".join(judges) if judges[0] != judges[1] else f"{judges[0]} with other prompts or settings"
        sentences.append(
            f"The judges differ ({names}): a change may be the judge's, so the numbers may not be compared."
        )
    if _PROTOCOL in groups:
        sentences += _of_protocols(before.data.study, after.data.study)
    if _DATA in groups:
        sentences.append(
            "The data files differ, or one run doesn't tell which it read: an id may name another question, so the "
            "numbers may not be compared."
        )
    elif _HISTORY in groups:
        sentences.append("The conversations that the memory systems read differ: the numbers may not be compared.")
    if _EMBEDDER in groups:
        sentences.append("The embedders differ: repetition may not be compared.")
    return sentences


def _of_protocols(before: Study, after: Study) -> list[str]:
    """What unlike LoCoMo protocols come to; nothing where one of the runs asks no LoCoMo question."""
    if not all("locomo" in study.benchmarks for study in (before, after)):
        return []
    if before.protocol != after.protocol:
        names = f"{before.protocol} and {after.protocol}"
        return [f"The LoCoMo protocols differ ({names}): the LoCoMo numbers may not be compared."]
    return [f"The prompts or rules of LoCoMo's protocol {before.protocol} differ: its numbers may not be compared."]


def _facts(side: Side) -> dict[str, str]:
    """Facts by name, as text, of the run and of this configuration."""
    study, known = side.data.study, side.data.provenance
    model, memory, mitigation = side.key
    facts: dict[str, Any] = {
        "model": {"name": model, **_of(known, "models", model)},
        "memory system": {"name": memory, **_of(known, "memories", memory)},
        "post-processor": {"name": mitigation, "prompts": dict(known.get("mitigations") or {}).get(mitigation)},
        _JUDGE: {"name": study.judge, "pack": study.judge_pack, **_mapping(known.get("judge"))},
        _DATA: known.get("data"),
        _HISTORY: known.get("history"),
        _EMBEDDER: {"name": study.embedder, **_mapping(known.get("embedder"))},
        _PROTOCOL: {"name": study.protocol, **_mapping(known.get("protocol"))},
        "response prompts": known.get("response_prompts"),
        "memories retrieved (k)": None if memory == BASE else study.k,
        "temperature": study.temperature,
        "longest response, tokens": study.max_tokens,
        "benchmarks": ", ".join(sorted(study.benchmarks)),
        "users": ", ".join(sorted(study.users)) or "all",
        "subtypes": ", ".join(sorted(study.subtypes)) or "all",
        "instances a benchmark": study.limit or "all",
        "seed of the slice": study.seed,
        "adversarial questions": study.adversarial,
        "exclusion lists": ", ".join(sorted(study.exclude)) or "none",
        "latency probe": study.latency_probe,
        "model answered as": ", ".join(_mapping(known.get("answered_as")).get(model) or []),
        "plugins": known.get("plugins"),
        "workbench": known.get("workbench"),
        "commit": known.get("git_commit"),
    }
    return {name: text for key, value in facts.items() for name, text in _flat(key, value)}


def _of(known: Mapping[str, Any], group: str, name: str) -> dict[str, Any]:
    return _mapping(_mapping(known.get(group)).get(name))


def _mapping(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}


def _flat(name: str, value: Any) -> list[tuple[str, str]]:
    if value is None:
        return []
    if isinstance(value, Mapping):
        return [pair for key, each in value.items() for pair in _flat(f"{name}: {key}", each)]
    if isinstance(value, str):
        return [(name, value)]
    return [(name, json.dumps(value, sort_keys=True, ensure_ascii=False, default=str))]
