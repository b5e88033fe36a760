"""The Review page in this process: who sees what, invitations, texts as text, what of an item stays on the server."""

from __future__ import annotations

import csv
import io
import json
import re
import zipfile
from typing import Any

import pytest
import streamlit as st
from sqlalchemy import update
from streamlit.testing.v1 import AppTest

from opbench.access import Role, Visitor
from opbench.benchmarks import load
from opbench.review import deciding, links
from opbench.review.assigning import next_task
from opbench.review.interchange import import_review
from opbench.review.links import link_path
from opbench.settings import ROOT
from opbench.store import schema as s
from opbench.store.database import Store
from opbench.store.review_answers import answers_frame
from opbench.store.reviews import close_review, get_review, review_list, reviewers_of
from pages.shared import access
from tests.pages.conftest import Open
from tests.pages.hostile import NASTY
from tests.pages.test_roles import click_all, contents
from tests.review.made import RUN, make_review, say, write_run


def be(monkeypatch: pytest.MonkeyPatch, role: Role, name: str = "them@lab.example") -> None:
    visitor = Visitor(name, role, signed_in=bool(name))
    monkeypatch.setattr(access, "who", lambda: visitor)


def secret_of(store: Store, review_id: str, name: str, **more: Any) -> str:
    secret = links.invite(store, review_id, name, **more).secret
    assert secret is not None
    return secret


def follow(secret: str, page: str = "review") -> AppTest:
    """A tab that was opened with a personal link, at a page."""
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
    app.run().switch_page(f"pages/views/{page}.py").run()
    app.session_state["review-secret"] = secret
    app.run()
    assert not app.exception, app.exception[0].value
    return app


def panel(app: AppTest) -> dict[str, Any] | None:
    """What the browser is sent of an item; None where the panels aren't drawn."""
    for element in app.get("bidi_component"):
        proto = element.proto
        if proto.component_name == "opbench_review_panel":
            data: dict[str, Any] = json.loads(proto.json)
            return data
    return None


def told(app: AppTest) -> str:
    parts = [*app.info, *app.success, *app.error, *app.warning, *app.caption, *app.markdown, *app.subheader]
    return " ".join(part.value for part in parts).replace("\\", "").replace("\u2060", "")


def section(visit: Open, name: str) -> AppTest:
    return visit("review", section=name)


def test_no_review_says_what_one_is_and_offers_to_make_one(visit: Open, store: Store) -> None:
    write_run(store)
    app = visit("review")
    assert "No review is here yet." in told(app)
    assert "Make the review" in [button.label for button in app.button]


def test_a_review_is_made_from_a_run_and_then_people_are_invited(visit: Open, store: Store) -> None:
    write_run(store)
    app = visit("review")
    [name] = [field for field in app.text_input if field.label == "Name"]
    name.set_value("round one")
    [button] = [each for each in app.button if each.label == "Make the review"]
    button.click().run()
    [review] = review_list(store)
    # The sample's OP-Bench questions, and the workbench's own spot checks.
    questions = len(load("sample").op)
    assert (review.name, review.run_id, review.items, review.spec.per_item) == ("round one", RUN, questions, 2)
    assert review.checks > 0
    assert (review.spec.base[1], review.spec.memory[1], review.maker) == ("base", "rag", "local")
    assert f"Made: {questions} items and {review.checks} spot checks. Now invite people." in told(app)


def test_a_link_is_shown_once_and_the_store_has_only_its_hash(visit: Open, store: Store) -> None:
    review_id = make_review(store)
    app = section(visit, "People")
    [name] = [field for field in app.text_input if field.label == "Name"]
    name.set_value("Ada")
    [button] = [each for each in app.button if each.label == "Invite"]
    app = button.click().run()
    [shown] = [code.value for code in app.code]
    found = re.fullmatch(r".*/review#reviewer=([\w-]{43})", shown)
    assert found, shown
    person = links.by_secret(store, found[1])
    assert person is not None
    assert (person.name, person.review_id) == ("Ada", review_id)
    with store.begin() as connection:
        assert found[1] not in str(connection.execute(s.reviewers.select()).all())
    app = app.button("review-link-taken").click().run()
    assert not app.code
    assert "review-invited" not in app.session_state


def test_a_link_opens_the_panels_and_nothing_else(visit: Open, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    review_id = make_review(store)
    secret = secret_of(store, review_id, "Ada")
    be(monkeypatch, "nobody", "")
    app = follow(secret)
    assert "first look · Ada, reviewer" in told(app)
    data = panel(app)
    assert data is not None
    assert data["item"]["question"]
    assert not app.sidebar.children
    assert [button.label for button in app.button] == ["Leave"]
    assert not app.dataframe
    assert not app.get("download_button")
    elsewhere = follow(secret, "trade_off")
    assert [button.label for button in elsewhere.button] == ["Sign in"]
    assert not elsewhere.sidebar.children


@pytest.mark.parametrize("wrong", ["x" * 43, "", "left", "anything else"])
def test_a_link_that_is_void_opens_nothing(
    visit: Open, store: Store, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    review_id = make_review(store)
    secret = secret_of(store, review_id, "Ada")
    if wrong == "left":
        links.leave(store, reviewers_of(store, review_id)[0].id)
    else:
        secret = wrong
    be(monkeypatch, "nobody", "")
    app = follow(secret)
    assert panel(app) is None
    assert [button.label for button in app.button] == ["Sign in"]
    assert bool(wrong) == ("This personal link isn't valid any more" in told(app))


def test_a_void_link_leaves_who_has_a_role_where_they_are(visit: Open, store: Store) -> None:
    make_review(store)
    app = follow("x" * 43)
    assert panel(app) is None
    assert "This personal link isn't valid any more" in told(app)
    assert "Progress" in section_names(app)
    assert app.sidebar.children


def test_a_link_taken_back_ends_the_review_in_an_open_tab(
    visit: Open, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    review_id = make_review(store)
    secret = secret_of(store, review_id, "Ada")
    be(monkeypatch, "nobody", "")
    app = follow(secret)
    assert panel(app) is not None
    links.renew(store, reviewers_of(store, review_id)[0].id)
    app.run()
    assert panel(app) is None
    assert "review-secret" not in app.session_state


def test_which_response_is_which_stays_on_the_server(visit: Open, store: Store) -> None:
    review_id = make_review(store)
    person = links.invite(store, review_id, "Ada")
    assert person.secret is not None
    data = panel(follow(person.secret))
    assert data is not None
    task = next_task(store, person.reviewer.id)
    assert task is not None
    assert (data["item"]["a"], data["item"]["b"]) == (task.a, task.b)
    sent = json.dumps({**data, "item": {**data["item"], "a": "", "b": ""}})
    # Nothing that was sent beside the two texts tells them apart.
    for word in ("plain op/", "personal op/", '"base"', '"memory"', '"first"'):
        assert word not in sent, word
    # A conversation's name would tell a spot check, which is of another one.
    assert data["item"]["user"] in ("Ottilie", "Corvin", "Maren", "Joris")


def test_texts_reach_the_panels_as_they_are_with_nothing_hidden(visit: Open, store: Store) -> None:
    review_id = make_review(store, guidance=NASTY)
    bad = {"question": NASTY, "base": NASTY, "memory": NASTY, "profile": NASTY, "topics": [NASTY]}
    bad["memories"] = [{"text": NASTY, "date": NASTY, "relevant": True}]  # type: ignore[list-item]
    with store.begin() as connection:
        connection.execute(update(s.review_items).values(content=bad))
    data = panel(follow(secret_of(store, review_id, "Ada")))
    assert data is not None
    shown = NASTY.replace("\x1b", "⟨ESC⟩").replace("\u202e", "⟨RLO⟩")
    item = data["item"]
    seen = [item[key] for key in ("question", "a", "b", "profile")]
    assert [*seen, item["topics"][0], item["memories"][0]["text"], data["guidance"]] == [shown] * 7


def test_the_senior_sees_comments_without_names_or_verdicts(visit: Open, store: Store) -> None:
    review_id = make_review(store, limit=1, per_item=2)
    ada, ben = (links.invite(store, review_id, name).reviewer.id for name in ("Ada", "Ben"))
    say(store, ada, "memory", comment="B brings up the dog")
    say(store, ben, "neither", flagged=True)
    data = panel(follow(secret_of(store, review_id, "Sena", role="senior")))
    assert data is not None
    lines = data["item"]["earlier"]
    assert len(lines) == 2
    assert lines[0].startswith("“B brings up the dog”")
    assert lines[1] == "Flagged."
    assert not re.search("Ada|Ben|memory|neither", " ".join(lines))


def test_when_nothing_is_left_it_says_so(visit: Open, store: Store) -> None:
    review_id = make_review(store, limit=1, per_item=1)
    person = links.invite(store, review_id, "Ada")
    assert person.secret is not None
    say(store, person.reviewer.id)
    data = panel(follow(person.secret))
    assert data is not None
    assert (data["item"], data["waiting"], data["place"], data["share"]) == (
        None,
        "All done: you answered 1. Thank you.",
        "1 answered",
        1.0,
    )
    assert data["undo"] is True
    close_review(store, review_id)
    closed = panel(follow(person.secret))
    assert closed is not None
    assert "closed" in closed["waiting"]
    assert closed["undo"] is False


def test_who_reviews_sees_nobody_elses_answers(visit: Open, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    review_id = make_review(store, limit=3)
    links.invite(store, review_id, "Vi", sign_in="vi@lab.example")
    say(store, links.invite(store, review_id, "Ben").reviewer.id)
    be(monkeypatch, "viewer", "vi@lab.example")
    app = visit("review")
    assert panel(app) is not None
    assert section_names(app) == ["My items", "Progress"]
    assert section_names(section(visit, "Agreement")) == ["My items", "Progress"]
    progress = section(visit, "Progress")
    assert not progress.dataframe
    close_review(store, review_id)
    assert "Agreement" in section_names(visit("review"))


def section_names(app: AppTest) -> list[str]:
    return [str(option.content) for each in app.get("button_group") for option in each.proto.options]


def test_a_viewer_who_does_not_review_reads_and_changes_nothing(
    visit: Open, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    review_id = make_review(store, limit=3)
    say(store, links.invite(store, review_id, "Ben").reviewer.id)
    be(monkeypatch, "viewer")
    for name in ("Progress", "Agreement", "People", "Export and import"):
        app = section(visit, name)
        assert panel(app) is None
        assert not app.get("file_uploader")
        assert not [each for each in app.button if each.label not in ("Sign out",)], name


@pytest.mark.parametrize("name", ["Progress", "People", "Export and import", "New review"])
def test_a_click_after_the_role_is_gone_changes_no_review(
    visit: Open, store: Store, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    review_id = make_review(store, limit=3)
    links.invite(store, review_id, "Ada")
    app = section(visit, name)
    assert any(button.label not in ("", "Sign out") for button in app.button)
    before = contents(store)
    be(monkeypatch, "viewer")
    app = click_all(app)
    assert not app.exception
    assert contents(store) == before


def test_somebody_invited_by_sign_in_needs_no_role(visit: Open, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    review_id = make_review(store)
    links.invite(store, review_id, "Guest", sign_in="guest@elsewhere.example")
    be(monkeypatch, "nobody", "guest@elsewhere.example")
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
    app.run().switch_page("pages/views/review.py").run()
    assert panel(app) is not None
    assert [button.label for button in app.button] == ["Sign out"]
    be(monkeypatch, "nobody", "other@elsewhere.example")
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
    app.run().switch_page("pages/views/review.py").run()
    assert panel(app) is None


def test_progress_says_what_was_decided_and_why(visit: Open, store: Store) -> None:
    review_id = make_review(store, limit=2)
    ada, ben = (links.invite(store, review_id, name).reviewer.id for name in ("Ada", "Ben"))
    for who, verdicts in ((ada, ("memory", "memory")), (ben, ("memory", "neither"))):
        for verdict in verdicts:
            say(store, who, verdict)  # type: ignore[arg-type]
    app = section(visit, "Progress")
    metrics = {metric.label: metric.value for metric in app.metric}
    counted = deciding.progress(store, review_id)
    assert (counted.accepted, counted.disputed) == (1, 1)
    assert metrics == {
        "Answers": "4 of 4",
        "Accepted": "1 of 2",
        "Rejected": "0 of 2",
        "Disputed": "1 of 2",
        "Open": "0 of 2",
    }
    assert any("reviewers differ" in str(frame.value.to_dict()) for frame in app.dataframe)


def test_agreement_with_its_n_and_without_an_interval_that_is_not_there(visit: Open, store: Store) -> None:
    review_id = make_review(store, limit=2)
    for name in ("Ada", "Ben"):
        who = links.invite(store, review_id, name).reviewer.id
        say(store, who, "memory", seconds=30.0)
        say(store, who, "neither", seconds=60.0)
    app = section(visit, "Agreement")
    rows = app.dataframe[0].value
    assert rows["group"].tolist()[0] == "all"
    assert rows["doubly"].tolist()[0] == 2
    # One verdict each of two kinds, the same by both: alpha is 1, and two items are too few for its interval.
    assert rows["alpha_ci"].tolist()[0] == "1.00"
    assert rows["note"].tolist()[0]
    assert "Download CSV" in [button.proto.label for button in app.get("download_button")]


def test_answers_go_out_in_four_forms_and_come_back(visit: Open, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    review_id = make_review(store, limit=2)
    who = links.invite(store, review_id, "Ada").reviewer.id
    say(store, who, comment="=1+1")
    files: dict[str, Any] = {}
    original = st.download_button

    def keep(label: str, data: Any, *args: Any, **more: Any) -> Any:
        files[label] = data
        return original(label, data, *args, **more)

    monkeypatch.setattr(st, "download_button", keep)
    app = section(visit, "Export and import")
    assert [button.proto.label for button in app.get("download_button")] == [
        "Answers as CSV",
        "Review as JSON Lines",
        "For Argilla",
        "For Label Studio",
    ]
    rows = list(csv.DictReader(io.StringIO(files["Answers as CSV"]().decode("utf-8-sig"))))
    assert [(row["reviewer"], row["verdict"], row["comment"]) for row in rows] == [("Ada", "memory", "'=1+1")]
    made = import_review(store, files["Review as JSON Lines"](), file="r.jsonl", maker="ed")
    assert answers_frame(store, made)["comment"].tolist() == ["=1+1"]
    for label in ("For Argilla", "For Label Studio"):
        assert zipfile.is_zipfile(io.BytesIO(files[label]()))


def test_close_rename_and_delete(visit: Open, store: Store) -> None:
    review_id = make_review(store)
    app = section(visit, "Progress")
    app = app.button("review-close").click().run()
    assert get_review(store, review_id).closed_at is not None
    app = app.button("review-reopen").click().run()
    assert get_review(store, review_id).closed_at is None
    [field] = [each for each in app.text_input if each.label.startswith("To delete it")]
    field.set_value("something else")
    [button] = [each for each in app.button if each.label == "Delete this review"]
    app = button.click().run()
    assert "nothing was deleted" in told(app)
    [field] = [each for each in app.text_input if each.label.startswith("To delete it")]
    field.set_value(review_id)
    [button] = [each for each in app.button if each.label == "Delete this review"]
    button.click().run()
    assert review_list(store) == []


def test_a_links_secret_stands_behind_the_mark_that_browsers_keep_to_themselves() -> None:
    assert link_path("s" * 43) == "/review#reviewer=" + "s" * 43
