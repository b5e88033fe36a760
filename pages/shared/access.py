"""Who looks: an editor may launch, ask and write scores; a viewer reads and downloads."""

from __future__ import annotations


def name() -> str:
    """Who this is, for the history of what people write."""
    return "local"


def may_edit() -> bool:
    """Whether this visitor may spend money or change what is stored. Asked on the server, before the deed."""
    return True
