"""Serving an open model of the registry with vLLM on this machine: `opbench serve`."""
