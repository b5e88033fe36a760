"""The third stage: which candidates are kept, and why the others are dropped (paper, A.3.1).

Filters come in a fixed order, each over what those before it left. What is decided is a function of the candidates,
the filters' settings and the models' answers: done again, it gives the same, and with other settings it gives what
these give. What people have decided stays, and counts among the kept ones. Dropped candidates stay in the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import batched

import numpy as np
from pydantic import SecretStr

from opbench.construction.asking import Asker
from opbench.construction.at_work import AtWork, at_work
from opbench.construction.checking import Checker, check_of
from opbench.construction.duplicates import near_duplicates
from opbench.construction.likeness import Likeness
from opbench.construction.loading import Source, source_of
from opbench.construction.spec import Filters
from opbench.construction.wording import Question, Why, bad_format, bad_length, template_redundant
from opbench.errors import UsageError
from opbench.gateway.vectors import VectorStore
from opbench.models import ModelClient, get_embedder, load_registry
from opbench.running.prepare import call_store
from opbench.store.builds import (
    Build,
    Candidate,
    Ruling,
    count_candidates,
    load_build,
    read_candidates,
    read_units,
    set_states,
)
from opbench.store.database import Store

#: Who drops a candidate, in the order in which they look; `format` is also what the reading of answers drops.
FILTERS = ("format", "length", "template", "duplicate", "true-memory", "personal")
#: What people decided, which no filter changes.
_SETTLED = ("accepted", "rejected")

OnProgress = Callable[[str, int, int], None]
"""Told (filter, looked at, to look at)."""
