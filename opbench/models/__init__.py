"""Language models and embedders: the registry, the one client, the embedded models."""

from opbench.models.client import ModelClient
from opbench.models.embeddings import Embedder, get_embedder
from opbench.models.endpoint import ClientStats
from opbench.models.probe import Availability, probe, probe_all
from opbench.models.registry import EmbedderSpec, ModelSpec, Registry, cost, load_registry

__all__ = [
    "Availability",
    "ClientStats",
    "Embedder",
    "EmbedderSpec",
    "ModelClient",
    "ModelSpec",
    "Registry",
    "cost",
    "get_embedder",
    "load_registry",
    "probe",
    "probe_all",
]
