"""Post-processors for retrieved memories: mitigations of over-personalisation, for any agent (see README.md)."""

from mitigations.asking import ask_with
from mitigations.base import Ask, Family, Line, Memory, PostProcessor, Processed, Reply, Revised, Search, State
from mitigations.context import context_lines
from mitigations.registry import BrokenPlugin, UnknownMitigation, get, load_plugin, names, register

__all__ = [
    "Ask",
    "BrokenPlugin",
    "Family",
    "Line",
    "Memory",
    "PostProcessor",
    "Processed",
    "Reply",
    "Revised",
    "Search",
    "State",
    "UnknownMitigation",
    "ask_with",
    "context_lines",
    "get",
    "load_plugin",
    "names",
    "register",
]
