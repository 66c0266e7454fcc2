"""Turns between clients."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from rdchat.inference.api import (
    ChatMessage,
    FinishReason,
    GenerationEvent,
    GenerationRequest,
    PrefillProgress,
    ReplyEnd,
    Role,
    Statistics,
)
from rdchat.server.interfaces.chat_messages import SentImage
from rdchat.server.interfaces.fields import ApiError
from rdchat.server.interfaces.reply_request import Prompt, ReplyRequest
from rdchat.server.request_queue import Job, RequestQueue
from rdchat.server.served_models import Stop
from rdchat.server.server_settings import Limits, ServerSettings
from tests.server.fakes import KEY, MODEL, ScriptedGate


def run(
    gate: ScriptedGate, use: Callable[[RequestQueue], Awaitable[None]], max_waiting: int = 100, *, loads: bool = False
) -> None:
    """Use a queue on an event loop, with an engine that writes nothing yet."""

    async def use_queue() -> None:
        gate.gate.shut()
        settings = ServerSettings(KEY, may_load_models=loads, limits=Limits(queue_length=max_waiting))
        await use(RequestQueue(settings, gate, lambda _facts: None))

    asyncio.run(use_queue())


def asked(name: str, images: int = 0, model: str = "") -> ReplyRequest:
    """Return a request with images that are read."""
    seen = tuple(SentImage(Path("none"), str(number), 8, 8) for number in range(images))
    return ReplyRequest(model, (Prompt((ChatMessage(Role.USER, name, images=seen),)),), {}, seed=1)


def submit(queue: RequestQueue, name: str, images: int = 0, model: str = "") -> Job:
    """Submit a request of the client that the name begins with."""
    return queue.submit(name[0], "/v1/messages", name, asked(name, images, model))


class Images:
    """Images of requests, which are read when the test says so."""

    def __init__(self) -> None:
        self.read = list[str]()
        self.free = threading.Event()

    def submit(self, queue: RequestQueue, name: str, images: int = 1) -> Job:
        results: list[ReplyRequest | None] = [asked(name), *[None] * (images - 1)]

        def read() -> ReplyRequest | None:
            self.read.append(name)
            assert self.free.wait(60)
            if name.endswith("!"):
                raise ApiError(400, "no image")
            return results.pop()

        return queue.submit(name[0], "/v1/messages", name, asked(name), read)


def waiting(queue: RequestQueue) -> list[str]:
    return [facts.user_agent for facts in queue.facts.waiting]


async def end_of(job: Job) -> Exception | None:
    """Wait for the end of a request; return its error."""
    while (part := await job.parts.get()) is not None:
        if isinstance(part, Exception):
            return part
    return None


IN_TURN = pytest.mark.parametrize(
    ("names", "turns"),
    [
        (["a0", "a1", "a2", "a3", "b1"], ["a0", "b1", "a1", "a2", "a3"]),
        (["a0", "a1", "b1", "b2", "c1", "a2"], ["a0", "b1", "c1", "a1", "b2", "a2"]),
    ],
)


@IN_TURN
def test_clients_take_turns(gate: ScriptedGate, names: list[str], turns: list[str]) -> None:
    async def use(queue: RequestQueue) -> None:
        jobs = [submit(queue, name) for name in names]
        assert waiting(queue) == turns[1:]
        gate.gate.open()
        assert [await end_of(job) for job in jobs] == [None] * len(jobs)
        assert not waiting(queue)
        assert queue.facts.answered == len(jobs)

    run(gate, use)
    assert [request.messages[0].content for request in gate.requests] == turns


@IN_TURN
@pytest.mark.parametrize("left", ["", "a1"])
def test_counts_of_clients_take_turns_and_those_of_who_left_none(
    gate: ScriptedGate, monkeypatch: pytest.MonkeyPatch, names: list[str], turns: list[str], left: str
) -> None:
    """Sixty long prompts of clients that had left held up the count of another one for a minute."""
    counted = list[str]()

    def count(request: GenerationRequest) -> int:
        counted.append(request.messages[0].content)
        gate.gate.wait()
        return 7

    monkeypatch.setattr(gate, "count_tokens", count)

    async def use(queue: RequestQueue) -> None:
        counts = {each: asyncio.ensure_future(queue.count_prompt(each[0], asked(each), 0, MODEL)) for each in names}
        while not counted:
            await asyncio.sleep(0.01)
        if left:
            counts[left].cancel()
            # The count that is under way is not repeated beside the next one.
            counts[names[0]].cancel()
            await settled()
            assert counted == names[:1]
        gate.gate.open()
        results = await asyncio.gather(*counts.values(), return_exceptions=True)
        assert results.count(7) == len(names) - 2 * bool(left)

    run(gate, use)
    assert counted == [each for each in turns if each != left]


def test_a_request_that_is_stopped_takes_no_turn(gate: ScriptedGate) -> None:
    async def use(queue: RequestQueue) -> None:
        jobs = {name: submit(queue, name) for name in ("a0", "a1", "b1", "c1")}
        queue.stop_request(jobs["b1"], ApiError(503, "stopped"))
        assert waiting(queue) == ["c1", "a1"]
        assert await end_of(jobs["b1"]) == ApiError(503, "stopped")
        queue.stop_request(jobs["a0"], ApiError(503, "stopped"))
        gate.gate.open()
        assert await end_of(jobs["a1"]) is None

    run(gate, use)
    assert [request.messages[0].content for request in gate.requests] in (["c1", "a1"], ["a0", "c1", "a1"])


def test_a_stopped_reply_ends_at_once_and_the_next_one_when_the_engine_has_stopped(gate: ScriptedGate) -> None:
    async def use(queue: RequestQueue) -> None:
        first = submit(queue, "a0")
        second = submit(queue, "b0")
        await first.parts.get()
        queue.stop_request(first, ApiError(503, "stopped"))
        assert await end_of(first) == ApiError(503, "stopped")
        assert waiting(queue) == ["b0"]
        gate.gate.open()
        assert await end_of(second) is None

    run(gate, use)
    assert gate.cancelled == 1


def test_no_client_waits_for_the_images_of_others(gate: ScriptedGate) -> None:
    """Six requests with large images took all threads, and nobody else got an answer."""
    images = Images()

    async def use(queue: RequestQueue) -> None:
        gate.gate.open()
        large = [images.submit(queue, f"a{number}") for number in range(8)]
        behind = submit(queue, "a9")
        assert await end_of(submit(queue, "b1")) is None
        assert await queue.models.listed()
        while not images.read:
            await asyncio.sleep(0.01)
        assert images.read == ["a0"]
        assert behind.parts.empty()
        images.free.set()
        assert [await end_of(job) for job in [*large, behind]] == [None] * 9
        assert [request.messages[0].content for request in gate.requests] == ["b1", *(f"a{n}" for n in range(8)), "a9"]

    run(gate, use)


def test_images_are_read_in_turns_and_those_of_clients_that_left_are_not(gate: ScriptedGate) -> None:
    images = Images()

    async def use(queue: RequestQueue) -> None:
        gate.gate.open()
        jobs = {name: images.submit(queue, name) for name in ("a0", "a1", "a2", "b0!")}
        behind = submit(queue, "a3")
        await asyncio.sleep(0)
        for name in ("a0", "a1"):
            queue.stop_request(jobs[name], ApiError(499, "left"))
        images.free.set()
        assert isinstance(await end_of(jobs["b0!"]), ApiError)
        assert await end_of(jobs["a2"]) is None
        assert await end_of(behind) is None
        assert "a1" not in images.read
        assert queue.facts.answered == 5

    run(gate, use)


def test_requests_with_images_are_among_those_that_may_wait(gate: ScriptedGate) -> None:
    images = Images()

    async def use(queue: RequestQueue) -> None:
        first = images.submit(queue, "a0")
        second = images.submit(queue, "a1")
        with pytest.raises(ApiError, match="Too many"):
            images.submit(queue, "a2")
        images.free.set()
        gate.gate.open()
        assert [await end_of(first), await end_of(second)] == [None, None]

    run(gate, use, max_waiting=2)


class PausingGate(ScriptedGate):
    """An engine whose events come when the test says so: the last reply that began pauses the one before it."""

    def __init__(self) -> None:
        super().__init__()
        self.running = list[tuple[str, Callable[[GenerationEvent | ApiError], object]]]()
        self.begun = list[str]()

    def generate(self, request: GenerationRequest, on_event: Callable[[GenerationEvent | ApiError], object]) -> Stop:
        name = request.messages[0].content
        self.begun.append(name)
        self.running.append((name, on_event))
        return lambda: None

    async def go_on(self, images: int | None = None) -> str:
        """Let the last reply end, or see an image with so many left; return which one it was."""
        name, take = self.running[-1]
        if images is not None:
            take(PrefillProgress(0, 2, 8, 2, images=images))
        else:
            self.running.pop()
            take(ReplyEnd(0, "", (), "", FinishReason.EOS, Statistics()))
        await settled()
        return name


async def settled() -> None:
    """Let the tasks of a queue do what they can do now."""
    for _ in range(50):
        await asyncio.sleep(0)


@pytest.fixture
def pausing() -> Iterator[PausingGate]:
    gate = PausingGate()
    yield gate
    gate.close()


def test_replies_without_images_come_between_the_images_of_another_client(pausing: PausingGate) -> None:
    """A text waited for the decoding and the tower of all images before it."""

    async def use(queue: RequestQueue) -> None:
        submit(queue, "a0", 3)
        for name in ("a1", "c0", "c1"):
            submit(queue, name)
        submit(queue, "b0", 3)
        await settled()
        assert pausing.begun == ["a0"], "its first image may be its last one"
        await pausing.go_on(3)
        assert pausing.begun == ["a0", "c0"]
        while queue.facts.running is None or queue.facts.running.user_agent != "c0":
            await asyncio.sleep(0.01)
        assert waiting(queue) == ["a0", "b0", "a1", "c1"]
        assert await pausing.go_on() == "c0"
        assert await pausing.go_on(3) == "a0"
        assert pausing.begun == ["a0", "c0"], "each other client has one turn"
        other = submit(queue, "d0")
        await settled()
        assert await pausing.go_on() == "d0"
        assert await end_of(other) is None
        assert await pausing.go_on(1) == "a0"
        submit(queue, "e0")
        await settled()
        assert [await pausing.go_on() for _ in range(5)] == ["a0", "b0", "e0", "a1", "c1"]
        assert not waiting(queue)

    run(pausing, use)


@pytest.mark.parametrize(
    ("images", "model", "loads", "comes_between"),
    [(1, "", True, False), (0, MODEL.name, True, False), (0, MODEL.name, False, True)],
)
def test_images_and_a_model_to_load_wait_for_the_reply(
    pausing: PausingGate, images: int, model: str, loads: bool, comes_between: bool
) -> None:
    async def use(queue: RequestQueue) -> None:
        submit(queue, "a0", 3)
        submit(queue, "b0", images, model)
        await settled()
        await pausing.go_on(3)
        assert pausing.begun == ["a0", "b0"][: 1 + comes_between]
        await pausing.go_on()
        assert pausing.begun == ["a0", "b0"]
        queue.close_queue()

    run(pausing, use, loads=loads)


def test_paused_request_can_be_stopped(pausing: PausingGate) -> None:
    async def use(queue: RequestQueue) -> None:
        first = submit(queue, "a0", 3)
        second = submit(queue, "b0")
        await settled()
        await pausing.go_on(3)
        queue.cancel_request(first.facts.request_id)
        assert isinstance(await end_of(first), ApiError)
        assert await pausing.go_on() == "b0"
        assert await end_of(second) is None
        assert await pausing.go_on() == "a0"
        assert not waiting(queue)

    run(pausing, use)


def test_images_of_requests_are_read_in_turns(gate: ScriptedGate) -> None:
    """One image waited for the hundred of a request before it."""
    images = Images()
    images.free.set()

    async def use(queue: RequestQueue) -> None:
        gate.gate.open()
        many = images.submit(queue, "a0", 9)
        one = images.submit(queue, "b0")
        assert await end_of(one) is None
        assert images.read[:2] == ["a0", "b0"]
        assert await end_of(many) is None
        assert images.read.count("a0") == 9

    run(gate, use)
