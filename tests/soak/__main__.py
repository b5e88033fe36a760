"""`make soak`: the scenarios of the fault run, larger, and one seed after another.

python -m tests.soak --times 4 --seed 7 --only mixed,storms
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.soak.ledger import Line, table
from tests.soak.process import Starter
from tests.soak.scenarios import SCENARIOS, Given


def main() -> int:
    parser = argparse.ArgumentParser(description="Faults by the thousand, and the ledger afterwards.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=1, help="rounds, each with the next seed")
    parser.add_argument("--times", type=float, default=1.0, help="records, as a multiple of the tests'")
    parser.add_argument("--only", default="", help=f"of: {', '.join(each.name for each in SCENARIOS)}")
    options = parser.parse_args()
    only = options.only.split(",") if options.only else [each.name for each in SCENARIOS]
    lines: list[Line] = []
    starter = Starter()
    for seed in range(options.seed, options.seed + options.rounds):
        for scenario in SCENARIOS:
            if scenario.name not in only:
                continue
            models = max(1, round(scenario.models * options.times))
            with tempfile.TemporaryDirectory(prefix="opbench-soak-", ignore_cleanup_errors=True) as folder:
                try:
                    line = scenario.run(Given(Path(folder), starter, seed, models))
                except AssertionError as error:
                    line = Line(scenario.name, wrong=[str(error)])
            lines.append(line)
            print(f"seed {seed}\n{table([line])}\n", flush=True)
            for sentence in line.wrong[:10]:
                print(f"  {sentence}", flush=True)
    print(table(lines))
    return int(any(line.lost or line.double or line.wrong for line in lines))


if __name__ == "__main__":
    sys.exit(main())
