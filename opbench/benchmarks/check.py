"""Is this the published data, and what is odd about it?"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from opbench.benchmarks.oddities import HANDLING
from opbench.types import LOCOMO_CATEGORIES, OP_CATEGORIES, Benchmark, Corpus, Oddity

#: Paper, table 1.
OP_COUNTS = {"fully-irrelevant": 318, "baiting": 100, "repetition": 882, "fact": 100, "value": 100, "memory": 200}
#: LoCoMo's release of ten conversations; 1,540 without the adversarial ones.
LOCOMO_COUNTS = {"multi-hop": 282, "temporal": 321, "open-domain": 96, "single-hop": 841, "adversarial": 446}
CONVERSATIONS, USERS = 10, 20
_EXAMPLES = 3


@dataclass(frozen=True, slots=True)
class Count:
    """Instances of a subtype: found in the data, and published."""

    benchmark: Benchmark
    category: str
    subtype: str
    found: int
    published: int

    @property
    def ok(self) -> bool:
        return self.found == self.published


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What `check` found. `oddities` are by kind, in the order of first occurrence."""

    source: str
    sha256: dict[str, str]
    conversations: int
    users: int
    unique_ids: int
    counts: tuple[Count, ...]
    oddities: dict[str, tuple[Oddity, ...]]

    def total(self, benchmark: Benchmark) -> int:
        """Instances found of a benchmark."""
        return sum(count.found for count in self.counts if count.benchmark == benchmark)

    @property
    def ok(self) -> bool:
        """Whether the counts are the published ones and every instance has an id of its own."""
        return (
            all(count.ok for count in self.counts)
            and (self.conversations, self.users) == (CONVERSATIONS, USERS)
            and self.unique_ids == self.total("op") + self.total("locomo")
        )

    @property
    def verdict(self) -> str:
        """The outcome in a sentence."""
        if self.source == "sample":
            return "This is the bundled sample, written for this project: its counts are never the paper's."
        if self.ok:
            return "The counts are the paper's."
        wrong = [f"{count.subtype} {count.found} instead of {count.published}" for count in self.counts if not count.ok]
        if (self.conversations, self.users) != (CONVERSATIONS, USERS):
            wrong.append(
                f"{self.conversations} conversations and {self.users} users instead of {CONVERSATIONS} and {USERS}"
            )
        return f"The counts are not the paper's: {'; '.join(wrong) or 'ids are not unique'}."

    def to_dict(self) -> dict[str, Any]:
        """The report for `--json`."""
        return {
            "ok": self.ok,
            "verdict": self.verdict,
            "source": self.source,
            "sha256": self.sha256,
            "conversations": self.conversations,
            "users": self.users,
            "instances": {"op": self.total("op"), "locomo": self.total("locomo"), "unique_ids": self.unique_ids},
            "counts": [asdict(count) | {"ok": count.ok} for count in self.counts],
            "oddities": {kind: [asdict(one) for one in found] for kind, found in self.oddities.items()},
        }

    def to_text(self) -> str:
        """The report for a terminal: counts, then each kind of oddity with its first places, then the verdict."""
        lines = [f"Source: {self.source}", *(f"  {name}  sha256 {digest}" for name, digest in self.sha256.items())]
        lines += [f"Conversations: {self.conversations} · users: {self.users} · ids: {self.unique_ids}", ""]
        lines.append(f"{'benchmark':<10}{'category':<13}{'subtype':<18}{'found':>6}{'paper':>7}")
        for count in self.counts:
            mark = "" if count.ok else "  ≠"
            row = f"{count.benchmark:<10}{count.category:<13}{count.subtype:<18}{count.found:>6}{count.published:>7}"
            lines.append(row + mark)
        published_in_all: dict[Benchmark, int] = {"op": sum(OP_COUNTS.values()), "locomo": sum(LOCOMO_COUNTS.values())}
        for benchmark, published in published_in_all.items():
            lines.append(f"{benchmark:<23}{'all':<18}{self.total(benchmark):>6}{published:>7}")
        lines.append("")
        lines.append(f"Oddities: {sum(len(found) for found in self.oddities.values())}")
        for kind, all_of_it in self.oddities.items():
            lines.append(f"  {len(all_of_it)} × {kind}: {HANDLING[kind]}")
            lines += [f"      {one.place}: {one.detail}" for one in all_of_it[:_EXAMPLES]]
            if len(all_of_it) > _EXAMPLES:
                lines.append(f"      … and {len(all_of_it) - _EXAMPLES} more (--json lists all)")
        return "\n".join([*lines, "", self.verdict])


def check(corpus: Corpus) -> CheckReport:
    """Counts a corpus and compares it with what was published (paper, table 1)."""
    op = Counter(instance.subtype for instance in corpus.op)
    locomo = Counter(instance.subtype for instance in corpus.locomo)
    counts = [
        Count("op", category, subtype, op[subtype], OP_COUNTS[subtype]) for subtype, category in OP_CATEGORIES.items()
    ]
    counts += [
        Count("locomo", f"category {number}", name, locomo[name], LOCOMO_COUNTS[name])
        for number, name in LOCOMO_CATEGORIES.items()
    ]
    oddities: dict[str, list[Oddity]] = {}
    for one in corpus.oddities:
        oddities.setdefault(one.kind, []).append(one)
    return CheckReport(
        source=corpus.source,
        sha256=corpus.sha256,
        conversations=len(corpus.conversations),
        users=len(corpus.users),
        unique_ids=len({instance.id for instance in (*corpus.op, *corpus.locomo)}),
        counts=tuple(counts),
        oddities={kind: tuple(found) for kind, found in oddities.items()},
    )
