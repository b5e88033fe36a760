"""Answers out and in again: equal, once, and never over what somebody said here."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from typing import Any

import pytest

from opbench.errors import UsageError
from opbench.review.answering import undo
from opbench.review.deciding import progress
from opbench.review.interchange import COLUMNS, export_answers, file_name, import_answers, import_review
from opbench.review.links import invite
from opbench.store.database import Store, open_store
from opbench.store.review_answers import answers_frame
from opbench.store.reviews import close_review, get_review, reviewers_of
from tests.review.made import make_review, people, say

NASTY = "=HYPERLINK(\"x\"); 'quoted', \n second line · é 🙂 \x00"


@pytest.fixture
def review(lite: Store) -> str:
    """Three items: answers, one taken back, a senior's, a comment that a spreadsheet would run."""
    made = make_review(lite, limit=3)
    ann, bob = people(lite, made, "ann", "bob")
    (sue,) = people(lite, made, "sue", role="senior")
    say(lite, ann, comment=NASTY, base_score=0.1, memory_score=1 / 3, seconds=12.25)
    say(lite, bob, "neither", flagged=True, comment="'=1")
    say(lite, sue, "memory")
    say(lite, ann)
    undo(lite, ann)
    say(lite, ann, "both")
    return made


def test_csv_and_json_lines_come_back_equal(lite: Store, review: str, tmp_path: Any) -> None:
    whole, answers = export_answers(lite, review, "jsonl"), export_answers(lite, review, "csv")
    other = open_store(f"sqlite:///{tmp_path / 'other.sqlite3'}")
    copy = import_review(other, whole, file="r.jsonl", maker="eve")
    assert export_answers(other, copy, "jsonl") == whole
    assert export_answers(other, copy, "csv") == answers
    assert progress(other, copy) == progress(lite, review)
    assert answers_frame(other, copy).equals(answers_frame(lite, review))
    assert [(each.name, each.role, each.by_link) for each in reviewers_of(other, copy)] == [
        ("ann", "reviewer", False),
        ("bob", "reviewer", False),
        ("sue", "senior", False),
    ]
    other.close()


def test_a_copy_in_the_same_store_and_answers_of_a_file_into_it(lite: Store, review: str) -> None:
    copy = import_review(lite, export_answers(lite, review, "jsonl"), file="r.jsonl", maker="eve")
    assert progress(lite, copy) == progress(lite, review)
    again = import_answers(lite, copy, export_answers(lite, review, "csv"), "csv", file="a.csv")
    assert (again.new, again.known, again.conflicts) == (0, 6, ())
    same = import_answers(lite, review, export_answers(lite, review, "jsonl"), "jsonl", file="r.jsonl")
    assert (same.new, same.known, same.conflicts) == (0, 6, ())


def test_a_closed_review_comes_back_closed(lite: Store, review: str) -> None:
    close_review(lite, review)
    copy = import_review(lite, export_answers(lite, review, "jsonl"), file="r.jsonl", maker="eve")
    assert get_review(lite, copy).closed_at is not None


def test_no_cell_of_the_csv_is_a_formula_and_no_file_holds_a_secret(lite: Store, review: str) -> None:
    made = invite(lite, review, "cat")
    assert made.secret is not None
    invite(lite, review, "Dan", sign_in="dan@example.org")
    for form in ("csv", "jsonl", "argilla", "label-studio"):
        content = export_answers(lite, review, form)
        assert made.secret.encode() not in content
        assert b"dan@example.org" not in content
    rows = list(csv.reader(io.StringIO(export_answers(lite, review, "csv").decode(), newline="")))
    assert tuple(rows[0]) == COLUMNS
    cells = [cell for row in rows for cell in row]
    assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@", "\t", "\r"))]
    # The comment lost its NUL, which no database takes, and nothing else.
    comment = answers_frame(lite, review)["comment"].iloc[0]
    assert comment == NASTY.replace("\x00", "")


def _csv(*rows: dict[str, Any]) -> bytes:
    out = io.StringIO()
    names = sorted({name for row in rows for name in row})
    writer = csv.DictWriter(out, names)
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().encode()


def test_answers_that_were_filled_in_by_hand(lite: Store) -> None:
    review = make_review(lite, limit=2)
    first, second = (item for item in _items(lite, review))
    rows = [
        {"item": first, "reviewer": "ann", "verdict": "memory", "memory_score": "0.25", "flagged": "no"},
        {"item": first, "reviewer": "bob", "verdict": "memory", "made_at": "2026-05-01T12:00:00+02:00"},
        {"item": second, "reviewer": "ann", "verdict": ""},
    ]
    came = import_answers(lite, review, b"\xef\xbb\xbf" + _csv(*rows), "csv", file="a.csv")
    assert (came.new, came.known, came.reviewers) == (2, 0, ("ann", "bob"))
    again = import_answers(lite, review, _csv(*rows), "csv", file="a.csv")
    assert (again.new, again.known) == (0, 2)
    assert progress(lite, review).accepted == 1
    frame = answers_frame(lite, review)
    assert frame["memory_score"].iloc[0] == 0.25
    # 10:00 UTC on 1 May 2026.
    assert frame["made_at"].iloc[1] == 1777629600.0
    semicolons = _csv(*rows).replace(b",", b";")
    assert import_answers(lite, review, semicolons, "csv", file="a.csv").known == 2


def _items(store: Store, review: str) -> list[str]:
    lines = export_answers(store, review, "jsonl").decode().splitlines()
    return [told["item"] for told in map(json.loads, lines) if told["kind"] == "item"]


def test_what_contradicts_is_told_and_left_unless_it_may_replace(lite: Store) -> None:
    review = make_review(lite, limit=1)
    (ann,) = people(lite, review, "ann")
    task, _ = say(lite, ann, "neither")
    other = _csv({"item": task.item, "reviewer": "ann", "verdict": "memory"})
    came = import_answers(lite, review, other, "csv", file="a.csv")
    assert came.new == 0
    assert came.conflicts == (f"a.csv, line 2: ann has said something else of {task.item}",)
    assert list(answers_frame(lite, review)["verdict"]) == ["neither"]
    assert import_answers(lite, review, other, "csv", file="a.csv", replace=True).new == 1
    assert list(answers_frame(lite, review)["verdict"]) == ["memory"]
    senior = _csv({"item": task.item, "reviewer": "ann", "verdict": "memory", "role": "senior"})
    told = import_answers(lite, review, senior, "csv", file="a.csv", replace=True).conflicts
    assert told == (f"a.csv, line 2: ann has another role for {task.item} here",)


@pytest.mark.parametrize(
    ("content", "form", "fault"),
    [
        (b"item,reviewer\nx,ann\n", "csv", "a.txt, line 1: no column 'verdict'"),
        (b"item,reviewer,verdict\nnowhere,ann,memory\n", "csv", "a.txt, line 2: item 'nowhere' isn't in this review"),
        (b"item,reviewer,verdict\nITEM,ann,perhaps\n", "csv", "a.txt, line 2: verdict"),
        (b"item,reviewer,verdict,base_score\nITEM,ann,memory,2\n", "csv", "a.txt, line 2: base_score"),
        (b"item,reviewer,verdict,base_score\nITEM,ann,memory,nan\n", "csv", "a.txt, line 2: base_score"),
        (b"item,reviewer,verdict,seconds\nITEM,ann,memory,inf\n", "csv", "a.txt, line 2: seconds"),
        (
            b"item,reviewer,verdict,seconds\nITEM,ann,memory,soon\n",
            "csv",
            "a.txt, line 2: seconds: 'soon' is no number",
        ),
        (b"item,reviewer,verdict,flagged\nITEM,ann,memory,maybe\n", "csv", "line 2: flagged: 'maybe'"),
        (b"item,reviewer,verdict,made_at\nITEM,ann,memory,monday\n", "csv", "line 2: made_at: 'monday' is no time"),
        (b"item,reviewer,verdict,made_at\nITEM,ann,memory,inf\n", "csv", "line 2: made_at"),
        (b"item,reviewer,verdict\nITEM,,memory\n", "csv", "line 2: reviewer"),
        (b"\xff\xfe", "csv", "isn't in UTF-8"),
        (b"{", "jsonl", "a.txt, line 1: no JSON"),
        (b"[]", "jsonl", "line 1: must be an object"),
        (b'{"kind": "poem"}', "jsonl", "line 1: kind 'poem'"),
        (b'\n{"kind": "review", "version": 7}', "jsonl", "line 2: version 7"),
        (b'{"kind": "item", "item": "x"}', "jsonl", "line 1: content is missing"),
        (b"{}", "argilla", "must be the list of records"),
        (b"no", "argilla", "no JSON"),
        (b"[{}]", "argilla", "record 1: has no id"),
        (b"{}", "label-studio", "must be the list of tasks"),
        (b'[{"data": {"text": "x"}}]', "label-studio", "task 1: has no data.item"),
        (b'[{"data": {"item": "x"}, "verdict": "A"}]', "label-studio", "not as JSON-MIN"),
    ],
)
def test_bad_files_are_told_in_one_line_and_write_nothing(lite: Store, content: bytes, form: Any, fault: str) -> None:
    review = make_review(lite, limit=1)
    (item,) = _items(lite, review)
    with pytest.raises(UsageError) as told:
        import_answers(lite, review, content.replace(b"ITEM", item.encode()), form, file="a.txt")
    assert fault in str(told.value)
    assert "\n" not in str(told.value)
    assert reviewers_of(lite, review) == []


def test_answers_alone_are_no_review(lite: Store) -> None:
    with pytest.raises(UsageError, match="no review in it"):
        import_review(lite, b"", file="r.jsonl", maker="eve")


def test_argilla_out_and_in(lite: Store) -> None:
    """The folder that argilla 2.8's `Dataset.from_disk` reads; what its `to_json` writes comes back."""
    review = make_review(lite, limit=4, guidance="Take your time.")
    files = _unzipped(export_answers(lite, review, "argilla"))
    assert set(files) == {".argilla/dataset.json", ".argilla/settings.json", "records.json"}
    settings, records = json.loads(files[".argilla/settings.json"]), json.loads(files["records.json"])
    assert [question["name"] for question in settings["questions"]] == [
        "verdict",
        "score_a",
        "score_b",
        "comment",
        "flag",
    ]
    assert settings["distribution"] == {"strategy": "overlap", "min_submitted": 2}
    assert settings["guidelines"].endswith("Take your time.")
    assert {field["name"] for field in settings["fields"]} == set(records[0]["fields"])
    user = "5e2ab4fc-5b4c-4a9e-9b3d-000000000001"
    for record in records:
        # Whoever answers there finds the personal response over-personalised.
        personal = "a" if record["fields"]["response_a"].startswith("personal") else "b"
        given = {"verdict": personal, f"score_{personal}": 3, "comment": "so so", "flag": "yes"}
        record["responses"] = {name: [{"value": value, "user_id": user}] for name, value in given.items()}
    records[3]["responses"]["verdict"][0]["status"] = "draft"
    back = json.dumps(records).encode()
    came = import_answers(lite, review, back, "argilla", file="records.json", names={user: "ann"})
    assert (came.new, came.reviewers) == (3, ("ann",))
    frame = answers_frame(lite, review)
    assert set(frame["verdict"]) == {"memory"}
    assert set(frame["memory_score"]) == {0.3}
    assert frame["base_score"].isna().all()
    assert frame["flagged"].all()
    assert set(frame["comment"]) == {"so so"}
    zipped = io.BytesIO()
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr("data/records.json", back)
    again = import_answers(lite, review, zipped.getvalue(), "argilla", file="d.zip", names={user: "ann"})
    assert (again.new, again.known) == (0, 3)


def test_label_studio_out_and_in(lite: Store) -> None:
    """Tasks and labelling interface as Label Studio's SDK 2.1 accepts them; its JSON export comes back."""
    review = make_review(lite, limit=3, guidance='"Slowly" & well')
    files = _unzipped(export_answers(lite, review, "label-studio"))
    assert set(files) == {"tasks.json", "labeling.xml"}
    assert "'\"Slowly\" &amp; well'" in files["labeling.xml"]
    tasks = json.loads(files["tasks.json"])
    for number, task in enumerate(tasks, 1):
        personal = "A" if task["data"]["response_a"].startswith("personal") else "B"
        side = personal.lower()
        result = [
            {"from_name": "verdict", "to_name": "question", "type": "choices", "value": {"choices": [personal]}},
            {"from_name": f"score_{side}", "to_name": f"response_{side}", "type": "number", "value": {"number": 0.2}},
            {"from_name": "comment", "to_name": "question", "type": "textarea", "value": {"text": ["well", "then"]}},
        ]
        annotation = {
            "id": number,
            "completed_by": {"id": 7, "email": "ann@example.org"} if number > 1 else 7,
            "result": result,
            "was_cancelled": number == 3,
            "lead_time": 41.5,
            "updated_at": "2026-05-01T10:00:00.500000Z",
        }
        task["annotations"] = [annotation]
    back = json.dumps(tasks).encode()
    came = import_answers(lite, review, back, "label-studio", file="export.json", names={"user 7": "bob"})
    assert (came.new, set(came.reviewers)) == (2, {"bob", "ann@example.org"})
    frame = answers_frame(lite, review)
    assert set(frame["verdict"]) == {"memory"}
    assert set(frame["memory_score"]) == {0.2}
    assert set(frame["comment"]) == {"well\nthen"}
    assert set(frame["seconds"]) == {41.5}
    assert set(frame["made_at"]) == {1777629600.5}
    assert import_answers(lite, review, back, "label-studio", file="e", names={"user 7": "bob"}).known == 2


def _unzipped(content: bytes) -> dict[str, str]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


def test_what_goes_to_other_tools_doesnt_say_which_response_is_which(lite: Store) -> None:
    review = make_review(lite)
    for form in ("argilla", "label-studio"):
        content = export_answers(lite, review, form)
        files = _unzipped(content)
        told = json.loads(files.get("records.json") or files["tasks.json"])
        sides = [(each.get("fields") or each["data"])["response_a"].startswith("plain") for each in told]
        assert len(sides) == 58
        # A coin thrown 58 times lies outside 14 to 44 in less than one of 10,000 cases.
        assert 14 <= sum(sides) <= 44
        assert "base" not in json.dumps([[*each, *(each.get("fields") or each["data"])] for each in told])


def test_file_names(lite: Store) -> None:
    review = make_review(lite)
    assert file_name(lite, review, "csv") == "first-look-answers.csv"
    assert file_name(lite, review, "label-studio") == "first-look-label-studio.zip"
