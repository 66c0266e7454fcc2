"""Fixtures of these tests."""

from tests.inference.caches.kept import chat_folder, small_blocks

__all__ = ["chat_folder", "small_blocks"]
