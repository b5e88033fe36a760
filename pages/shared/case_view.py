"""A case as a page draws it: one at work and one that was saved look the same."""

from __future__ import annotations

from dataclasses import dataclass, field

from opbench.cases.outcome import Ablation, Outcome
from opbench.cases.saved import SavedCase
from opbench.cases.spec import CaseSpec, Column
from opbench.cases.telling import named
from opbench.models import Registry
from opbench.study import BASE
from pages.shared.case_live import Live


@dataclass(frozen=True, slots=True)
class CaseView:
    """What there is to draw. `live` is None for a saved case, of which nothing can be asked."""

    spec: CaseSpec
    outcomes: tuple[Outcome, ...]
    ablations: tuple[Ablation, ...]
    names: list[str]
    """Of the columns, as people read them; no two are the same."""
    comparable: bool
    """Whether the judge's scores may stand beside the paper's."""
    live: Live | None = None
    editor: bool = False
    provenance: dict[str, object] = field(default_factory=dict)

    @property
    def asks(self) -> bool:
        """Whether this visitor may ask further here."""
        return self.live is not None and self.editor

    def numbers(self, place: int) -> list[int]:
        """The numbers that a column's memories go by: those that are left out keep theirs."""
        column, outcome = self.spec.columns[place], self.outcomes[place]
        count = len(outcome.retrieved or ())
        out = set(column.without)
        return [number for number in range(1, count + len(out) + 1) if number not in out][:count]

    def has_memories(self, place: int) -> bool:
        return bool(self.outcomes[place].retrieved)

    def column(self, place: int) -> Column:
        return self.spec.columns[place]

    def is_base(self, place: int) -> bool:
        return self.spec.columns[place].memory == BASE


def of_live(live: Live, registry: Registry, editor: bool) -> CaseView:
    provenance = live.provenance
    return CaseView(
        live.spec,
        live.outcomes(),
        live.ablations(),
        named(live.spec, _labels(registry)),
        bool(provenance.get("comparable", False)),
        live,
        editor,
        provenance,
    )


def of_saved(case: SavedCase, registry: Registry) -> CaseView:
    return CaseView(
        case.spec,
        case.outcomes,
        case.ablations,
        named(case.spec, _labels(registry)),
        case.comparable,
        provenance=dict(case.provenance),
    )


def _labels(registry: Registry) -> dict[str, str]:
    return {name: spec.label for name, spec in registry.models.items()}
