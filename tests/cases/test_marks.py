"""Marks in responses and memories: what is marked is worked out by hand, and ordinary words are never marked."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from opbench.analysis.words import word_changes
from opbench.benchmarks import load
from opbench.cases.marks import became, changed, marked_share, spans
from opbench.cases.outcome import Found, Shown

LAKE = Found(text="Ottilie swims in the old quarry lake on Saturday mornings.", date="9 May 2024", score=0.4)
GOOSE = Found(text="Ottilie keeps a one-eyed goose named Admiral.")
LETTERS = Found(text="Ottilie's grandmother left her 412 Hungarian letters.")


def pieces(
    response: str, memories: list[Found], question: str = "", **more: object
) -> list[tuple[str, tuple[int, ...]]]:
    """The marked pieces with their memories."""
    return [(response[span.start : span.end], span.memories) for span in spans(response, memories, question, **more)]  # type: ignore[arg-type]


def test_a_run_is_marked_from_its_first_to_its_last_content_word() -> None:
    assert pieces("As fresh as the old quarry lake at noon.", [LAKE]) == [("old quarry lake", (1,))]


def test_inflections_are_the_same_word_and_stop_words_inside_a_run_belong_to_it() -> None:
    assert pieces("Who swam or swims in the old quarry lakes?", [LAKE]) == [("swims in the old quarry lakes", (1,))]


def test_a_run_does_not_reach_over_the_end_of_a_sentence() -> None:
    assert pieces("I know a quarry. Lake water is cold.", [LAKE]) == []
    assert pieces("I know a quarry\nlake water is cold", [LAKE]) == []


def test_words_of_the_question_alone_are_not_marked() -> None:
    assert pieces("A quarry lake is deep.", [LAKE], "Is a quarry lake deep?") == []
    # The run goes beyond the question, and holds a telling word that the question doesn't.
    assert pieces("Your old quarry lake is deep.", [LAKE], "Is a lake deep?") == [("old quarry lake", (1,))]


def test_names_and_numbers_are_marked_one_by_one() -> None:
    memories = [LAKE, GOOSE, LETTERS]
    assert pieces("Keep Admiral out, all 412 times.", memories) == [("Admiral", (2,)), ("412", (3,))]
    # Without a capital it is another word.
    assert pieces("An admiral commands a fleet.", memories) == []
    assert pieces("Keep Admiral out.", memories, "Is Admiral in?") == []


@pytest.mark.parametrize(
    "response",
    [
        "I'm sorry to hear that, it is good to take time for the people in your life.",
        "Here are 10 tips: 1. Start small. 2. Ask friends for help. 3. Have fun!",
        "It's great that you want to share your feelings with your family.",
        "Thanks, that sounds amazing and I am so glad you told me.",
        "Ottilie is a nice name.",
        "",
    ],
)
def test_ordinary_words_the_users_name_and_list_numbers_are_never_marked(response: str) -> None:
    memories = [
        Found(text="Ottilie was sorry to hear that, it is good to take time for people in her life."),
        Found(text="Ottilie has 10 friends, 2 of whom help her have fun: it's great, she told me, sharing feelings."),
        Found(text="Ottilie said thanks, that sounds amazing, and so glad to share it with her family."),
    ]
    assert pieces(response, memories) == []


def test_the_name_of_a_single_memory_is_the_users_when_it_is_said_to_be() -> None:
    memory = Found(text="Yesterday Ottilie drank tea.")
    assert pieces("Hello Ottilie!", [memory]) == [("Ottilie", (1,))]
    assert pieces("Hello Ottilie!", [memory], known=["Ottilie"]) == []


def test_single_words_count_where_a_sentence_holds_three_of_one_memory() -> None:
    memory = Found(text="Ottilie mends bellows with sheepskin and hide glue.")
    assert pieces("Sheepskin is soft.", [memory]) == []
    assert pieces("For bellows, sheepskin is soft.", [memory]) == []
    found = pieces("For bellows, sheepskin beats any glue.", [memory])
    # Neighbours of one memory are one piece.
    assert found == [("bellows, sheepskin", (1,)), ("glue", (1,))]


def test_a_piece_of_several_memories_names_them_all_the_one_that_holds_most_first() -> None:
    short, whole = Found(text="A quarry lake is near."), LAKE
    assert pieces("My old quarry lake!", [short, whole]) == [("old quarry lake", (2, 1))]
    # The lake alone stands in the other one too, which isn't where three words come from.
    assert pieces("My old quarry lake!", [Found(text="Lake Balaton is far."), whole]) == [("old quarry lake", (2,))]


def test_spans_tell_their_words_and_never_overlap() -> None:
    response = "The quarry lake, the one-eyed goose and the old quarry lake; Hungarian letters too."
    found = spans(response, [LAKE, GOOSE, LETTERS])
    assert [span.words for span in found] == [
        ("quarry", "lake"),
        ("one-eyed", "goose"),
        ("old", "quarry", "lake"),
        ("Hungarian", "letters"),
    ]
    assert all(before.end <= after.start for before, after in pairwise(found))


def test_a_memorys_date_marks_as_a_whole_and_not_by_its_year() -> None:
    assert pieces("That was on 9 May 2024.", [LAKE]) == [("9 May 2024", (1,))]
    assert pieces("In 2024 it was cold.", [LAKE]) == []


def test_curly_quotes_and_possessives_make_no_other_word() -> None:
    assert pieces("Admiral’s beak", [GOOSE]) == [("Admiral’s", (1,))]


def test_memories_keep_the_numbers_that_they_go_by() -> None:
    assert pieces("Admiral and the quarry lake", [LAKE, GOOSE], numbers=[1, 3]) == [
        ("Admiral", (3,)),
        ("quarry lake", (1,)),
    ]
    with pytest.raises(ValueError, match="2 memories with 1 numbers"):
        spans("x", [LAKE, GOOSE], numbers=[1])


def test_no_memories_and_no_text_have_no_marks() -> None:
    assert spans("A quarry lake", []) == []
    assert spans("A quarry lake", [Found(text="")]) == []
    assert spans("", [LAKE]) == []


def test_the_marked_share_counts_words() -> None:
    response = "The old quarry lake is deep."
    assert marked_share(response, spans(response, [LAKE])) == pytest.approx(3 / 6)
    assert marked_share("Nothing.", []) == 0
    assert marked_share("…", []) is None


def test_a_hostile_text_takes_no_long_time_and_its_places_fit() -> None:
    nasty = '<script>alert("quarry lake")</script> ' * 400
    found = spans(nasty, [Found(text="a quarry lake " * 400)])
    assert len(found) == 400
    assert {nasty[span.start : span.end] for span in found} == {"quarry lake"}


def test_rag_is_marked_and_base_is_not(use_real_data: Path) -> None:
    """What the appendix calls over-personalised shares wording with its memories; the fitting answers don't."""
    lines = (use_real_data / "published" / "appendix_cases.jsonl").read_text("utf-8").splitlines()
    shares: dict[str, list[float]] = {"response": [], "reference_response": []}
    for case in map(json.loads, lines):
        for which, found in shares.items():
            text = case[which]
            memories = [Found(text=memory) for memory in case["memory"] if memory]
            share = marked_share(text, spans(text, memories, case["question"], known=[case["persona"]]))
            found.append(share or 0.0)
    bad, good = (sum(found) / len(found) for found in shares.values())
    assert len(shares["response"]) == 16
    assert bad > 3 * good


def test_base_memories_and_work_under_way_have_no_fate_yet() -> None:
    assert became(None, None) == []
    (waiting,) = became([LAKE], None)
    assert (waiting.number, waiting.became, waiting.runs) == (1, None, ((LAKE.text, "kept"),))


def test_without_a_post_processor_all_is_kept() -> None:
    found = became([LAKE, GOOSE], [Shown(text=LAKE.text, date=LAKE.date), Shown(text=GOOSE.text)])
    assert [(each.number, each.became) for each in found] == [(1, "kept"), (2, "kept")]
    assert found[0].runs == ((LAKE.text, "kept"),)
    assert (found[0].date, found[0].score) == ("9 May 2024", 0.4)


def test_a_filter_keeps_and_drops_whole_memories() -> None:
    found = became([LAKE, GOOSE], [Shown(text=GOOSE.text, sources=(2,))])
    assert [(each.became, each.runs) for each in found] == [
        ("dropped", ((LAKE.text, "dropped"),)),
        ("kept", ((GOOSE.text, "kept"),)),
    ]
    # An empty context with a post-processor is one that keeps nothing.
    assert [each.became for each in became([LAKE, GOOSE], [])] == ["dropped", "dropped"]


def test_a_rewording_is_told_word_by_word() -> None:
    (found,) = became([LAKE], [Shown(text="Ottilie swims in a quarry lake.", sources=(1,), altered=True)])
    assert found.became == "altered"
    assert found.runs == (
        ("Ottilie swims in ", "kept"),
        ("the old ", "dropped"),
        ("a ", "added"),
        ("quarry lake. ", "kept"),
        ("on Saturday mornings.", "dropped"),
    )
    assert found.lines == ("Ottilie swims in a quarry lake.",)


def test_what_a_merged_line_has_from_another_memory_is_not_added() -> None:
    line = Shown(text="Ottilie swims in a quarry lake and keeps a goose for luck.", sources=(1, 2), altered=True)
    lake, goose = became([LAKE, GOOSE], [line])
    assert (lake.became, goose.became) == ("merged", "merged")
    assert [text for text, kind in lake.runs if kind == "added"] == ["luck. "]
    assert [text for text, kind in goose.runs if kind == "added"] == ["luck. "]
    assert ("goose ", "kept") in goose.runs


def test_a_line_of_no_memory_is_added_and_has_no_number() -> None:
    found = became([LAKE], [Shown(text=LAKE.text, sources=(1,)), Shown(text="She is 41.", sources=())])
    assert [(each.number, each.became) for each in found] == [(1, "kept"), (None, "added")]
    assert found[1].runs == (("She is 41.", "added"),)


def test_doubles_share_their_fate_and_numbers_may_be_given() -> None:
    found = became([LAKE, LAKE, GOOSE], [Shown(text=GOOSE.text, sources=(2,))], numbers=[1, 2, 4])
    assert [(each.number, each.became) for each in found] == [(1, "dropped"), (2, "dropped"), (4, "kept")]


def test_two_texts_side_by_side() -> None:
    before, after = changed("The goose bites.", "The old goose sings.")
    assert before == [("The goose ", "kept"), ("bites.", "dropped")]
    assert after == [("The ", "kept"), ("old", "added"), (" goose ", "kept"), ("sings.", "added")]


@pytest.mark.parametrize(
    ("first", "second", "way"),
    [
        ("", "", []),
        ("a", "", [("a", "dropped")]),
        ("", "a", [("a", "added")]),
        ("a b", "a b", [("a b", "kept")]),
        ("a\n\nb", "a b", [("a b", "kept")]),
        ("one two", "two three", [("one ", "dropped"), ("two ", "kept"), ("three", "added")]),
        ("end here", "end there", [("end ", "kept"), ("here ", "dropped"), ("there", "added")]),
        ("lake on", "lake.", [("lake. ", "kept"), ("on", "dropped")]),
    ],
)
def test_the_way_from_one_text_to_another(first: str, second: str, way: list[tuple[str, str]]) -> None:
    assert word_changes(first, second) == way


def test_the_way_through_long_texts_goes_line_by_line() -> None:
    first = "\n".join(f"line {number} of a long text" for number in range(1_000))
    way = word_changes(first, first.replace("line 500 of", "row 500 of"))
    assert [(text, kind) for text, kind in way if kind != "kept"] == [
        ("line 500 of a long text\n", "dropped"),
        ("row 500 of a long text\n", "added"),
    ]


def test_the_samples_people_share_no_marks_by_chance() -> None:
    """Facts about one of the sample's people mark next to nothing in facts about the other."""
    corpus = load("sample")
    one, other = corpus.profiles.values()
    shared = [
        share
        for text in one.observations
        for share in [marked_share(text, spans(text, [Found(text=each) for each in other.observations]))]
        if share is not None
    ]
    assert len(shared) > 10
    assert sum(shared) / len(shared) < 0.02
