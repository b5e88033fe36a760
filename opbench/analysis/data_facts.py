"""What is in the benchmarks: tables of a corpus for the Data page and `opbench data`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from opbench.benchmarks.check import check
from opbench.benchmarks.exclusions import Exclusions
from opbench.benchmarks.oddities import HANDLING
from opbench.errors import DataError
from opbench.types import LOCOMO_CATEGORIES, OP_SUBTYPES, Corpus


def counts(corpus: Corpus) -> pd.DataFrame:
    """Instances by subtype: benchmark, category, subtype, count, published.

    `published` is the paper's count (table 1; LoCoMo's release), NaN for the sample, which has none to equal.
    """
    told = corpus.source != "sample"
    rows = [
        {
            "benchmark": count.benchmark,
            "category": count.category,
            "subtype": count.subtype,
            "count": count.found,
            "published": float(count.published) if told else np.nan,
        }
        for count in check(corpus).counts
    ]
    return pd.DataFrame(rows)


def op_by_user(corpus: Corpus) -> pd.DataFrame:
    """OP-Bench's instances: a row a user (`user`), a column a subtype, in the file's order."""
    numbers = Counter((instance.user.id, instance.subtype) for instance in corpus.op)
    return pd.DataFrame(
        [{"user": user, **{name: numbers[user, name] for name in OP_SUBTYPES}} for user in corpus.users]
    )


def locomo_by_conversation(corpus: Corpus) -> pd.DataFrame:
    """LoCoMo's questions: a row a conversation (`conversation`), a column a category, in the file's order."""
    numbers = Counter((instance.user.conversation, instance.subtype) for instance in corpus.locomo)
    names = LOCOMO_CATEGORIES.values()
    return pd.DataFrame(
        [{"conversation": each, **{name: numbers[each, name] for name in names}} for each in corpus.conversations]
    )


def users(corpus: Corpus) -> pd.DataFrame:
    """A row a user: user, speaker, first_speaker (yes or no), sessions, turns (the user's own), first_day, last_day
    (ISO dates), topics, observations (numbers), op (OP-Bench instances), locomo (questions of the conversation)."""
    op = Counter(instance.user.id for instance in corpus.op)
    locomo = Counter(instance.user.conversation for instance in corpus.locomo)
    rows: list[dict[str, Any]] = []
    for user in corpus.users.values():
        sessions = corpus.conversations[user.conversation].sessions
        profile = corpus.profiles[user.id]
        rows.append(
            {
                "user": user.id,
                "speaker": user.speaker,
                "first_speaker": "yes" if user.first else "no",
                "sessions": len(sessions),
                "turns": sum(turn.speaker == user.speaker for session in sessions for turn in session.turns),
                "first_day": sessions[0].date.date().isoformat(),
                "last_day": sessions[-1].date.date().isoformat(),
                "topics": len(profile.topics),
                "observations": len(profile.observations),
                "op": op[user.id],
                "locomo": locomo[user.conversation],
            }
        )
    return pd.DataFrame(rows)


def oddities(corpus: Corpus) -> pd.DataFrame:
    """A row an oddity: kind, handling (what is done about it), place (file and path in it), detail."""
    rows = [(each.kind, HANDLING[each.kind], each.place, each.detail) for each in corpus.oddities]
    return pd.DataFrame(rows, columns=["kind", "handling", "place", "detail"])


def oddity_kinds(corpus: Corpus) -> pd.DataFrame:
    """A row a kind of oddity: kind, count, handling; in the order of first occurrence."""
    numbers = Counter(each.kind for each in corpus.oddities)
    rows = [(kind, number, HANDLING[kind]) for kind, number in numbers.items()]
    return pd.DataFrame(rows, columns=["kind", "count", "handling"])


def exclusion_lists(lists: Mapping[str, Exclusions], corpus: Corpus) -> pd.DataFrame:
    """A row a list: name, title, listed, found (of these ids in the corpus), source, problem.

    `found` is missing, and `problem` says why, when the list doesn't fit the data.
    """
    rows: list[tuple[str, str, int, int | None, str, str]] = []
    found: int | None
    for each in lists.values():
        try:
            found, problem = len(each.found_in(corpus)), ""
        except DataError as error:
            found, problem = None, str(error)
        rows.append((each.name, each.title, len(each.reasons), found, each.source, problem))
    frame = pd.DataFrame(rows, columns=["name", "title", "listed", "found", "source", "problem"])
    return frame.astype({"found": "Int64"})


def listed(exclusions: Exclusions, corpus: Corpus) -> pd.DataFrame:
    """A row an id on the list: instance, reason, and subtype, question and answer where the corpus has it.

    Raises:
        DataError: the list doesn't fit the data.
    """
    found = set(exclusions.found_in(corpus))
    known = {instance.id: instance for instance in (*corpus.op, *corpus.locomo) if instance.id in found}
    rows = []
    for identity, reason in exclusions.reasons.items():
        instance = known.get(identity)
        rows.append(
            {
                "instance": identity,
                "reason": reason,
                "subtype": instance.subtype if instance else None,
                "question": instance.question if instance else None,
                "answer": instance.answer if instance else None,
            }
        )
    return pd.DataFrame(rows)


def reasons(exclusions: Exclusions) -> pd.DataFrame:
    """A row a reason: reason, count; the most frequent first."""
    return pd.DataFrame(Counter(exclusions.reasons.values()).most_common(), columns=["reason", "count"])
