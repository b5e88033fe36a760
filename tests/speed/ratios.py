"""The benchmark's ratios: shown beside their aims, kept as a baseline, and compared with it.

Every ratio is one of two numbers of the same run on the same machine, and higher is better, so that a slower machine
doesn't change it much.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BASELINE = Path(__file__).parent / "baseline.json"
#: A ratio that falls below this part of the baseline's has fallen by a third.
KEPT = 2 / 3
#: Two thirds as a binary fraction are a little less than two thirds.
_HAIR = 1 + 1e-9


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio with what it was made of, in words."""

    name: str
    value: float
    of: str
    aim: float | None = None
    """What it is to reach; None where nothing is aimed at."""

    @property
    def line(self) -> str:
        met = "" if self.aim is None else f"  aim {self.aim:.2f}: {'met' if self.value >= self.aim else 'MISSED'}"
        return f"{self.name} {self.value:.3f}  ({self.of}){met}"


def machine() -> dict[str, Any]:
    """What the numbers were taken on."""
    return {
        "processor": _processor(),
        "processors": os.cpu_count(),
        "machine": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
    }


def _processor() -> str:
    """The processor's name; empty where the system doesn't tell."""
    try:
        told = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in told.splitlines() if line.startswith("model name")]
    return names[0] if names else platform.processor()


def write_baseline(ratios: Sequence[Ratio], file: Path = BASELINE) -> None:
    """Keep these ratios; those of parts that weren't run stay as they are."""
    kept = read_baseline(file) if file.exists() else {}
    kept |= {ratio.name: round(ratio.value, 4) for ratio in ratios}
    content = {"taken_on": machine(), "ratios": dict(sorted(kept.items()))}
    file.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read_baseline(file: Path = BASELINE) -> dict[str, float]:
    """Ratios by name."""
    ratios: dict[str, float] = json.loads(file.read_text(encoding="utf-8"))["ratios"]
    return ratios


def fallen(ratios: Sequence[Ratio], baseline: dict[str, float], *, whole: bool = True) -> list[str]:
    """A line for each ratio that fell by a third or more; with `whole` also for those that weren't measured."""
    measured = {ratio.name: ratio.value for ratio in ratios}
    lines = []
    for name, before in baseline.items():
        if name not in measured:
            if whole:
                lines.append(f"{name}: the baseline has {before:.3f}, and it wasn't measured")
        elif not measured[name] > before * KEPT * _HAIR:
            part = 100 * (1 - measured[name] / before)
            lines.append(f"{name}: {measured[name]:.3f}, {part:.0f} % below the baseline's {before:.3f}")
    return lines
