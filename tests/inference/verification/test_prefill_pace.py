"""Chunks of a prompt are as long as cancelling allows."""

from collections.abc import Callable

import pytest

from rdchat.inference.verification.target import MAX_TOKENS, PrefillPace


def after(pace: PrefillPace, seconds: Callable[[int], float], chunks: int = 20) -> list[int]:
    """Read so many chunks on a machine that takes `seconds` for a chunk; return their tokens."""
    taken = []
    for _ in range(chunks):
        taken.append(pace.chunk)
        pace.record_time(pace.chunk, seconds(pace.chunk))
    return taken


@pytest.mark.parametrize(
    ("per_token", "settled"),
    [(1e-5, 2048), (1e-4, 2048), (1.5e-4, 2048), (4e-4, 512), (2e-3, 128), (5e-3, 64), (9e-3, 32), (4e-2, 8)],
)
def test_a_chunk_grows_to_what_stop_allows(per_token: float, settled: int) -> None:
    chunks = after(PrefillPace(128), lambda tokens: tokens * per_token)
    assert set(chunks[-5:]) == {settled}
    assert settled * per_token <= 0.5
    assert settled == MAX_TOKENS or 2 * settled * per_token > 0.4


def test_after_the_first_no_chunk_takes_longer_than_half_a_second() -> None:
    """Time grows with the context; and a machine is slower for a while."""
    pace = PrefillPace(128)
    depth = 0
    for number in range(200):
        seconds = pace.chunk * (1e-4 + depth * 2e-8) + 0.01
        assert seconds <= 0.5
        depth += pace.chunk
        pace.record_time(pace.chunk, seconds)
        if number == 5:
            assert pace.chunk == MAX_TOKENS
    assert pace.chunk < MAX_TOKENS


def test_a_far_too_long_chunk_is_followed_by_one_that_fits() -> None:
    pace = PrefillPace(2048)
    pace.record_time(2048, 3.0)
    assert pace.chunk == 128
    pace.record_time(128, 30.0)
    assert pace.chunk == 8


def test_the_short_chunk_at_a_prompts_end_says_nothing_of_a_long_one() -> None:
    pace = PrefillPace(128)
    pace.record_time(3, 0.001)
    pace.record_time(3, 0.3)  # a large model reads all its weights for three tokens
    assert pace.chunk == 128
    pace.record_time(70, 0.6)
    assert pace.chunk == 32


def test_a_fixed_pace_stays() -> None:
    assert set(after(PrefillPace(8, 8, 8), lambda _: 9.0)) == {8}
    assert set(after(PrefillPace(8, 8, 8), lambda _: 0.0)) == {8}


def test_after_a_chunk_that_the_system_stopped_all_chunks_take_half_the_time() -> None:
    pace = PrefillPace(128)
    assert after(pace, lambda tokens: tokens * 4e-4)[-1] == 512
    pace.shorten()
    assert pace.chunk == 256
    assert set(after(pace, lambda tokens: tokens * 4e-4)[-5:]) == {256}
    for _ in range(20):
        pace.shorten()
    assert pace.chunk == 8
    assert set(after(pace, lambda tokens: tokens * 4e-4)[-5:]) == {64}  # not ever shorter


def test_chunks_that_are_not_stopped_win_their_time_back() -> None:
    pace = PrefillPace(128)
    for _ in range(20):
        pace.shorten()
    assert set(after(pace, lambda tokens: tokens * 4e-4, 300)[-5:]) == {512}
