"""Replies that take their time on the quickest machine, so that something can happen in their midst.

As a program, `python -m tests.slow_replies`, it is rdchat with such replies.
"""

import sys
import time
from collections.abc import Callable

import pytest

from rdchat.inference.api import GenerationEvent


def slow_replies(monkeypatch: pytest.MonkeyPatch, seconds: float, hold: Callable[[], object] = lambda: None) -> None:
    """Let each event of a reply take so long, or longer, and come when `hold` has returned."""
    import rdchat.inference.blas  # noqa: F401  before MLX

    # isort: split
    from rdchat.inference.decoding.reply_iterator import ReplyIterator

    def slowly(reply: ReplyIterator) -> GenerationEvent:
        time.sleep(seconds)
        hold()
        return at_once(reply)

    at_once = ReplyIterator.__next__
    monkeypatch.setattr(ReplyIterator, "__next__", slowly)


if __name__ == "__main__":
    from rdchat.__main__ import main

    slow_replies(pytest.MonkeyPatch(), 0.02)
    sys.exit(main())
