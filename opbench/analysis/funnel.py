"""What becomes of a build's candidates, step by step, in numbers that add up (paper, A.3.1)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pandas as pd

from opbench.construction.filtering import FILTERS
from opbench.store.builds import count_candidates
from opbench.store.database import Store

COLUMNS = ["step", "label", "n", "dropped", "undecided", "share", "note"]
LABELS = {
    "generated": "generated",
    "format": "usable form",
    "length": "right length",
    "template": "own beginning",
    "duplicate": "no near-duplicate",
    "true-memory": "memory is false",
    "personal": "not personal",
    "filtered": "kept by filters",
    "reviewed": "not rejected",
    "accepted": "accepted",
}


@dataclass(frozen=True, slots=True)
class Fate:
    """How many candidates of one kind there are."""

    generated: int
    dropped: dict[str, int]
    """By filter."""
    undecided: int
    """The filters haven't come to them, or their check failed."""
    kept: int
    """Kept, and people haven't decided."""
    accepted: int
    rejected: int


def fate(store: Store, build_id: str, *, generator: str | None = None, subtype: str | None = None) -> Fate:
    """The fate of a build's candidates: generated = dropped + undecided + kept + accepted + rejected."""
    dropped = dict.fromkeys(FILTERS, 0)
    states: Counter[str] = Counter()
    for by, kind, state, decided_by, n in count_candidates(store, build_id):
        if generator not in (None, by) or subtype not in (None, kind):
            continue
        states[state] += n
        if state == "dropped":
            dropped[decided_by or "format"] += n
    return Fate(
        sum(states.values()), dropped, states["candidate"], states["kept"], states["accepted"], states["rejected"]
    )


def funnel(store: Store, build_id: str, *, generator: str | None = None, subtype: str | None = None) -> pd.DataFrame:
    """A row a step, of all candidates or those of a generator or subtype: `COLUMNS`.

    n: candidates left after the step; dropped: by it; undecided: neither dropped by it nor gone on to the next (not
    filtered yet, or people haven't decided): n = n of the row before − dropped − undecided. share: n of all generated
    (0 to 1; NaN without any). note: what a reader should know.
    """
    of = fate(store, build_id, generator=generator, subtype=subtype)
    rows: list[dict[str, Any]] = []

    def step(name: str, dropped: int = 0, undecided: int = 0, note: str = "") -> None:
        n = (rows[-1]["n"] if rows else of.generated) - dropped - undecided
        share = n / of.generated if of.generated else float("nan")
        cells = {"step": name, "label": LABELS[name], "n": n, "dropped": dropped, "undecided": undecided}
        rows.append({**cells, "share": share, "note": note})

    step("generated")
    for name in FILTERS:
        step(name, of.dropped[name])
    waits = "not filtered yet, or their check failed: filter again" if of.undecided else ""
    step("filtered", undecided=of.undecided, note=waits)
    step("reviewed", of.rejected)
    step("accepted", undecided=of.kept, note="nobody has decided on them yet" if of.kept else "")
    return pd.DataFrame(rows, columns=COLUMNS)


def published_funnel() -> pd.DataFrame:
    """The paper's own (A.3.1): `COLUMNS`, published."""
    steps = (
        ("generated", "generated", 10_000, ""),
        ("filtered", LABELS["filtered"], 4_289, ""),
        ("reviewed", "after two annotators", 3_075, "28.3 % rejected"),
        (
            "accepted",
            "after adjudication",
            1_700,
            "the paper has 22.6 % of 3,075 (695) adjudicated, which can't account for 1,375 fewer",
        ),
    )
    numbers = [n for _, _, n, _ in steps]
    rows = [
        {
            "step": step,
            "label": label,
            "n": n,
            "dropped": before - n,
            "undecided": 0,
            "share": n / numbers[0],
            "note": note,
        }
        for (step, label, n, note), before in zip(steps, [numbers[0], *numbers[:-1]], strict=True)
    ]
    return pd.DataFrame(rows, columns=COLUMNS)


def reasons(store: Store, build_id: str) -> pd.DataFrame:
    """Dropped candidates by generator, subtype and filter: generator, subtype, filter, n; most first."""
    rows = [
        {"generator": generator, "subtype": subtype, "filter": decided_by or "format", "n": n}
        for generator, subtype, state, decided_by, n in count_candidates(store, build_id)
        if state == "dropped"
    ]
    frame = pd.DataFrame(rows, columns=["generator", "subtype", "filter", "n"])
    return frame.sort_values(["n", "generator", "subtype", "filter"], ascending=[False, True, True, True])
