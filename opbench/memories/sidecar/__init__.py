"""MemOS in an environment of its own: a program that runs there (`inside/`) and its client here (client.py).

MemOS needs libraries that exclude ours, so the two talk in JSON lines over pipes.
"""
