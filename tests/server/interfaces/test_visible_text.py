"""What clients see of a growing reply."""

from typing import Any

import pytest

from rdchat.inference.api import FinishReason, PartsReader, markers_among
from tests.split_replies import client_of


def shown(text: str, cut: tuple[int, int] | None = None, *, begun: bool = False,
          finish: FinishReason = FinishReason.EOS, call_mark: str = "", **options: Any
) -> tuple[str, str]:  # fmt: skip
    """Return thought and answer of a client after a reply came letter by letter; `cut` is what a call took."""
    reader = PartsReader(begun, call_marks=(call_mark,) if call_mark else (), **options)
    return client_of(list(text), reader, finish=finish, cut=cut).streamed


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello, you.", ("", "Hello, you.")),
        ("  \n Hello  \n", ("", "  \n Hello  \n")),
        ("<think>Hm.</think>Yes.", ("Hm.", "Yes.")),
        ("a < b, and <b>", ("", "a < b, and <b>")),
        ("<think>All of it", ("All of it", "All of it")),
    ],
)
def test_thought_and_answer(text: str, expected: tuple[str, str]) -> None:
    assert shown(text) == expected


def test_a_thought_that_the_prompt_began() -> None:
    assert shown("Hm.</think>\n\nYes.", begun=True) == ("Hm.", "Yes.")


def test_a_thought_that_was_cut_off() -> None:
    assert shown("Hm, let me", begun=True, finish=FinishReason.LENGTH) == ("Hm, let me", "")


def test_raw_text_stays_as_it_is() -> None:
    assert shown("<think>x</think> y ", plain=True) == ("", "<think>x</think> y ")


def test_a_call_is_held_back() -> None:
    assert shown("So: <call>{}</call>", (4, 19), call_mark="<call>") == ("", "So: ")
    assert shown("<call>{}</call>", (0, 15), call_mark="<call>") == ("", "")


def test_text_that_only_began_like_a_call_comes_at_the_end() -> None:
    for text in ("A <cal", "A <call> that is none", "A  "):
        assert shown(text, call_mark="<call>") == ("", text)


@pytest.mark.parametrize(
    "text",
    [
        '{"a": "<think>x</think> y"}',
        '{"a": "</think>"}',
        "<think>x</think>",
        '"\n<answer>"',
        "<|channel|>final<|message|>x",
    ],
)
def test_markers_in_an_answer_with_a_shape_are_data(text: str) -> None:
    """The server once cut such an answer in two."""
    assert shown(text, shaped=True) == ("", text)
    assert shown(f"Hm <think> <b>.</think>\n\n{text}", shaped=True, begun=True) == ("Hm <think> <b>.", text)


def test_a_call_in_an_answer_with_a_shape_is_data() -> None:
    text = '{"a": "<call>{}</call>"}'
    assert shown(text, call_mark="<call>", shaped=True) == ("", text)


def test_a_thought_before_a_shape_that_was_cut_off() -> None:
    assert shown("Hm</thi", shaped=True, begun=True, finish=FinishReason.LENGTH) == ("Hm</thi", "")


THINK = frozenset({"<think>", "</think>"})


def shown_with_tokens(tokens: list[str], control: tuple[int, ...], markers: frozenset[str] = THINK, *,
                      begun: bool = False, cut: tuple[int, int] | None = None) -> tuple[str, str]:  # fmt: skip
    """Return thought and answer of a client after a reply came token by token."""
    reader = PartsReader(begun, markers=markers, call_marks=("<call>",))
    return client_of(tokens, reader, control=control, cut=cut).streamed


def test_where_a_model_has_tokens_the_characters_of_markers_are_text() -> None:
    """The server once cut such a reply in two."""
    spelled = ["Close it with ", "</", "think", ">", ", always."]
    whole = "".join(spelled)
    assert shown_with_tokens(spelled, ()) == ("", whole)
    assert shown_with_tokens(["Hm", *spelled], (), frozenset(), begun=True) == ("HmClose it with", ", always.")
    assert shown_with_tokens([*spelled, "</think>", "Yes."], (5,), begun=True) == (whole, "Yes.")
    assert shown_with_tokens(["<think>", *spelled, "</think>", "\n\n", *spelled], (0, 6)) == (whole, whole)
    opened = ["<", "think>", "\nas XML", "</think>"]
    assert shown_with_tokens(opened, ()) == ("", "".join(opened))


def test_a_long_answer_after_markers_in_text() -> None:
    tokens = ["Hm", "</think>", "A </think>\n<think>\n", *["word "] * 400, "</think>", " end"]
    assert shown_with_tokens(tokens, (1,), begun=True) == ("Hm", "".join(tokens[2:]))


def test_replies_with_the_same_text_and_other_tokens() -> None:
    tokens = ["Hm", "</think>", "Yes"]
    assert shown_with_tokens(tokens, (1,), begun=True) == ("Hm", "Yes")
    assert shown_with_tokens(tokens, (), begun=True) == ("Hm</think>Yes", "Hm</think>Yes")
    assert shown_with_tokens(tokens, (1,), begun=True) == ("Hm", "Yes")


def test_markers_around_a_call() -> None:
    tokens = ["<think>", "Hm", "</think>", "So </think>", "<call>{}</call>"]
    assert shown_with_tokens(tokens, (0, 2, 4), cut=(28, 43)) == ("Hm", "So </think>")


def test_a_marker_that_begins_with_a_token() -> None:
    markers = markers_among(["<|channel>", "<channel|>", "<eos>"])
    assert markers == {"<|channel>thought", "<channel|>"}
    tokens = ["<|channel>", "thought", "\nHm <channel|>", "<channel|>", "Yes <channel|>"]
    assert shown_with_tokens(tokens, (0, 3), markers) == ("Hm <channel|>", "Yes <channel|>")


def test_markers_without_tokens_are_told_by_text() -> None:
    assert shown_with_tokens(["[THINK]", "Hm", "[/THINK]", "Yes"], ()) == ("Hm", "Yes")
