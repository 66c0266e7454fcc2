"""Ranks of real models, killed and stopped at random moments: a plain message, nothing lost, no process left."""

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
    reply = engine.generate(request(mode, tokens))
    assert engine._ranks is not None
    children = [psutil.Process(child.pid) for child in engine._ranks._children]
    descendants = [each for child in children for each in child.children(recursive=True)]
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

    with closing(RanksEngine(deadline_s=DEADLINE_S)) as engine:
        engine.load(address, Dtype.AUTO, lambda _progress: None)
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
