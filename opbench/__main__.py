"""`python -m opbench`."""

from opbench.cli import main

main()
