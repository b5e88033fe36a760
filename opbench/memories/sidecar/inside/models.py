"""How MemOS reaches its model and embedder: through the lease, and nothing else."""

from __future__ import annotations

from typing import Any

MODEL_TIMEOUT_S = 3600.0
"""The gateway has the timeouts and the retries; MemOS just waits for its answer."""


def extractor(settings: dict[str, Any]) -> dict[str, Any]:
    """MemOS's configuration of the extractor."""
    return {
        "backend": "openai",
        "config": {
            "model_name_or_path": settings["model"],
            "api_key": settings["key"],
            "api_base": settings["base_url"],
            "temperature": 0.0,
            "top_p": 1.0,
            "max_tokens": settings["max_tokens"],
            "remove_think_prefix": True,
        },
    }


def embedder(settings: dict[str, Any]) -> dict[str, Any]:
    """MemOS's configuration of the embedder."""
    return {
        "backend": "universal_api",
        "config": {
            "provider": "openai",
            "model_name_or_path": settings["embedder"],
            "api_key": settings["key"],
            "base_url": settings["base_url"],
            "embedding_dims": settings["dimensions"],
        },
    }


def no_retries(*clients: Any) -> None:
    """Keep OpenAI's library from asking again what the gateway gave up."""
    for client in clients:
        client.max_retries = 0
        client.timeout = MODEL_TIMEOUT_S
