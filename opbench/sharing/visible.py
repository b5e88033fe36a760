"""Text of models, files and people as it is: what would hide, reorder or steer is written out as signs."""

from __future__ import annotations

import re
import unicodedata

#: Signs that show nothing, or that change the order of what stands around them (Unicode, UAX #9), and their names.
_NAMES = {
    "\x7f": "DEL",
    "\u00ad": "SHY",
    "\u061c": "ALM",
    "\u115f": "FILLER",
    "\u1160": "FILLER",
    "\u180e": "MVS",
    "\u200b": "ZWSP",
    "\u200c": "ZWNJ",
    "\u200d": "ZWJ",
    "\u200e": "LRM",
    "\u200f": "RLM",
    "\u2028": "LS",
    "\u2029": "PS",
    "\u202a": "LRE",
    "\u202b": "RLE",
    "\u202c": "PDF",
    "\u202d": "LRO",
    "\u202e": "RLO",
    "\u2060": "WJ",
    "\u2066": "LRI",
    "\u2067": "RLI",
    "\u2068": "FSI",
    "\u2069": "PDI",
    "\u3164": "FILLER",
    "\ufeff": "BOM",
    "\uffa0": "FILLER",
}
_LETTERS = "".join(_NAMES)
#: ASCII's control signs. Their pictures (`␛`) are in few fonts.
_CONTROLS = re.findall(
    r"\w+",
    "NUL SOH STX ETX EOT ENQ ACK BEL BS TAB LF VT FF CR SO SI "
    "DLE DC1 DC2 DC3 DC4 NAK SYN ETB CAN EM SUB ESC FS GS RS US",
)
#: Control signs but tab and line feed; the named ones; other format, private, unassigned and lone surrogate signs.
_HIDDEN = re.compile(
    rf"[\x00-\x08\x0b-\x1f\x7f-\x9f{_LETTERS}\u2061-\u2065\u206a-\u206f\ufff0-\ufffb\ud800-\udfff\ue000-\uf8ff"
    r"\U000e0000-\U000effff\U000f0000-\U0010ffff]"
)
_KEPT_JOINER = "\u200d"


def visible(text: str) -> str:
    """The text with every sign shown: `⟨ESC⟩` for escape, `⟨RLO⟩` for a right-to-left override, `⟨U+E000⟩` for others.

    Line breaks and tabs stay; a Windows line end is a line end. A joiner within an emoji stays too, since it is seen.
    """
    return _HIDDEN.sub(_shown, text.replace("\r\n", "\n"))


def one_line(text: str, most: int) -> str:
    """The text's beginning for a table's cell: visible, in one line, at most `most` signs with `…` for the rest."""
    line = " ".join(visible(text[: 4 * most]).split())
    return line if len(line) <= most and len(text) <= 4 * most else f"{line[: most - 1]}…"


def _shown(match: re.Match[str]) -> str:
    sign = match[0]
    code = ord(sign)
    if sign == _KEPT_JOINER and _joins_pictures(match.string, match.start()):
        return sign
    if code < 0x20:
        return f"⟨{_CONTROLS[code]}⟩"
    if 0xE0020 <= code <= 0xE007E:
        return f"⟨TAG {chr(code - 0xE0000)}⟩"
    return f"⟨{_NAMES.get(sign, f'U+{code:04X}')}⟩"


def _joins_pictures(text: str, place: int) -> bool:
    before, after = text[max(0, place - 2) : place].rstrip("\ufe0f")[-1:], text[place + 1 : place + 2]
    return all(sign and unicodedata.category(sign) in ("So", "Sk") for sign in (before, after))
