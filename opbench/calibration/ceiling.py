"""The highest score that LoCoMo's own gold answers allow.

Of the questions with a wrong gold answer (the list `locomo-wrong-gold`, one public audit) a right answer is judged
wrong, so a perfect system gets no more than the others. An assumption: a judge may accept a right answer against a
wrong gold all the same, and the audit may have missed faults or found some that are none. It is of the real file alone:
of other conversations nobody has audited anything, so nothing is told of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pandas as pd

from opbench.benchmarks import exclusions
from opbench.types import LOCOMO_CATEGORIES, Corpus, Instance

LIST = "locomo-wrong-gold"
ALL = "all"
COLUMNS = ("category", "questions", "wrong_gold", "debatable", "ceiling", "without_debatable", "kinds")
#: The audit's faults about which one may think otherwise.
_DEBATABLE = "debatable"


def ceiling(corpus: Corpus, instances: Sequence[Instance] | None = None) -> pd.DataFrame:
    """One row a category and one of `all`: `COLUMNS`; of `instances`, or of all that have a gold answer.

    wrong_gold: questions on the list, `debatable` ones among them; ceiling: percent that a perfect system can get;
    without_debatable: the same when these count as right; kinds: faults with their counts. The numbers are None where
    the audit names no question of the corpus: it is of other data. Empty where the corpus has no LoCoMo question with a
    gold answer.

    Raises:
        DataError: the list is of another LoCoMo file than this one.
    """
    bad = exclusions.get(LIST)
    listed = set(bad.found_in(corpus))
    of = corpus.locomo if instances is None else instances
    asked = [each for each in of if each.benchmark == "locomo" and each.subtype != "adversarial" and each.answer]
    rows = []
    there = [name for name in LOCOMO_CATEGORIES.values() if any(each.subtype == name for each in asked)]
    for category in [*there, ALL] if asked else []:
        mine = [each for each in asked if category in (ALL, each.subtype)]
        reasons = Counter(bad.reasons[each.id] for each in mine if each.id in listed)
        wrong = reasons.total()
        debatable = sum(n for reason, n in reasons.items() if reason.startswith(_DEBATABLE))
        rows.append(
            (
                category,
                len(mine),
                wrong if listed else None,
                debatable if listed else None,
                100 * (len(mine) - wrong) / len(mine) if listed else None,
                100 * (len(mine) - wrong + debatable) / len(mine) if listed else None,
                ", ".join(f"{reason} {n}" for reason, n in reasons.most_common()),
            )
        )
    return pd.DataFrame(rows, columns=list(COLUMNS))
