"""Text from tokens: never half a character, stop strings across tokens, and the same whole text in the end."""

import random

import pytest

from rdchat.inference.decoding.detokenizer import DataOf, Detokenizer


def byte(token: int, _before: int | None) -> bytes:
    """Token i is byte i, so that characters beyond ASCII take several tokens."""
    return bytes([token])


def pieces(*texts: str) -> DataOf:
    """Token i is piece i."""
    return lambda token, _before: texts[token].encode()


def run(stream: Detokenizer, tokens: list[int]) -> list[str]:
    shown = []
    for token in tokens:
        shown.append(stream.add_token(token))
        if stream.stopped:
            break
    return [*shown, stream.last_text()]


def test_what_might_begin_a_stop_string_is_held_back_and_shown_if_it_does_not() -> None:
    stream = Detokenizer(pieces("a", "<", "|", "b"), stop=("<|end",))
    assert [stream.add_token(token) for token in range(4)] == ["a", "", "", "<|b"]


def test_earliest_of_several_stop_strings_wins() -> None:
    stream = Detokenizer(pieces("one two three"), stop=("three", "two"))
    assert stream.stop == ""
    run(stream, [0])
    assert (stream.text, stream.stop) == ("one ", "two")


def test_a_stop_string_where_none_may_end_the_text_is_passed_over() -> None:
    stream = Detokenizer(pieces("(a END b)", " EN", "D c"), stop=("END",))
    shown = [stream.add_token(token, lambda text, at: ")" in text[:at]) for token in range(3)]
    assert "".join(shown) == stream.text == "(a END b) "
    assert stream.stopped


def test_tokens_that_a_stop_string_cuts_are_not_kept() -> None:
    stream = Detokenizer(pieces("He", "llo", " wor", "ld", "!"), stop=("rld",))
    run(stream, [0, 1, 2, 3])
    assert stream.text == "Hello wo"
    assert stream.held_tokens == 2


def test_half_of_a_character_that_a_stop_string_cuts_is_not_kept() -> None:
    stream = Detokenizer(byte, stop=("😀",))
    run(stream, list("ok😀".encode()))
    assert stream.held_tokens == 2


def test_random_text_comes_out_whole_however_it_is_cut() -> None:
    rng = random.Random(1)
    for _ in range(200):
        text = "".join(rng.choice("ab é😀中\n<|") for _ in range(rng.randrange(30)))
        stops = ("<|a", "中é") if rng.random() < 0.7 else ()
        expected = text
        for stop in stops:
            expected = expected.split(stop)[0]
        shown = run(Detokenizer(byte, stop=stops, before=0x78), list(text.encode()))
        assert "".join(shown) == expected
        assert all("\ufffd" not in piece for piece in shown)


@pytest.mark.parametrize("seed", range(20))
def test_control_tokens_are_found_where_they_stand_and_only_there(seed: int) -> None:
    """The same characters may also come of ordinary tokens."""
    texts = "<t>", "<", "t", ">", "a", " "
    tokens = random.Random(seed).choices(range(6), k=30)
    stream = Detokenizer(pieces(*texts), stop=("a a",), control={0: "<t>"}, before=4)
    found = []
    for token in tokens:
        stream.add_token(token)
        found += stream.control_offsets(token)
        if stream.stopped:
            break
    begins = [sum(len(texts[token]) for token in tokens[:place]) for place, t in enumerate(tokens) if t == 0]
    assert [offset for offset in found if offset < len(stream.text)] == [
        each for each in begins if each < len(stream.text)
    ]


def test_a_space_that_a_fresh_reply_drops_is_counted_off() -> None:
    stream = Detokenizer(pieces(" ", "<t>"), control={1: "<t>"})
    found = [stream.control_offsets(token) for token in (0, 1, 0, 1) if stream.add_token(token) is not None]
    assert (stream.text, found) == ("<t> <t>", [[], [0], [], [4]])


def test_a_stop_string_of_a_megabyte_holds_nothing_up() -> None:
    """Each token compared a million beginnings of it with the text, copying each."""
    stream = Detokenizer(pieces("ab", "c"), stop=("ab" * 500_000,))
    shown = run(stream, [0] * 200 + [1])
    assert "".join(shown) == "ab" * 200 + "c"
    assert shown[199] == ""  # held back, as it may be the beginning
