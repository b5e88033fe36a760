"""How far a judge may be trusted: against people, against itself, against traps (paper, A.4 and table 5)."""
