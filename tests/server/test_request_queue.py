"""Turns between clients."""

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from rdchat.inference.api.messages import ChatMessage, Role
from rdchat.server.interfaces.fields import ApiError
from rdchat.server.interfaces.reply_request import Prompt, ReplyRequest
from rdchat.server.request_queue import Job, RequestQueue
from rdchat.server.server_settings import ServerSettings
from tests.server.fakes import KEY, ScriptedGate


def run(gate: ScriptedGate, use: Callable[[RequestQueue], Awaitable[None]], max_waiting: int = 100) -> None:
    """Use a queue on an event loop, with an engine that writes nothing yet."""

    async def use_queue() -> None:
        gate.gate.shut()
        await use(RequestQueue(ServerSettings(KEY, queue_length=max_waiting), gate, lambda _facts: None))

    asyncio.run(use_queue())


def submit(queue: RequestQueue, name: str) -> Job:
    """Submit a request of the client that the name begins with."""
    prompt = Prompt((ChatMessage(Role.USER, name),))
    return queue.submit(name[0], "/v1/messages", name, ReplyRequest("", (prompt,), {}, seed=1))


class Images:
    """Images of requests, which are read when the test says so."""

    def __init__(self) -> None:
        self.read = list[str]()
        self.free = threading.Event()

    def submit(self, queue: RequestQueue, name: str) -> Job:
        prompt = Prompt((ChatMessage(Role.USER, name),))
        request = ReplyRequest("", (prompt,), {}, seed=1)

        def read() -> ReplyRequest:
            self.read.append(name)
            assert self.free.wait(60)
            if name.endswith("!"):
                raise ApiError(400, "no image")
            return request

        return queue.submit(name[0], "/v1/messages", name, request, read)


def waiting(queue: RequestQueue) -> list[str]:
    return [facts.user_agent for facts in queue.facts.waiting]


async def end_of(job: Job) -> Exception | None:
    """Wait for the end of a request; return its error."""
    while (part := await job.parts.get()) is not None:
        if isinstance(part, Exception):
            return part
    return None


@pytest.mark.parametrize(
    ("names", "turns"),
    [
        (["a0", "a1", "a2", "a3", "b1"], ["a0", "b1", "a1", "a2", "a3"]),
        (["a0", "a1", "b1", "b2", "c1", "a2"], ["a0", "b1", "c1", "a1", "b2", "a2"]),
    ],
)
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


def test_request_beyond_the_waiting_limit_is_refused(gate: ScriptedGate) -> None:
    async def use(queue: RequestQueue) -> None:
        submit(queue, "a0")
        submit(queue, "a1")
        with pytest.raises(ApiError) as refused:
            submit(queue, "b1")
        assert refused.value.status == 429
        queue.close_queue()

    run(gate, use, max_waiting=1)


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
