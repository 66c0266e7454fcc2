"""Fixtures of these tests."""

from tests.inference.caches_on_disk.kept import chat_folder, small_blocks

__all__ = ["chat_folder", "small_blocks"]
