"""Before `make app` opens the dashboard: fetch the benchmark data if it can be had, and say what there is."""

from __future__ import annotations

import sys

from opbench.benchmarks import fetch, find
from opbench.errors import OpbenchError


def main() -> int:
    """Say which data the dashboard will work on; 1 when the data that the user named is damaged."""
    try:
        found = find()
        if found.source == "sample":
            print("Fetching the benchmark data (once) …", flush=True)
            print(fetch().to_text())
            found = find()
    except OpbenchError as error:
        print(f"opbench: {error}", file=sys.stderr)
        return 1
    print(f"Benchmark data: {'the bundled sample' if found.source == 'sample' else found.op.parent.parent}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
