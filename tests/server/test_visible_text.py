"""What clients see of a growing reply."""

from itertools import accumulate

import pytest

from rdchat.inference.api.events import FinishReason, ReplyEnd
from rdchat.inference.api.reply_statistics import Statistics
from rdchat.server.reply_parts import VisibleText
from rdchat.thoughts import MarkerTokens, markers_among


def shown(text: str, content: str | None = None, *, begun: bool = False, finish: FinishReason = FinishReason.EOS,
          **options: bool | str) -> tuple[str, str]:  # fmt: skip
    """Return thought and answer after a reply came letter by letter; what a client has never shrinks."""
    visible = VisibleText(**options)  # type: ignore[arg-type]
    visible.begun = begun
    pieces = [visible.add(letter) for letter in text]
    pieces.append(
        visible.finish(ReplyEnd(0, text, (), "", finish, Statistics(), content=text if content is None else content))
    )
    for which, whole in enumerate((visible.thought, visible.answer)):
        assert list(accumulate(piece[which] for piece in pieces))[-1] == whole
    return visible.thought, visible.answer


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
    assert shown("<think>x</think> y ", raw=True) == ("", "<think>x</think> y ")


def test_a_call_is_held_back() -> None:
    assert shown("So: <call>{}</call>", "So: ", call_marker="<call>") == ("", "So: ")
    assert shown("<call>{}</call>", "", call_marker="<call>") == ("", "")


def test_what_was_no_call_comes_at_the_end() -> None:
    for text in ("A <cal", "A <call> that is none", "A  "):
        assert shown(text, call_marker="<call>") == ("", text)


def test_all_is_held_back() -> None:
    visible = VisibleText(hold=True)
    assert visible.add("{}") == ("", "")
    assert visible.finish(ReplyEnd(0, "{}", (), "", FinishReason.EOS, Statistics(), content="{}")) == ("", "{}")


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
    assert shown(text, call_marker="<call>", shaped=True) == ("", text)


def test_a_thought_before_a_shape_that_was_cut_off() -> None:
    assert shown("Hm</thi", shaped=True, begun=True, finish=FinishReason.LENGTH) == ("Hm</thi", "")


THINK = frozenset({"<think>", "</think>"})


def shown_with_tokens(tokens: list[str], control: tuple[int, ...], markers: frozenset[str] = THINK, *,
                      begun: bool = False, content: tuple[int, int] | None = None) -> tuple[str, str]:  # fmt: skip
    """Return thought and answer of a reply that came token by token; `content` is what no call took, in tokens."""
    visible = VisibleText(call_marker="<call>")
    visible.begun, visible.tokens = begun, MarkerTokens(markers)
    begins = [0, *accumulate(map(len, tokens))]
    for index, token in enumerate(tokens):
        visible.tokens.offsets.update({begins[index]} if index in control else ())
        visible.add(token)
    text = "".join(tokens)
    first, last = content or (0, len(tokens))
    offsets = tuple(begins[index] - begins[first] for index in control if first <= index < last)
    end = ReplyEnd(0, text, (), "", FinishReason.EOS, Statistics(), content=text[begins[first] : begins[last]],
                   content_control_offsets=offsets)  # fmt: skip
    visible.finish(end)
    return visible.thought, visible.answer


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
    assert shown_with_tokens(tokens, (0, 2, 4), content=(0, 4)) == ("Hm", "So </think>")


def test_a_marker_that_begins_with_a_token() -> None:
    markers = markers_among(["<|channel>", "<channel|>", "<eos>"])
    assert markers == {"<|channel>thought", "<channel|>"}
    tokens = ["<|channel>", "thought", "\nHm <channel|>", "<channel|>", "Yes <channel|>"]
    assert shown_with_tokens(tokens, (0, 3), markers) == ("Hm <channel|>", "Yes <channel|>")


def test_markers_without_tokens_are_told_by_text() -> None:
    assert shown_with_tokens(["[THINK]", "Hm", "[/THINK]", "Yes"], ()) == ("Hm", "Yes")
