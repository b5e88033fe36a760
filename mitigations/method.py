"""What all methods that ask a model share: the shape of a post-processor with one call before the response."""

from __future__ import annotations

import copy
import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Literal, Self

from mitigations import parsing
from mitigations.base import Ask, Family, Line, Memory, Processed, Reply, Revised, Search
from mitigations.context import Prepared, prepare
from mitigations.evidence import Evidence
from mitigations.parsing import Parsed
from mitigations.prompting import PROMPTS, messages, sections

#: From this share of common content words two lines tell the same (methods' "near-duplicates").
NEAR_DUPLICATE = 0.8
Setting = str | int | float | bool
ResponseTo = Literal["kept", "nothing", "own"]
"""The response rests on what is kept; on nothing, always, and so is that without memory; or is the method's own."""


class Method(ABC):
    """A post-processor. Subclasses say what happens before the response; revising is for those that do it."""

    revises = False
    response: ResponseTo = "kept"
    """What the response is made of; a quote reckons with it."""
    rewordings: Mapping[str, str] = MappingProxyType({})
    """Sections of the prompt, by name, that `reworded` put in the place of its own."""

    def __init__(self, name: str, family: Family, label: str, *, calls: int = 0) -> None:
        self.name = name
        self.family: Family = family
        self.label = label
        self.calls = calls

    @property
    def prompt_files(self) -> tuple[str, ...]:
        """Names in `prompts/`, without `.txt`, that determine what the model is told."""
        return ()

    def settings(self) -> dict[str, Setting]:
        """What, beside prompts and parser, determines an outcome."""
        return {}

    def own_sections(self) -> dict[str, str]:
        """The pieces of its prompt as they are written, by name: what may be worded otherwise."""
        return {}

    def prompt_sections(self) -> dict[str, str]:
        """The pieces of its prompt as they are sent, by name."""
        return {**self.own_sections(), **self.rewordings}

    def reworded(self, sections: Mapping[str, str]) -> Self:
        """A copy that says `sections` (text by name, taken as it is) in the place of its own; this one stays as it is.

        Raises ValueError for a section that it doesn't have, naming those that it has, and for a blank one.
        """
        own = self.own_sections()
        for name, text in sections.items():
            if name not in own:
                known = f"it has {', '.join(own)}" if own else "it has none"
                raise ValueError(f"{self.name} has no prompt section '{name}': {known}")
            if not text.strip():
                raise ValueError(f"the section '{name}' of {self.name}'s prompt is blank: write what the model is told")
        worded = {**self.rewordings, **sections}
        made = copy.copy(self)
        made.__dict__.pop("prompt_sha256", None)
        made.rewordings = MappingProxyType({name: text for name, text in worded.items() if text != own[name]})
        return made

    @cached_property
    def prompt_sha256(self) -> str:
        """sha256 over name, prompt files, settings, what is reworded, and the parser's version."""
        digest = hashlib.sha256()
        known = {"name": self.name, "parser": parsing.VERSION, **self.settings()}
        digest.update(json.dumps(known, sort_keys=True).encode())
        for name in self.prompt_files:
            digest.update(b"\0" + name.encode() + b"\0" + (PROMPTS / f"{name}.txt").read_bytes())
        if self.rewordings:
            digest.update(b"\0reworded\0" + json.dumps(dict(self.rewordings), sort_keys=True).encode())
        return digest.hexdigest()

    @abstractmethod
    async def process(
        self, question: str, memories: Sequence[Memory], ask: Ask, search: Search | None = None
    ) -> Processed:
        """Before generation. Whatever `ask` raises goes through."""

    async def revise(
        self, question: str, memories: Sequence[Memory], draft: str, ask: Ask, *, system: str = ""
    ) -> Revised:
        """After generation: the draft stands."""
        return Revised("unchanged", draft)


class OneCall(Method):
    """One call over all memories together, at temperature 0 (paper, B.2 and B.4).

    `max_tokens` is the paper's 512. `blank_means_nothing` reads a blank reply as "nothing is needed", as the public
    code does, for comparisons; by default it is a failure.
    """

    prompt = ""
    system_section, closing_section = "system", "closing"

    def __init__(
        self, name: str, family: Family, label: str, *, max_tokens: int = 512, blank_means_nothing: bool = False
    ) -> None:
        super().__init__(name, family, label, calls=1)
        self.max_tokens = max_tokens
        self.blank_means_nothing = blank_means_nothing

    @property
    def prompt_files(self) -> tuple[str, ...]:
        return ("common", self.prompt)

    def settings(self) -> dict[str, Setting]:
        return {
            "max_tokens": self.max_tokens,
            "blank_means_nothing": self.blank_means_nothing,
            "sections": f"{self.system_section} {self.closing_section}",
        }

    def own_sections(self) -> dict[str, str]:
        part = sections(self.prompt)
        return {name: part[name] for name in (self.system_section, self.closing_section)}

    def messages(self, question: str, memories: Sequence[Memory]) -> list[tuple[str, str]]:
        """What the model is sent, made of `prompt_sections`: (role, content) pairs."""
        part = self.prompt_sections()
        return messages(part[self.system_section], part[self.closing_section], question, memories)

    async def process(
        self, question: str, memories: Sequence[Memory], ask: Ask, search: Search | None = None
    ) -> Processed:
        prepared = prepare(memories)
        if not prepared.memories:
            return prepared.pass_through()
        reply = await ask(self.messages(question, prepared.memories), max_tokens=self.max_tokens, temperature=0.0)
        return self.read(question, prepared, reply)

    def read(self, question: str, prepared: Prepared, reply: Reply) -> Processed:
        """What a reply means."""
        evidence = Evidence(question, prepared.memories)
        parsed = self.parse(reply, evidence)
        if parsed.problem is not None:
            if self.blank_means_nothing and parsed.counts["blank"]:
                return prepared.nothing(parsed.problem, (reply,), parsed.counts)
            return prepared.failed(parsed.problem, (reply,), parsed.counts)
        if parsed.nothing:
            return prepared.nothing("the model said that no memory is needed", (reply,), parsed.counts)
        lines = self.lines(parsed, prepared, evidence)
        if not lines:
            if parsed.rejects_all:
                reason = "the model said of every memory that it names that it isn't needed"
                return prepared.nothing(reason, (reply,), parsed.counts)
            return prepared.failed(
                "no line of the reply could be tied to a memory: answered instead of filtering, or made up",
                (reply,), parsed.counts,
            )  # fmt: skip
        return prepared.kept(lines, (reply,), parsed.counts)

    @abstractmethod
    def parse(self, reply: Reply, evidence: Evidence) -> Parsed:
        """The reply, read with this method's threshold and labels."""

    @abstractmethod
    def lines(self, parsed: Parsed, prepared: Prepared, evidence: Evidence) -> list[Line]:
        """The context lines that a parsed reply gives; may add to `parsed.counts`."""


def newest_of_near_duplicates(lines: Sequence[Line], evidence: Evidence) -> list[Line]:
    """Without lines that tell what a newer line (or, of the same date, an earlier one) tells too; order kept."""
    kept: list[Line] = []
    words = {id(line): evidence.content(line.text, line.sources) for line in lines}
    for line in sorted(lines, key=evidence.newness, reverse=True):
        mine = words[id(line)]
        same = (
            other
            for other in kept
            if line.text == other.text or (mine and _overlap(mine, words[id(other)]) >= NEAR_DUPLICATE)
        )
        if next(same, None) is None:
            kept.append(line)
    return [line for line in lines if any(line is other for other in kept)]


def _overlap(one: set[str], other: set[str]) -> float:
    return len(one & other) / len(one | other)
