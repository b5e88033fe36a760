"""Judges: what gives a record its scores."""

from opbench.judges.base import Evidence, Judge
from opbench.judges.registry import is_rule_judge, judge_calls, make_judge, register_judge, registered_judges

__all__ = ["Evidence", "Judge", "is_rule_judge", "judge_calls", "make_judge", "register_judge", "registered_judges"]
