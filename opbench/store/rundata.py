"""All of a run that analysis needs, as frames: what the store reads out and `opbench/analysis` works on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from opbench.study import Study


@dataclass(frozen=True)
class RunData:
    """One run. Scores are 0 to 1, NaN when missing; times are milliseconds, NaN where a stage didn't happen."""

    run_id: str
    name: str
    study: Study
    provenance: dict[str, Any]
    recorded: bool
    """Whether the results came from a bundle."""
    text_left_out: bool
    comparable: bool
    """Whether the judge's numbers may be compared with the paper's; False for the offline judge."""
    instances: pd.DataFrame
    """The slice: instance, ordinal, benchmark, user, first_speaker (bool), subtype."""
    configurations: pd.DataFrame
    """model, memory, mitigation."""
    records: pd.DataFrame
    """model, memory, mitigation, instance, status (done or error), error_kind, error, state, retrieval_ms, post_ms,
    response_ms, retrieval_reused, post_reused, response_reused, concurrency, post_prompt_tokens,
    post_completion_tokens, response_prompt_tokens, response_completion_tokens, cost_usd, finish_reason, finished_at."""
    scores: pd.DataFrame
    """model, memory, mitigation, instance, judge, metric, value, reason."""
    user_scores: pd.DataFrame
    """model, memory, mitigation, user, judge, metric (`repetition`), value, n (responses it rests on), reason."""
    vectors: dict[tuple[str, str, str, str], npt.NDArray[np.float32]] | None
    """(model, memory, mitigation, instance) to the L2-normalised response embedding; None when left out."""
