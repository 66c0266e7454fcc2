"""Earlier replies in a file and since: what is found in them, and that they never change a text."""

from pathlib import Path

import numpy as np
import pytest

from rdchat.errors import ModelError
from rdchat.inference.drafting.lookup_index import DEEPEST
from rdchat.inference.drafting.reply_store import MOST_SINCE, ReplyStore, write_store


def store_of(folder: Path, *replies: list[int], grows: bool = True) -> ReplyStore:
    write_store(folder / "store", replies)
    return ReplyStore(folder / "store", grows)


def found(store: ReplyStore, ending: list[int]) -> list[tuple[int, list[int]]]:
    return [(place.match, list(place.following)) for place in store.places(ending)]


def all_places(replies: list[list[int]], ending: list[int]) -> list[tuple[int, list[int]]]:
    """Return what `places` may return, by comparing every place of every reply."""
    every = []
    for reply in replies:
        for place in range(1, len(reply)):
            agree = [reply[place - 1 - n] == ending[-1 - n] for n in range(min(place, len(ending), 32))]
            if match := [*agree, False].index(False):
                every.append((match, reply[place : place + DEEPEST]))
    return every


@pytest.mark.parametrize("seed", range(10))
def test_the_places_with_the_longest_matches_are_found(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    symbols = 2 + seed
    replies = [rng.integers(0, symbols, size=int(rng.integers(1, 40))).tolist() for _ in range(30)]
    replies[3] = []
    store = store_of(tmp_path, *replies)
    for length in (1, 2, 5, 12, 60):
        ending = rng.integers(0, symbols + 1, size=length).tolist()
        places, every = found(store, ending), all_places(replies, ending)
        matches = sorted((match for match, _ in every), reverse=True)
        assert all(place in every for place in places)
        assert min(len(every), 4) <= len(places) <= 12
        # beyond 16 tokens the order is any, and the last token of a reply is found though nothing follows it
        assert max((match for match, _ in places), default=0) >= min(max(matches, default=0), 16) - 1


def test_a_place_is_found_whole_and_does_not_go_beyond_its_reply(tmp_path: Path) -> None:
    store = store_of(tmp_path, [1, 2, 3, 4], [5, 6, 7])
    assert found(store, [9, 2, 3]) == [(2, [4])]
    assert found(store, [4]) == found(store, [7]) == found(store, [9]) == found(store, []) == []
    assert found(store, [4, 5]) == [(1, [6, 7])], "a match ends where its reply begins"
    assert [place.earlier for place in store.places([2, 3])] == [True]


def test_replies_since_are_found_until_there_are_too_many(tmp_path: Path) -> None:
    store = store_of(tmp_path, [1, 2, 3])
    store.add([8, 9, 10])
    store.add([11])
    assert found(store, [8, 9]) == [(2, [10])]
    assert found(store, [10]) == [], "the next reply does not follow"
    assert store.tokens == 4 + 4 + 2
    store.add([7] * MOST_SINCE)
    assert store.tokens == 10
    kept = store_of(tmp_path, [1, 2, 3], grows=False)
    kept.add([8, 9, 10])
    assert found(kept, [8, 9]) == []


def test_the_newest_replies_are_kept_up_to_the_limit(tmp_path: Path) -> None:
    assert write_store(tmp_path / "store", [[1, 2, 3], [4, 5, 6], [7, 8, 9]], most=6) == 6
    store = ReplyStore(tmp_path / "store")
    assert found(store, [1, 2]) == [(2, [3])]
    assert found(store, [4]) == [(1, [5])]
    assert found(store, [7]) == []
    assert (tmp_path / "store").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "store").stat().st_size <= 24 + 8 * 6


def test_an_empty_store_finds_nothing(tmp_path: Path) -> None:
    assert found(store_of(tmp_path), [1]) == []


@pytest.mark.parametrize("content", [b"", b"rdchat", b"rdchat replies 1" + b"\xff" * 8, b"x" * 100])
def test_a_damaged_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "store").write_bytes(content)
    with pytest.raises(ModelError, match="damaged"):
        ReplyStore(tmp_path / "store")


def test_a_damaged_order_gives_wrong_places_and_no_error(tmp_path: Path) -> None:
    store_of(tmp_path, list(range(20)), list(range(20)))
    data = (tmp_path / "store").read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(50):
        (tmp_path / "store").write_bytes(data[:24] + rng.bytes(len(data) - 24))
        ReplyStore(tmp_path / "store").places([3, 4, 5])
