"""Turns between clients."""

import asyncio

import pytest

from rdchat.server.fair_queue import FairQueue, QueueFullError


def order_of(*requests: str) -> list[str]:
    """Return the order in which requests named by their client's letter get their turns, the first one at once."""

    async def run() -> list[str]:
        queue, done = FairQueue[str](most=100), list[str]()

        async def ask(name: str) -> None:
            await queue.join(name[0], name)
            done.append(name)
            await asyncio.sleep(0)
            assert list(queue) == [each for each in order if each not in done]
            queue.leave()

        order = expected = [*requests]
        tasks = [asyncio.create_task(ask(name)) for name in requests]
        while len(done) < 1:
            await asyncio.sleep(0)
            order = [*done, *queue]
        await asyncio.gather(*tasks)
        assert len(done) == len(expected)
        return done

    return asyncio.run(run())


def test_clients_take_turns() -> None:
    assert order_of("a0", "a1", "a2", "a3", "b1") == ["a0", "b1", "a1", "a2", "a3"]
    assert order_of("a0", "a1", "b1", "b2", "c1", "a2") == ["a0", "b1", "c1", "a1", "b2", "a2"]


def test_only_so_many_wait() -> None:
    async def run() -> None:
        queue = FairQueue[str](most=1)
        await queue.join("a", "a0")
        queue.join("a", "a1")
        with pytest.raises(QueueFullError):
            queue.join("b", "b1")

    asyncio.run(run())


def test_who_gives_up_takes_no_turn() -> None:
    async def run() -> None:
        queue = FairQueue[str](most=9)
        await queue.join("a", "a0")
        first, second, third = queue.join("a", "a1"), queue.join("b", "b1"), queue.join("c", "c1")
        second.cancel()
        queue.give_up("b", second)
        assert list(queue) == ["c1", "a1"]
        queue.leave()
        assert third.done()
        queue.give_up("c", third)  # at the moment when its turn came
        await first
        assert not len(queue)

    asyncio.run(run())


def test_a_wait_that_fails() -> None:
    async def run() -> None:
        queue = FairQueue[str](most=9)
        await queue.join("a", "a0")
        turn = queue.join("a", "a1")
        assert queue.fail("a1", ValueError("stopped"))
        assert not queue.fail("a0", ValueError("it runs"))
        with pytest.raises(ValueError, match="stopped"):
            await turn
        queue.give_up("a", turn)
        assert not len(queue)

    asyncio.run(run())
