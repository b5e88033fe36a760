"""A real vLLM for the CPU behind `opbench serve`: `make test-vllm`, which installs it. No part of `make test`."""
