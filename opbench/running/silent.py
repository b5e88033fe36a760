"""Models of a study that answer nobody any more: whether the run ends for it, or that model's records alone."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from opbench.models.endpoint import who
from opbench.models.in_vain import InVain
from opbench.running.jobs import Job
from opbench.running.prepare import Prepared


@dataclass(frozen=True, slots=True)
class Silent:
    """Asked before each job; cheap while all models answer."""

    in_vain: InVain
    answering: Mapping[str, str]
    """By what their calls are counted under: the names of the models that answer questions in this study."""
    needed: Collection[str]
    """Names of those that all records need: the judge, the extractor."""

    def reason_to_halt(self) -> str | None:
        """Why the whole run must end: a model that all records need is silent, or all models that answer are."""
        reasons = self.in_vain.reasons()
        if not reasons:
            return None
        found = [reason for name, reason in reasons.items() if self.answering.get(name) in {None, *self.needed}]
        if not found and self.answering.keys() <= reasons.keys():
            found = list(reasons.values())
        return f"Stopped: {' '.join(found)} What is left waits for the next start." if found else None

    def passes_over(self, job: Job) -> bool:
        """Whether this job would ask a silent model. Who judges a record anew doesn't ask the model that answered."""
        return job.record_id is None and job.configuration.model in self.models()

    def models(self) -> dict[str, str]:
        """By registry name: the silent ones of those that answer, with the reason as a sentence."""
        reasons = self.in_vain.reasons()
        return {self.answering[name]: reason for name, reason in reasons.items() if name in self.answering}


def silent_of(prepared: Prepared) -> Silent:
    """What watches over the models of a study."""
    study = prepared.study
    return Silent(
        prepared.client.stats.in_vain,
        {who(prepared.registry.model(name)): name for name in study.models},
        {study.judge, prepared.extractor or ""},
    )


def left_out(silent: Mapping[str, str], models: Iterable[str]) -> str | None:
    """The sentence that a run ends with whose records of `models` were passed over, for reasons by model in `silent`;
    None when there were none."""
    named = sorted(models)
    if not named:
        return None
    told = " ".join(silent[name] for name in named)
    return (
        f"Stopped for {', '.join(named)} alone, the other models' records are done: {told} What is left waits for the "
        "next start."
    )
