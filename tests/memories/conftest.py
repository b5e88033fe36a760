"""Fixtures of the memory systems' tests."""

from tests.memories.memos_process import memos, one_process

__all__ = ["memos", "one_process"]
