"""Who is what: the rules without a browser. The right values are those of docs/access.md."""

from __future__ import annotations

from typing import Any

import pytest

from opbench.access import Policy, SignOuts, allowed_hosts, check_auth, is_loopback, make_policy, visitor
from opbench.errors import UsageError
from opbench.settings import Settings

NOW = 1_800_000_000.0
AUTH: dict[str, Any] = {
    "redirect_uri": "https://bench.example.org/oauth2callback",
    "cookie_secret": "0kZ3uVq8nB5xWfT1mJ7yLrP4sHd9cAe2",
    "client_id": "opbench",
    "client_secret": "hush-hush",
    "server_metadata_url": "https://login.example.org/.well-known/openid-configuration",
}
POLICY = Policy(
    True,
    editors=frozenset({"ed@lab.example", "@core.example"}),
    viewers=frozenset({"@lab.example", "vi@readers.example"}),
)


def settings(**values: Any) -> Settings:
    return Settings.model_validate(values)


def claims(email: object, **more: Any) -> dict[str, Any]:
    return {"is_logged_in": True, "iat": NOW - 60, "email": email, "email_verified": True, **more}


@pytest.mark.parametrize(
    ("host", "right"),
    [
        ("127.0.0.1", True),
        ("127.8.9.10", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("", False),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.1.5", False),
        ("localhost.example.org", False),
        ("127.0.0.1.example.org", False),
        ("2130706433", False),
    ],
)
def test_what_is_loopback(host: str, right: bool) -> None:
    assert is_loopback(host) is right


def test_on_loopback_everybody_is_an_editor_and_nobody_signs_in() -> None:
    assert make_policy("127.0.0.1", {}, settings()) == Policy(sign_in=False, everyone="editor")
    assert visitor(Policy(sign_in=False, everyone="editor"), {}).name == "local"


@pytest.mark.parametrize("address", ["0.0.0.0", "", "::", "192.168.1.5", "bench.example.org"])
def test_elsewhere_it_refuses_without_sign_in_and_names_the_mend(address: str) -> None:
    with pytest.raises(UsageError, match=r"\[auth\] to \.streamlit/secrets\.toml.*OPBENCH_OPEN=viewer"):
        make_policy(address, {}, settings())


@pytest.mark.parametrize("role", ["viewer", "editor"])
def test_elsewhere_it_is_open_when_that_was_said(role: str) -> None:
    policy = make_policy("0.0.0.0", {}, settings(open=role))
    assert (policy.sign_in, visitor(policy, {}).role) == (False, role)


def test_a_public_name_on_loopback_is_a_proxy_and_demands_sign_in() -> None:
    with pytest.raises(UsageError, match=r"won't be served at bench\.example\.org"):
        make_policy("127.0.0.1", {}, settings(host="bench.example.org"))


def test_sign_in_can_be_demanded_on_loopback() -> None:
    with pytest.raises(UsageError, match="OPBENCH_SIGN_IN=required without sign-in"):
        make_policy("127.0.0.1", {}, settings(sign_in="required"))
    assert make_policy("127.0.0.1", AUTH, settings(sign_in="required", editors="ed@lab.example")).sign_in


def test_a_provider_that_is_set_up_is_used_on_loopback_too() -> None:
    assert make_policy("127.0.0.1", AUTH, settings(editors="ed@lab.example")).sign_in


def test_open_and_required_contradict_each_other() -> None:
    with pytest.raises(UsageError, match="contradict"):
        make_policy("127.0.0.1", AUTH, settings(open="viewer", sign_in="required", editors="a@b.c"))


def test_sign_in_for_nobody_is_refused() -> None:
    with pytest.raises(UsageError, match="nobody is listed"):
        make_policy("0.0.0.0", AUTH, settings())


@pytest.mark.parametrize("listed", ["ed", "ed@", "*", "ed@lab.example ed@other.example", "@"])
def test_lists_hold_addresses_and_domains_only(listed: str) -> None:
    with pytest.raises(UsageError, match=r"OPBENCH_EDITORS: .* is neither an e-mail address nor @domain"):
        make_policy("0.0.0.0", AUTH, settings(editors=listed))


def test_lists_are_read_without_case_and_blanks() -> None:
    policy = make_policy("0.0.0.0", AUTH, settings(editors=" Ed@Lab.example , @Core.example,", session_hours=3))
    assert policy.editors == {"ed@lab.example", "@core.example"}
    assert policy.hours == 3


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("redirect_uri", "", "must be a URL"),
        ("redirect_uri", "http://bench.example.org/oauth2callback", "https://"),
        ("redirect_uri", "https://bench.example.org/", "must end in /oauth2callback"),
        ("redirect_uri", "http://127.0.0.1:8501/oauth2callback", "visitor's own machine"),
        ("cookie_secret", "", "random signs"),
        ("cookie_secret", "xxx", "random signs"),
        ("cookie_secret", "short-but-random-8Zq3", "random signs"),
        ("cookie_secret", "change" * 10, "random signs"),
        ("client_id", "xxx", "is missing"),
        ("client_secret", "", "is missing"),
        ("server_metadata_url", "http://login.example.org/x", "https://"),
        ("server_metadata_url", "javascript:alert(1)", "https://"),
        ("server_metadata_url", "https://", "names no host"),
    ],
)
def test_a_half_set_up_sign_in_is_refused_by_key(key: str, value: str, said: str) -> None:
    with pytest.raises(UsageError) as raised:
        check_auth(AUTH | {key: value})
    assert key in str(raised.value)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_refusal_never_shows_a_secret() -> None:
    for key in AUTH:
        with pytest.raises(UsageError) as raised:
            check_auth({name: value for name, value in AUTH.items() if name != key})
        assert "hush-hush" not in str(raised.value)
        assert "0kZ3uVq8" not in str(raised.value)


def test_named_providers_are_checked_each() -> None:
    shared = {name: AUTH[name] for name in ("redirect_uri", "cookie_secret")}
    one = {name: AUTH[name] for name in ("client_id", "client_secret", "server_metadata_url")}
    assert check_auth(shared | {"google": one, "okta": one}) == ("google", "okta")
    with pytest.raises(UsageError, match=r"\[auth\.okta\]: client_secret is missing"):
        check_auth(shared | {"google": one, "okta": one | {"client_secret": ""}})


def test_further_arguments_of_the_client_are_no_provider() -> None:
    assert check_auth(AUTH | {"client_kwargs": {"prompt": "login"}}) == ()


@pytest.mark.parametrize(
    ("given", "role"),
    [
        ({}, "nobody"),
        ({"is_logged_in": False}, "nobody"),
        ({"is_logged_in": "true", "email": "ed@lab.example", "iat": NOW}, "nobody"),
        (claims("ed@lab.example"), "editor"),
        (claims("ED@Lab.Example"), "editor"),
        (claims("other@lab.example"), "viewer"),
        (claims("any@core.example"), "editor"),
        (claims("vi@readers.example"), "viewer"),
        (claims("no@readers.example"), "nobody"),
        (claims("x@sub.core.example"), "nobody"),
        (claims("x@evilcore.example"), "nobody"),
        (claims("ed@lab.example@elsewhere.example"), "nobody"),
        (claims("ed@lab.example\n"), "nobody"),
        # The Kelvin sign turns into a Latin k when it is made small, and the long s into an s.
        (claims("ed@lab.example".replace("l", "ſ")), "nobody"),
        (claims(None), "nobody"),
        (claims(["ed@lab.example"]), "nobody"),
        (claims("ed@lab.example", email_verified=False), "nobody"),
        (claims("ed@lab.example", email_verified="false"), "nobody"),
        (claims("ed@lab.example", email_verified=None), "nobody"),
        ({name: value for name, value in claims("ed@lab.example").items() if name != "email_verified"}, "editor"),
    ],
)
def test_roles(given: dict[str, Any], role: str) -> None:
    assert visitor(POLICY, given, NOW).role == role


def test_a_sign_in_lasts_its_hours_and_no_longer() -> None:
    hours = 12 * 3600
    assert visitor(POLICY, claims("ed@lab.example", iat=NOW - hours), NOW).role == "editor"
    late = visitor(POLICY, claims("ed@lab.example", iat=NOW - hours - 1), NOW)
    assert (late.role, late.signed_in) == ("nobody", False)
    assert "12 hours" in late.reason


@pytest.mark.parametrize("iat", [None, "now", True])
def test_a_sign_in_without_a_time_is_none(iat: object) -> None:
    assert visitor(POLICY, claims("ed@lab.example", iat=iat), NOW).role == "nobody"


def test_a_sign_out_ends_one_sign_in_and_no_other() -> None:
    ended = SignOuts()
    here, phone = claims("ed@lab.example", nonce="a"), claims("ed@lab.example", nonce="b")
    ended.end(here, 12)
    assert ended.has(dict(here))
    assert not ended.has(phone)


def test_names_under_which_it_answers() -> None:
    signed = Policy(True, editors=frozenset({"a@b.c"}))
    everyone = Policy(False, "viewer")
    assert allowed_hosts("0.0.0.0", AUTH, settings(), signed) == ("bench.example.org",)
    assert allowed_hosts("192.168.1.5", {}, settings(open="viewer"), everyone) == ("192.168.1.5",)
    assert allowed_hosts("", {}, settings(host="a.example, b.example"), everyone) == ("a.example", "b.example")
    with pytest.raises(UsageError, match="set OPBENCH_HOST"):
        allowed_hosts("0.0.0.0", {}, settings(open="viewer"), everyone)


@pytest.mark.parametrize("host", ["*", "*.example.org", "https://bench.example.org", "bench:8501", "-x"])
def test_a_host_is_a_name(host: str) -> None:
    with pytest.raises(UsageError, match="OPBENCH_HOST"):
        allowed_hosts("0.0.0.0", {}, settings(host=host), Policy(False, "viewer"))
