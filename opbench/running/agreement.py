"""Whether two machines that are to do one study would do the same: code, data, registry and methods."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from opbench import __version__
from opbench.judges import is_rule_judge
from opbench.running.prepare import Prepared
from opbench.settings import ROOT

_PACKAGES = ("opbench", "mitigations")


def fingerprint(prepared: Prepared, *, code: bool = True) -> dict[str, str]:
    """Heads of digests by what they are of, in words for people: equal where the study would be done alike. Of registry
    entries all is compared, prices and limits too; nothing of them can be read from it. Without `code` the workbench
    itself is left out."""
    study, registry = prepared.study, prepared.registry
    models = [*study.models, *([] if is_rule_judge(study.judge) else [study.judge])]
    models += [prepared.extractor] if prepared.extractor is not None else []
    found: dict[str, Any] = {
        **({f"version of the workbench ({__version__})": _code()} if code else {}),
        "benchmark data": [prepared.provenance["data"], prepared.provenance["history"]],
        **{f"registry entry of the model {name}": registry.model(name).model_dump(mode="json") for name in models},
        f"registry entry of the embedder {study.embedder}": registry.embedder(study.embedder).model_dump(mode="json"),
        # Whatever else determines results: weights, libraries' versions, prompts, methods, plugins.
        "study as it is prepared there": prepared.digest,
    }
    return {name: _digest(value) for name, value in found.items()}


def differences(here: Mapping[str, str], there: Mapping[str, str]) -> list[str]:
    """What of one fingerprint of a study is otherwise in another; the whole is named only where no part tells it."""
    names = [name for name, digest in here.items() if there.get(name) != digest]
    parts = [name for name in names if not name.startswith("study ")]
    return parts or names


@cache
def _code() -> str:
    """Digest over all that our packages' folders hold, but for what Python makes in them."""
    whole = hashlib.sha256()
    for package in _PACKAGES:
        for file in sorted((ROOT / package).rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                whole.update(f"{file.relative_to(ROOT)}\0{hashlib.sha256(file.read_bytes()).hexdigest()}\0".encode())
    return whole.hexdigest()


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:16]
