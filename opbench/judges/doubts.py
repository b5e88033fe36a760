"""What behind a number in a judge's reply makes it no score, or no longer the score."""

from __future__ import annotations

import re

from opbench.judges.noise import N

#: What may follow a labelled whole number, percentage or fraction; `0 memories` and `1 star` count something.
ENTIRE = re.compile(
    r"\s*(?:points?\b|pts\b)?(?:\s*$|[ \t]*\n|\s*(?:[.!](?:\s*[)\]])?(?=\s|$)|[,;:]\s)(?![ \t]*\d)"
    r"|\s*[()\[\]{}§→]|\s*[–—]|\s+-\s|\s*(?:because|since|as|for|due|given|or (?:higher|lower|above|below))\b"
    r"|\s+[a-z]\w*[ \t]*:)",
    re.IGNORECASE,
)
HYPOTHETICAL = re.compile(
    r"\s*,?\s*(?:would|if|when|unless|might|could|of(?!\s+1\b)|"
    r"(?:is|are|was)\s+(?:\w+\s+)?(?:given|assigned|awarded|reserved|used|meant|appropriate|warranted|too)\s+"
    r"(?:(?:only\s+)?(?:if|when|for\s+(?:an?\s+)?(?:responses?|answers?|repl\w+|cases?))|high|low|generous|harsh|strict)"
    r")\b|[^.;\n()]{0,100}\bminus\b",
    re.IGNORECASE,
)
REVISED = re.compile(
    r"(?:^|[.!?;:,(\n–—]|\s-\s)\s*(?:(?:but|or|oh|hmm|well|and),?\s+)?"
    r"(?:actually|wait\b|sorry|correction|scratch that|hold on|"
    r"(?:on|upon|after) (?:(?:second|further|closer|more|some) )?(?:reflection|thoughts?|consideration|inspection)|"
    r"make (?:it|that)|let me (?:re|correct|adjust|lower|raise|change)|rather,"
    rf"|no\b(?:[.,;:!–—]\s*(?:[a-z']+\s+){{0,5}}|\s+){N})"
    r"|\b(?:i|i'd|i'll|i'm|we)\s+(?:\w+\s+)?"
    r"(?:revis\w*|lower\w*|rais\w*|adjust\w*|chang\w*|correct\w*|reduc\w*|updat\w*|reconsider\w*)\s+"
    r"(?:it|this to|that to|my|the (?:score|rating)|to)\b"
    r"|\b(?:revised|corrected|adjusted|amended|updated)\s*(?:score\s*)?[:=]"
    rf"|\b(?:revis|lower|rais|adjust|chang|correct|reduc|updat|amend)\w*\s+(?:\w+\s+){{0,3}}?to\s+(?:an?\s+)?{N}",
    re.IGNORECASE,
)
BRACKETED = re.compile(r"\([^()\n]*\)|\[[^\[\]\n]*\]")
