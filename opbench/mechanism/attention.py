"""What is meant by attention on memory: the definition that stands on the page, and the words of progress."""

from __future__ import annotations

import re

#: Belongs to the reader's name in the store: what was measured by another definition is never mixed in.
VERSION = "v1"

DEFINITION = """\
**What is measured.** A reading model reads each record's prompt, the very messages that asked for its response, in \
its own chat template, and then the response as it is stored (teacher forcing). In each layer and head every token \
of the response spreads its attention, 1 in all, over the tokens up to itself. The share that falls on a segment, \
averaged over the response's tokens, is the segment's share of attention.

**Segments.** *memory*: the memory lines that the response model saw, with their dates. *query*: the user's \
question. *instructions*: the rest of the system and user messages. *template*: role tokens and other signs of the \
chat template, with a system message that it adds by itself. *first*: the very first token, which attracts \
attention whatever it is (an attention sink) and is kept apart. *response*: the response's tokens up to the one \
that reads.

**Length-normalised ratio.** (share of memory / its tokens) / (share of query / its tokens), of shares that were \
first averaged over layers and heads, or of one layer or head alone. 1: a memory token gets as much as a query \
token. Without memory in the prompt (BASE, an empty retrieval, a filter that kept nothing) there is no ratio, which \
isn't 0.

**Onset.** The same shares from the prompt's last token alone, which chooses the response's first token.

**What it can't tell.** The paper (section 4.3, figure 4) prints no formula, so this one is the project's. Memories \
stand before the query, and attention falls with distance: where a segment stands moves the ratio whatever it says. \
Random memories stand in the same place, so what RAG has beyond `random` is owed to the memories themselves. Where \
another model answered than the one that reads, this is another model's reading. Attention isn't influence: \
leave-one-out tells what a memory changes. A method that revises its response (Self-Critic) is read with its draft, \
which is what came of the prompt. Where a chat template knows no system message, it is read at the head of the \
user's.
"""

#: A line of `opbench mechanism attention` on standard error: `attention: 12 of 288 records, 202 s left`.
PROGRESS = re.compile(r"attention: (?P<done>\d+) of (?P<planned>\d+) records(?:, (?P<seconds>\d+) s left)?")


def progress_line(done: int, planned: int, seconds_left: float | None) -> str:
    """A line that `PROGRESS` reads."""
    left = "" if seconds_left is None else f", {seconds_left:.0f} s left"
    return f"attention: {done} of {planned} records{left}"
