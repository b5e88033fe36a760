"""OP-Bench Workbench: run and read mitigation studies of over-personalisation (arXiv 2601.13722)."""

__version__ = "0.6.0"
