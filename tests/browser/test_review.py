"""A built benchmark is reviewed: two people press at once in two browsers, a third adjudicates; what they accept runs.

The build's own page has its test in `test_build.py`; here the build and the responses come from the command line, with
a scripted model. Whoever reviews is scripted too: they look for a word that only responses with memories have.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from opbench.benchmarks import load
from opbench.review import links
from opbench.review.deciding import items_frame
from opbench.settings import ROOT
from opbench.store.builds import read_candidates
from opbench.store.database import Store
from opbench.store.review_answers import answers_frame, entries
from opbench.store.reviews import review_list
from tests.browser.conftest import Served, Visitor, free_port, serve
from tests.construction.writer import schema_of, write
from tests.review.made import make_review
from tests.scripted_endpoint import ScriptedEndpoint

#: What only the scripted responses with memories have.
MARK = "lighthouse"
BUILD = [
    *("--conversations", "sample", "--name", "scripted", "--no-check-memories", "--no-check-need"),
    *("--generators", "scripted", "--extractor", "scripted", "--similarity", "scripted", "--checker", "scripted"),
    *("--embedder", "scripted", "--subtypes", "fact,value,memory", "--fact", "1", "--value", "1", "--fine", "1"),
    *("--coarse", "0", "--topics", "1"),
]
#: Three subtypes of two users, one question each.
ITEMS = 6


def reply(body: dict[str, Any]) -> str:
    """Builders get what their schema asks for; who is given memories talks of them."""
    if schema_of(body) is not None:
        return write(body)
    asked = json.dumps(body["messages"])
    return f"Since you live at the {MARK}, take two." if "2024" in asked or "2023" in asked else "Take two of them."


class Lab:
    """A home folder, the served app, and `opbench` on the same."""

    def __init__(self, served: Served, models: Path) -> None:
        self.served = served
        self._models = models

    def opbench(self, *arguments: str, **variables: str) -> Any:
        """What the command prints as JSON."""
        done = subprocess.run(
            [sys.executable, "-m", "opbench", *arguments, "--json"],
            env=self.served.environment | {"OPBENCH_MODELS": str(self._models)} | variables,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    home = tmp_path_factory.mktemp("home")
    with ScriptedEndpoint(reply=reply) as endpoint:
        models = home / "models.toml"
        models.write_text(endpoint.registry_toml(timeout_s=60.0), encoding="utf-8")
        with serve(home, free_port(), OPBENCH_MODELS=str(models)) as served:
            yield Lab(served, models)


class Reviewer(Visitor):
    """A browser profile that came by a personal link."""

    def __init__(self, browser: Browser, url: str, path: str) -> None:
        super().__init__(browser, url)
        self.asked: list[str] = []
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.go(path)

    @property
    def place(self) -> str:
        return self.page.locator(".place").inner_text()

    def marked(self) -> str:
        """The key of the response that talks of memories."""
        return "1" if MARK in self.page.locator("article[data-side=a]").inner_text() else "2"

    def wait(self, answered: int) -> None:
        expect(self.page.locator(".place")).to_have_text(re.compile(rf"^{answered} answered"))
        expect(self.page.locator(".saved")).not_to_have_text("Saving…")


def press_at_once(*pages: Page, key: str = "Enter") -> None:
    """The same key in several browsers, at the same moment by the clock."""
    script = """([key, at]) => { setTimeout(() => document.body.dispatchEvent(
        new KeyboardEvent("keydown", { key, bubbles: true, composed: true })), at - Date.now()) }"""
    moment = 1000 * time.time() + 250
    for page in pages:
        page.evaluate(script, [key, moment])


def invite(page: Page, visitor: Visitor, name: str, role: str) -> str:
    """Invite somebody on the page; the path of the link that is shown once."""
    page.get_by_label("Name", exact=True).fill(name)
    if role != "reviewer":
        page.get_by_role("combobox", name="Role").click()
        page.get_by_role("option", name=role).click()
    page.get_by_role("button", name="Invite").click()
    expect(page.get_by_text(f"The personal link of {name}.")).to_be_visible()
    link = page.get_by_test_id("stCode").inner_text().strip()
    assert link.startswith(f"{visitor.url}/review#reviewer="), link
    page.get_by_role("button", name="I have it").click()
    expect(page.get_by_test_id("stCode")).to_have_count(0)
    return link.removeprefix(visitor.url)


def show(page: Page, visitor: Visitor, section: str) -> None:
    page.get_by_test_id("stMain").get_by_text(section, exact=True).click()
    visitor.settle()


@pytest.mark.timeout(600)
def test_built_reviewed_in_two_browsers_adjudicated_exported_and_run(
    lab: Lab, browser: Browser, tmp_path: Path
) -> None:
    store = lab.served.store
    lab.opbench("build", "run", *BUILD)
    run = lab.opbench("build", "respond", "scripted", "--models", "scripted")["run_id"]

    editor = Visitor(browser, lab.served.url)
    page = editor.go(f"/review?run={run}")
    page.get_by_label("Name", exact=True).fill("Round one")
    page.get_by_text("none", exact=True).click()
    editor.settle()
    page.get_by_role("button", name="Make the review").click()
    expect(page.get_by_text(f"Made: {ITEMS} items and 0 spot checks.")).to_be_visible()
    show(page, editor, "People")
    paths = [
        invite(page, editor, name, role)
        for name, role in (("Ada", "reviewer"), ("Ben", "reviewer"), ("Sena", "adjudicator"))
    ]
    [review] = review_list(store)

    ada, ben = (Reviewer(browser, lab.served.url, path) for path in paths[:2])
    questions: set[str] = set()
    # Both call the first two over-personalised and the third fine. Then they differ; Ben flags the fifth; both agree.
    said: dict[str, tuple[str, str]] = {}
    for number in range(ITEMS):
        ada.wait(number)
        ben.wait(number)
        asked = ada.page.locator(".question").inner_text()
        questions.add(asked)
        assert ben.page.locator(".question").inner_text() == asked, "items that others have begun come first"
        keys = (ada.marked(), ben.marked())
        if number == 2:
            keys = ("3", "3")
        if number == 3:
            keys = (keys[0], "4")
        said[asked] = keys
        ada.page.keyboard.press(keys[0])
        ben.page.keyboard.press(keys[1])
        if number == 1:
            reload_in_the_middle(ada, asked)
        if number == 4:
            ben.page.keyboard.press("f")
            ben.page.keyboard.press("c")
            ben.page.keyboard.type("I can't tell: 3 or 4?")
            ben.page.keyboard.press("Escape")
            ben.page.keyboard.press("b")
            ben.page.keyboard.press("3")
        press_at_once(ada.page, ben.page)
        if number == 3:
            take_back_and_say_again(ben)
    for reviewer in (ada, ben):
        reviewer.wait(ITEMS)
        expect(reviewer.page.get_by_text(f"All done: you answered {ITEMS}.")).to_be_visible()
    assert len(questions) == ITEMS

    sena = Reviewer(browser, lab.served.url, paths[2])
    for number, key in enumerate((None, "3")):
        sena.wait(number)
        expect(sena.page.get_by_text("What the reviewers said")).to_be_visible(visible=number == 1)
        if number == 1:
            expect(sena.page.get_by_text("Flagged. “I can't tell: 3 or 4?”")).to_be_visible()
        sena.page.keyboard.press(key or sena.marked())
        sena.page.keyboard.press("Enter")
    sena.wait(2)

    # Nothing is lost, nothing is there twice, and the decisions are the paper's.
    answers = answers_frame(store, review.id)
    assert Counter(answers["reviewer"]) == {"Ada": ITEMS, "Ben": ITEMS, "Sena": 2}
    assert answers.duplicated(["item", "reviewer"]).sum() == 0
    assert entries_of(store, review.id) == {"Ada": ITEMS, "Ben": ITEMS + 2, "Sena": 2}
    decided = items_frame(store, review.id)
    assert Counter(decided["decision"]) == {"accepted": 4, "rejected": 2}
    [flagged] = answers[answers["flagged"]].to_dict("records")
    given = flagged["memory_score"] if flagged["first"] == "base" else flagged["base_score"]
    assert (flagged["reviewer"], flagged["comment"], given) == ("Ben", "I can't tell: 3 or 4?", 0.3)
    assert answers["seconds"].between(0, 120).all()
    candidates = read_candidates(store, review.build_id or "")
    assert Counter(each.state for each in candidates if each.state != "dropped") == {"accepted": 4, "rejected": 2}

    show(page, editor, "Progress")
    expect(page.get_by_test_id("stMetric").filter(has_text="Accepted")).to_contain_text(f"4 of {ITEMS}")
    editor.shoot("review-progress")
    show(page, editor, "Agreement")
    # Four of six alike: base, memory and neither; the flagged one too.
    expect(page.get_by_text("Krippendorff's alpha").first).to_be_visible()
    editor.shoot("review-agreement")

    folder = tmp_path / "mine"
    lab.opbench("build", "export", "scripted", str(folder))
    accepted = {each.question for each in candidates if each.state == "accepted"}
    assert {instance.question for instance in load(folder).op} == accepted
    outcome = lab.opbench(
        *("run", "--models", "scripted", "--memories", "base,rag", "--mitigations", "none", "--benchmarks", "op"),
        *("--embedder", "scripted"),
        OPBENCH_DATA=str(folder),
    )
    assert (outcome["done"], outcome["planned"]) == (8, 8)

    log = (lab.served.home / "streamlit.log").read_text()
    for visitor, path in zip((ada, ben, sena), paths, strict=True):
        secret = path.partition("=")[2]
        assert visitor.page.url == f"{lab.served.url}/review"
        assert secret not in log
        assert not [url for url in visitor.asked if secret in url]
        assert visitor.faults == visitor.elsewhere == []
        visitor.close()
    assert editor.faults == []
    editor.close()


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The app where everybody has to sign in; nobody here does."""
    home, port = tmp_path_factory.mktemp("home"), free_port()
    secrets = home / "secrets.toml"
    secrets.write_text(
        f"""[auth]
        redirect_uri = "http://127.0.0.1:{port}/oauth2callback"
        cookie_secret = "0kZ3uVq8nB5xWfT1mJ7yLrP4sHd9cAe2"
        client_id = "workbench"
        client_secret = "a secret of this test"
        server_metadata_url = "http://127.0.0.1:9/.well-known/openid-configuration"
        """
    )
    flags = ("--secrets.files", str(secrets))
    with serve(home, port, *flags, OPBENCH_SIGN_IN="required", OPBENCH_EDITORS="ed@lab.example") as served:
        yield served


def test_a_link_on_a_phone_needs_no_sign_in_loses_nothing_and_opens_nothing_else(
    closed: Served, browser: Browser
) -> None:
    review_id = make_review(closed.store, limit=3)
    invited = links.invite(closed.store, review_id, "Ada")
    phone = Reviewer(browser, closed.url, links.link_path(invited.secret or ""))
    page = phone.page
    phone.look(390, "dark")
    phone.wait(0)
    assert phone.overflow() <= 0
    buttons = page.locator(".verdicts span, .flag span, .undo, .save, .score input, .clear:visible")
    for box in [button.bounding_box() for button in buttons.all()]:
        assert box is not None
        assert box["height"] >= 44, "a finger's breadth"
    assert page.get_by_test_id("stSidebarNav").count() == 0
    phone.shoot("review-phone")

    page.locator(".verdicts").get_by_text("Neither").click()
    page.get_by_role("button", name="Save, next").click()
    phone.wait(1)
    # The page is loaded anew before the answer can have come through: the tab sends it again, and it counts once.
    page.locator(".verdicts").get_by_text("Both").click()
    page.evaluate("""() => {
        document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true, composed: true }));
        location.reload();
    }""")
    phone.settle()
    phone.wait(2)
    # A message gets lost on its way: the answer is sent again.
    page.locator(".verdicts").get_by_text("Neither").click()
    page.evaluate("""() => {
        const send = WebSocket.prototype.send;
        WebSocket.prototype.send = () => { WebSocket.prototype.send = send; };
    }""")
    page.get_by_role("button", name="Save, next").click()
    expect(page.locator(".saved")).to_have_text("Saving…")
    phone.wait(3)
    assert entries_of(closed.store, review_id) == {"Ada": 3}
    assert answers_frame(closed.store, review_id)["verdict"].tolist() == ["neither", "both", "neither"]

    # No other page, and no link but a whole one that is still good.
    page.goto(f"{closed.url}/studies")
    expect(page.get_by_role("button", name="Sign in")).to_be_visible()
    page.goto(f"{closed.url}/review")
    phone.wait(3)
    page.get_by_role("button", name="Leave").click()
    expect(page.get_by_role("button", name="Sign in")).to_be_visible()
    page.reload()
    expect(page.get_by_role("button", name="Sign in")).to_be_visible()
    assert page.locator(".question").count() == 0
    links.renew(closed.store, invited.reviewer.id)
    page.goto(f"{closed.url}{links.link_path(invited.secret or '')}")
    expect(page.get_by_text("This personal link isn't valid any more")).to_be_visible()
    assert page.url == f"{closed.url}/review"
    assert (invited.secret or "?") not in (closed.home / "streamlit.log").read_text()
    assert not [url for url in phone.asked if (invited.secret or "?") in url]
    assert phone.faults == []
    phone.close()


def reload_in_the_middle(reviewer: Reviewer, asked: str) -> None:
    """What was begun of an item is there again, and so is the item."""
    page = reviewer.page
    page.keyboard.press("c")
    page.keyboard.type("half a thought")
    page.reload()
    reviewer.settle()
    reviewer.wait(1)
    expect(page.locator(".question")).to_have_text(asked)
    expect(page.locator("textarea")).to_have_value("half a thought")
    expect(page.locator("input[type=radio]:checked")).to_have_count(1)
    expect(page.get_by_role("button", name="Save, next")).to_be_enabled()
    assert page.url == f"{reviewer.url}/review"


def take_back_and_say_again(reviewer: Reviewer) -> None:
    reviewer.wait(4)
    page = reviewer.page
    page.keyboard.press("u")
    reviewer.wait(3)
    expect(page.locator("input[type=radio]:checked")).to_have_value("both")
    page.keyboard.press("Enter")
    reviewer.wait(4)


def entries_of(store: Store, review_id: str) -> dict[str, int]:
    """Entries by person, those that take back too."""
    with store.begin() as connection:
        return dict(Counter(row["reviewer"] for row in entries(connection, review_id)))
