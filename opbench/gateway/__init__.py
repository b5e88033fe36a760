"""The local OpenAI-compatible endpoint through which memory libraries reach models: metered, cached, one embedder."""

from opbench.gateway.lease import Lease, Usage

__all__ = ["Lease", "Usage"]
