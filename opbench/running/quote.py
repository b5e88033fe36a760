"""What a study will take, before it starts: calls, tokens, money and time (an estimate, and said to be one)."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from functools import cache
from typing import Any

from sqlalchemy import select

from opbench.models import cost
from opbench.running.assumed import Pace
from opbench.running.estimate import Estimate, Line, Price
from opbench.running.ingestion_quote import IngestionLine, basis, ingestion_quote
from opbench.running.measured import Measured
from opbench.running.plan import make_plan
from opbench.running.prepare import Prepared
from opbench.running.sharing import CAUSES
from opbench.running.worker import make_ingestion
from opbench.store import schema as s
from opbench.store.database import Store
from opbench.store.runs import run_study
from opbench.store.spending import measured_calls
from opbench.study import Configuration

__all__ = ["Line", "Quote", "Saving", "quote"]


@dataclass(frozen=True, slots=True)
class Saving:
    """Calls that a driver makes which shares nothing, and we don't."""

    cause: str
    """A key of `sharing.CAUSES`."""
    why: str
    """The cause in words."""
    calls: int


@dataclass(frozen=True, slots=True)
class Quote:
    """An estimate for what is still to do. Dollars are None when a price is unknown; seconds at the concurrency."""

    planned: int
    finished: int
    to_do: int
    calls_naive: int
    """Model calls of a driver that shares nothing between records, and does BASE under every post-processor."""
    calls: int
    """Model calls at the most: what post-processors leave alike and what earlier studies asked saves more."""
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float | None
    seconds: float
    basis: str
    """What the answer lengths and times rest on."""
    ingestion: tuple[IngestionLine, ...] = ()
    """By memory system: sessions to take in before the first record; its calls and costs are in the sums above."""
    measured: int = 0
    """Records of this run that it rests on."""
    ranges: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Ranges at 95 % confidence of prompt_tokens, completion_tokens, cost_usd and seconds, where measured."""
    lines: tuple[Line, ...] = ()
    """By configuration and stage."""
    saved: tuple[Saving, ...] = ()
    """Why there are fewer calls than `calls_naive`, by cause."""
    retrievals_naive: int = 0
    """Searches of memory systems, one a record."""
    retrievals: int = 0
    """Searches at the most: one serves all models and post-processors of a memory system."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Quote:
        """A quote from what `to_dict` gave, also by way of JSON."""
        known = {each.name: values[each.name] for each in fields(cls)}
        ranges = {name: (low, high) for name, (low, high) in known["ranges"].items()}
        lines = tuple(Line(**line) for line in known["lines"])
        ingestion = tuple(IngestionLine(**line) for line in known["ingestion"])
        saved = tuple(Saving(**each) for each in known["saved"])
        return cls(**known | {"ranges": ranges, "lines": lines, "ingestion": ingestion, "saved": saved})


def quote(store: Store, prepared: Prepared, *, concurrency: int) -> Quote:
    """Estimate what is left to do of the study. Makes no call, starts nothing and writes nothing.

    It rests on the calls of the run's own records where there are some (a pilot), else on averages of the models'
    earlier calls and on rules of thumb.
    """
    plan = make_plan(store, prepared.run_id, _configuration_ids(store, prepared), prepared.instances)
    uses = measured_calls(store, prepared.run_id)
    price = _price_of(prepared)
    measured = Measured(uses, price, lambda model: prepared.at_a_time(model, concurrency))
    estimate = Estimate(prepared, plan, measured, Pace(store), price, concurrency)
    needed = make_ingestion(prepared, plan, concurrency).pairs
    ingestion = estimate.add_ingestion([line for line in ingestion_quote(store, prepared, needed) if line.sessions])
    lines = tuple(estimate.lines.values())
    known = [line.cost_usd for line in lines if line.cost_usd is not None]
    calls = round(sum(line.calls for line in lines))
    saved = tuple(Saving(cause, CAUSES[cause], round(saves)) for cause, saves in estimate.saved.items() if round(saves))
    return Quote(
        planned=plan.planned,
        finished=plan.finished,
        to_do=len(plan.jobs),
        # Of the rounded numbers, which people add up.
        calls_naive=calls + sum(saving.calls for saving in saved),
        calls=calls,
        prompt_tokens=round(sum(line.prompt_tokens for line in lines)),
        completion_tokens=round(sum(line.completion_tokens for line in lines)),
        cost_usd=round(sum(known), 4) if len(known) == len(lines) else None,
        seconds=sum(line.seconds for line in lines),
        basis=_basis(estimate, _origin(store, prepared.run_id, measured.records), ingestion),
        ingestion=tuple(ingestion),
        measured=measured.records,
        ranges=estimate.ranges(),
        lines=lines,
        saved=saved,
        retrievals_naive=estimate.retrievals_naive,
        retrievals=estimate.retrievals,
    )


def _basis(estimate: Estimate, origin: str, ingestion: list[IngestionLine]) -> str:
    """What the numbers rest on, in words."""
    if not estimate.left:
        return "nothing left to do"
    parts = [origin] if origin else []
    if estimate.assumed or not parts:
        parts.append(estimate.pace.basis(estimate.assumed))
    if ingestion:
        parts.append(basis(ingestion))
    return "; ".join(parts)


def _price_of(prepared: Prepared) -> Price:
    million = 1_000_000

    @cache
    def a_token(name: str) -> tuple[float, float] | None:
        spec = prepared.registry.model(name)
        taken, given = cost(spec, million, 0), cost(spec, 0, million)
        return None if taken is None or given is None else (taken / million, given / million)

    def price(name: str, tokens_in: float, tokens_out: float) -> float | None:
        prices = a_token(name)
        return None if prices is None else prices[0] * tokens_in + prices[1] * tokens_out

    return price


def _origin(store: Store, run_id: str, records: int) -> str:
    """Whose records a quote rests on."""
    if not records:
        return ""
    _, provenance = run_study(store, run_id)
    executions = provenance.get("executions", [])
    piloted = executions and all(each.get("pilot_records") for each in executions)
    return f"from a pilot of {records:,} records" if piloted else f"from {records:,} records of this run"


def _configuration_ids(store: Store, prepared: Prepared) -> dict[Configuration, int]:
    """As the run has them in the store; any numbers for a run that isn't there yet, and so has no records."""
    with store.begin() as connection:
        rows = connection.execute(select(s.configurations).where(s.configurations.c.run_id == prepared.run_id)).all()
    known = {Configuration(row.model, row.memory, row.mitigation): row.id for row in rows}
    return known or {each: number for number, each in enumerate(prepared.study.configurations())}
