"""The commands of `opbench`, a module each."""
