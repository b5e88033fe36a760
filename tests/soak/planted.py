"""Planted secrets, and the search for them in all that a run leaves behind."""

from __future__ import annotations

import base64
import gzip
import io
import json
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

from tests.soak.places import PASSWORD

KEY = "sk-planted-Zk81hQp04mVnT6yR"
BODY_KEY = "sk-body-Wq72nLc95xJdE3uK"
USER_PASSWORD = "sk-user-Hb46gTs08fYoA1iM"
SECRETS: Mapping[str, str] = {
    "the API key": KEY,
    "the key in extra_body": BODY_KEY,
    "the password in base_url": USER_PASSWORD,
    "PostgreSQL's password": PASSWORD,
}


#: With its value: the bare word may stand in a plugin's sentence.
_HEADER = re.compile(rb"(?i)authorization\W{1,8}(bearer|basic)\s+(?!\[key\])\S+")


def forms(secret: str) -> dict[str, bytes]:
    """A secret as it may be written: plain, in parts, for a URL, in base64."""
    core = secret.rsplit("-", 1)[-1]
    found = {"plain": secret.encode(), "its core": core.encode(), "for a URL": quote(secret, safe="").encode()}
    for prefix in ("", "opbench:", "planted:", "Bearer "):
        for shift in range(3):
            # In base64 a text looks in one of three ways, by its place in what was encoded.
            coded = base64.b64encode(b"x" * shift + (prefix + secret).encode())
            found[f"base64 of {prefix}… at {shift}"] = coded[4 if shift else 0 : -4]
    return found


def hits(name: str, content: bytes) -> Iterator[str]:
    """Where a secret stands in some content, compressed members of archives included."""
    for part, plain in unpacked(name, content):
        for what, secret in SECRETS.items():
            for form, sought in forms(secret).items():
                if sought in plain:
                    at = plain.index(sought)
                    yield f"{what} ({form}) in {part}: …{plain[max(0, at - 80) : at + 40]!r}"
        for header in _HEADER.finditer(plain):
            yield f"an Authorization header in {part}: {header[0]!r}"


def unpacked(name: str, content: bytes) -> Iterator[tuple[str, bytes]]:
    yield name, content
    if zipfile.is_zipfile(io.BytesIO(content)):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for member in archive.namelist():
                yield from unpacked(f"{name}!{member}", archive.read(member))
    elif content[:2] == b"\x1f\x8b":
        with gzip.open(io.BytesIO(content)) as stream:
            yield from unpacked(f"{name}!gunzipped", stream.read())
    elif content[:1] == b"\x78":
        try:
            yield f"{name}!inflated", zlib.decompress(content)
        except zlib.error:
            return


def in_folder(folder: Path, *left_out: str) -> Iterator[str]:
    """Secrets in the files below a folder; those of the given names are left out."""
    for file in sorted(folder.rglob("*")):
        if file.is_file() and file.name not in left_out:
            yield from hits(str(file), file.read_bytes())


def registry(url: str, models: list[str]) -> str:
    """A registry whose endpoint has a password in its address and a key in the body of each request."""
    address = url.replace("://", f"://planted:{USER_PASSWORD}@")
    common = f'base_url = {json.dumps(address)}\nkey_env = "SOAK_KEY"\nprice_in = 1.0\nfirst_wait_s = 0.02\n'
    body = f'extra_body = {{ api_key = "{BODY_KEY}", nested = {{ list = ["Bearer {BODY_KEY}"] }} }}\n'
    entries = [f"[models.{name}]\n{common}price_out = 2.0\n{body}" for name in models]
    return "\n".join([*entries, f"[embedders.vectors]\n{common}"])
