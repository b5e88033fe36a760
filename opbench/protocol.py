"""LoCoMo's two protocols: what their metrics are called, and which one is a run's main number.

`uniform` and `memos` (MemOS's evaluation) ask and score differently, so no metric of one has the name of one of the
other: their numbers can't meet in a mean, a comparison or a table by mistake. `docs/scores.md` says what differs.
"""

from __future__ import annotations

from typing import Literal

from opbench.study import Study

Protocol = Literal["uniform", "memos"]

#: How often the judge is asked about an answer by protocol memos.
JUDGE_RUNS = 3
#: LoCoMo's metrics by protocol, with what they are called for people. All are 0 to 1.
METRICS: dict[Protocol, dict[str, str]] = {
    "uniform": {"correct": "judged correct", "f1": "token F1", "bleu1": "BLEU-1", "rougeL": "ROUGE-L"},
    "memos": {
        "memos_correct": f"judged correct, mean of {JUDGE_RUNS} runs of the judge",
        **{f"memos_correct_run{run}": f"judged correct, run {run}" for run in range(1, JUDGE_RUNS + 1)},
        "memos_f1": "token F1 over sets",
        "memos_rouge1": "ROUGE-1",
        "memos_rouge2": "ROUGE-2",
        "memos_rougeL": "ROUGE-L",
        "memos_bleu1": "BLEU-1",
        "memos_bleu2": "BLEU-2",
        "memos_bleu3": "BLEU-3",
        "memos_bleu4": "BLEU-4",
        "memos_meteor": "METEOR",
    },
}
#: The three runs of the judge by protocol memos.
RUN_METRICS = tuple(f"memos_correct_run{run}" for run in range(1, JUDGE_RUNS + 1))


def headline_metric(study: Study, judge: str | None = None) -> str:
    """LoCoMo's main metric: of an LLM judge what it found correct, of the offline one token F1.

    `judge` None means the study's own.
    """
    offline = (judge or study.judge) == "offline"
    if study.protocol == "memos":
        return "memos_f1" if offline else "memos_correct"
    return "f1" if offline else "correct"


def judged_metric(study: Study) -> str:
    """The LoCoMo metric that only a judge can give."""
    return "memos_correct" if study.protocol == "memos" else "correct"


def metric_label(metric: str, judge: str | None = None) -> str:
    """What a LoCoMo number is, e.g. `judged correct (gpt-4o-mini)`; the protocol is named when it isn't `uniform`."""
    protocol = protocol_of(metric)
    label = METRICS[protocol].get(metric, metric)
    if judge and metric.removeprefix("memos_").startswith("correct"):
        label += f" ({judge})"
    return label if protocol == "uniform" else f"{label}, protocol {protocol}"


def protocol_of(metric: str) -> Protocol:
    """The protocol that a metric is of."""
    return "memos" if metric in METRICS["memos"] else "uniform"


def by_memos(study: Study, benchmark: str) -> bool:
    """Whether questions of the benchmark are asked and scored by protocol memos; OP-Bench's never are."""
    return study.protocol == "memos" and benchmark == "locomo"
