"""Content words for the offline judge: stems of what is neither grammar nor the common stock of chat and advice."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import Any

from opbench.judges.text import plain

_GRAMMAR = """
a about above across after again against ago all almost alone along already also although always am among an and
another any anyone anything anywhere are around as at away back be became because become been before behind being
below between both but by can cannot could did do does doing done down during each either else enough even ever
every everyone everything few for from further get gets getting got had has have having he her here hers herself him
himself his how however i if in indeed instead into is it its itself just keep kept last later least less let like
likely lot lots many may maybe me might mine more most much must my myself near need needs neither never next no
nobody none nor not nothing now of off often on once one only onto or other others our ours ourselves out over own
perhaps quite rather really s same several shall she should since so some somebody someone something sometimes soon
still such t than that the their theirs them themselves then there therefore these they thing things this those
though through thus to together too toward towards two under until up upon us very was way ways we well were what
whatever when where whether which while who whole whom whose why will with within without would yes yet you your
yours yourself re ve ll d m don doesn didn isn aren wasn weren won wouldn couldn shouldn can
"""
_COMMON = """
able activity add advice agree amaze answer ask awesome balance beautiful begin believe benefit best better big bit
bring build call care challenge chance change check choice choose clear close come common community connect connection
consider cool create creative curious daily day deal decide deep definitely depend different difference difficult easy
effort encourage energy enjoy especially event example excite expect experience explain explore face fact family
fantastic feel feeling find fine first focus follow form friend friendly fun future general give glad go goal good
great group grow growth guess guide hand happen happy hard health hear heart help high hope idea imagine important
improve include incredible individual influence information inspire interest involve issue job join journey key kind
know known large lead learn leave level life list listen little live local long look love main make matter mean
meaning meet mention mind moment month move natural new nice note offer old open opinion option order part
particular pass passion past people person personal place plan play point positive possible power practice prefer
prepare problem process provide purpose put question reach read ready real reason recent recommend remember research
resource respect rest result right role run say see seem self sense set share short show simple situation small social
sound space special spend start state stay step stop story strong student study subject success suggest support sure
take talk task team tell tend term thank think thought time tip today tool top topic try turn type understand use
useful user value view walk want watch week wish wonder wonderful word work world worth write year young
"""
_WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")


@cache
def _stemmer() -> Any:
    # Loads for a second, which a command that stems nothing shouldn't wait for.
    from opbench.judges.nltk_parts import PorterStemmer

    return PorterStemmer()


@lru_cache(maxsize=50_000)
def stem(word: str) -> str:
    return str(_stemmer().stem(word))


@cache
def _plain_words() -> frozenset[str]:
    return frozenset(stem(word) for word in (_GRAMMAR + _COMMON).split())


def content(text: str) -> frozenset[str]:
    """Stems of the content words of a text."""
    common = _plain_words()
    words = (stem(word) for word in _WORD.findall(plain(text).lower().replace("'s", "")))
    return frozenset(word for word in words if len(word) > 2 and word not in common)


def names(text: str) -> frozenset[str]:
    """Stems of words with a capital inside a sentence: names of people, places and things."""
    found = re.findall(r"(?<=[\w,;] )[A-Z][a-z]{2,}", plain(text))
    return frozenset(stem(word.lower()) for word in found) - _plain_words()


def sentences(text: str) -> list[str]:
    """Sentences and list lines that hold a word."""
    pieces = re.split(r"(?<=[.!?])[\"')*]*\s+|\n+", plain(text).strip())
    return [piece for piece in pieces if _WORD.search(piece)]
