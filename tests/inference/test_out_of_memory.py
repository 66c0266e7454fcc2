"""The device runs out of memory during a reply: a plain message, and the chat continues."""

from collections.abc import Iterator

import mlx.core as mx
import pytest
from mlx_lm.models import llama

from rdchat.errors import OutOfMemoryError
from rdchat.inference.api.events import ReplyEnd, TokenEvent
from rdchat.inference.api.requests import DraftSettings, GenerationRequest, Mode
from rdchat.inference.session import ChatSession
from tests.grids import grid
from tests.inference.fakes import ask, positions, shared_llama, tiny_llama
from tests.inference.plain_replies import plain

WORDS = (
    "[METAL] Command buffer execution failed: Insufficient Memory "
    "(00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)"
)


class Device:
    """Has memory for so many calls of a llama, once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls_left: int | None = None
        call = llama.Model.__call__

        def limited(network: llama.Model, *arguments: object, **options: object) -> mx.array:
            if self.calls_left is not None:
                if self.calls_left == 0:
                    self.calls_left = None
                    raise RuntimeError(WORDS)
                self.calls_left -= 1
            return call(network, *arguments, **options)

        monkeypatch.setattr(llama.Model, "__call__", limited)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[Device]:
    return Device(monkeypatch)


def write(session: ChatSession, request: GenerationRequest, text: list[str]) -> None:
    for event in session.generate(request):
        if isinstance(event, TokenEvent):
            text.append(event.text)
        elif isinstance(event, ReplyEnd):
            text.append(event.trailing_text)


@pytest.mark.parametrize(
    ("mode", "calls"), grid([Mode.OFF, Mode.LOOKUP, Mode.AUTO], [2, 20])
)  # while the prompt is read, and while the reply is written
@pytest.mark.across_rows
def test_the_text_so_far_has_come_and_the_next_reply_is_a_fresh_sessions(
    device: Device, mode: Mode, calls: int
) -> None:
    model = shared_llama()
    request = ask("abcabcabcabcabcabc", temperature=0.7, max_tokens=40)
    whole = plain(model, request).text
    session = ChatSession(model)
    drafted = GenerationRequest(request.messages, request.sampling, request.seed, draft=DraftSettings(mode))
    model.capability  # noqa: B018  tried beforehand, so that calls are those of the reply
    written, again = list[str](), list[str]()
    device.calls_left = calls
    with pytest.raises(OutOfMemoryError, match=r"There was not enough memory for this reply\. Close other apps"):
        write(session, drafted, written)
    assert whole.startswith("".join(written))
    assert bool(written) == (calls == 20)
    assert session.cache.tokens == []
    assert positions(session.cache) == 0
    write(session, drafted, again)
    assert "".join(again) == whole


def test_a_model_that_cannot_be_run_for_want_of_memory_is_said_plainly(device: Device) -> None:
    session = ChatSession(tiny_llama())
    device.calls_left = 0
    with pytest.raises(OutOfMemoryError, match="There was not enough memory to run tiny"):
        session.warm_up()
