"""Post-processors for retrieved memories: mitigations of over-personalisation, for any agent (see README.md)."""

from mitigations.asking import ask_with
from mitigations.base import Ask, Family, Line, Memory, PostProcessor, Processed, Reply, Revised, Search, State
from mitigations.context import context_lines
from mitigations.prompt_only import PromptOnly
from mitigations.registry import (
    BrokenPlugin,
    UnknownMitigation,
    get,
    load_plugin,
    names,
    prompt_sections,
    register,
    reworded,
)

__all__ = [
    "Ask",
    "BrokenPlugin",
    "Family",
    "Line",
    "Memory",
    "PostProcessor",
    "Processed",
    "PromptOnly",
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
    "prompt_sections",
    "register",
    "reworded",
]
