"""Ranks of a real model at rest, and what they keep open."""

import time
from pathlib import Path

import psutil
import pytest

from rdchat.inference.api import ChatMessage, Dtype, GenerationRequest, Role, SamplingParams, TokenEvent, ranked_address
from rdchat.inference.rank_processes.ranks_engine import RanksEngine

REQUEST = GenerationRequest((ChatMessage(Role.USER, "List the months."),), SamplingParams(max_tokens=12), 7)


def text_of(engine: RanksEngine) -> str:
    return "".join(event.text for event in engine.generate(REQUEST) if isinstance(event, TokenEvent))


def share_of_a_processor(process: psutil.Process) -> float:
    """Return how much of a second it computed."""
    before = sum(process.cpu_times()[:2])
    time.sleep(1)
    return sum(process.cpu_times()[:2]) - before


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_resting_rank_takes_no_processor(small_model: Path) -> None:
    """Until it rests, it looks for a message all the time. Nobody else can connect, and the text stays the same."""
    engine = RanksEngine()
    engine.load(ranked_address(("localhost", "localhost"), str(small_model)), Dtype.AUTO, lambda _progress: None)
    assert engine._ranks is not None
    processes = [psutil.Process(child.pid) for child in engine._ranks._children]
    try:
        before = text_of(engine)
        assert not any(each.status == psutil.CONN_LISTEN for one in processes for each in one.net_connections())
        while engine.idle():
            pass
        while share_of_a_processor(processes[1]) < 0.2:
            pass
        engine.rest()
        while any(share_of_a_processor(each) > 0.1 for each in processes):
            pass
        assert text_of(engine) == before
    finally:
        engine.close()
    assert not any(each.is_running() for each in processes)
