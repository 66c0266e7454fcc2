"""Prompt lookup: what followed the same ending before, however the text came in."""

import numpy as np
import pytest

from rdchat.inference.drafting.lookup_index import LONGEST, SHORTEST, LookupIndex


def simply(tokens: list[int], length: int) -> list[int]:
    """Look at every earlier place, latest first, for every run, longest first."""
    for run in range(min(LONGEST, len(tokens) - 1), SHORTEST - 1, -1):
        for end in range(len(tokens) - 1, run - 1, -1):
            if tokens[end - run : end] == tokens[-run:]:
                copied = list(tokens[end:])
                return [copied[i % len(copied)] for i in range(length)]
    return []


@pytest.mark.parametrize("seed", range(20))
def test_it_is_what_a_plain_search_finds_whenever_it_is_asked(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tokens = rng.integers(0, 3, size=80).tolist()
    index, held = LookupIndex(tokens[:10]), 10
    while held < len(tokens):
        added = int(rng.integers(1, 7))
        index.extend(tokens[held : held + added])
        held += added
        if rng.random() < 0.6:
            assert index.continuation(9) == simply(tokens[:held], 9)


def test_a_match_is_as_long_as_both_places_agree() -> None:
    index = LookupIndex([1, 2, 3, 4, 5, 9, 2, 3, 4, 5])
    assert [(guess.token, guess.match) for guess in index.guesses(2)] == [(9, 4), (2, 5)]
    index.extend([7])
    assert index.guesses(2) == []


def test_a_match_is_counted_beyond_what_is_looked_up_by_and_up_to_a_limit() -> None:
    text = list(range(20))
    assert LookupIndex([*text, 99, *text]).guesses(1)[0].match == 20
    text = list(range(60))
    assert LookupIndex([*text, 99, *text]).guesses(1)[0].match == 32


def seen_before(tokens: list[int]) -> list[int]:
    """Return how long the endings are that occurred before, shortest first."""
    lengths = range(SHORTEST, min(LONGEST, len(tokens) - 1) + 1)
    return [n for n in lengths if any(tokens[end - n : end] == tokens[-n:] for end in range(n, len(tokens)))]


@pytest.mark.parametrize("seed", range(20))
def test_each_guess_is_told_how_the_text_went_on_before(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tokens = rng.integers(0, 3 + seed % 4, size=60).tolist()
    index, held = LookupIndex(tokens[:4]), 4
    while held < len(tokens):
        added = int(rng.integers(1, 5))
        index.extend(tokens[held : held + added])
        held += added
        copied, guesses = index.continuation(6), index.guesses(6)
        assert [guess.token for guess in guesses] == copied
        assert [min(guess.match, LONGEST) for guess in guesses[:1]] == seen_before(tokens[:held])[-1:]
        assert [guess.match for guess in guesses] == [guesses[0].match + depth for depth in range(len(copied))]


def test_there_is_no_guess_in_a_text_too_short_to_look_anything_up() -> None:
    assert LookupIndex([]).guesses(3) == LookupIndex([1]).guesses(3) == LookupIndex([1, 2]).guesses(3) == []
