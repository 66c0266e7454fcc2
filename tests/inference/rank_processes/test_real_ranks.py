"""Ranks of real models: at rest, and killed and stopped at random moments, where nothing is lost and nothing left."""

import os
import signal
import time
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path
from random import Random

import psutil
import pytest

from rdchat.errors import ModelError
from rdchat.inference.api import (
    ChatMessage,
    DraftSettings,
    Dtype,
    GenerationRequest,
    Mode,
    Role,
    SamplingParams,
    TokenEvent,
    ranked_address,
)
from rdchat.inference.rank_processes.ranks_engine import RanksEngine
from tests.inference.threads import load_silently

# A rank that is stopped is found after at most half of it.
DEADLINE_S = 30.0
# The first one is killed. Ranks that are stopped, without MLX: `test_a_rank_that_is_killed_or_hangs_ends_the_reply`.
KILLS = int(os.environ.get("KILLS", "1"))
MODES = (Mode.OFF, Mode.LOOKUP, Mode.AUTO)


def request(mode: Mode, tokens: int) -> GenerationRequest:
    sampling = SamplingParams(temperature=0.9, max_tokens=tokens)
    return GenerationRequest((ChatMessage(Role.USER, "List the months."),), sampling, 7, draft=DraftSettings(mode))


def text_of(events: list[object]) -> str:
    return "".join(event.text for event in events if isinstance(event, TokenEvent))


def harm(engine: RanksEngine, ranks: int, tokens: int, draw: Random, expected: Callable[[Mode], str]) -> None:
    """Kill or stop a rank during a reply, and look at what is left; the next reply starts the ranks again."""
    mode = draw.choice(MODES)
    rank = draw.randrange(ranks)
    fault = draw.choice([signal.SIGKILL, signal.SIGSTOP])
    whole = expected(mode)
    # The processes are looked up before the reply, which goes on meanwhile and might end.
    engine.wake()
    assert engine._ranks is not None
    children = [psutil.Process(child.pid) for child in engine._ranks._children]
    descendants = [each for child in children for each in child.children(recursive=True)]
    reply = engine.generate(request(mode, tokens))
    events: list[object] = [next(reply) for _ in range(draw.randrange(1, 20))]
    os.kill(children[rank].pid, fault)
    began = time.monotonic()
    with pytest.raises(ModelError, match=r"The process on this Mac (was|does not answer)") as caught:
        events += reply
    assert time.monotonic() - began < DEADLINE_S
    assert caught.value.hint
    assert whole.startswith(text_of(events))
    _, alive = psutil.wait_procs([*children, *descendants], timeout=DEADLINE_S)
    assert not alive


def check(address: str, ranks: int, tokens: int, times: int) -> None:
    @cache
    def expected(mode: Mode) -> str:
        return text_of(list(engine.generate(request(mode, tokens))))

    with pytest.MonkeyPatch.context() as patch, closing(RanksEngine()) as engine:
        patch.setattr("rdchat.inference.rank_processes.processes.DEADLINE_S", DEADLINE_S)
        load_silently(engine, address)
        for number in range(times):
            harm(engine, ranks, tokens, Random(number), expected)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_tiny_model_over_two_ranks(small_model: Path) -> None:
    """With KILLS=50 it takes a quarter of an hour."""
    address = ranked_address(("localhost", "localhost"), str(small_model))
    check(address, 2, 200, KILLS)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.skipif(KILLS < 10, reason="each takes a minute: KILLS=50 has five")
def test_the_default_model_over_three_ranks(default_model: Path) -> None:
    check(ranked_address(("localhost",) * 3, None), 3, 24, KILLS // 10)


def share_of_a_processor(process: psutil.Process) -> float:
    """Return how much of a second it computed."""
    before = sum(process.cpu_times()[:2])
    time.sleep(0.3)
    return (sum(process.cpu_times()[:2]) - before) / 0.3


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_resting_rank_takes_no_processor(small_model: Path) -> None:
    """Until it rests, it looks for a message all the time. Nobody else can connect, and the text stays the same."""
    engine = RanksEngine()
    asked = request(Mode.AUTO, 12)
    engine.load(ranked_address(("localhost", "localhost"), str(small_model)), Dtype.AUTO, lambda _progress: None)
    assert engine._ranks is not None
    processes = [psutil.Process(child.pid) for child in engine._ranks._children]
    try:
        before = text_of(list(engine.generate(asked)))
        assert not any(each.status == psutil.CONN_LISTEN for one in processes for each in one.net_connections())
        while share_of_a_processor(processes[1]) < 0.2:
            pass
        engine.rest()
        while any(share_of_a_processor(each) > 0.1 for each in processes):
            pass
        assert text_of(list(engine.generate(asked))) == before
    finally:
        engine.close()
    assert not any(each.is_running() for each in processes)
