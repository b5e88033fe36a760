"""`tools/serve.py` as a process: what it refuses (exit code 2 and one line), and what it takes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from opbench.settings import ROOT

GOOD = """[auth]
redirect_uri = "https://bench.example.org/oauth2callback"
cookie_secret = "0kZ3uVq8nB5xWfT1mJ7yLrP4sHd9cAe2"
client_id = "opbench"
client_secret = "hush-hush"
server_metadata_url = "https://login.example.org/.well-known/openid-configuration"
"""


def serve(home: Path, *flags: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run it as far as its checks: the flag at the end makes Streamlit say what is wrong with it and end."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OPBENCH_", "STREAMLIT_"))}
    return subprocess.run(
        [sys.executable, "tools/serve.py", *flags],
        cwd=ROOT,
        env=kept | {"OPBENCH_HOME": str(home), "HOME": str(home)} | variables,
        capture_output=True,
        text=True,
        timeout=120,
    )


def secrets(home: Path, text: str) -> str:
    file = home / "secrets.toml"
    home.mkdir(exist_ok=True)
    file.write_text(text)
    return str(file)


@pytest.mark.parametrize(
    ("flags", "variables", "said"),
    [
        (("--server.address", "0.0.0.0"), {}, "won't be served at 0.0.0.0 without sign-in"),
        (("--server.address=",), {}, "at every address of this machine without sign-in"),
        ((), {"STREAMLIT_SERVER_ADDRESS": "::"}, "won't be served at :: without sign-in"),
        ((), {"OPBENCH_SIGN_IN": "required"}, "with OPBENCH_SIGN_IN=required without sign-in"),
        ((), {"OPBENCH_OPEN": "everybody"}, "OPBENCH_OPEN: input should be 'viewer' or 'editor'"),
        (("--server.address", "0.0.0.0"), {"OPBENCH_OPEN": "viewer"}, "set OPBENCH_HOST"),
        (("--server.enableXsrfProtection", "false"), {}, "server.enableXsrfProtection must stay true"),
        (("--server.enableCORS", "false"), {}, "server.enableCORS must stay true"),
        (("--server.enableAgentApi", "true"), {}, "server.enableAgentApi must stay false"),
    ],
)
def test_it_refuses_with_one_line(home: Path, flags: tuple[str, ...], variables: dict[str, str], said: str) -> None:
    done = serve(home, *flags, **variables)
    assert done.returncode == 2
    assert done.stdout == ""
    # Streamlit itself has more to say of an option or two.
    *_, last = done.stderr.splitlines()
    assert last.startswith("opbench: ")
    assert said in last
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[auth\n", "can't be read as TOML"),
        (GOOD.replace("0kZ3uVq8nB5xWfT1mJ7yLrP4sHd9cAe2", "xxx"), "cookie_secret must be"),
        (GOOD, "nobody is listed"),
    ],
)
def test_a_wrong_secrets_file_is_named(home: Path, text: str, said: str) -> None:
    done = serve(home, "--server.address", "0.0.0.0", "--secrets.files", secrets(home, text))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert said in done.stderr
    assert "secrets.toml" in done.stderr or "OPBENCH_EDITORS" in done.stderr
    assert "hush-hush" not in done.stderr


def test_in_the_persons_own_folder_secrets_are_found_too(home: Path) -> None:
    (home / ".streamlit").mkdir(parents=True)
    (home / ".streamlit" / "secrets.toml").write_text(GOOD.replace("hush-hush", ""))
    done = serve(home, "--server.address", "0.0.0.0")
    assert "client_secret is missing" in done.stderr


def test_set_up_right_it_goes_on_to_streamlit(home: Path) -> None:
    # Half a certificate: Streamlit refuses it when all of ours is checked, and before it listens.
    file = secrets(home, GOOD)
    half = ("--server.sslCertFile", file, "--server.port", "0")
    done = serve(home, "--server.address", "0.0.0.0", "--secrets.files", file, *half, OPBENCH_EDITORS="ed@lab.example")
    assert done.returncode == 1
    assert "server.sslKeyFile" in done.stderr
    assert "opbench:" not in done.stderr
