"""A budget in dollars: a run takes up nothing new once its own calls have cost that much by list price."""

from __future__ import annotations

from collections.abc import Sequence

from opbench.errors import UsageError
from opbench.judges import is_rule_judge
from opbench.models import cost
from opbench.models.registry import Spec
from opbench.running.calls import Stats
from opbench.running.prepare import Prepared, PreparedMemories
from opbench.settings import settings
from opbench.store.database import Store
from opbench.store.runs import run_study
from opbench.store.spending import spent
from opbench.study import Configuration


def dollars(amount: float) -> str:
    """An amount to the cent, and finer where it is less than a dollar."""
    return f"${amount:,.2f}" if amount >= 1 or amount == 0 else f"${amount:.4f}"


def spent_on(store: Store, run_id: str) -> dict[str, float]:
    """US dollars that the run's executions spent so far, by what they went to: `calls` on which its records rest
    (judging among them), `embeddings`, and `ingestion`, the calls with which memory systems took histories in."""
    _, provenance = run_study(store, run_id)
    executions = provenance.get("executions", [])
    apart = {name: sum(each.get(f"{name}_usd") or 0.0 for each in executions) for name in ("embeddings", "ingestion")}
    return {"calls": spent(store, run_id), **apart}


def spent_before(store: Store, run_id: str) -> float:
    """US dollars that the run's earlier executions spent: on its calls, on embeddings and on ingestion."""
    return sum(spent_on(store, run_id).values())


def check_prices(asked: Sequence[tuple[str, Spec]]) -> None:
    """See that all that will be asked has a price; `asked` are registry groups (`models`, `embedders`) and entries.

    Raises:
        UsageError: one has none; names the entry and the mend.
    """
    for group, spec in asked:
        if cost(spec, 1, 1) is None:
            prices = "price_in and price_out" if group == "models" else "price_in"
            raise UsageError(
                f"no budget can be kept with {spec.name}: the registry has no price for it. Set {prices} (dollars per "
                f'million tokens; 0 where it costs nothing) under [{group}."{spec.name}"] in {settings().models_file}, '
                "or leave the budget out."
            )


def check(prepared: Prepared, budget_usd: float, before: float = 0.0) -> None:
    """Whether a run can keep to the budget.

    Raises:
        UsageError: a model has no price, or the run has spent as much already.
    """
    study, registry = prepared.study, prepared.registry
    if not budget_usd > 0:
        raise UsageError(f"a budget of {dollars(budget_usd)} buys nothing: give more, or leave it out.")
    asked: list[tuple[str, Spec]] = [("models", registry.model(name)) for name in study.models]
    if not is_rule_judge(study.judge):
        asked.append(("models", registry.model(study.judge)))
    if prepared.extractor is not None:
        asked.append(("models", registry.model(prepared.extractor)))
    asked.append(("embedders", registry.embedder(study.embedder)))
    check_prices(asked)
    if before >= budget_usd:
        raise UsageError(
            f"run {prepared.run_id} has spent {dollars(before)} already, and the budget is {dollars(budget_usd)}: "
            "give a higher budget to go on."
        )


def register(store: Store, prepared: Prepared, budget_usd: float | None) -> dict[Configuration, int]:
    """Make the run in the store, or find it there, unless it can't keep to its budget; ids of its configurations.

    Raises:
        UsageError: as `check`.
    """
    if budget_usd is not None:
        check(prepared, budget_usd)
    configuration_ids = prepared.register(store)
    if budget_usd is not None:
        check(prepared, budget_usd, spent_before(store, prepared.run_id))
    return configuration_ids


class Meter:
    """What a run has spent so far, in dollars by list price."""

    def __init__(self, prepared: Prepared | PreparedMemories, calls: Stats, before: float) -> None:
        """`calls` are this execution's, `before` what earlier ones spent."""
        self._prepared = prepared
        self._calls = calls
        self._before = before

    @property
    def embeddings_usd(self) -> float:
        """What this execution's embeddings cost."""
        registry, tokens = self._prepared.registry, self._prepared.client.stats.embedded_tokens
        return sum(cost(registry.embedder(name), count, 0) or 0.0 for name, count in tokens.items())

    @property
    def spent_usd(self) -> float:
        """What the run has cost, earlier executions included."""
        return self._before + self._calls.spent_usd + self.embeddings_usd

    def reason_to_halt(self, budget_usd: float) -> str | None:
        """Why nothing more may be taken up, as a sentence; None while there is money."""
        if self._calls.unpriced:
            return unpriced(next(iter(self._calls.unpriced)), budget_usd)
        if self.spent_usd >= budget_usd:
            return reached(self.spent_usd, budget_usd)
        return None


def reached(spent_usd: float, budget_usd: float) -> str:
    """Why a run stops whose budget is spent."""
    return (
        f"Stopped: the budget of {dollars(budget_usd)} is reached, {dollars(spent_usd)} are spent. "
        "To go on, give a higher one."
    )


def unpriced(model: str, budget_usd: float) -> str:
    """Why a run stops whose budget can't be kept."""
    return (
        f"Stopped: {model} doesn't tell how many tokens a call took, so the budget of {dollars(budget_usd)} can't be "
        "kept. Leave the budget out, or use another model."
    )
