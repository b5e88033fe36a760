"""The two benchmarks: finding, fetching, reading, checking and slicing their data."""

from opbench.benchmarks.check import CheckReport, check
from opbench.benchmarks.fetching import Fetched, FetchReport, fetch
from opbench.benchmarks.files import SAMPLE, find
from opbench.benchmarks.loading import load
from opbench.benchmarks.slicing import select, spread

__all__ = ["SAMPLE", "CheckReport", "FetchReport", "Fetched", "check", "fetch", "find", "load", "select", "spread"]
