"""What is loaded with the judges' metrics."""

import subprocess
import sys

import pytest

_CODE = """
import sys
import opbench.judges.{name}
print(*(name for name in ("nltk", "rouge_score", "scipy", "sklearn") if name in sys.modules))
import scipy.stats, sklearn
"""


@pytest.mark.parametrize("name", ["locomo", "memos_metrics"])
def test_metrics_load_neither_scipy_nor_scikit_learn_and_others_can(name: str) -> None:
    code = _CODE.format(name=name)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["nltk", "rouge_score"]
