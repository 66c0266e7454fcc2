"""What the index of earlier replies finds, and how many of them it has."""

import numpy as np
import pytest

from rdchat.inference.drafting.lookup_index import DEEPEST
from rdchat.inference.drafting.reply_index import BUILT_TOKENS, MAX_TOKENS, ReplyIndex


def index_of(*replies: list[int]) -> ReplyIndex:
    return ReplyIndex(dict(enumerate(replies)))


def found(index: ReplyIndex, ending: list[int]) -> list[tuple[int, list[int]]]:
    return [(match.length, list(match.following)) for match in index.matches(ending)]


def all_places(replies: list[list[int]], ending: list[int]) -> list[tuple[int, list[int]]]:
    """Return what `matches` may return, by comparing every position of every reply."""
    every = []
    for reply in replies:
        for end in range(1, len(reply)):
            agree = [reply[end - 1 - n] == ending[-1 - n] for n in range(min(end, len(ending), 32))]
            if match := [*agree, False].index(False):
                every.append((match, reply[end : end + DEEPEST]))
    return every


@pytest.mark.parametrize("seed", range(10))
def test_what_is_found_follows_the_same_tokens(seed: int) -> None:
    rng = np.random.default_rng(seed)
    symbols = 2 + seed
    replies = [rng.integers(0, symbols, size=int(rng.integers(1, 40))).tolist() for _ in range(30)]
    replies[3] = []
    index = index_of(*replies)
    for length in (1, 2, 5, 12, 60):
        ending = rng.integers(0, symbols + 1, size=length).tolist()
        places = found(index, ending)
        every = all_places(replies, ending)
        longest = max((match for match, _ in every), default=0)
        assert all(place in every for place in places)
        assert len(places) <= 12
        assert bool(places) == bool(every)
        if longest <= 6:
            assert max((match for match, _ in places), default=0) >= min(longest, 2)


def test_a_place_does_not_go_beyond_its_reply() -> None:
    index = index_of([1, 2, 3, 4], [5, 6, 7])
    assert found(index, [9, 2, 3]) == [(2, [4])]
    assert found(index, [4]) == found(index, [7]) == found(index, [9]) == found(index, []) == []
    assert found(index, [4, 5]) == [(1, [6, 7])], "a match ends where its reply begins"
    assert [match.earlier for match in index.matches([2, 3])] == [True]


def test_a_later_reply_is_found_too() -> None:
    index = index_of([1, 2, 3])
    index.add_reply(7, [8, 9, 10])
    index.add_reply(8, [11])
    assert found(index, [8, 9]) == [(2, [10])]
    assert found(index, [10]) == [], "the next reply does not follow"
    assert index.messages == {0, 7, 8}


def test_a_later_reply_for_which_there_is_no_room_is_left_out() -> None:
    index = index_of([1, 2, 3])
    index.add_reply(7, [8] * MAX_TOKENS)
    assert (index.messages, found(index, [8])) == ({0}, [])


@pytest.mark.slow
def test_the_newest_replies_are_kept_up_to_the_limit() -> None:
    index = index_of([1, 2, 3], [4] * BUILT_TOKENS, [7, 8, 9])
    assert found(index, [1, 2]) == [(2, [3])]
    assert found(index, [4])
    assert found(index, [7]) == []
    assert (index.messages, index.tokens) == ({0, 1}, BUILT_TOKENS)


def test_an_empty_index_finds_nothing() -> None:
    assert found(index_of(), [1]) == []
