"""The device fails or runs out of memory, at whichever evaluation: a plain message, and the chat continues."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import mlx.core as mx
import pytest
from mlx_lm.models import llama

import rdchat.inference.drafters as drafters
from rdchat.errors import DeviceError, DeviceStoppedError, ModelError, OutOfMemoryError
from rdchat.inference.api import DraftKind, DraftSettings, GenerationRequest, Mode, ReplyEnd, TokenEvent
from rdchat.inference.device import device_errors, is_device_error
from rdchat.inference.drafting.draft_model import DraftModel
from rdchat.inference.session import ChatSession
from rdchat.inference.training.data_maker import check_batched_decoding
from rdchat.inference.verification import capability
from rdchat.inference.verification.target import PrefillPace
from tests.grids import pairs, share
from tests.inference.drafting.draft_pairs import shared_near
from tests.inference.drafting.heads.block_drafters import XPRESS, written_block
from tests.inference.drafting.heads.eagle3_drafters import eagle3_folder
from tests.inference.fakes import ALPHABET, ask, positions, reply_end, shared_llama, tiny_llama
from tests.inference.families import TREES, network_of
from tests.inference.metal_words import FAILED, WORDS
from tests.inference.plain_replies import plain

STOPPED = {
    "ImpactingInteractivity": "Impacting Interactivity "
    "(0000000e:kIOGPUCommandBufferCallbackErrorImpactingInteractivity)",
    "Timeout": "Caused GPU Timeout Error (00000002:kIOGPUCommandBufferCallbackErrorTimeout)",
    "Hang": "Caused GPU Hang Error (00000003:kIOGPUCommandBufferCallbackErrorHang)",
    "SubmissionsIgnored": "Ignored (for causing prior/excessive GPU errors) "
    "(00000004:kIOGPUCommandBufferCallbackErrorSubmissionsIgnored)",
    "InnocentVictim": "Discarded (victim of GPU error/recovery) "
    "(00000005:kIOGPUCommandBufferCallbackErrorInnocentVictim)",
}


INTERNAL = FAILED + "Internal Error (0000000e:Internal Error)"


class Device:
    """Carries out so many calls of a llama, then fails once.

    Attributes:
        calls_left: Calls until the failure; None for never again.
        words: What the failure says.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls_left: int | None = None
        self.words = WORDS
        call = llama.Model.__call__

        def limited(network: llama.Model, *arguments: object, **options: object) -> mx.array:
            if self.calls_left is not None:
                if self.calls_left == 0:
                    self.calls_left = None
                    raise RuntimeError(self.words)
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


def test_the_caches_of_other_chats_make_room(device: Device) -> None:
    session = ChatSession(shared_llama(), cache_bytes=2**30)
    for prompt in ("one", "two"):
        write(session, ask(prompt, max_tokens=3), [])
    assert session.caches.facts.count == 2
    device.calls_left = 2
    with pytest.raises(OutOfMemoryError):
        write(session, ask("three", max_tokens=30), [])
    assert session.caches.facts.count == 0


class UntimedPace(PrefillPace):
    """Changes for failures alone."""

    def record_time(self, tokens: int, seconds: float) -> None:
        pass


@pytest.mark.parametrize(
    ("name", "mode", "calls"), share(product(STOPPED, [Mode.OFF, Mode.LOOKUP, Mode.AUTO], [2, 20]), 28)
)  # while the prompt is read in chunks of 8, and while the reply is written
@pytest.mark.across_rows
def test_work_that_the_system_stopped_can_be_tried_again(device: Device, name: str, mode: Mode, calls: int) -> None:
    """It was called a mistake of rdchat."""
    model = replace(shared_llama(), pace=UntimedPace(8, 1))
    session = ChatSession(model)
    request = ask("abcabcabcabcabcabcabcabcabcabc", temperature=0.7, max_tokens=40)
    whole = plain(model, request).text
    drafted = replace(request, draft=DraftSettings(mode))
    model.capability  # noqa: B018  tried beforehand, so that calls are those of the reply
    written = list[str]()
    again = list[str]()
    device.words = FAILED + STOPPED[name]
    device.calls_left = calls
    with pytest.raises(DeviceStoppedError) as raised:
        write(session, drafted, written)
    assert str(raised.value) == (
        f"The system stopped the GPU's work for this reply ({name}). "
        "Try again. If it fails again, quit rdchat and open it again."
    )
    assert whole.startswith("".join(written))
    assert bool(written) == (calls == 20)
    assert (session.cache.tokens, positions(session.cache)) == ([], 0)
    assert model.pace.chunk == (4 if calls == 2 else 8)
    write(session, drafted, again)
    assert "".join(again) == whole


@pytest.mark.parametrize(
    ("words", "error"),
    [(WORDS, OutOfMemoryError), (INTERNAL, DeviceError), (FAILED + STOPPED["Hang"], DeviceStoppedError)],
)
def test_a_model_that_the_device_fails_to_run_is_said_plainly(
    device: Device, words: str, error: type[DeviceError]
) -> None:
    session = ChatSession(tiny_llama())
    device.words = words
    device.calls_left = 0
    with pytest.raises(error, match="to run tiny") as raised:
        session.warm_up()
    assert type(raised.value) is error


@pytest.mark.parametrize("words", [WORDS, FAILED + STOPPED["Timeout"], INTERNAL])
@pytest.mark.parametrize("calls", [0, 2])
def test_a_device_error_while_batches_are_tried_says_nothing_of_the_model(
    device: Device, words: str, calls: int
) -> None:
    """Training refused the model, and asked for another one."""
    model = tiny_llama()
    device.words = words
    device.calls_left = calls
    with pytest.raises(RuntimeError) as raised:
        check_batched_decoding(model)
    assert str(raised.value) == words
    check_batched_decoding(model)


def test_another_error_while_batches_are_tried_refuses_the_model(device: Device) -> None:
    device.words = "[broadcast_shapes] Shapes cannot be broadcast."
    device.calls_left = 0
    with pytest.raises(ModelError, match=r"cannot answer several questions at once.*broadcast"):
        check_batched_decoding(tiny_llama())


@pytest.mark.parametrize(
    "words",
    [
        "[METAL] Command buffer execution failed: Internal Error",
        "[METAL] Command buffer execution failed: Caused GPU Address Fault Error",
        "[METAL] Command buffer execution failed: Ignored",
        "[metal::Device] Unable to build metal library from source\nprogram_source:1:1: error",
        "[metal::Device] Unable to load kernel steel_gemm",
        "[metal::Device] Unable to load function vn",
        "[metal::Device] Unable to construct residency set.",
        "[metal::CommandEncoder] Failed to make new command queue.",
        "[metal::load_device] No Metal device available.",
        "[metal::anything] A later MLX says this.",
        "[Metal::binary] Must use 1024 sized block",
        "[Event::Event] Failed to create Metal shared event.",
    ],
)
def test_an_error_of_metal_says_nothing_of_the_model(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wrong capability was stored with the model."""

    def fail(*_: object) -> None:
        raise RuntimeError(words)

    assert is_device_error(RuntimeError(words))
    assert not is_device_error(ValueError(words))
    model = tiny_llama()
    monkeypatch.setattr(capability, "_Trial", fail)
    with pytest.raises(RuntimeError) as raised:
        capability.check_capability(model.network, model.hooks, model.info.vocabulary_size)
    assert str(raised.value) == words


@pytest.mark.parametrize(
    "words",
    ["[reshape] Cannot reshape array", "[metal_kernel] Only supports the GPU.", "[QRF::eval_gpu] Metal QR NYI."],
)
def test_what_a_model_asks_in_vain_of_metal_is_its_own(words: str) -> None:
    assert not is_device_error(RuntimeError(words))


REQUEST = ask("abcabcabcabcabcabc", seed=2, temperature=0.7, max_tokens=14)
HEADS = {"eagle3": eagle3_folder, "block": written_block, "xpress": partial(written_block, **XPRESS)}
MODES = [mode.value for mode in (Mode.OFF, Mode.LOOKUP, Mode.SPECULATIVE, Mode.AUTO)] + list(HEADS)


class LateDevice:
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
        assert not isinstance(session.drafters.load_drafters(settings, strict=True), str)
        yield session, replace(REQUEST, draft=settings)


@pytest.mark.parametrize(("mode", "late", "first"), share(pairs(MODES, [False, True], range(4)), 24))
@pytest.mark.across_rows
def test_whichever_evaluation_fails_the_text_is_right_and_the_next_reply_is_a_fresh_sessions(
    mode: str, late: bool, first: int, tmp_path: Path
) -> None:
    device = LateDevice()
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
    device = LateDevice()
    failures = 0
    with device.working():
        for evaluation in range(1000):
            model = tiny_llama()
            # Of equal models, others are not tried again in tests.
            check = partial(capability.check_capability, model.network, model.hooks, model.info.vocabulary_size)
            session = ChatSession(replace(model, try_out=cache(check)))
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


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_experts_that_a_cpu_computes_in_float32_alone_say_so(dtype: str) -> None:
    """The hint was to try again."""
    with mx.stream(mx.cpu), pytest.raises(DeviceError) as raised, device_errors("for this reply"):
        mx.eval(network_of("qwen3_moe", TREES["qwen3_moe"][1], dtype)(mx.array([[1, 2]])))
    assert "precision float32" in raised.value.hint
