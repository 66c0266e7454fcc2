"""The device fails while it computes, at whichever evaluation: text and cache are right, and the next reply is too."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import mlx.core as mx
import pytest

import rdchat.inference.drafters as drafters
from rdchat.errors import OutOfMemoryError
from rdchat.inference.api import DraftKind, DraftSettings, GenerationRequest, Mode, ReplyEnd, TokenEvent
from rdchat.inference.drafting.draft_model import DraftModel
from rdchat.inference.session import ChatSession
from tests.grids import pairs, share
from tests.inference.drafting.draft_pairs import shared_near
from tests.inference.drafting.heads.block_drafters import XPRESS, written_block
from tests.inference.drafting.heads.eagle3_drafters import eagle3_folder
from tests.inference.fakes import ALPHABET, ask, positions, reply_end, shared_llama, tiny_llama
from tests.inference.metal_words import WORDS
from tests.inference.plain_replies import plain

REQUEST = ask("abcabcabcabcabcabc", seed=2, temperature=0.7, max_tokens=14)
HEADS = {"eagle3": eagle3_folder, "block": written_block, "xpress": partial(written_block, **XPRESS)}
MODES = [mode.value for mode in (Mode.OFF, Mode.LOOKUP, Mode.SPECULATIVE, Mode.AUTO)] + list(HEADS)


class Device:
    """Evaluates, and fails once.

    Attributes:
        left: Evaluations until the failure; None for never again.
        late: Whether the failure is told when the work is done, as Metal does, with results that are wrong.
    """

    def __init__(self) -> None:
        self.left: int | None = None
        self.late = False

    @contextmanager
    def working(self) -> Iterator[None]:
        with (
            patch.object(mx, "eval", self._failing(mx.eval)),
            patch.object(mx, "async_eval", self._failing(mx.async_eval)),
        ):
            yield

    def fail_at(self, evaluation: int, late: bool) -> None:
        self.left = evaluation
        self.late = late

    def _failing(self, plain: Callable[..., None]) -> Callable[..., None]:
        def evaluate(*arrays: Any) -> None:
            if self.left == 0:
                self.left = None
                if self.late:
                    plain(*arrays)
                raise RuntimeError(WORDS)
            if self.left is not None:
                self.left -= 1
            plain(*arrays)

        return evaluate


@contextmanager
def session_with(mode: str, folder: Path) -> Iterator[tuple[ChatSession, GenerationRequest]]:
    """Yield a session, and a request with a mode whose drafter it has loaded."""
    model = shared_llama()
    session = ChatSession(model)
    model.capability  # noqa: B018  tried beforehand, so that evaluations are those of the reply
    draft = DraftModel(model, shared_near(), len(ALPHABET))
    if mode in HEADS:
        settings = DraftSettings(Mode.DRAFTER, drafter=str(HEADS[mode](folder / mode, model)))
    elif mode == Mode.SPECULATIVE:
        settings = DraftSettings(Mode.SPECULATIVE, draft_model="near")
    else:
        settings = DraftSettings(Mode(mode))
    with patch.object(drafters, "load_draft_model", lambda *_a, **_k: draft):
        assert session.drafters.load_drafter(settings) is None
        yield session, replace(REQUEST, draft=settings)


@pytest.mark.parametrize(("mode", "late", "first"), share(pairs(MODES, [False, True], range(4)), 24))
@pytest.mark.across_rows
def test_whichever_evaluation_fails_the_text_is_right_and_the_next_reply_is_a_fresh_sessions(
    mode: str, late: bool, first: int, tmp_path: Path
) -> None:
    device = Device()
    whole = plain(shared_llama(), REQUEST)
    failures = 0
    with session_with(mode, tmp_path) as (session, request), device.working():
        for evaluation in range(first, 1000, 4):
            written = list[int]()
            ended = False
            device.fail_at(evaluation, late)
            try:
                for event in session.generate(request):
                    if isinstance(event, TokenEvent):
                        written.append(event.token_id)
                    ended = isinstance(event, ReplyEnd)
            except OutOfMemoryError:
                failures += 1
                assert not ended
                assert (session.cache.tokens, positions(session.cache)) == ([], 0)
            else:
                assert written == list(whole.token_ids)
            assert written == list(whole.token_ids[: len(written)])
            if device.left is not None:  # the reply had no further evaluation
                break
            end = reply_end(session.generate(request))
            assert (end.token_ids, end.text) == (whole.token_ids, whole.text)
            assert positions(session.cache) == len(session.cache.tokens)
            session.drop_caches()
    assert device.left is not None
    assert failures > 2


@pytest.mark.slow
@pytest.mark.parametrize("late", share([True, False], 2))
def test_a_capability_check_that_fails_is_made_again(late: bool) -> None:
    device = Device()
    failures = 0
    with device.working():
        for evaluation in range(1000):
            session = ChatSession(tiny_llama())
            device.fail_at(evaluation, late)
            try:
                session.warm_up()
                assert session.model.capability.kind is DraftKind.TREE
            except OutOfMemoryError:
                failures += 1
            if device.left is not None:
                break
            session.warm_up()
            assert session.model.capability.kind is DraftKind.TREE
    assert failures > 2
