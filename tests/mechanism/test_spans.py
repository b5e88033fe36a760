"""Segments of a prompt by offsets, on prompts whose tokens are counted by hand."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest

from opbench.mechanism.prompts import turns_of
from opbench.mechanism.spans import Layout, Refused, Turn, Unreadable, lay_out
from opbench.store.attention import SEGMENTS
from tests.mechanism.tiny_reader import tokenizer


class Pieces:
    """A tokeniser whose tokens are what a pattern finds."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern

    def __call__(self, text: str, **_: Any) -> dict[str, Any]:
        found = [match.span() for match in re.finditer(self.pattern, text, re.DOTALL)]
        return {"input_ids": list(range(len(found))), "offset_mapping": found}


#: A word with the space before it, as many tokenisers have them; a line's end by itself.
WORDS = Pieces(r"<[^>]*>|\n| ?[^\s<]+")
SIGNS = Pieces(r".")


def plain(messages: Sequence[dict[str, str]]) -> str:
    return "".join(f"<{each['role']}>{each['content']}</>" for each in messages) + "<assistant>"


def texts(layout: Layout, segment: str) -> list[str]:
    return [text for text, place in zip(layout.texts, layout.segments, strict=True) if SEGMENTS[place] == segment]


def user(*pieces: tuple[str, str]) -> Turn:
    return Turn("user", pieces)


SYSTEM = Turn("system", (("instructions", "Be kind."),))


def test_each_token_is_in_its_segment_and_the_texts_are_the_prompt() -> None:
    turns = [
        SYSTEM,
        user(("instructions", "Use:\n"), ("memory", "- likes tea"), ("instructions", "\n"), ("query", "Hi?")),
    ]
    layout = lay_out(turns, plain, WORDS)
    assert layout.text == "<system>Be kind.</><user>Use:\n- likes tea\nHi?</><assistant>"
    assert texts(layout, "first") == ["<system>"]
    assert texts(layout, "instructions") == ["Be", " kind.", "Use:", "\n", "\n"]
    assert texts(layout, "memory") == ["-", " likes", " tea"]
    assert texts(layout, "query") == ["Hi?"]
    assert texts(layout, "template") == ["</>", "<user>", "</>", "<assistant>"]
    assert "".join(layout.texts) == layout.text


def test_a_question_that_a_memory_repeats_is_the_query_only_where_it_is_asked() -> None:
    turns = [user(("memory", "- asked: Why rain?"), ("instructions", "\n"), ("query", "Why rain?"))]
    layout = lay_out(turns, plain, WORDS)
    assert texts(layout, "memory") == ["-", " asked:", " Why", " rain?"]
    assert texts(layout, "query") == ["Why", " rain?"]


def test_a_memory_that_the_instructions_repeat_is_memory_only_where_it_is_one() -> None:
    system = Turn("system", (("instructions", "- likes tea"),))
    layout = lay_out([system, user(("memory", "- likes tea"), ("instructions", "\n"), ("query", "Hi"))], plain, WORDS)
    assert texts(layout, "instructions") == ["-", " likes", " tea", "\n"]
    assert texts(layout, "memory") == ["-", " likes", " tea"]


def test_a_token_over_a_border_goes_where_most_of_it_is_and_of_equal_parts_to_the_earlier() -> None:
    turns = [user(("instructions", "abc"), ("memory", "de"), ("query", "fgh"))]

    def bare(messages: Sequence[dict[str, str]]) -> str:
        return ">" + messages[0]["content"]

    # > | ab | cde | fgh: the third has one sign of the instructions and two of the memory.
    layout = lay_out(turns, bare, Pieces(r">|ab|cde|fgh"))
    assert [SEGMENTS[place] for place in layout.segments] == ["first", "instructions", "memory", "query"]
    # > | abcde: three against two. ef: one each.
    layout = lay_out(turns, bare, Pieces(r">|abcd|ef|gh"))
    assert [SEGMENTS[place] for place in layout.segments] == ["first", "instructions", "memory", "query"]


def test_signs_of_several_tokens_belong_together_and_are_told_once() -> None:
    turns = [
        user(("memory", "- \U0001f9cb né"), ("instructions", "\n\n"), ("query", "Ça\u200d\U0001f468\u200d\U0001f469?"))
    ]

    def bare(messages: Sequence[dict[str, str]]) -> str:
        return "<s>" + messages[0]["content"] + "</s>"

    layout = lay_out(turns, bare, tokenizer())
    # Bytes: "- " 2, the cup 4, " n" 2, "é" 2; the question Ç 2, a 1, joiner 3, man 4, joiner 3, woman 4, "?" 1.
    assert len(texts(layout, "memory")) == 2 + 4 + 2 + 2
    assert len(texts(layout, "query")) == 2 + 1 + 3 + 4 + 3 + 4 + 1
    assert len(texts(layout, "instructions")) == 2
    assert "".join(layout.texts) == layout.text
    assert texts(layout, "memory")[2:6] == ["\U0001f9cb", "", "", ""]


def test_a_template_that_trims_its_messages() -> None:
    def trimming(messages: Sequence[dict[str, str]]) -> str:
        return plain([{**each, "content": each["content"].strip()} for each in messages])

    layout = lay_out([user(("instructions", "\n Now: "), ("query", "Hi there \n\n"))], trimming, SIGNS)
    assert layout.text == "<user>Now: Hi there</><assistant>"
    assert "".join(texts(layout, "query")) == "Hi there"
    assert "".join(texts(layout, "instructions")) == "Now: "


def test_a_system_message_of_the_templates_own_is_template() -> None:
    def adding(messages: Sequence[dict[str, str]]) -> str:
        return ("" if messages[0]["role"] == "system" else "<system>You are Hi.</>") + plain(messages)

    layout = lay_out([user(("query", "Hi"))], adding, WORDS)
    assert texts(layout, "first") == ["<system>"]
    assert texts(layout, "template") == ["You", " are", " Hi.", "</>", "<user>", "</>", "<assistant>"]
    assert texts(layout, "query") == ["Hi"]


def test_a_template_without_system_messages_gets_it_at_the_head_of_the_users() -> None:
    def strict(messages: Sequence[dict[str, str]]) -> str:
        if messages[0]["role"] == "system":
            raise Refused("System role not supported")
        return plain(messages)

    layout = lay_out([SYSTEM, user(("memory", "- tea"), ("query", "\nHi"))], strict, WORDS)
    assert layout.text == "<user>Be kind.\n\n- tea\nHi</><assistant>"
    assert texts(layout, "instructions") == ["Be", " kind.", "\n", "\n"]
    assert texts(layout, "memory") == ["-", " tea"]


@pytest.mark.parametrize(
    ("render", "said"),
    [
        (lambda messages: plain(messages[1:]), "leaves a message out"),
        (lambda messages: plain([*messages, messages[-1]]), "repeats it"),
        (lambda messages: plain([{**each, "content": each["content"].upper()} for each in messages]), "message"),
        (
            lambda messages: plain([{**each, "content": each["content"].replace("k", "c")} for each in messages]),
            "alters",
        ),
    ],
)
def test_a_template_that_shows_other_messages_is_not_read(render: Any, said: str) -> None:
    with pytest.raises(Unreadable, match=said):
        lay_out([SYSTEM, user(("query", "Why?"))], render, WORDS)


def test_a_refusal_is_told_with_its_reason() -> None:
    def refusing(messages: Sequence[dict[str, str]]) -> str:
        raise Refused("roles must alternate")

    with pytest.raises(Unreadable, match="roles must alternate"):
        lay_out([SYSTEM, user(("query", "Why?"))], refusing, WORDS)


def test_half_a_surrogate_pair_is_told() -> None:
    with pytest.raises(Unreadable, match="signs"):
        lay_out([user(("query", "Why \ud83e?"))], plain, tokenizer())


# The prompt's segments, from a record.

KIND = {"role": "system", "content": "You are kind."}
OP_HEAD = (
    "Reply to what the user says, in a natural, spoken tone. Where these memories from earlier conversations with the "
    "user are relevant to it, you may use them. Each has its date.\n\n"
)


def pieces_of(content: str, question: str, *lines: tuple[str, str | None]) -> tuple[tuple[str, str], ...]:
    context = [{"text": text, "date": date, "score": 0.5} for text, date in lines]
    turns = turns_of([KIND, {"role": "user", "content": content}], "op", question, context)
    assert [turn.role for turn in turns] == ["system", "user"]
    assert turns[0].pieces == (("instructions", KIND["content"]),)
    return turns[1].pieces


def test_the_memory_lines_and_the_question_of_a_prompt() -> None:
    content = OP_HEAD + "- (9 May 2024) Tea at four\n- No cake\n\nThe user says: Tea?"
    assert pieces_of(content, "Tea?", ("Tea at four", "9 May 2024"), ("No cake", None)) == (
        ("instructions", OP_HEAD),
        ("memory", "- (9 May 2024) Tea at four\n- No cake"),
        ("instructions", "\n\nThe user says: "),
        ("query", "Tea?"),
    )


def test_a_prompt_without_memories_has_no_memory() -> None:
    content = "Reply to what the user says, in a natural, spoken tone.\n\nThe user says: Tea?"
    assert [segment for segment, _ in pieces_of(content, "Tea?")] == ["instructions", "query"]


def test_what_a_method_puts_around_the_prompt_is_instructions() -> None:
    prompt = OP_HEAD + "- The user says: Tea?\n\nThe user says: Tea?"
    pieces = pieces_of(f"Examples.\n\n{prompt}\n\nMind the memories.", "Tea?", ("The user says: Tea?", None))
    assert pieces == (
        ("instructions", "Examples.\n\n"),
        ("instructions", OP_HEAD),
        ("memory", "- The user says: Tea?"),
        ("instructions", "\n\nThe user says: "),
        ("query", "Tea?"),
        ("instructions", "\n\nMind the memories."),
    )


@pytest.mark.parametrize("content", ["Another prompt: Tea?", OP_HEAD + "- cake\n\nThe user says: Tea? Or not?"])
def test_a_prompt_of_another_form_is_not_read(content: str) -> None:
    with pytest.raises(Unreadable, match="another form"):
        pieces_of(content, "Tea?", ("cake", None))
