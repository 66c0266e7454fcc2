"""Turns between clients."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from rdchat.inference.api.messages import ChatMessage, Role
from rdchat.server.interfaces.api_error import ApiError
from rdchat.server.interfaces.reply_request import Prompt, ReplyRequest
from rdchat.server.request_queue import Job, RequestQueue
from rdchat.server.settings import ServerSettings
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


def test_only_so_many_wait(gate: ScriptedGate) -> None:
    async def use(queue: RequestQueue) -> None:
        submit(queue, "a0")
        submit(queue, "a1")
        with pytest.raises(ApiError) as refused:
            submit(queue, "b1")
        assert refused.value.status == 429
        queue.close()

    run(gate, use, max_waiting=1)


def test_a_request_that_is_stopped_takes_no_turn(gate: ScriptedGate) -> None:
    async def use(queue: RequestQueue) -> None:
        jobs = {name: submit(queue, name) for name in ("a0", "a1", "b1", "c1")}
        queue.stop(jobs["b1"], ApiError(503, "stopped"))
        assert waiting(queue) == ["c1", "a1"]
        assert await end_of(jobs["b1"]) == ApiError(503, "stopped")
        queue.stop(jobs["a0"], ApiError(503, "stopped"))
        gate.gate.open()
        assert await end_of(jobs["a1"]) is None

    run(gate, use)
    assert [request.messages[0].content for request in gate.requests] in (["c1", "a1"], ["a0", "c1", "a1"])


def test_a_stopped_reply_ends_at_once_and_the_next_one_when_the_engine_has_stopped(gate: ScriptedGate) -> None:
    async def use(queue: RequestQueue) -> None:
        first, second = submit(queue, "a0"), submit(queue, "b0")
        await first.parts.get()
        queue.stop(first, ApiError(503, "stopped"))
        assert await end_of(first) == ApiError(503, "stopped")
        assert waiting(queue) == ["b0"]
        gate.gate.open()
        assert await end_of(second) is None

    run(gate, use)
    assert gate.cancelled == 1
