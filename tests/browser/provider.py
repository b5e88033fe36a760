"""A small OpenID Connect provider on loopback: authorization code flow, signed identity tokens, sign-out.

Its page offers the accounts as links; there are no passwords.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENT_ID = "opbench"
CLIENT_SECRET = "secret-of-this-test"


@dataclass(slots=True)
class Provider:
    """A running provider. `accounts`: claims by the name on the link; `age_s`: how old its tokens are."""

    url: str
    accounts: Mapping[str, Mapping[str, Any]]
    key: RSAKey
    age_s: int = 0
    codes: dict[str, dict[str, str]] = field(default_factory=dict)

    def token(self, asked: Mapping[str, str]) -> str:
        now = int(time.time()) - self.age_s
        claims = {
            "iss": self.url,
            "aud": CLIENT_ID,
            "sub": asked["account"],
            "iat": now,
            "exp": now + self.age_s + 300,
            "nonce": asked["nonce"],
            **self.accounts[asked["account"]],
        }
        return jwt.encode({"alg": "RS256", "kid": "1"}, claims, self.key)


@contextmanager
def provide(accounts: Mapping[str, Mapping[str, Any]]) -> Iterator[Provider]:
    """Serve these accounts until the block ends."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    key = RSAKey.generate_key(2048, parameters={"kid": "1", "use": "sig", "alg": "RS256"})
    provider = Provider(f"http://127.0.0.1:{server.server_address[1]}", accounts, key)
    _Handler.provider = provider
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


class _Handler(BaseHTTPRequestHandler):
    provider: Provider

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
        url = self.provider.url
        if parts.path == "/.well-known/openid-configuration":
            self._json(
                {
                    "issuer": url,
                    "authorization_endpoint": f"{url}/authorize",
                    "token_endpoint": f"{url}/token",
                    "jwks_uri": f"{url}/keys",
                    "end_session_endpoint": f"{url}/out",
                    "response_types_supported": ["code"],
                    "subject_types_supported": ["public"],
                    "id_token_signing_alg_values_supported": ["RS256"],
                    "code_challenge_methods_supported": ["S256"],
                }
            )
        elif parts.path == "/keys":
            self._json({"keys": [self.provider.key.as_dict(private=False)]})
        elif parts.path == "/authorize" and asked.get("client_id") == CLIENT_ID:
            links = "".join(
                f'<p><a href="/chosen?{urlencode(asked | {"account": name})}">{name}</a></p>'.replace("&", "&amp;")
                for name in self.provider.accounts
            )
            self._answer(200, f"<title>Accounts</title>{links}".encode(), "text/html")
        elif parts.path == "/chosen":
            code = secrets.token_urlsafe(16)
            self.provider.codes[code] = asked
            self._redirect(f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state']})}")
        elif parts.path == "/out":
            self._redirect(asked["post_logout_redirect_uri"])
        else:
            self._answer(404, b"", "text/plain")

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        asked = {name: values[0] for name, values in parse_qs(self.rfile.read(length).decode()).items()}
        known = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
        given = self.headers.get("Authorization", "").removeprefix("Basic ")
        granted = self.provider.codes.pop(asked.get("code", ""), None)
        digest = hashlib.sha256(asked.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if given != known or granted is None or granted["code_challenge"] != challenge:
            self._answer(400, b'{"error": "invalid_grant"}', "application/json")
            return
        self._json(
            {
                "access_token": secrets.token_urlsafe(16),
                "token_type": "Bearer",
                "expires_in": 300,
                "id_token": self.provider.token(granted),
            }
        )

    def _json(self, value: Any) -> None:
        self._answer(200, json.dumps(value).encode(), "application/json")

    def _redirect(self, target: str) -> None:
        self.send_response(302)
        self.send_header("Location", target)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _answer(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing on the terminal."""
