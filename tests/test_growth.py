"""The measure of growth sees what grows faster, and nothing else."""

import re

import pytest

from tests import growth
from tests.growth import SHAPES, assert_grows_no_faster, repeated


@pytest.mark.parametrize("shape", ["only a letter", "combining marks", "lists in lists"])
def test_one_pass_grows_with_the_text(shape: str) -> None:
    assert_grows_no_faster(lambda text: [sign for sign in text if sign == "b"], SHAPES[shape])


def test_a_pattern_that_goes_back_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "_MOST_TRIES", 1)
    with pytest.raises(AssertionError, match=r"characters took .* s, 4 times as many"):
        assert_grows_no_faster(re.compile(r"\s+x").search, repeated(" "), longest=8_000)


def test_a_reader_that_tries_a_bounded_number_of_times_passes() -> None:
    def tries(text: str) -> None:
        for at in range(0, min(len(text), 4_000), 10):
            text[at:4_000].count("b")
            text[at:4_000].count("c")

    assert_grows_no_faster(tries, repeated("a"))


def test_memory_that_grows_faster_is_seen() -> None:
    with pytest.raises(AssertionError, match=r"bytes, 4 times as many"):
        assert_grows_no_faster(lambda text: bytes((len(text) // 40) ** 2), repeated("a"), longest=200_000)
