"""Signing in for real: the app in front of a small provider, people with different roles, and what a forger gets."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

from tests.browser.conftest import Served, free_port, serve, steady
from tests.browser.provider import CLIENT_ID, CLIENT_SECRET, Provider, provide
from tests.pages.made_run import MADE, write_run

ACCOUNTS = {
    "Ed": {"email": "ed@lab.example", "email_verified": True},
    "Vi": {"email": "Vi@Readers.example", "email_verified": True},
    "No": {"email": "no@elsewhere.example", "email_verified": True},
    "Un": {"email": "ed@lab.example", "email_verified": False},
}
#: As the sidebar has it: after the `@` stands a sign that shows nothing and keeps the address from being a link.
EDITOR, VIEWER = "ed@\u2060lab.example · editor", "vi@\u2060readers.example · viewer"


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with provide(ACCOUNTS) as provider:
        yield provider


@pytest.fixture(scope="module")
def served(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The app with sign-in demanded on loopback."""
    home, port = tmp_path_factory.mktemp("home"), free_port()
    secrets = home / "secrets.toml"
    secrets.write_text(
        f"""[auth]
        redirect_uri = "http://127.0.0.1:{port}/oauth2callback"
        cookie_secret = "0kZ3uVq8nB5xWfT1mJ7yLrP4sHd9cAe2"
        client_id = "{CLIENT_ID}"
        client_secret = "{CLIENT_SECRET}"
        server_metadata_url = "{provider.url}/.well-known/openid-configuration"
        """
    )
    people = {"OPBENCH_EDITORS": "ed@lab.example", "OPBENCH_VIEWERS": "@readers.example"}
    with serve(home, port, "--secrets.files", str(secrets), OPBENCH_SIGN_IN="required", **people) as app:
        write_run(app.store, name="pilot")
        yield app


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    opened = browser.new_context(viewport={"width": 1280, "height": 900})
    opened.set_default_timeout(60_000)
    yield opened
    opened.close()


def settle(page: Page) -> None:
    page.wait_for_selector("[data-testid=stApp][data-test-script-state=notRunning]", timeout=60_000)
    page.wait_for_timeout(500)


def open_door(context: BrowserContext, served: Served, path: str = "/") -> Page:
    """The page as somebody sees it who hasn't signed in."""
    page = context.new_page()
    page.goto(served.url + path)
    expect(page.get_by_role("button", name="Sign in")).to_be_visible()
    settle(page)
    return page


def sign_in(context: BrowserContext, served: Served, account: str, path: str = "/") -> Page:
    page = open_door(context, served, path)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("link", name=account).click()
    page.wait_for_url(f"{served.url}/**")
    expect(page.get_by_role("button", name="Sign out")).to_be_visible()
    settle(page)
    return page


def test_without_sign_in_there_is_one_button_and_nothing_else(context: BrowserContext, served: Served) -> None:
    page = open_door(context, served, f"/latency?run={MADE}")
    assert steady(page, page.get_by_test_id("stMain").get_by_role("button").count) == 1
    assert page.get_by_test_id("stSidebarNav").count() == 0
    # `login` is the icon's name in its font.
    assert page.get_by_test_id("stMain").inner_text().split() == ["OP-Bench", "Workbench", "login", "Sign", "in"]


def test_an_editor_comes_in_where_the_link_led_and_may_start(context: BrowserContext, served: Served) -> None:
    page = sign_in(context, served, "Ed", f"/launch?run={MADE}&rule=instance")
    expect(page).to_have_url(re.compile(rf"/launch\?.*run={MADE}"))
    settle(page)
    assert "rule=instance" in page.url
    expect(page.get_by_text(EDITOR)).to_be_visible()
    expect(page.get_by_role("button", name=re.compile("^(Start|Go on)$")).first).to_be_visible()


def test_a_viewer_reads_and_has_no_way_to_start(context: BrowserContext, served: Served) -> None:
    page = sign_in(context, served, "Vi", f"/launch?run={MADE}")
    expect(page.get_by_text(VIEWER)).to_be_visible()
    names = steady(page, page.get_by_role("button").all_inner_texts)
    assert not [name for name in names if re.search(r"Start|Go on|Pause|Stop|again|answer now|Delete|Import", name)]
    page.get_by_test_id("stSidebarNav").get_by_role("link", name="Trade-off").click()
    expect(page.locator(".js-plotly-plot .main-svg").first).to_be_visible()
    expect(page.get_by_role("button", name="Download CSV").first).to_be_visible()


def test_who_is_listed_nowhere_gets_a_sentence(context: BrowserContext, served: Served) -> None:
    page = sign_in(context, served, "No")
    expect(page.get_by_text("elsewhere.example isn't listed here.")).to_be_visible()
    assert steady(page, page.get_by_test_id("stMain").get_by_role("button").count) == 1
    assert page.get_by_test_id("stSidebarNav").count() == 0


def test_an_address_that_is_not_verified_is_refused(context: BrowserContext, served: Served) -> None:
    page = sign_in(context, served, "Un")
    expect(page.get_by_text("Your e-mail address isn't verified")).to_be_visible()
    assert page.get_by_test_id("stSidebarNav").count() == 0


def test_signing_out_ends_it_in_every_tab_and_for_a_copy_of_the_cookie(
    context: BrowserContext, browser: Browser, served: Served
) -> None:
    page = sign_in(context, served, "Ed")
    other = context.new_page()
    other.goto(f"{served.url}/audit")
    expect(other.get_by_text(EDITOR)).to_be_visible()
    settle(other)
    copied = context.cookies()

    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("button", name="Sign in")).to_be_visible()
    # The other tab's session was signed in; the next thing that is asked of it is refused.
    other.get_by_text("category-macro", exact=True).filter(visible=True).first.click()
    expect(other.get_by_role("button", name="Sign in")).to_be_visible()

    thief = browser.new_context()
    thief.add_cookies(copied)  # type: ignore[arg-type]
    stolen = thief.new_page()
    stolen.goto(served.url)
    expect(stolen.get_by_role("button", name="Sign in")).to_be_visible(timeout=60_000)
    thief.close()


def test_a_sign_in_runs_out(context: BrowserContext, served: Served, provider: Provider) -> None:
    provider.age_s = 12 * 3600 + 60
    try:
        page = open_door(context, served)
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("link", name="Ed").click()
        page.wait_for_url(f"{served.url}/**")
        expect(page.get_by_text("Your sign-in has run out: it lasts 12 hours.")).to_be_visible()
        assert page.get_by_test_id("stSidebarNav").count() == 0
    finally:
        provider.age_s = 0


def test_a_forged_cookie_is_nobody(context: BrowserContext, browser: Browser, served: Served) -> None:
    sign_in(context, served, "Vi")
    [cookie] = [each for each in context.cookies() if each["name"] == "_streamlit_user"]
    value = cookie["value"]
    place = len(value) // 3
    forged = value[:place] + ("A" if value[place] != "A" else "B") + value[place + 1 :]
    forger = browser.new_context()
    forger.add_cookies([{**cookie, "value": forged}])  # type: ignore[typeddict-item]
    page = forger.new_page()
    page.goto(served.url)
    expect(page.get_by_role("button", name="Sign in")).to_be_visible(timeout=60_000)
    forger.close()


def put_file(served: Served, session: str) -> int:
    """The status of an upload to this session, with the token against forged requests as a browser has it."""
    with urllib.request.urlopen(f"{served.url}/_stcore/health", timeout=10) as answer:
        cookie = answer.headers["Set-Cookie"].split(";")[0]
    body = (
        b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.zip"\r\n'
        b"Content-Type: application/zip\r\n\r\nPK\r\n--b--\r\n"
    )
    request = urllib.request.Request(f"{served.url}/_stcore/upload_file/{session}/some-file", body, method="PUT")
    request.add_header("Content-Type", "multipart/form-data; boundary=b")
    request.add_header("Cookie", cookie)
    request.add_header("X-Xsrftoken", cookie.partition("=")[2])
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.parametrize(("account", "status"), [("", 403), ("Vi", 403), ("Ed", 204)])
def test_only_editors_put_files_on_the_server(
    context: BrowserContext, served: Served, account: str, status: int
) -> None:
    sessions: list[str] = []
    context.on("page", lambda page: page.on("websocket", lambda socket: socket.on("framereceived", note)))

    def note(frame: bytes | str) -> None:
        message = ForwardMsg.FromString(frame) if isinstance(frame, bytes) else ForwardMsg()
        if message.WhichOneof("type") == "new_session":
            sessions.append(message.new_session.initialize.session_id)

    if account:
        sign_in(context, served, account)
    else:
        open_door(context, served)
    assert put_file(served, sessions[-1]) == status
