"""Self-Critic: a second call criticises how the draft used the memories and rewrites it (paper, B.2)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mitigations.base import Ask, Memory, Processed, Reply, Revised, Search
from mitigations.context import prepare
from mitigations.lines import strip_quotes
from mitigations.method import Method, Setting
from mitigations.parsing import after_last, label_pattern, strip_thoughts
from mitigations.prompting import fenced, one_line, sections
from mitigations.text import normalise

_LABELS = ("revised answer", "revised response", "final answer", "final response")
#: Accepted only if none of the above is there, since an answer may hold such a line itself.
_LOOSE_LABELS = ("response", "revision", "revised")
_CRITIQUE = label_pattern(("critique", "criticism", "draft", "revised answer", "revised response"))
#: Talk about the procedure. The bare words draft and review are none: users write screenplays.
_PROCEDURE = re.compile(
    r"\b(?:the|my|this) (?:previous|earlier|original|initial|first|revised|rewritten|improved|updated|above) "
    r"(?:answer|response|reply|critique)\b"
    r"|\bmy (?:previous|earlier|original|initial|first|revised) (?:draft|version)\b"
    r"|\bhere(?: is|'s) (?:the|my|a|an) (?:revised|rewritten|improved|updated|corrected|final) \w+"
    r"|\b(?:revised|rewritten) (?:answer|response)\b"
    r"|\b(?:the|my) draft (?:answer|response|reply)\b"
    r"|\b(?:based on|according to|following|in light of) (?:the|this|my) (?:critique|criticism)\b"
    r"|\bi(?:'ve| have)? (?:removed|revised|rewrote|rewritten|left out|dropped|omitted)"
    r" (?:the|any|all|your|my|it|this)\b[^.!?]*"
    r"\b(?:reference|mention|detail|answer|response|draft|memor(?:y|ies)|personal)\w*"
    r"|^no (?:changes|revisions?) (?:are |were |is |was )?(?:needed|necessary|required|made)"
    r"(?: to (?:the|my) (?:draft|answer|response))?\W*$",
    re.IGNORECASE,
)
#: A revision that is only a remark on the draft: it stands.
_UNCHANGED = re.compile(
    r"^\W*(?:(?:(?:the |my )?(?:draft|answer|response)\W*)?(?:is |was |remains |stays |left |kept )*"
    r"(?:unchanged|as (?:it )?is)"
    r"|(?:the )?same(?: (?:answer|text))? as (?:in )?(?:the |my )?(?:draft|above|before)(?: answer| response)?"
    r"|(?:identical to|repeat(?:s|ed)?|keep(?:ing)?|see) the draft(?: (?:answer|as (?:it )?is|unchanged))*"
    r"|as (?:drafted|in the draft)"
    r"|the draft (?:already |still )?(?:is|was|looks|seems|stands|holds)(?: (?:already|perfectly|quite|still))?"
    r"(?: (?:fine|good|right|correct|accurate|appropriate|ok|okay))?(?: as (?:it )?(?:is|stands|written))?)\W*$",
    re.IGNORECASE,
)
#: The same remark beside the draft, repeated.
_UNCHANGED_MARK = re.compile(r"^[(\[]unchanged[)\]][:.]?\s*|\s*[(\[]unchanged[)\]]\.?$", re.IGNORECASE)
_EMPTY = re.compile(r"^\W*(?:n/a|none|null|nil|nothing|empty|blank)?\W*$", re.IGNORECASE)
_LEFTOVER_TAG = re.compile(r"</?(?:draft|question|memories|critique|examples?)>", re.IGNORECASE)
#: A closing note, or a last paragraph, on what was done to the draft.
_NOTE = re.compile(
    r"^[^\w\n]*(?:note\b[^\n]*(?:\n(?![ \t]*\n)[^\n]*)*?\b(?:"
    r"i(?:'ve| have)? (?:avoided|removed|left out|dropped|omitted|revised|rewrote|rewritten|kept|focused|excluded"
    r"|did(?: not|n't) (?:mention|include|use))|this revision|(?:the|this) (?:revised|rewritten) \w+)"
    r"|this (?:revision|rewrite) (?:\w+ )?(?:avoid|remov|drop|omit|leave|focus|keep|address|correct|does)\w*)\b",
    re.IGNORECASE | re.MULTILINE,
)
_FENCED_WHOLE = re.compile(r"^```[\w-]*\n(.*)\n```$", re.DOTALL)


class SelfCritic(Method):
    """Two calls: the draft (the plain response with memories, not ours), then critique and rewrite in one reply.

    `max_tokens` is the paper's limit of 512 for the second call too; a rewrite that it cuts off leaves the draft.
    """

    revises = True
    used_sections: tuple[str, ...] = ("task", "closing")

    def __init__(self, name: str = "self-critic", label: str = "Self-Critic", *, max_tokens: int = 512) -> None:
        super().__init__(name, "revision", label, calls=1)
        self.max_tokens = max_tokens

    @property
    def prompt_files(self) -> tuple[str, ...]:
        return ("common", "self_critic")

    def settings(self) -> dict[str, Setting]:
        return {"max_tokens": self.max_tokens}

    def own_sections(self) -> dict[str, str]:
        part = sections("self_critic")
        return {name: part[name] for name in self.used_sections}

    async def process(
        self, question: str, memories: Sequence[Memory], ask: Ask, search: Search | None = None
    ) -> Processed:
        """The memories go on as retrieved, without a call."""
        return prepare(memories).pass_through()

    async def revise(
        self, question: str, memories: Sequence[Memory], draft: str, ask: Ask, *, system: str = ""
    ) -> Revised:
        prepared = prepare(memories)
        if not prepared.memories or not draft.strip():
            return Revised("unchanged", draft)
        part = self.prompt_sections()
        user = "\n\n".join(
            (part["task"], _listed(prepared.original), fenced("question", question.strip()),
             fenced("draft", draft.strip()), part["closing"])
        )  # fmt: skip
        reply = await ask(_with_system(system, [("user", user)]), max_tokens=self.max_tokens, temperature=0.0)
        return read_revision(question, draft, reply)


class SelfCriticOriginal(SelfCritic):
    """Three calls as turns of one conversation: answer, critique of how it follows stated preferences, new answer.

    It aims at following preferences, so it is a control for OP-Bench. 300 and 500 tokens as in the original.
    """

    used_sections = ("original_answer", "original_critique", "original_revision")
    critique_tokens = 300

    def __init__(self, name: str = "self-critic-original", *, max_tokens: int = 500) -> None:
        super().__init__(name, "Self-Critic (original)", max_tokens=max_tokens)
        self.calls = 2

    def settings(self) -> dict[str, Setting]:
        return {**super().settings(), "turns": 3, "critique_tokens": self.critique_tokens}

    async def revise(
        self, question: str, memories: Sequence[Memory], draft: str, ask: Ask, *, system: str = ""
    ) -> Revised:
        prepared = prepare(memories)
        if not prepared.memories or not draft.strip():
            return Revised("unchanged", draft)
        part = self.prompt_sections()
        opening = f"{part['original_answer']}\n\n{_listed(prepared.original)}\n\n{question.strip()}"
        turns = _with_system(system, [("user", opening), ("assistant", draft), ("user", part["original_critique"])])
        critique = await ask(turns, max_tokens=self.critique_tokens, temperature=0.0)
        said = strip_thoughts(normalise(critique.text)).strip()
        if not said:
            return _failed(draft, "blank critique", (critique,), "blank")
        turns += [("assistant", said), ("user", part["original_revision"])]
        reply = await ask(turns, max_tokens=self.max_tokens, temperature=0.0)
        return _judged(question, draft, _bare(reply.text), said, (critique, reply))


def read_revision(question: str, draft: str, reply: Reply) -> Revised:
    """Cuts the revised answer out of a reply with critique and rewrite. Whatever is doubtful leaves the draft."""
    text = strip_thoughts(normalise_quotes_only(reply.text)).strip()
    if match := _FENCED_WHOLE.match(text):
        text = match.group(1).strip()
    if not text:
        return _failed(draft, "blank reply", (reply,), "blank")
    revision = after_last(text, _LABELS)
    labels: tuple[str, ...] = _LABELS
    if revision is None:
        revision, labels = after_last(text, _LOOSE_LABELS), _LOOSE_LABELS
    if revision is None:
        return _failed(draft, "no line begins with 'Revised answer:'", (reply,), "unaligned")
    last: re.Match[str] = list(label_pattern(labels).finditer(text))[-1]
    critique = text[: last.start()]
    critique = re.sub(r"^[\W\d]*critique\W*", "", critique, flags=re.IGNORECASE).strip(" *\n")
    return _judged(question, draft, _bare(revision), critique or None, (reply,))


def normalise_quotes_only(text: str) -> str:
    """An answer keeps its characters; only what would hide a label goes (no-break spaces, byte order marks)."""
    return text.replace("\u00a0", " ").replace("\ufeff", "")


def _judged(question: str, draft: str, revision: str, critique: str | None, replies: tuple[Reply, ...]) -> Revised:
    if replies[-1].finish_reason == "length":
        return _failed(draft, "cut off by the token limit inside the revision", replies, "truncated", critique)
    repeated = " ".join(_UNCHANGED_MARK.sub("", revision).split()) == " ".join(draft.split())
    if repeated or _UNCHANGED.match(normalise(revision)):
        return Revised("unchanged", draft, critique, None, replies, True)
    if _EMPTY.match(normalise(revision)):
        return _failed(draft, "nothing stands after 'Revised answer:'", replies, "blank", critique)
    if _CRITIQUE.search(revision) and not _CRITIQUE.search(draft):
        return _failed(draft, "the revision holds a label", replies, "unaligned", critique)
    own = f"{normalise(question)}\n{normalise(draft)}".casefold()
    told = normalise(revision)
    if tags := [tag for tag in _LEFTOVER_TAG.findall(told) if tag.casefold() not in own]:
        return _failed(draft, f"the revision holds a tag of the prompt: '{tags[0]}'", replies, "unaligned", critique)
    found = [match.group() for pattern in (_PROCEDURE, _NOTE) for match in pattern.finditer(told)]
    if talk := [words.strip() for words in found if words.strip().casefold() not in own]:
        return _failed(draft, f"the revision talks about the procedure: '{talk[0]}'", replies, "unaligned", critique)
    return Revised("revised", revision, critique, None, replies, True)


def _failed(draft: str, reason: str, replies: tuple[Reply, ...], count: str, critique: str | None = None) -> Revised:
    return Revised("failed", draft, critique, reason, replies, True, {"failed": 1, count: 1})


def _bare(text: str) -> str:
    bare = strip_thoughts(text).strip()
    if match := _FENCED_WHOLE.match(bare):
        bare = match.group(1).strip()
    if bare.startswith("<draft>") and bare.endswith("</draft>"):
        bare = bare.removeprefix("<draft>").removesuffix("</draft>").strip()
    return strip_quotes(bare)


def _listed(memories: Sequence[Memory]) -> str:
    """The memories without numbers, so that an answer can't hold one."""
    return fenced("memories", "\n".join(f"- {one_line(memory)}" for memory in memories))


def _with_system(system: str, turns: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    return [("system", system), *turns] if system.strip() else list(turns)
