"""What a reviewer found to go wrong: false memories confirmed, made-up replies, rejected memories, repeated prompts."""

from __future__ import annotations

import pytest

from mitigations import Memory, Reply, context_lines
from mitigations.evidence import Evidence
from mitigations.lines import says_nothing
from mitigations.parsing import parse
from mitigations.roles import reorders
from mitigations.verdicts import split_verdict
from tests.mitigations.scripted import ORIGINAL, STORE, WALNUTS, is_untouched, process

GIFT = "Remember when I told you my bees swarmed into the lift?"
FILTERS = ("reminder", "few-shot-cot")
LINE_FILTERS = (*FILTERS, "self-recheck")
ALL = (*LINE_FILTERS, "comorag", "marag")
CLASS = ORIGINAL[4]


def form(name: str, lines: str) -> str:
    return f"Need: something.\nCheck: all.\nContext:\n{lines}" if name == "few-shot-cot" else lines


def each(pattern: str, count: int = 5) -> str:
    return "\n".join(
        pattern.format(number=number, text=memory.text, bare=memory.text.rstrip("."))
        for number, memory in enumerate(STORE[:count], start=1)
    )


# --- a false memory is no evidence (2) -----------------------------------------------------------------------------


async def test_marag_takes_nothing_from_a_false_memory() -> None:
    note = "[1] Mara keeps bees on the roof and they swarmed into the lift. | Mara keeps bees on the roof"
    for name in ("marag", "marag-per-memory"):
        done = await process(name, note, GIFT, STORE[:1])
        assert (done.state, context_lines(done), done.counts) == ("kept", [ORIGINAL[0]], {"restored": 1})


@pytest.mark.parametrize("name", LINE_FILTERS)
async def test_filters_take_nothing_from_a_false_memory(name: str) -> None:
    done = await process(name, form(name, "[1] Mara keeps bees in the lift of her building."), GIFT)
    assert (done.state, context_lines(done)) == ("kept", [ORIGINAL[0]])
    part = await process(name, form(name, "[1] Mara keeps bees on the roof of her building."), GIFT)
    assert context_lines(part) == [ORIGINAL[0]]


async def test_an_open_question_may_lend_words() -> None:
    question = "Which animals does Mara look after?"
    done = await process("marag", "[1] Mara looks after bees on the roof | keeps bees on the roof", question)
    assert context_lines(done) == ["(2 Feb 2024) Mara looks after bees on the roof"]
    done = await process("reminder", "[1] Mara has animals: bees on the roof of her building.", question)
    assert context_lines(done) == ["(2 Feb 2024) Mara has animals: bees on the roof of her building."]


@pytest.mark.parametrize("name", [*LINE_FILTERS, "marag"])
@pytest.mark.parametrize("line", ["Mara moved from Utrecht to Ghent last weekend.", "Mara moved from Utrecht to Ghent"])
async def test_a_move_turned_round_is_the_stored_one(name: str, line: str) -> None:
    proof = " | Mara moved from Ghent to Utrecht" if name == "marag" else ""
    done = await process(name, form(name, f"[3] {line}{proof}"), "Where did Mara move?")
    assert (done.state, context_lines(done)) == ("kept", [ORIGINAL[2]])


async def test_comorag_drops_a_move_turned_round() -> None:
    turned = "[3] Mara moved from Utrecht to Ghent last weekend."
    assert is_untouched(await process("comorag", turned, "Where did Mara move?"))
    done = await process("comorag", f"{turned}\n{WALNUTS}", "What do I know about Mara?")
    assert context_lines(done) == [WALNUTS]


@pytest.mark.parametrize(
    ("text", "source", "other"),
    [
        ("Mara moved from Utrecht to Ghent.", "Mara moved from Ghent to Utrecht.", True),
        ("Mara moved to Ghent.", "Mara moved from Ghent to Utrecht.", True),
        ("Mara left Utrecht.", "Mara moved from Ghent to Utrecht.", True),
        ("Mara moved to Utrecht, from Ghent.", "Mara moved from Ghent to Utrecht.", False),
        ("Mara left Ghent.", "Mara moved from Ghent to Utrecht.", False),
        ("The class is now on Thursdays, no longer on Tuesdays.", STORE[4].text, True),
        ("The class is now on Tuesdays.", STORE[4].text, False),
        ("Mara went from the barn to the mill.", "Mara went from the mill to the barn.", True),
        ("Joost taught Mara to swim.", "Mara taught Joost to swim.", True),
        ("Joost was taught by Mara.", "Mara taught Joost to swim.", False),
        ("Mara taught Joost.", "Mara taught Joost to swim.", False),
        ("On the roof Mara keeps bees.", "Mara keeps bees on the roof.", False),
    ],
)
def test_reorders(text: str, source: str, other: bool) -> None:
    assert reorders(text, source) is other


# --- no line that aligns is a failure (3) --------------------------------------------------------------------------


@pytest.mark.parametrize("name", FILTERS)
async def test_eight_invented_lines_are_a_failure(name: str) -> None:
    invented = (
        "Leocadia carves puppets.", "The zeppelin flew over bees and meadows.", "Joost weekend pottery in Delft.",
        "Children like sawdust on Thursdays, trains and kites.", "A red boat sails.", "Six ducks.", "A mill.", "Tea.",
    )  # fmt: skip
    lines = "\n".join(f"[{number}] {line}" for number, line in enumerate(invented, start=1))
    parsed = parse(Reply(lines), Evidence("?", STORE), threshold=0.6)
    assert max(entry.share for entry in parsed.entries) <= 1 / 3
    assert is_untouched(await process(name, form(name, lines)))


async def test_a_shots_line_is_a_failure() -> None:
    assert is_untouched(await process("few-shot-cot", "Need: x\nCheck: y\nContext:\n[4] Leocadia carves puppets."))


async def test_marag_unproven_notes_of_other_words_are_a_failure() -> None:
    notes = "[1] Leocadia carves puppets of bees in spring | carves puppets\n[2] Joost flies zeppelins | zeppelins"
    assert is_untouched(await process("marag", notes))
    proven = "[2] Joost flies zeppelins with cream | Mara is allergic to walnuts"
    assert context_lines(await process("marag", proven)) == [WALNUTS]


@pytest.mark.parametrize("name", FILTERS)
async def test_near_enough_is_restored(name: str) -> None:
    """Share 2/5: Ghent and Utrecht of live, Ghent, before, city and Utrecht; `before` is no content word: 2/4."""
    done = await process(name, form(name, "[3] Mara lived in Ghent before, city Utrecht."))
    assert context_lines(done) == [ORIGINAL[2]]


# --- what the model rejects is not kept (4) ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    "pattern",
    [
        "[{number}] {bare} - not relevant",
        "[{number}] {bare} – not relevant to the question.",
        "[{number}] {text} (not needed)",
        "[{number}] {text} This is irrelevant.",
        "[{number}] {bare}, which is not directly related to heat pumps.",
        "[{number}] {bare}: unrelated",
        "[{number}] {bare} -> drop",
        "[{number}] {text} It has nothing to do with your question.",
        "[{number}] {text} | not relevant",
        "[{number}] {text} Relevance: no",
        "[{number}] Not relevant: {text}",
        "[{number}] drop: {text}",
        "[{number}] (irrelevant) {text}",
        "[{number}] Not relevant to the question, which is about a device.",
        "[{number}] The memory does not mention heat pumps.",
        "{number}. Not needed.",
        "{text} This is irrelevant.",
    ],
)
async def test_all_rejected_is_nothing(name: str, pattern: str) -> None:
    done = await process(name, form(name, each(pattern)))
    assert (done.state, context_lines(done)) == ("nothing", [])


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("remark", [" This is irrelevant.", " (dropped)", " - not useful here, as it is about a hobby"])
async def test_a_rejected_memory_goes_the_others_stay(name: str, remark: str) -> None:
    proof = " | allergic to walnuts" if name == "marag" else ""
    lines = f"[1] {STORE[0].text}{remark}\n[2] {STORE[1].text}{proof}\n[3] {STORE[2].text}{remark}"
    done = await process(name, form(name, lines), "Which nuts are bad for me?")
    assert (done.state, context_lines(done), done.counts["rejected"]) == ("kept", [WALNUTS], 2)


@pytest.mark.parametrize("name", LINE_FILTERS)
async def test_a_heading_rejects_the_lines_under_it(name: str) -> None:
    lines = f"Relevant:\n[2] {STORE[1].text}\n\nNot relevant:\n[1] {STORE[0].text}\n- {STORE[2].text}"
    assert context_lines(await process(name, form(name, lines))) == [WALNUTS]
    turned = f"Dropped:\n[1] {STORE[0].text}\nKept:\n[2] {STORE[1].text}"
    assert context_lines(await process(name, form(name, turned))) == [WALNUTS]
    told = f"Memories with the irrelevant ones removed:\n[2] {STORE[1].text}"
    assert context_lines(await process(name, form(name, told))) == [WALNUTS]


@pytest.mark.parametrize("name", LINE_FILTERS)
async def test_lists_of_numbers_kept_and_dropped(name: str) -> None:
    done = await process(name, form(name, "Relevant: [2], [5]\nDropped: [1], [3] and [4]"))
    assert context_lines(done) == [WALNUTS, CLASS]


@pytest.mark.parametrize("name", LINE_FILTERS)
async def test_an_approving_remark_does_not_go_on(name: str) -> None:
    for line in ("Mara is allergic to walnuts - relevant", "keep: Mara is allergic to walnuts. (needed for baking)"):
        assert context_lines(await process(name, form(name, f"[2] {line}"))) == [WALNUTS]


@pytest.mark.parametrize("name", [*LINE_FILTERS, "comorag"])
async def test_a_memory_may_speak_of_relevance_itself(name: str) -> None:
    memory = Memory("Mara found the lecture not relevant. Mara dropped it, as unrelated.", "1 May 2024")
    for line in (memory.text, f"(1 May 2024) {memory.text}"):
        done = await process(name, form(name, f"[1] {line}"), "Which lecture did Mara drop?", [memory, *STORE])
        assert context_lines(done) == [f"(1 May 2024) {memory.text}"]


@pytest.mark.parametrize("name", LINE_FILTERS)
async def test_some_rejected_and_the_rest_made_up_or_cut_off_is_a_failure(name: str) -> None:
    lines = f"[1] {STORE[0].text} - not relevant\n[2] Leocadia carves puppets."
    assert is_untouched(await process(name, form(name, lines)))
    cut = f"[1] {STORE[0].text} - not relevant\n[2] Mara is all"
    assert is_untouched(await process(name, Reply(form(name, cut), "length")))


async def test_verdicts_in_other_forms() -> None:
    reply = "[1] no\n[2] not needed\n[3] Mara moved from Ghent to Utrecht last weekend: no\n[4] irrelevant\n[5] yes"
    assert context_lines(await process("self-recheck-verdicts", reply)) == [CLASS]


@pytest.mark.parametrize(
    ("text", "body", "verdict"),
    [
        ("Mara rents a kiln - not relevant", "Mara rents a kiln", "rejected"),
        ("Mara rents a kiln - relevant, but not needed", "Mara rents a kiln - relevant", "rejected"),
        ("Mara rents a kiln - not needed for pumps, but useful for cups", "Mara rents a kiln", "kept"),
        ("Mara rents a kiln (relevant)", "Mara rents a kiln", "kept"),
        ("Mara rents a kiln, not only useful for cups", "Mara rents a kiln, not only useful for cups", None),
        ("Mara, no stranger to kilns, rents one", "Mara, no stranger to kilns, rents one", None),
        ("Mara dropped a cup", "Mara dropped a cup", None),
    ],
)
def test_split_verdict(text: str, body: str, verdict: str | None) -> None:
    assert split_verdict(text, "Mara rents a kiln.") == (body, verdict)


# --- "your question" is no second person (5) -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    "reply",
    [
        "None of the memories are relevant to your question.",
        "There is no relevant information in the memories for your question.",
        "Nothing here is useful for your current request.",
        "No memory is related to what you asked.",
    ],
)
async def test_nothing_for_your_question(name: str, reply: str) -> None:
    assert (await process(name, form(name, reply))).state == "nothing"


def test_other_second_persons_stay_answers() -> None:
    assert not says_nothing("Nothing is useful to you but your own heat pump.")


# --- cut off before the context (6) --------------------------------------------------------------------------------


@pytest.mark.parametrize("verdict", ["drop", "keep"])
@pytest.mark.parametrize("end", ["", "\n", "\nConte", "\nContext", "\nContext:", "\nContext:\n", "\nContext: NONE"])
async def test_few_shot_cut_off_before_the_context(verdict: str, end: str) -> None:
    check = each(f"[{{number}}] {verdict}: {{text}}")
    done = await process("few-shot-cot", Reply(f"Need: the pump.\nCheck:\n{check}{end}", "length"))
    assert is_untouched(done)
    assert done.counts["truncated"] == 1
    copies = await process(
        "few-shot-cot", Reply(f"Need: the pump.\nCheck:\n{each('[{number}] {text}')}{end}", "length")
    )
    assert is_untouched(copies)


async def test_few_shot_check_without_context_is_a_failure() -> None:
    assert is_untouched(await process("few-shot-cot", f"Need: x\nCheck:\n{each('[{number}] drop: {text}')}"))


# --- a repeated prompt ends the reply (7) --------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*LINE_FILTERS, "comorag"])
@pytest.mark.parametrize("tag", ["<memories>", "<question>How?", "<examples>", "<Memories>"])
async def test_a_repeated_prompt_is_not_read(name: str, tag: str) -> None:
    repeated = f"{tag}\n[1] {STORE[0].text}\n</memories>\n<question>Which?\n[2] {STORE[1].text}"
    done = await process(name, form(name, f"[5] {STORE[4].text}\n{repeated}"), "Which day is my class?")
    assert (done.state, context_lines(done)) == ("kept", [CLASS])
    assert (await process(name, form(name, f"NONE\n{repeated}"))).state == "nothing"


@pytest.mark.parametrize("name", [*LINE_FILTERS, "comorag"])
async def test_tags_around_the_reply_are_no_repetition(name: str) -> None:
    lines = f"Here are the memories:\n<memories>\n[5] {STORE[4].text}\n[2] {STORE[1].text}\n</memories>"
    assert context_lines(await process(name, form(name, lines), "Which day is my class?")) == [CLASS, WALNUTS]


# --- the memory that a line is about (8) ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*LINE_FILTERS, "marag"])
@pytest.mark.parametrize("date", ["", "(20 Jun 2024) ", "(5 Jun 2024) "])
@pytest.mark.parametrize("number", [1, 2, 3])
async def test_a_wrong_number_does_not_restore_a_wrong_memory(name: str, date: str, number: int) -> None:
    line = f"[{number}] {date}Mara teaches woodworking to teenagers on Thursday evenings."
    done = await process(name, form(name, line), "Whom does Mara teach?")
    assert (done.state, context_lines(done)) == ("kept", [ORIGINAL[3]])
    assert done.lines[0].sources == (4,)


async def test_comorag_corrects_a_wrong_number() -> None:
    done = await process("comorag", "[1] Mara teaches woodworking to teenagers.", "Whom does Mara teach?")
    assert context_lines(done) == ["(20 Jun 2024) Mara teaches woodworking to teenagers."]


def test_a_strange_date_takes_nothing_from_the_share() -> None:
    (entry,) = parse(Reply("[3] (8 May 2023) Mara moved to Utrecht."), Evidence("?", STORE), threshold=0.6).entries
    assert (entry.sources, entry.share) == ((3,), 1.0)


def test_too_few_words_correct_no_number() -> None:
    (entry,) = parse(Reply("[1] Mara avoids walnuts."), Evidence("?", STORE), threshold=0.6).entries
    assert (entry.sources, entry.corrected) == ((1,), False)
