"""A case and a book as one HTML file: what it holds, what it leaves out, and what it can never do."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from opbench.cases.outcome import Ablation, Found, Judged, LeftOut, Outcome, Shown
from opbench.cases.published import published_cases
from opbench.cases.saved import Book, Entry, SavedCase
from opbench.cases.spec import CaseSpec, Column, Draft, Given
from opbench.errors import UsageError
from opbench.sharing.case_html import book_html, case_html
from opbench.sharing.case_view import numbers_left
from tests.cases.made import BASE, BOAT, BREAD, EDITED, QUESTION, RAG, REMINDER, SPEC
from tests.cases.test_saved import saved

MADE = datetime(2026, 5, 4, 3, 2, tzinfo=UTC)
LINK = "http://127.0.0.1:8501/case?case=00ff"
NASTY = "</script><script>alert(1)</script> <img src=x onerror=alert(2)> \u2028 & \u202etxt.exe <b>bold</b>"


class Reader(HTMLParser):
    """The tags of a page with their attributes, its ids and links, and its text by article."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.articles: list[str] = []
        self._within = 0
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "article":
            self._within += 1
            self.articles.append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        self._within -= tag == "article"

    def handle_data(self, data: str) -> None:
        if self._within:
            self.articles[-1] += data

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def embedded(html: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.S)
    assert found
    data: dict[str, Any] = json.loads(found[1])
    return data


def drawn(html: str) -> str:
    """The page without its data."""
    return html.split('<script type="application/json"')[0]


def book(*entries: Entry, note: str = "") -> Book:
    return Book("b00c", "For the meeting", note, "ann", 1_700_000_000.0, entries)


def nasty_case() -> SavedCase:
    """Hostile text in every field that takes text."""
    draft = Draft(name="mine", label=NASTY[:60], instructions=NASTY)
    spec = CaseSpec(
        question=NASTY,
        user=NASTY,
        data="sample",
        instance=NASTY,
        judge=NASTY,
        columns=(
            Column(model=NASTY),
            Column(model=NASTY, memory="rag", mitigation="reminder", prompts={NASTY: NASTY}),
            Column(model=NASTY, memory="rag", mitigation="mine", draft=draft, given=(Given(text=NASTY, date=NASTY),)),
        ),
    )
    whole = Outcome(
        state="done",
        retrieved=(Found(text=NASTY, date=NASTY, score=0.5),),
        post_text=NASTY,
        post_state="kept",
        post_reason=NASTY,
        counts={NASTY: 1},
        context=(Shown(text=NASTY + " more", date=NASTY, sources=(1,)), Shown(text=NASTY, sources=())),
        response=NASTY,
        draft=NASTY + " draft",
        critique=NASTY,
        scores=(Judged(metric=NASTY, value=0.5, reason=NASTY),),
    )
    failed = Outcome(state="failed", error_kind=NASTY, error=NASTY)
    items = (
        LeftOut(number=1, text=NASTY, outcome=whole, score_change=0.0, similarity=1.0),
        LeftOut(number=2, text=NASTY, outcome=failed),
    )
    ablation = Ablation(column=1, base=whole, items=items, over=True)
    return saved(
        spec,
        name=NASTY,
        note=NASTY,
        maker=NASTY,
        outcomes=(failed, whole, whole),
        ablations=(ablation,),
        provenance={NASTY: NASTY, "all": {NASTY: [NASTY]}},
    )


def test_head_marks_link_and_time_are_in_it() -> None:
    html = case_html(saved(), link=LINK, made=MADE)
    assert "<h1>Bread</h1>" in html
    assert "<li>not comparable with the paper</li>" in html
    assert "Exported 2026-05-04 03:02 UTC" in html
    assert f'href="{LINK}"' in html
    assert "javascript:" not in case_html(saved(), link="javascript:alert(1)").split('id="data"')[0]


def test_columns_stand_side_by_side_with_scores_memories_and_times() -> None:
    base, rag, reminder = Reader(case_html(saved(), with_texts=True)).articles
    assert "BASE" in base
    assert "Answers without memories" in base
    for told in ("0.25", "1 of 2 memories are used unasked", "similarity 0.457 · 9 May 2024", BOAT, "10 ms (reused)"):
        assert told in rag
    assert "200 ms" in rag
    assert "200 ms (reused)" not in rag
    assert "60 in, 12 out" in rag
    assert "$0.001500" in rag
    # A missing score is not 0, and an unknown price is not nothing.
    assert "n/a" in reminder
    assert "the judge's reply has no number" in reminder
    assert "unknown" in reminder
    assert "150 ms (reused)" in reminder


def test_what_the_post_processor_did_is_marked_word_by_word() -> None:
    html = case_html(saved(), with_texts=True)
    assert "Ottilie bakes <del>sourdough </del>bread on Sundays." in html
    assert f"<del>{BOAT}</del>" in html
    reminder = Reader(html).articles[2]
    assert "altered: kept in other words" in reminder
    assert "dropped: left out by the post-processor" in reminder


def test_marked_pieces_of_the_response_link_to_memories_that_are_there() -> None:
    html = case_html(saved(), with_texts=True)
    page = Reader(html)
    ids = [attributes["id"] for _, attributes in page.tags if attributes.get("id")]
    assert len(ids) == len(set(ids))
    links = [str(each["href"])[1:] for each in page.of("a") if str(each["href"]).startswith("#")]
    assert links
    assert set(links) <= set(ids)
    marked = re.findall(r'<mark id="[^"]*"><a href="#case-1-1-m1">([^<]*)</a><sup><a [^>]*>1</a></sup></mark>', html)
    assert "sourdough bread" in marked


def test_memories_keep_their_numbers_where_one_is_left_out() -> None:
    assert numbers_left(3, (2,)) == [1, 3, 4]
    assert numbers_left(2, ()) == [1, 2]
    spec = SPEC.model_copy(
        update={
            "columns": (
                Column(model="m"),
                Column(model="m", memory="rag"),
                Column(model="m", memory="rag", without=(1,)),
            )
        }
    )
    left = RAG.model_copy(update={"retrieved": (Found(text=BOAT),), "response": "Ottilie sold her boat in March."})
    html = case_html(saved(spec, outcomes=(BASE, RAG, left)), with_texts=True)
    assert 'id="case-1-2-m2"' in html
    assert 'id="case-1-2-m1"' not in html
    assert "What the change did: RAG (without 1)" in html
    assert "change of the score 0.00" in html


def test_leave_one_out_is_drawn_as_bars_from_the_middle() -> None:
    html = case_html(saved(), with_texts=True)
    bars = re.findall(r'<rect class="(blame|help)" x="([\d.]+)" y="2" width="([\d.]+)"', html)
    # A field of 200 for −1 to 1: +0.75 is 75 to the right of 100, −0.25 is 25 to its left.
    assert bars == [("blame", "100.0", "75.0"), ("help", "75.0", "25.0")]
    assert 'aria-label="change +0.75"' in html
    assert 'aria-label="change −0.25"' in html
    assert "Score with all memories: 0.25" in html
    assert "Memory 1 did it" in html
    assert html.count('<tr class="culprit">') == 1


def test_a_missing_change_is_no_bar() -> None:
    failed = LeftOut(number=1, text=BREAD, outcome=Outcome(state="failed", error_kind="timeout", error="no answer"))
    html = case_html(saved(ablations=(Ablation(column=1, base=RAG, items=(failed,), over=True),)), with_texts=True)
    assert 'aria-label="change n/a"' in html
    assert 'class="blame"' not in html.split("</style>")[1]
    assert "no answer" in html


def test_trouble_looks_like_what_it_is() -> None:
    outcomes = (
        BASE.model_copy(update={"finish_reason": "length"}),
        Outcome(state="failed", error_kind="connection", error="m: http://127.0.0.1:9 can't be reached"),
        Outcome(state="cancelled", retrieved=(), response="A no"),
    )
    base, failed, cancelled = Reader(case_html(saved(outcomes=outcomes, ablations=()), with_texts=True)).articles
    assert "cut off at the longest response" in base
    assert "Failed (connection): m: http://127.0.0.1:9 can't be reached" in failed
    assert "Cancelled before it was over." in cancelled
    assert "the retrieval was empty" in cancelled


def test_edited_columns_say_so_with_what_was_edited() -> None:
    html = case_html(saved(EDITED, outcomes=(BASE, RAG, REMINDER)), with_texts=True)
    _, changed, draft = Reader(html).articles
    for badge in ("edited", "k 3", "temperature 0.7", "without 2", "Given memories"):
        assert badge in changed
    assert "Keep what the question is about." in draft
    assert "<li>edited</li>" in html


def test_without_texts_no_sentence_is_in_it_and_that_is_said() -> None:
    secret = "Hidden sentence"
    draft = Draft(name="mine", label="Mine", instructions=f"{secret} 1")
    spec = SPEC.model_copy(
        update={
            "question": f"{secret} 2?",
            "columns": (
                Column(model="m"),
                Column(model="m", memory="rag", mitigation="reminder", prompts={"system": f"{secret} 3"}),
                Column(model="m", memory="rag", mitigation="mine", draft=draft, given=(Given(text=f"{secret} 4"),)),
            ),
        }
    )
    whole = Outcome(
        state="done",
        retrieved=(Found(text=f"{secret} 5", date=f"{secret} 6", score=0.5),),
        post_text=f"{secret} 7",
        post_state="kept",
        post_reason=f"{secret} 8",
        context=(Shown(text=f"{secret} 9", date=f"{secret} 10", sources=(1,)),),
        response=f"{secret} 11",
        draft=f"{secret} 12",
        critique=f"{secret} 13",
        scores=(Judged(metric="score", value=0.5, reason=f"{secret} 14"),),
    )
    item = LeftOut(number=1, text=f"{secret} 5", outcome=whole, score_change=0.125, similarity=0.75)
    case = saved(
        spec,
        name=f"{secret} 2?",
        note=f"{secret} 15",
        outcomes=(whole, whole, whole),
        ablations=(Ablation(column=1, base=whole, items=(item,), over=True),),
    )
    for html in (case_html(case), book_html(book(Entry("00ff", case), note=f"{secret} 16"))):
        assert "hidden" not in html.casefold()
        assert 'id="left-out"' in html
        assert 'id="with-texts"' not in html
        assert "Case 00ff" in html
        # The numbers stay.
        assert "0.50" in html
        assert "+0.12" in html
        assert "similarity 0.500" in html
        (data,) = embedded(html)["cases"]
        assert data["ablations"][0]["items"][0]["score_change"] == 0.125
        assert data["outcomes"][1]["similarities"] == [0.5]
    whole_file = case_html(case, with_texts=True)
    for number in range(1, 16):
        assert f"{secret} {number}" in whole_file
    assert "may not be passed on freely" in whole_file
    assert 'id="left-out"' not in whole_file


def test_a_name_of_ones_own_stays_without_texts() -> None:
    assert "<h1>Bread</h1>" in case_html(saved())
    assert "<h1>Case 00ff</h1>" in case_html(saved(name="what should I  read on…"))
    assert "<h1>Case 00ff</h1>" in case_html(saved(name=f"Ottilie: {QUESTION}"))


def test_text_never_becomes_html_or_steers_the_eye() -> None:
    for html in (
        case_html(nasty_case(), link=LINK, with_texts=True),
        case_html(nasty_case(), link=LINK),
        book_html(book(Entry("00ff", nasty_case()), Entry("1", None, NASTY), note=NASTY), with_texts=True),
    ):
        page = Reader(html)
        assert [each.get("type") for each in page.of("script")] == ["application/json"]
        for tag in ("img", "iframe", "object", "link", "form", "base"):
            assert page.of(tag) == []
        assert "<b>bold" not in html
        assert "\u202e" not in drawn(html)
        assert "\u2028" not in html
        for _, attributes in page.tags:
            assert not any(name.startswith("on") for name in attributes)
            assert not str(attributes.get("href") or "").startswith("javascript")
            assert "src" not in attributes
    assert "⟨RLO⟩txt.exe" in case_html(nasty_case(), with_texts=True)
    assert embedded(case_html(nasty_case(), with_texts=True))["cases"][0]["spec"]["question"] == NASTY


def test_the_policy_allows_no_script_and_no_request() -> None:
    html = case_html(saved(), with_texts=True)
    found = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', html)
    assert found
    rules = dict(part.strip().split(" ", 1) for part in found[1].replace("&#39;", "'").split(";"))
    assert rules == {
        "default-src": "'none'",
        "style-src": "'unsafe-inline'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    assert "url(" not in html
    assert "@import" not in html


def test_the_data_is_exact() -> None:
    (data,) = embedded(case_html(saved(), with_texts=True))["cases"]
    assert SavedCase.model_validate(data) == saved()
    assert embedded(case_html(saved()))["with_texts"] is False


def test_a_book_keeps_its_order_and_names_what_is_gone() -> None:
    second = saved(id="11aa", name="Boat")
    html = book_html(
        book(
            Entry("11aa", second), Entry("dead", None, "case dead was deleted"), Entry("00ff", saved()), note="Read on."
        ),
        with_texts=True,
        made=MADE,
    )
    assert "<h1>For the meeting</h1>" in html
    assert "Read on." in html
    assert html.index('<a href="#case-1">Boat</a>') < html.index("case dead was deleted")
    assert html.index("case dead was deleted") < html.index('<a href="#case-2">Bread</a>')
    assert len(Reader(html).articles) == 6
    ids = re.findall(r' id="([^"]+)"', html)
    assert len(ids) == len(set(ids))


def test_a_book_without_a_case_is_refused() -> None:
    with pytest.raises(UsageError, match="no case that can be read"):
        book_html(book(Entry("dead", None, "case dead was deleted")))


def test_a_published_case_has_the_published_response_beside_it() -> None:
    """The invented cases of the sample stand in for the appendix's, and say so."""
    found = published_cases()[0]
    spec = found.to_spec(["m"])
    outcomes = tuple(BASE for _ in spec.columns)
    html = case_html(saved(spec, outcomes=outcomes, ablations=()), with_texts=True)
    first, *others = Reader(html).articles
    assert f"{found.case.exchanges[0].score:.2f}" in first
    assert "invented" in first
    assert "Invented for this project" in first
    assert len(others) == len(outcomes)
    words = found.case.exchanges[0].response.split()[:3]
    assert " ".join(words) in first
    assert " ".join(words) not in drawn(case_html(saved(spec, outcomes=outcomes, ablations=())))


def test_real_cases_carry_their_mark(use_real_data: Path) -> None:
    found = published_cases()[0]
    user = found.users[0]
    spec = found.to_spec(["m"], user=user)
    html = case_html(saved(spec, outcomes=tuple(BASE for _ in spec.columns), ablations=()))
    assert '<li class="published">published</li>' in html
    assert found.case.exchanges[0].response[:40] not in html
