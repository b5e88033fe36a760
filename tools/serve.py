"""`streamlit run`, with any of its flags, for the dashboard: refused where it would be open to others unasked.

`pages/` is taken for what it is: ours. Streamlit takes a folder of that name for its older kind of app until
`st.navigation` has run once, and so tells the first visitor who follows a link to a page that there is no such page.
It asks this flag (Streamlit 1.67, pinned).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from streamlit import config
from streamlit.errors import StreamlitSecretNotFoundError
from streamlit.runtime.pages_manager import PagesManager
from streamlit.runtime.secrets import secrets_singleton
from streamlit.web import bootstrap, cli

from opbench import access
from opbench.errors import OpbenchError, UsageError
from opbench.settings import ROOT, settings

SCRIPT = str(ROOT / "asgi.py")
#: Streamlit's options that would let other pages, programs or a forged header act for a visitor, and what they must be.
_KEPT: Mapping[str, object] = {
    "server.enableXsrfProtection": True,
    "server.enableCORS": True,
    "server.trustedUserHeaders": {},
    "server.enableAgentApi": False,
}


def main() -> int:
    """Serve the dashboard until it is stopped; 2 when it isn't set up as it must be."""
    try:
        hosts = _check(sys.argv[1:])
    except OpbenchError as error:
        print(f"opbench: {error}", file=sys.stderr)
        return 2
    PagesManager.uses_pages_directory = False
    flags = [part for host in hosts for part in ("--server.allowedHosts", host)]
    sys.argv = ["streamlit", "run", SCRIPT, *flags, *sys.argv[1:]]
    cli.main()
    return 0


def _check(arguments: list[str]) -> tuple[str, ...]:
    """The names under which the dashboard will answer; none when Streamlit has something to say of the flags.

    Raises:
        UsageError: it would be open to others without anybody having said so, or sign-in isn't set up right.
    """
    config._main_script_path = SCRIPT
    try:
        given = dict(cli.main_run.make_context("run", [SCRIPT, *arguments]).params)
    except click.ClickException:
        return ()
    except click.exceptions.Exit as done:
        sys.exit(done.exit_code)
    bootstrap.load_config_options({name: value for name, value in given.items() if name not in ("target", "args")})
    for option, value in _KEPT.items():
        if config.get_option(option) != value:
            raise UsageError(f"Streamlit's option {option} must stay {str(value).lower()}: leave it out")
    address, auth = str(config.get_option("server.address") or ""), _auth()
    policy = access.make_policy(address, auth, settings())
    if access.is_loopback(address) and not access.hosts(settings()) and not policy.sign_in:
        return ()
    return (*config.get_option("server.allowedHosts"), *access.allowed_hosts(address, auth, settings(), policy))


def _auth() -> dict[str, Any]:
    """The section `[auth]` of Streamlit's secrets; empty when there is none.

    Raises:
        UsageError: a secrets file can't be read.
    """
    try:
        section = secrets_singleton.get("auth", {})
    except StreamlitSecretNotFoundError as error:
        if there := [file for file in config.get_option("secrets.files") if Path(file).exists()]:
            raise UsageError(f"{' or '.join(there)} can't be read as TOML: mend it") from error
        return {}
    return dict(section) if isinstance(section, Mapping) else {}


if __name__ == "__main__":
    sys.exit(main())
